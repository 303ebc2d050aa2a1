"""Turn the tokens of a transformer, or a feature map, into one vector for each sample."""

__all__ = ["TOKENS", "Token", "read_tokens"]

from collections.abc import Callable
from typing import Literal, NamedTuple

from torch import Tensor

Token = Literal["cls", "mean", "patch_mean", "mean_nhwc", "flatten"]


class _Reading(NamedTuple):
    words: str  # for error messages
    axes: tuple[int, ...]  # numbers of axes that an output may have
    read: Callable[[Tensor], Tensor]


TOKENS: dict[str, _Reading] = {
    "cls": _Reading("the first token", (3,), lambda z: z[:, 0]),
    "mean": _Reading(
        "the mean over all tokens, or over all positions of a map (N, D, H, W)",
        (3, 4),
        lambda z: z.mean(1) if z.ndim == 3 else z.mean((2, 3)),
    ),
    "patch_mean": _Reading("the mean over all tokens but the first", (3,), lambda z: z[:, 1:].mean(1)),
    "mean_nhwc": _Reading(
        "the mean over all positions of a map (N, H, W, D)", (3, 4), lambda z: z.flatten(1, -2).mean(1)
    ),
    "flatten": _Reading("all numbers", (2, 3, 4, 5), lambda z: z.flatten(1)),
}


def read_tokens(output: Tensor, token: str, said: str) -> Tensor:
    """Return one vector (N, D) for each of N samples.

    Args:
        output: T tokens (N, T, D), a feature map (N, D, H, W), or (N, H, W, D) for "mean_nhwc".
        token: "cls": the first token. "mean": the mean over all tokens, or over all positions of a feature map.
            "patch_mean": the mean over all tokens but the first. "mean_nhwc": the mean over all positions of a feature
            map whose last axis is D, as in Swin transformers. "flatten": all numbers.
        said: What returned the output, for the error message.

    Raises:
        ValueError: If the output has another number of axes, or too few tokens.

    >>> import torch
    >>> read_tokens(torch.ones(4, 7, 3), "mean", "`encoder`").shape
    torch.Size([4, 3])
    """
    known = TOKENS[token]
    if output.ndim not in known.axes or (output.ndim == 3 and output.shape[1] < 1 + (token == "patch_mean")):
        shapes = {3: "tokens (N, T, D)", 4: "a map (N, D, H, W)"}
        expected = " or ".join(shapes[ndim] for ndim in known.axes if ndim in shapes)
        raise ValueError(f"Expected {said} to return {expected} for {token!r}, but got {tuple(output.shape)}.")
    return known.read(output)
