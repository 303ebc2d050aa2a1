import numpy as np
import pytest
import torch

from lightning_ssl_geometry.functional import class_blocks, kernel_cosine, kernel_target_alignment, normalized_kernel

LABEL = torch.tensor([0, 0, 0, 1, 1, 2, 2, 2, 2])


def gram(n=9, width=4):
    a = torch.randn(n, width, dtype=torch.float64)
    return a @ a.T


def same(label):
    return (label[:, None] == label).double()


@pytest.mark.parametrize("label", [LABEL, LABEL.clamp(max=1)])
def test_the_labels_own_kernel_is_aligned_with_them(label):
    one = torch.ones((), dtype=torch.float64)
    torch.testing.assert_close(kernel_target_alignment(same(label), label), one)
    torch.testing.assert_close(kernel_target_alignment(7 * same(label) + 3, label), one)  # scale and constant
    order = torch.randperm(9)
    torch.testing.assert_close(kernel_target_alignment(same(label)[order][:, order], label[order]), one)


def test_two_classes_without_centring_are_cristianinis():
    kernel, label = gram(), LABEL.clamp(max=1)
    y = 2 * label.double() - 1
    expected = y @ kernel @ y / (9 * kernel.norm())  # Definition 1: |y y'| = n
    torch.testing.assert_close(kernel_target_alignment(kernel, label, center=False), expected)
    torch.testing.assert_close(
        kernel_target_alignment(torch.outer(y, y), label, center=False), torch.ones_like(expected)
    )


def test_of_three_classes_other_pairs_have_minus_a_half():
    target = torch.where(LABEL[:, None] == LABEL, 1.0, -0.5).double()
    kernel = gram()
    expected = (kernel * target).sum() / (kernel.norm() * target.norm())
    torch.testing.assert_close(kernel_target_alignment(kernel, LABEL, center=False), expected)


def test_centred_it_is_the_cosine_of_centred_kernels():
    kernel, centre = gram(), torch.eye(9, dtype=torch.float64) - 1 / 9
    a, b = centre @ kernel @ centre, centre @ same(LABEL) @ centre
    found = kernel_target_alignment(kernel, LABEL)
    torch.testing.assert_close(found, (a * b).sum() / (a.norm() * b.norm()))
    assert 0 <= found <= 1
    torch.testing.assert_close(kernel_target_alignment(kernel, 5 - LABEL), found)  # names of classes do not matter


def test_a_kernel_that_knows_nothing_of_the_classes():
    label = torch.arange(4).repeat_interleave(2)
    signs = torch.tensor([1.0, -1.0] * 4)  # orthogonal to every class
    assert abs(kernel_target_alignment(torch.outer(signs, signs), label).item()) < 1e-15
    for flat in (torch.ones(8, 8), torch.zeros(8, 8), torch.full((8, 8), torch.nan)):
        assert kernel_target_alignment(flat, label).isnan()


def test_blocks_are_the_slow_means():
    kernel = gram()
    found = class_blocks(kernel, LABEL)
    for a, b in np.ndindex(3, 3):
        pairs = [kernel[i, j] for i in range(9) for j in range(9) if i != j and (LABEL[i], LABEL[j]) == (a, b)]
        assert found[a, b].item() == pytest.approx(np.mean(pairs))


def test_classes_without_pairs_have_no_mean():
    found = class_blocks(gram(3), torch.tensor([0, 0, 2]))
    assert found.isnan().tolist() == [[False, True, False], [True, True, True], [False, True, True]]


def test_a_normalised_kernel_is_that_of_unit_vectors():
    a = torch.randn(6, 3, dtype=torch.float64)
    u = a / a.norm(dim=1, keepdim=True)
    torch.testing.assert_close(normalized_kernel(a @ a.T), u @ u.T)
    assert normalized_kernel(torch.diag(torch.tensor([1.0, 0.0]))).isnan().tolist() == [[False, True], [True, True]]


def test_the_cosine_of_kernels():
    a, b = gram(), gram()
    assert kernel_cosine(a, 3 * a).item() == pytest.approx(1)
    assert kernel_cosine(a, b).item() == pytest.approx(kernel_cosine(b, a).item())
    assert 0 < kernel_cosine(a, b) < 1
    assert kernel_cosine(a, -a).item() == pytest.approx(-1)
    assert kernel_cosine(a, 0 * a).isnan()


BAD = [
    (lambda: kernel_target_alignment(torch.ones(9, 8), LABEL), r"Expected `kernel` of shape \(n, n\).* \(9, 8\)"),
    (lambda: class_blocks(torch.ones(9, 8), LABEL), r"Expected `kernel` of shape \(n, n\).* \(9, 8\)"),
    (lambda: kernel_target_alignment(torch.ones(8, 8), LABEL), r"Expected `label` of shape \(n,\), n = 8, .* \(9,\)"),
    (lambda: class_blocks(torch.ones(8, 8), LABEL), r"Expected `label` of shape \(n,\), n = 8, but got \(9,\)"),
    (lambda: kernel_target_alignment(gram(), 0 * LABEL), "Expected `label` of at least 2 classes, but got 1"),
    (lambda: class_blocks(gram(), LABEL - 1), "Expected `label` >= 0, but got -1"),
    (lambda: class_blocks(torch.ones(0, 0), LABEL[:0]), "Expected `n` >= 1, but got 0"),
    (lambda: normalized_kernel(torch.ones(0, 0)), "Expected `n` >= 1, but got 0"),
    (lambda: kernel_cosine(torch.ones(2, 2), torch.ones(3, 3)), r"Expected `other` of shape \(n, n\).* \(3, 3\)"),
]


@pytest.mark.parametrize(("call", "message"), BAD)
def test_what_does_not_fit(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def ring():
    """51 points on a ring: 1 for the five neighbours on each side, -1 for the next five."""
    step = (torch.arange(51)[:, None] - torch.arange(51)).remainder(51)
    step = torch.minimum(step, 51 - step)
    return ((step > 0) & (step <= 5)).double() - ((step > 5) & (step <= 10)).double()


def test_a_kernel_in_float64_varies_from_1e_12_of_its_norm_on():
    label = torch.arange(51) % 3
    for share, nan in ((0.9e-12, True), (1.5e-12, False)):
        kernel = 1 + share * 51 / 1020**0.5 * ring()  # |S|^2 = 1020, and |1|^2 = 51^2
        assert kernel_target_alignment(kernel, label).isnan() == nan


def test_a_kernel_whose_variation_is_exactly_the_rounding_bound_is_not_aligned():
    # 10 + S, where each of 51 rows of S has ten times 1 and ten times -1: |S|^2 = 1020, |10 + S|^2 = 256 * 1020. The
    # bound for bfloat16 is 8 eps = 1 / 16.
    s, label = ring(), torch.arange(51) % 3
    assert kernel_target_alignment((10 + s).bfloat16(), label).isnan()
    assert kernel_target_alignment((9.9375 + s).bfloat16(), label).isfinite()


def test_the_rounding_of_equal_samples_is_no_alignment():
    steps = torch.randint(-1, 2, (12, 12), generator=torch.Generator().manual_seed(0))
    kernel, label = 0.3 * (1 + (steps + steps.T) * 2.0**-24), torch.arange(12) % 3
    assert kernel_target_alignment(kernel, label).isnan()
    assert kernel_target_alignment(kernel.double(), label).isfinite()  # in float64 these are values
