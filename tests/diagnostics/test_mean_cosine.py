import pytest
import torch

from lightning_ssl_geometry.diagnostics import ClassMeanCosine, MeanCosine, UndefinedWarning
from lightning_ssl_geometry.functional import class_mean_cosine, mean_cosine


def test_it_is_the_function_of_all_rows():
    h, label = torch.randn(50, 6, dtype=torch.float64) + 1, torch.arange(50) % 4
    whole, classes = MeanCosine(), ClassMeanCosine()
    for rows, labels in zip(h.split(17), label.split(17), strict=True):
        whole.update(rows)
        classes.update(rows, labels)
    assert whole.compute().item() == pytest.approx(mean_cosine(h).item(), rel=1e-12)
    found = classes.compute()
    assert found["largest"].item() == pytest.approx(class_mean_cosine(h, label).max().item(), rel=1e-12)
    assert found["collapsed"] == 0


def test_views_are_averaged_over_pairs_of_samples():
    """Views of one sample are never a pair, however equal they are."""
    h = torch.randn(3, 20, 5, dtype=torch.float64)
    metric = MeanCosine()
    metric.update(h)
    unit = torch.nn.functional.normalize(h, dim=-1)
    cosines = torch.einsum("aid,bjd->abij", unit, unit)
    other = ~torch.eye(20, dtype=torch.bool)
    assert metric.compute().item() == pytest.approx(cosines[..., other].mean().item(), rel=1e-12)


def test_a_class_that_collapses_is_counted():
    h, label = torch.randn(40, 8), torch.arange(40) % 4
    h[label == 2] = torch.arange(8.0) + 1e-3 * torch.randn(10, 8)
    metric = ClassMeanCosine()
    metric.update(h, label)
    found = metric.compute()
    assert found["largest"] > 0.999
    assert found["collapsed"] == 1


def test_rows_without_direction_have_none():
    whole, classes = MeanCosine(), ClassMeanCosine()
    whole.update(torch.zeros(4, 3))
    classes.update(torch.randn(3, 3), torch.arange(3))
    with pytest.warns(UndefinedWarning, match="all of `h` is 0"):
        assert whole.compute().isnan()
    with pytest.warns(UndefinedWarning, match="no class of `h` has two samples"):
        assert classes.compute()["largest"].isnan()


def test_wrong_shapes_are_refused():
    with pytest.raises(ValueError, match=r"Expected `h` of shape \(V, N, D\) or \(N, D\), but got \(3,\)"):
        MeanCosine().update(torch.ones(3))
    with pytest.raises(ValueError, match=r"and `label` of shape \(N,\), but got \(4, 2\), \(3,\)"):
        ClassMeanCosine().update(torch.ones(4, 2), torch.zeros(3).long())
    metric = MeanCosine()
    metric.update(torch.ones(1, 3))
    with pytest.raises(ValueError, match="Expected MeanCosine to have observed at least 2 samples, but got 1"):
        metric.compute()
