import pytest
import torch
from torch.nn.functional import cosine_similarity

from lightning_ssl_geometry.functional import class_mean_cosine, mean_cosine


def loop(h):
    pairs = [(i, j) for i in range(len(h)) for j in range(len(h)) if i != j]
    return sum(cosine_similarity(h[i], h[j], dim=0, eps=0) for i, j in pairs) / len(pairs)


def test_it_is_the_mean_over_pairs():
    h = torch.randn(9, 4, dtype=torch.float64) + torch.tensor([2.0, 0.0, 0.0, 0.0])
    assert mean_cosine(h).item() == pytest.approx(loop(h).item(), rel=1e-12)
    assert mean_cosine(1e200 * h).item() == pytest.approx(loop(h).item(), rel=1e-12)
    assert mean_cosine(torch.cat([h, h[:1] * 0])).item() == pytest.approx(loop(h).item() * 72 / 90, rel=1e-12)


def test_the_ends():
    one, simplex = torch.ones(5, 3), torch.eye(5) - 1 / 5
    assert mean_cosine(one).item() == pytest.approx(1, abs=1e-15)
    assert mean_cosine(simplex).item() == pytest.approx(-1 / 4, rel=1e-6)
    torch.manual_seed(0)
    assert abs(mean_cosine(torch.randn(500, 64)).item()) < 0.01


def test_classes_are_in_the_order_of_the_labels():
    h, label = torch.randn(12, 4, dtype=torch.float64), torch.tensor([7, 2, 2, 7, 7, 9, 2, 2, 7, 5, 5, 2])
    found = class_mean_cosine(h, label)
    for place, number in enumerate((2, 5, 7)):
        assert found[place].item() == pytest.approx(loop(h[label == number]).item(), rel=1e-12)
    assert found[3].isnan()  # a single row


def test_two_rows_are_enough():
    h = torch.tensor([[1.0, 0.0], [3.0, 4.0]], dtype=torch.float64)
    assert mean_cosine(h).item() == pytest.approx(0.6)
    assert class_mean_cosine(h, torch.tensor([5, 5])).tolist() == pytest.approx([0.6])


@pytest.mark.parametrize("h", [torch.ones(1, 3), torch.ones(3), torch.ones(2, 3, 4)])
def test_wrong_shapes_are_refused(h):
    with pytest.raises(ValueError, match="Expected"):
        mean_cosine(h)
    with pytest.raises(ValueError, match="Expected"):
        class_mean_cosine(h, torch.zeros(len(h)).long())


def test_as_many_labels_as_rows_are_needed():
    with pytest.raises(ValueError, match=r"Expected `label` of shape \(N,\), N = 4, but got \(3,\)"):
        class_mean_cosine(torch.ones(4, 2), torch.zeros(3).long())
