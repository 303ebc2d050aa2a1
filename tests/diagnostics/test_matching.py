import pytest
import torch

from lightning_ssl_geometry.diagnostics.latents import fitted_half
from lightning_ssl_geometry.diagnostics.matching import MeanCorrelationCoefficient, TemperatureOrder
from lightning_ssl_geometry.functional.latent_r2 import latent_r2
from lightning_ssl_geometry.functional.matching import mean_correlation

N = 400
CONTENT = torch.tensor([True, False, True, False])
TEMPERATURE = torch.tensor([0.1, 0.5, 0.1, 2.0, 0.5])


def data(mix=0.3):
    """Outputs 0 and 2 are mostly content, 1 and 3 mostly style, and the last one is constant."""
    generator = torch.Generator().manual_seed(1)
    latent = torch.rand(2, N, 4, generator=generator, dtype=torch.float64)
    z = latent + mix * torch.randn(2, N, 4, generator=generator, dtype=torch.float64) + mix * latent.mean(2, True)
    return {
        "z": torch.cat([z, torch.full((2, N, 1), 0.3)], 2),
        "latent": latent,
        "content": CONTENT,
        "index": torch.arange(N) * 5,
        "temperature": TEMPERATURE,
    }


def fed(metric, chunks=None, **change):
    given = data() | change
    names = ("z", "latent", "content") if isinstance(metric, MeanCorrelationCoefficient) else tuple(given)
    for rows in [torch.arange(N)] if chunks is None else chunks:
        cut = {"z": given["z"][:, rows], "latent": given["latent"][:, rows], "index": given["index"][rows]}
        metric.update(**{name: cut.get(name, given[name]) for name in names})
    return metric


def close(found, expected):
    torch.testing.assert_close(found, expected, equal_nan=True)


METRICS = {"mcc": MeanCorrelationCoefficient, "order": TemperatureOrder}


@pytest.mark.parametrize("name", METRICS)
def test_it_does_not_depend_on_batches_or_order(name):
    once = fed(METRICS[name]()).compute()
    close(fed(METRICS[name](), torch.arange(N).split(7)).compute(), once)
    close(fed(METRICS[name](), torch.randperm(N).split(64)).compute(), once)
    metric = fed(METRICS[name](), z=torch.randn(2, N, 3), temperature=torch.ones(3))
    metric.reset()
    close(fed(metric).compute(), once)


def rank_result(rank, name, share):
    rows = torch.arange(N)[slice(0, share) if rank == 0 else slice(share, None)]
    return fed(METRICS[name](), rows.split(50)).compute()


@pytest.mark.parametrize("share", [131, N])
@pytest.mark.parametrize("name", METRICS)
def test_it_is_the_same_on_two_processes(name, share, two_processes):
    once = fed(METRICS[name]()).compute()
    for found in two_processes(rank_result, name, share):
        close(found, once)


@pytest.mark.parametrize("name", METRICS)
@pytest.mark.filterwarnings("ignore:The ``compute`` method")
def test_nothing_observed_is_an_error(name):
    with pytest.raises(ValueError, match="to have observed samples, but got none"):
        METRICS[name]().compute()


def test_mcc_is_the_functions_and_that_of_each_kind():
    given = data()
    found = fed(MeanCorrelationCoefficient()).compute()
    close(found["mean"], mean_correlation(given["z"][0], given["latent"][0]))
    close(found["mean"], (found["content"] + found["style"]) / 2)
    assert found["mean"] < 1


def test_mcc_of_latents_themselves_is_1_and_of_a_missing_kind_nothing():
    latent = data()["latent"]
    found = fed(MeanCorrelationCoefficient(), z=-2 * latent[..., [3, 0, 2, 1]]).compute()
    close(found, {key: torch.ones((), dtype=torch.float64) for key in ("mean", "content", "style")})
    found = fed(MeanCorrelationCoefficient(), z=latent[..., [0]]).compute()  # one output for four latents
    assert found["mean"].item() == found["content"].item() == pytest.approx(1)
    assert found["style"].isnan()
    assert list(fed(MeanCorrelationCoefficient(), content=torch.ones(4) > 0).compute()) == ["mean", "content"]


def test_temperatures_below_for_content_are_in_order():
    found = fed(TemperatureOrder()).compute()
    assert found["auc"] == 1
    assert found["content_outputs"] == 2  # the constant output is nobody's
    assert fed(TemperatureOrder(), temperature=-TEMPERATURE).compute()["auc"] == 0
    assert fed(TemperatureOrder(), temperature=torch.ones(5)).compute()["auc"] == 0.5
    # the pairs (0, 1), (0, 3), (2, 1), (2, 3): one in order, one tied
    tied = torch.tensor([1.0, 1.0, 2.0, 1.5, 0.0])
    assert fed(TemperatureOrder(), temperature=tied).compute()["auc"].item() == pytest.approx(1.5 / 4)


def test_shares_are_held_out_fits_on_the_latents_of_their_kind():
    given = data()
    fit = fitted_half(7, given["index"])
    z, latent = given["z"][0], given["latent"][0]
    found = fed(TemperatureOrder(seed=7)).compute()
    close(found["content_share"], latent_r2(latent[:, CONTENT], z[:, [0, 2]], fit).mean())
    close(found["style_share"], latent_r2(latent[:, ~CONTENT], z[:, [1, 3]], fit).mean())


def test_a_kind_without_outputs_has_no_order():
    found = fed(TemperatureOrder(), z=data()["z"][..., [0, 2]], temperature=TEMPERATURE[:2]).compute()
    assert found["content_outputs"] == 2
    assert found["auc"].isnan()
    assert found["style_share"].isnan()
    found = fed(TemperatureOrder(), content=torch.ones(4) > 0).compute()
    assert found["content_outputs"] == 4
    assert found["auc"].isnan()
    found = fed(TemperatureOrder(), z=torch.ones(2, N, 5)).compute()  # collapsed
    assert all(value.isnan() for value in found.values())


CHANGES = [
    ({"z": torch.ones(5)}, r"Expected `z` of shape .*, but got \(5,\)"),
    ({"latent": torch.ones(2, 9, 4)}, r"Expected `latent` of shape \(N, d\), N = 400, but got \(9, 4\)"),
    ({"content": torch.ones(4)}, r"Expected `content` of booleans, but got torch.float32"),
    ({"content": torch.ones(2) > 0}, r"Expected `content` of shape \(d,\), d = 4, but got \(2,\)"),
    ({"index": torch.arange(3)}, r"Expected `index` of shape \(N,\), N = 400, but got \(3,\)"),
    ({"temperature": torch.tensor(1.0)}, r"Expected `temperature` of shape \(P,\), P = 5, but got \(\)"),
]


@pytest.mark.parametrize(
    ("metric", "change", "message"),
    [*[(MeanCorrelationCoefficient, *row) for row in CHANGES[:4]], *[(TemperatureOrder, *row) for row in CHANGES]],
)
def test_what_does_not_fit_is_an_error(metric, change, message):
    names = ("z", "latent", "content") if metric is MeanCorrelationCoefficient else tuple(data())
    with pytest.raises(ValueError, match=message):
        metric().update(**{name: value for name, value in (data() | change).items() if name in names})
