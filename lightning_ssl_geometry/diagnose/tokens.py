"""Turn the tokens of a transformer, or a feature map, into one vector for each image."""

__all__ = ["Token", "vectors_of"]

from typing import Literal

from torch import Tensor

Token = Literal["cls", "mean", "mean_nhwc"]


def vectors_of(output: object, token: Token | None, name: str, n: int) -> Tensor:
    """Return a layer's output as vectors (n, D), one for each image.

    Args:
        output: (n, D) and (n, D, 1, 1) hold the vectors already. (n, T, D) are T tokens. (n, D, H, W) and, for
            "mean_nhwc", (n, H, W, D) are feature maps.
        token: "cls": the first token. "mean": the mean over all tokens, or over all positions of a feature map.
            "mean_nhwc": the same, where the last axis of feature maps is D, as in Swin transformers. None: only vectors
            are allowed.
        name: Name of the layer, for the error message.
        n: Number of images.

    Raises:
        ValueError: If the output has another shape, or needs a `token` that was not given.
    """
    if not isinstance(output, Tensor) or output.ndim < 2 or len(output) != n:
        raise ValueError(_expected(name, output))
    z = output
    if z[0].numel() == z.shape[1]:
        return z.flatten(1)
    if token == "cls" and z.ndim == 3:
        return z[:, 0]
    if token == "mean_nhwc" and z.ndim in (3, 4):
        return z.flatten(1, -2).mean(1)
    if token == "mean" and z.ndim in (3, 4):
        return z.mean(1) if z.ndim == 3 else z.mean((2, 3))
    raise ValueError(_expected(name, z))


_CHOICES = {
    3: ", or choose a `token` of (N, T, D): 'cls', the first one, or 'mean', the mean over all",
    4: ", or the `token` 'mean', the mean over the positions of (N, D, H, W)",
}


def _expected(name: str, z: object) -> str:
    what, ndim = (tuple(z.shape), z.ndim) if isinstance(z, Tensor) else (type(z).__name__, 0)
    return (
        f"Expected `{name}` to return (N, D) or (N, D, 1, 1), but got {what}. Name a submodule that does by `backbone` "
        f"or `layer`{_CHOICES.get(ndim, '')}."
    )
