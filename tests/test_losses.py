import pickle

import pytest
import torch
from torch import nn

from lightning_ssl_geometry.functional.contrastive import info_nce
from lightning_ssl_geometry.losses import InfoNCELoss

FORMS = {
    "nt_xent": {},
    "cosentino": {"positive_in_denominator": False, "symmetric": False},
    "cl_ica": {
        "symmetric": False,
        "negatives": "same",
        "include_self": True,
        "similarity": "distance",
        "normalize": False,
    },
    "calder_lee": {"symmetric": False, "denominator": "mean", "negatives": "other", "include_self": True},
    "keller": {"positive_in_denominator": False, "joint": True},
    "per dimension": {"temperature": [0.3, 0.5, 0.7]},
}


def views(n, p=3):
    return torch.randn(n, p, dtype=torch.float64), torch.randn(n, p, dtype=torch.float64)


def step(process, x1, x2, sizes, settings):
    """Loss and parameter gradients of a small network on this process's part, averaged as DDP does."""
    x1, x2 = (x.split(sizes)[process] for x in (x1, x2))
    network, loss = small_network(), InfoNCELoss(**settings)
    value = loss(network(x1), network(x2))
    value.backward()
    gradients = [parameter.grad for parameter in network.parameters()]
    if len(sizes) > 1:
        for gradient in gradients:
            torch.distributed.all_reduce(gradient)
            gradient /= len(sizes)
    return value.detach(), gradients


def ddp_step(process, x1, x2, sizes, settings):
    """The same, by DistributedDataParallel itself."""
    x1, x2 = (x.split(sizes)[process] for x in (x1, x2))
    network = nn.parallel.DistributedDataParallel(small_network())
    h = network(torch.cat([x1, x2]))
    value = InfoNCELoss(**settings)(*h.chunk(2))
    value.backward()
    return value.detach(), [parameter.grad for parameter in network.parameters()]


def small_network():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 3)).double()


def own_part(process, x1, x2, sizes):
    x1, x2 = (x.split(sizes)[process] for x in (x1, x2))
    return InfoNCELoss(gather=False)(x1, x2)


def mixed_precision(process, x1, x2, sizes):
    x1, x2 = (x.bfloat16().split(sizes)[process].requires_grad_() for x in (x1, x2))
    loss = InfoNCELoss(temperature=0.1)(x1, x2)
    loss.backward()
    return loss.detach(), x1.grad


@pytest.mark.parametrize("form", FORMS)
def test_module_is_the_function(form):
    z1, z2 = views(6)
    assert torch.equal(InfoNCELoss(**FORMS[form])(z1, z2), info_nce(z1, z2, **FORMS[form]))


@pytest.mark.parametrize("run", [step, ddp_step], ids=["plain", "ddp"])
@pytest.mark.parametrize("sizes", [(4, 4), (7, 2), (1, 5)], ids=str)
@pytest.mark.parametrize("form", FORMS)
def test_two_processes_equal_one(two_processes, form, sizes, run):
    x1, x2 = views(sum(sizes))
    value, gradients = step(0, x1, x2, [sum(sizes)], FORMS[form])
    for rank_value, rank_gradients in two_processes(run, x1, x2, sizes, FORMS[form]):
        torch.testing.assert_close(rank_value, value)
        torch.testing.assert_close(rank_gradients, gradients)


def test_without_gather_each_process_has_its_own_loss(two_processes):
    x1, x2 = views(9)
    for rank, value in enumerate(
        two_processes(
            own_part,
            x1,
            x2,
            (5, 4),
        )
    ):
        part = [x.split((5, 4))[rank] for x in (x1, x2)]
        torch.testing.assert_close(value, info_nce(*part))


def test_bfloat16_is_gathered_as_it_is(two_processes):
    x1, x2 = views(8)
    for value, gradient in two_processes(mixed_precision, x1, x2, (5, 3)):
        torch.testing.assert_close(value, info_nce(x1.bfloat16(), x2.bfloat16(), 0.1))
        assert gradient.dtype == torch.bfloat16


def test_a_learnt_temperature_is_a_parameter():
    temperature = nn.Parameter(torch.tensor([0.2, 0.5, 1.0]))
    loss = InfoNCELoss(temperature)
    assert dict(loss.named_parameters()) == {"temperature": temperature}
    loss(*views(5)).backward()
    assert (temperature.grad != 0).all()


@pytest.mark.parametrize("temperature", [[0.2, 0.5, 1.0], torch.tensor([0.2, 0.5, 1.0])], ids=["list", "tensor"])
def test_a_temperature_that_is_a_setting_is_not_in_the_checkpoint(temperature):
    loss = InfoNCELoss(temperature).half()
    assert loss.state_dict() == {}
    z1, z2 = views(5)
    torch.testing.assert_close(loss(z1, z2), info_nce(z1, z2, [0.2, 0.5, 1.0]), rtol=1e-6, atol=0)


def test_one_temperature_as_a_tensor_is_a_number():
    assert InfoNCELoss(torch.tensor(0.5)).temperature == 0.5


def test_module_is_picklable_and_shows_its_settings():
    loss = InfoNCELoss(temperature=0.1, joint=True)
    assert "joint=True" in repr(loss)
    assert "temperature=0.1" in repr(loss)
    z1, z2 = views(5)
    assert torch.equal(pickle.loads(pickle.dumps(loss))(z1, z2), loss(z1, z2))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"temperature": 0.0}, r"Expected `temperature` > 0 and finite, but got 0\.0"),
        ({"temperature": [0.5, -1.0]}, r"Expected `temperature` > 0 and finite, but got -1\.0"),
        ({"negatives": "none"}, "Expected `negatives` to be one of 'both', 'same', 'other', but got 'none'"),
        ({"joint": True, "symmetric": False}, "Expected `symmetric` = True where `joint`"),
        (
            {"temperature": torch.ones(2, requires_grad=True)},
            "Expected `temperature` that requires a gradient to be a nn.",
        ),
        ({"gather": "no"}, "Expected `gather` to be True or False, but got 'no'"),
    ],
    ids=str,
)
def test_wrong_settings_are_named_when_the_module_is_made(settings, message):
    with pytest.raises(ValueError, match=message):
        InfoNCELoss(**settings)


def test_wrong_length_is_named_when_it_meets_the_embeddings():
    with pytest.raises(ValueError, match="Expected `temperature` with P = 3 values, one per dimension, but got 2"):
        InfoNCELoss([0.5, 1.0])(*views(4))
