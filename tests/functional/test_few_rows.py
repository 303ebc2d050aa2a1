"""Eigenvalues of second moments of few rows: the same as from a full decomposition, without its cost."""

import pytest
import torch

from lightning_ssl_geometry.diagnostics import AlphaReQ, EffectiveRank, LogSpectrum
from lightning_ssl_geometry.functional import log_singular_values
from lightning_ssl_geometry.functional.few_rows import few_rows_eigenvalues
from lightning_ssl_geometry.functional.rounding import moments_floor

DIM, ROWS = 256, 40


def cloud(kind, dtype):
    h = torch.randn(ROWS, DIM, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    changed = {
        "plain": h,
        "decaying": h * torch.arange(1, DIM + 1) ** -1.5,
        "one huge dimension": h * torch.cat([torch.tensor([1e4]), torch.ones(DIM - 1)]),
        "far from 0": h + 1e3,
        "repeated rows": h[torch.arange(ROWS) // 4],
        "one row": h[:1].expand(ROWS, DIM),
        "dead dimensions": h * (torch.arange(DIM) % 16 == 0),
        "zero": 0 * h,
    }
    return changed[kind].to(dtype)


@pytest.mark.parametrize("center", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    "kind",
    [
        *("plain", "decaying", "one huge dimension", "far from 0"),
        *("repeated rows", "one row", "dead dimensions", "zero"),
    ],
)
def test_the_eigenvalues_are_those_of_the_rows_but_for_rounding(kind, dtype, center):
    h = cloud(kind, dtype).double()
    outer, rows, mean = h.T @ h, torch.tensor(float(ROWS)), h.mean(0)
    noise = moments_floor(rows, outer, torch.tensor(0.0))
    moments = outer / ROWS - (torch.outer(mean, mean) if center else 0.0)
    found = few_rows_eigenvalues(moments, ROWS, noise=noise)
    expected = torch.linalg.svdvals(h - mean if center else h).square() / ROWS
    assert found.shape == (DIM,)
    assert (found[:ROWS] - expected).abs().max() <= noise / 4
    assert not found[ROWS:].any()
    assert (found[:-1] >= found[1:]).all()


def test_what_is_left_ends_the_steps_at_a_quarter_of_the_noise():
    noise = torch.tensor(0.4, dtype=torch.float64)
    for left, expected in ((0.09, 0.0), (0.11, 0.11)):
        found = few_rows_eigenvalues(torch.diag(torch.tensor([2.0, left], dtype=torch.float64)), 2, noise=noise)
        assert found.tolist() == pytest.approx([2.0, expected])


@pytest.mark.parametrize("rows", [ROWS, DIM // 4, DIM // 4 + 1, DIM + 1])
@pytest.mark.parametrize("kind", [EffectiveRank, LogSpectrum, AlphaReQ])
def test_a_diagnostic_decomposes_no_larger_matrix_than_its_rows_need(kind, rows, monkeypatch):
    sides, whole = [], torch.linalg.eigvalsh
    monkeypatch.setattr(torch.linalg, "eigvalsh", lambda matrix: (sides.append(len(matrix)), whole(matrix))[1])
    metric = kind()
    metric.update(torch.randn(rows, DIM, generator=torch.Generator().manual_seed(0)))
    metric.compute()
    assert sides == [rows if 4 * rows <= DIM else DIM]


def test_few_rows_have_the_spectrum_of_their_matrix():
    h = cloud("decaying", torch.float64)
    metric = LogSpectrum()
    metric.update(h)
    found = metric.compute()
    torch.testing.assert_close(found[:ROWS], log_singular_values(h))
    assert found[ROWS:].isneginf().all()
