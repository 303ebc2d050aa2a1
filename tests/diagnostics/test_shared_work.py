"""Work that several diagnostics of one readout have in common is done once, with the same results."""

import pytest
import torch
from torch import nn

from lightning_ssl_geometry.diagnostics import (
    AlphaReQ,
    EffectiveRank,
    HardestNegativeDistance,
    LabelAgreement,
    LogSpectrum,
    UnexplainedVariance,
    accumulate,
    neighbors,
    shared_work,
    tangent,
)
from lightning_ssl_geometry.functional.info_nce.upper_bound import hardest_negative
from lightning_ssl_geometry.measuring import GeometryLoop
from lightning_ssl_geometry.measuring.failures import Failures
from lightning_ssl_geometry.measuring.readout import Readout, Rows
from lightning_ssl_geometry.observe.moment import Moment


class Counted:
    def __init__(self, function=torch.sum):
        self.calls, self.function = 0, function

    def __call__(self, *given):
        self.calls += 1
        return self.function(*given)


def test_a_result_is_remembered_for_equal_tensors_until_the_end_of_the_block():
    count, rows = Counted(), torch.arange(3.0)
    for calls in (1, 2):
        assert shared_work.once(count, rows) == 3
        assert count.calls == calls  # outside of a readout, nothing is remembered
    with shared_work.shared_work():
        assert [shared_work.once(count, rows.clone()) for _ in range(3)] == [3, 3, 3]
        assert count.calls == 3
    with shared_work.shared_work():
        shared_work.once(count, rows)
    assert count.calls == 4


@pytest.mark.parametrize(
    "other",
    [torch.arange(3.0) + 1, torch.arange(3.0).double(), torch.arange(4.0), torch.full((3,), torch.nan)],
    ids=["values", "dtype", "shape", "nan"],
)
def test_other_tensors_and_other_functions_have_results_of_their_own(other):
    count, another = Counted(), Counted(torch.max)
    with shared_work.shared_work():
        shared_work.once(count, torch.arange(3.0))
        result = shared_work.once(count, other)
        assert count.calls == 2
        assert torch.equal(result, other.sum()) or result.isnan()
        assert shared_work.once(another, torch.arange(3.0)) == 2
        if other.isnan().any():  # equal to nothing
            shared_work.once(count, other.clone())
            assert count.calls == 3


def test_diagnostics_of_the_same_rows_add_their_products_once_in_a_step(monkeypatch):
    counted, h = Counted(accumulate._sums), torch.randn(2, 600, 4)
    monkeypatch.setattr(accumulate, "_sums", counted)
    diagnostics = {"rank": EffectiveRank(), "spectrum": LogSpectrum(), "alpha": AlphaReQ(), "z": EffectiveRank()}
    with GeometryLoop(nn.Identity(), None, diagnostics, rename={"z": {"h": "z"}}) as loop:
        for step in range(2):
            with loop.step(stage="val") as seen:
                seen |= {"h": h + step, "z": h[..., :2] + step}
        logged = loop.read_out()
    assert counted.calls == 2 + 2  # h and z, in two steps
    alone = EffectiveRank()
    alone.update(torch.cat([h, h + 1], dim=1))
    torch.testing.assert_close(logged["val/rank"], alone.compute().item(), rtol=1e-12, atol=0)


def test_a_tensor_that_was_changed_in_place_has_a_new_result():
    count, rows = Counted(), torch.arange(3.0)
    with shared_work.shared_work():
        shared_work.once(count, rows)
        assert shared_work.once(count, rows.add_(1)) == 6
        assert shared_work.once(count, torch.arange(3.0)) == 3
        assert count.calls == 3
        with torch.inference_mode():
            inferred = torch.ones(2)
            assert [shared_work.once(count, inferred) for _ in range(2)] == [2, 2]
        assert count.calls == 4


def test_an_error_is_not_remembered_and_large_arguments_are_not_kept(monkeypatch):
    monkeypatch.setattr(shared_work, "_MOST", 16)
    count, failing = Counted(), Counted(lambda rows: 1 / 0)
    with pytest.raises(ZeroDivisionError), shared_work.shared_work():
        shared_work.once(failing, torch.ones(1))
    with shared_work.shared_work():
        for rows in (torch.ones(5), torch.ones(5), torch.ones(3), torch.ones(3), torch.ones(2), torch.ones(2)):
            shared_work.once(count, rows)
    assert count.calls == 5  # twice of 20 bytes, once of 12 bytes, and twice of 8 bytes that no longer fit


def test_a_readout_computes_eigenvalues_and_hardest_negatives_once_with_the_same_results(monkeypatch):
    generator = torch.Generator().manual_seed(0)
    h, projector = torch.randn(2, 64, 12, generator=generator), nn.Linear(12, 6, bias=False)
    z, label, index = projector(h).detach(), torch.arange(64) % 4, torch.arange(64)
    found, calls = [], []
    for remembers in (False, True):
        counted, eigvalsh = Counted(hardest_negative), Counted(torch.linalg.eigvalsh)
        with monkeypatch.context() as patched:
            for module in (neighbors, tangent):
                patched.setattr(module, "hardest_negative", counted)
            patched.setattr(torch.linalg, "eigvalsh", eigvalsh)
            if not remembers:
                patched.setattr(shared_work, "_MOST", -1)
            metrics = {"rank": EffectiveRank(), "spectrum": LogSpectrum(), "alpha": AlphaReQ(center=False)}
            for metric in metrics.values():
                metric.update(h)
            distance, agreement, unexplained = HardestNegativeDistance(), LabelAgreement(), UnexplainedVariance()
            distance.update(h, z, index)
            agreement.update(z, index, label=label)
            unexplained.update(h, z, index, projector=projector)
            metrics |= {"distance": distance, "agreement": agreement, "unexplained": unexplained}
            readout = Readout("a readout", Failures("raise"))
            result = readout(metrics, "val", Moment(0, 0), seen=Rows(64, 2), device=torch.device("cpu"))[0]
        found.append({f"{name}/{key}": value for name, each in result.items() for key, value in each.items()})
        calls.append((counted.calls, eigvalsh.calls))
    assert found[0].keys() == found[1].keys()
    assert all(torch.equal(found[0][name], found[1][name]) for name in found[0])
    (each, spectra), (once, spectrum) = calls
    assert each - once == 2
    assert spectra - spectrum == 2
