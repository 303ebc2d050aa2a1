import pytest
import torch

from lightning_ssl_geometry.diagnose.tokens import vectors_of

torch.manual_seed(0)
VECTORS, TOKENS, MAP = torch.randn(5, 7), torch.randn(5, 3, 7), torch.randn(5, 7, 2, 4)


@pytest.mark.parametrize(
    ("output", "token", "expected"),
    [
        (VECTORS, None, VECTORS),
        (VECTORS[:, :, None, None], None, VECTORS),
        (VECTORS, "cls", VECTORS),
        (TOKENS, "cls", TOKENS[:, 0]),
        (TOKENS, "mean", sum(TOKENS.unbind(1)) / 3),
        (TOKENS, "mean_nhwc", sum(TOKENS.unbind(1)) / 3),
        (MAP, "mean", MAP.sum((2, 3)) / 8),
        (MAP.movedim(1, 3), "mean_nhwc", MAP.sum((2, 3)) / 8),
    ],
)
def test_vectors(output, token, expected):
    torch.testing.assert_close(vectors_of(output, token, "layer", n=5), expected)


@pytest.mark.parametrize(
    ("output", "token", "message"),
    [
        (
            TOKENS,
            None,
            r"`layer` to return \(N, D\) .*, but got \(5, 3, 7\)\. .* `token`: 'cls' \(the first token\), 'mean'",
        ),
        (MAP, None, r"but got \(5, 7, 2, 4\)\. .* `token`: 'mean' \(.* over all positions of a map \(N, D, H, W\)\)"),
        (MAP, "cls", r"`layer` to return tokens \(N, T, D\) for 'cls', but got \(5, 7, 2, 4\)"),
        (VECTORS[:4], "mean", r"but got \(4, 7\)\. Name a submodule that does by `backbone` or `layer`\.$"),
        (VECTORS[0], "mean", r"but got \(7,\)"),
        (TOKENS[..., None, None], "mean", r"but got \(5, 3, 7, 1, 1\)"),
        ((TOKENS,), "mean", "but got tuple"),
    ],
)
def test_other_outputs_are_refused(output, token, message):
    with pytest.raises(ValueError, match=message):
        vectors_of(output, token, "layer", n=5)
