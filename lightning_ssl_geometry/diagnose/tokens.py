"""Check that a network of a diagnosis returns one vector for each image, or make one of its tokens."""

__all__ = ["vectors_of"]

from torch import Tensor

from lightning_ssl_geometry.observe.tokens import TOKENS, Token, read_tokens


def vectors_of(output: object, token: Token | None, name: str, n: int) -> Tensor:
    """Return a layer's output as vectors (n, D), one for each image.

    Args:
        output: (n, D) or (n, D, 1, 1) hold the vectors already. :func:`read_tokens` makes them of other shapes.
        token: The argument `token` of :func:`read_tokens`. None: only vectors are allowed.
        name: Name of the layer, for the error message.
        n: Number of images.

    Raises:
        ValueError: If the output has another shape, or needs a `token` that was not given.
    """
    if not isinstance(output, Tensor) or output.ndim < 2 or len(output) != n:
        raise ValueError(_expected(name, output))
    if output[0].numel() == output.shape[1]:
        return output.flatten(1)
    if token is None:
        raise ValueError(_expected(name, output))
    return read_tokens(output, token, f"`{name}`")


def _expected(name: str, z: object) -> str:
    what, ndim = (tuple(z.shape), z.ndim) if isinstance(z, Tensor) else (type(z).__name__, 0)
    choices = ", ".join(f"{token!r} ({each.words})" for token, each in TOKENS.items() if ndim in each.axes)
    return (
        f"Expected `{name}` to return (N, D) or (N, D, 1, 1), but got {what}. Name a submodule that does by `backbone` "
        f"or `layer`{f', or choose a `token`: {choices}' if ndim > 2 else ''}."
    )
