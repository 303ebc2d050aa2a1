"""The measures of other papers that users expect: how they stream, and what they do where a function is an error."""

import copy
import inspect

import pytest
import torch

from lightning_ssl_geometry.diagnostics import AlphaReQ, CKADrift, IntrinsicDimension, LiDAR, SIGReg
from lightning_ssl_geometry.diagnostics.undefined import UndefinedWarning
from lightning_ssl_geometry.functional.alpha_req import alpha_req
from lightning_ssl_geometry.functional.cka import linear_cka
from lightning_ssl_geometry.functional.intrinsic_dimension import mle_dimension, two_nn_dimension
from lightning_ssl_geometry.functional.lidar import lidar
from lightning_ssl_geometry.functional.sigreg import sigreg

V, N, D = 3, 60, 6
METRICS = {
    "alpha_req": AlphaReQ(),
    "alpha_req_weighted": AlphaReQ(2, 5, center=False, weighted=True),
    "lidar": LiDAR(),
    "dimension": IntrinsicDimension(neighbors=9),
    "dimension_of_20": IntrinsicDimension(neighbors=9, contrast_size=20),
    "cka_drift": CKADrift(),
    "cka_drift_of_20": CKADrift(unbiased=True, contrast_size=20),
    "sigreg": SIGReg(),
    "sigreg_of_20": SIGReg(30, standardize=True, contrast_size=20, seed=4),
}


def data(n=N):
    generator = torch.Generator().manual_seed(1)
    h = torch.randn(n, D, generator=generator, dtype=torch.float64) * torch.linspace(0.3, 2, D) + 0.3
    return h + 0.2 * torch.randn(V, n, D, generator=generator, dtype=torch.float64), torch.arange(n) * 7


def update(metric, h, index):
    given = {"h": h, "z": h, "index": index}
    metric.update(**{name: given[name] for name in inspect.signature(metric.update).parameters})


def fed(metric, h, index, chunks):
    metric = copy.deepcopy(metric)
    if isinstance(metric, CKADrift):  # a readout to compare with
        update(metric, h.sin(), index)
        metric.compute()
        metric.reset()
    for rows in chunks:
        update(metric, h[:, rows], index[rows])
    return metric


def close(found, expected):
    torch.testing.assert_close(found, expected, equal_nan=False)


def test_they_agree_with_the_functions():
    h, index = data()
    whole = [torch.arange(N)]
    expected = alpha_req(h)._asdict()
    close(fed(AlphaReQ(), h, index, whole).compute(), {k: torch.as_tensor(v).double() for k, v in expected.items()})
    expected = alpha_req(h, 2, 6, center=False, weighted=True)
    found = fed(AlphaReQ(2, 6, center=False, weighted=True), h, index, whole).compute()
    close((found["alpha"], found["r2"]), (expected.alpha, expected.r2))
    close(fed(LiDAR(delta=0.1), h, index, whole).compute(), lidar(h, delta=0.1))
    found = fed(IntrinsicDimension(7, 0.2), h, index, whole).compute()
    close(found, {"two_nn": two_nn_dimension(h[0], discard=0.2), "mle": mle_dimension(h[0], 7)})
    drift = linear_cka(h[0], h[0].sin())
    close(fed(CKADrift(), h, index, whole).compute(), {"first": drift, "last": drift})
    generators = (torch.Generator().manual_seed(3) for _ in range(V))
    expected = torch.stack([sigreg(z, 40, generator=g) for z, g in zip(h, generators, strict=True)]).mean()
    close(fed(SIGReg(40, seed=3), h, index, whole).compute(), expected)


@pytest.mark.parametrize("name", ["dimension", "cka_drift", "sigreg"])
def test_one_representation_for_each_sample_counts_as_one_view(name):
    h, index = data()
    metric = fed(METRICS[name], h[:1], index, [])
    update(metric, h[0], index)
    close(metric.compute(), fed(METRICS[name], h[:1], index, [torch.arange(N)]).compute())


@pytest.mark.parametrize("name", METRICS)
def test_representations_that_are_all_equal_give_a_number_or_nan_but_no_error(name):
    metric = fed(METRICS[name], data()[0], data()[1], [])
    update(metric, torch.full((V, N, D), 0.3), torch.arange(N) * 7)
    found = metric.compute()
    if name != "sigreg":  # which has a value for a point, too
        values = found.values() if isinstance(found, dict) else [found]
        assert any(value.isnan() for value in values)


def test_a_range_that_reaches_rounding_gives_nan_and_says_which():
    h, index = data()
    flat = torch.cat([h, torch.zeros(V, N, 34)], dim=2)
    found = fed(AlphaReQ(1, 12), flat, index, [torch.arange(N)]).compute()
    assert found["alpha"].isnan()
    assert found["r2"].isnan()
    assert (found["first"], found["last"]) == (1, 12)
    assert fed(AlphaReQ(1, 6), flat, index, [torch.arange(N)]).compute()["alpha"] > 0
    rounded = (h.float() * 1e-3 + 1).double()  # a mean far from 0: rounding of the mean's square, not of the variance
    assert fed(AlphaReQ(1, 6), rounded, index, torch.arange(N).split(9)).compute()["alpha"] > 0


@pytest.mark.filterwarnings("ignore:The ``compute`` method")
def test_too_few_rows_give_nan():
    found = AlphaReQ()
    found.update(torch.randn(1, 3, 8))
    assert all(value.isnan() for value in found.compute().values())
    found = IntrinsicDimension(neighbors=5)
    found.update(torch.randn(1, 2, 8), torch.arange(2))
    assert all(value.isnan() for value in found.compute().values())
    found.update(torch.randn(1, 17, 8), torch.arange(2, 19))
    assert all(value.isnan() for value in found.compute().values())  # 19 points
    found.update(torch.randn(1, 1, 8), torch.arange(19, 20))
    assert all(value.isfinite() for value in found.compute().values())
    found = IntrinsicDimension(neighbors=30)
    found.update(torch.randn(1, 30, 8), torch.arange(30))
    assert found.compute()["two_nn"].isfinite()
    assert found.compute()["mle"].isnan()


def test_repeated_points_count_once():
    h, _ = data()
    twice = torch.cat([h, h], dim=1)
    found = fed(IntrinsicDimension(), twice, torch.arange(2 * N), [torch.arange(2 * N)]).compute()
    close(found, {"two_nn": two_nn_dimension(h[0]), "mle": mle_dimension(h[0], 20)})
    repeated = h[:, :19].repeat(1, 4, 1)  # 76 samples, 19 points
    metric = fed(IntrinsicDimension(), repeated, torch.arange(76), [torch.arange(76)])
    with pytest.warns(UndefinedWarning, match="IntrinsicDimension is NaN: 19 distinct points of `h` are too few"):
        assert all(value.isnan() for value in metric.compute().values())


def drift_over(metric, readouts, index):
    found = []
    for h in readouts:
        metric.reset()  # as at the start of an epoch
        update(metric, h, index)
        found.append(metric.compute())
        metric.reset()
    return found


def test_drift_is_from_the_first_and_from_the_last_readout():
    h, index = data()
    readouts = [h, h + 0.5 * h.sin(), h.cos()]
    found = drift_over(CKADrift(), readouts, index)
    assert found[0]["first"].isnan()
    assert found[0]["last"].isnan()
    close(found[1]["first"], linear_cka(readouts[1][0], h[0]))
    close(found[1]["last"], found[1]["first"])
    close(found[2]["first"], linear_cka(readouts[2][0], h[0]))
    close(found[2]["last"], linear_cka(readouts[2][0], readouts[1][0]))


def test_drift_survives_a_copy_and_widths_that_change_but_not_other_samples():
    h, index = data()
    metric = CKADrift()
    drift_over(metric, [h.float()], index)
    again = copy.deepcopy(metric)
    close(drift_over(again, [h[..., :4].float()], index)[0]["first"], linear_cka(h[0].float(), h[0, :, :4].float()))
    assert drift_over(CKADrift(), [h], index)[0]["first"].isnan()  # a new one begins anew
    with pytest.raises(ValueError, match="the same 60 samples at every readout, but got 60, of which 59 are the same"):
        drift_over(metric, [h], torch.cat([index[1:], index[-1:] + 1]))
    with pytest.raises(ValueError, match="but got 50, of which 50 are the same"):
        drift_over(copy.deepcopy(again), [h[:, :50]], index[:50])


def test_drift_of_what_was_seen_in_inference_mode():
    h, index = data()
    metric = CKADrift()
    with torch.inference_mode():
        drift_over(metric, [h], index)
    again = copy.deepcopy(metric)
    with torch.inference_mode():
        for each in (metric, again):
            close(drift_over(each, [h], index)[0]["last"], torch.ones((), dtype=torch.float64))


def test_drift_computed_twice_in_one_readout_is_one_readout():
    h, index = data()
    metric = CKADrift()
    update(metric, h[:, :30], index[:30])
    metric.compute()
    update(metric, h[:, 30:], index[30:])
    assert metric.compute()["first"].isnan()
    metric.reset()
    close(drift_over(metric, [h], index)[0]["first"], torch.ones((), dtype=torch.float64))


def test_an_isotropic_gaussian_a_sphere_and_a_point():
    generator = torch.Generator().manual_seed(0)
    z, index = torch.randn(1, 1000, 16, generator=generator), torch.arange(1000)
    unit = torch.nn.functional.normalize(z, dim=2)
    found = {name: fed(SIGReg(), cloud, index, [index]).compute() for name, cloud in (("z", z), ("unit", unit))}
    assert found["z"] < 2.5
    assert found["unit"] > 100
    assert fed(SIGReg(standardize=True), unit, index, [index]).compute() < 2.5
    assert fed(SIGReg(), 0 * z, index, [index]).compute().item() == pytest.approx(408.95, rel=1e-3)


def computed(metric, *observations):
    for observation in observations:
        metric.update(observation)
    return metric.compute()


ROWS, THREE, FOUR = torch.randn(2, 5, 3), torch.ones(3, 5, 3), torch.arange(4)
LENGTH, MISFIT = "the length of the spectrum", r"`h` with N rows and `index` of shape \(N,\), but got \(5, 3\), \(4,\)"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: AlphaReQ(3, 4), f"`last` <= 4, {LENGTH}, but got 3 and 4"),
        (lambda: LiDAR(delta=0), "`delta` > 0, but got 0"),
        (lambda: LiDAR(delta=float("nan")), "`delta` > 0, but got nan"),
        (lambda: IntrinsicDimension(1, contrast_size=20), r"`neighbors` in \[2, 20\), but got 1"),
        (lambda: IntrinsicDimension(20, contrast_size=20), r"`neighbors` in \[2, 20\), but got 20"),
        (lambda: IntrinsicDimension(discard=1), r"`discard` in \(0, 1\), but got 1"),
        (lambda: CKADrift(unbiased=True, contrast_size=3), "`contrast_size` >= 4, but got 3"),
        (lambda: SIGReg(num_slices=0), "`num_slices` >= 1, but got 0"),
        (lambda: computed(AlphaReQ(2, 40), torch.eye(90, 6)[None]), f"`last` <= 6, {LENGTH}, but got 2 and 40"),
        (lambda: computed(LiDAR(), torch.ones(1, 5, 3)), r"V >= 2 views, but got \(1, 5, 3\)"),
        (lambda: computed(LiDAR(), ROWS[:, :1]), "at least 2 samples, but got 1"),
        (lambda: computed(LiDAR(), ROWS, THREE), "`h` with 2 views, as before, but got 3"),
        (lambda: IntrinsicDimension().update(ROWS, FOUR), MISFIT),
        (lambda: CKADrift().update(ROWS, FOUR), MISFIT),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_after_a_reset_another_number_of_views_is_right():
    metric = LiDAR()
    metric.update(ROWS)
    metric.reset()
    metric.update(THREE)


def test_the_rounding_of_float32_features_is_no_spectrum():
    generator = torch.Generator().manual_seed(2)
    thin = torch.randn(500, 5, generator=generator) @ torch.randn(5, 40, generator=generator) + 1
    for last, known in ((5, True), (6, False)):
        metric = AlphaReQ(1, last)
        metric.update(thin)
        assert metric.compute()["alpha"].isfinite() == known
