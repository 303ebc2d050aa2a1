import math
import pickle

import pytest
import torch
from ranks import mean_gradients
from torch import nn

from lightning_ssl_geometry.distributed import all_reduce_sum, gather_and_place
from lightning_ssl_geometry.functional import augmentation_channel_loss, info_nce, log_bilinear_info_nce, vicreg
from lightning_ssl_geometry.losses import AugmentationChannelLoss, InfoNCELoss, LogBilinearInfoNCELoss, VICRegLoss

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
VICREG_FORMS = {
    "vicreg": {},
    "vicreg, other settings": {"invariance": 3.0, "variance": 5.0, "covariance": 7.0, "gamma": 2.0, "eps": 0.1},
}
LOG_BILINEAR_FORMS = {
    "log-bilinear": {},
    "log-bilinear, cpc": {"symmetric": False, "negatives": "other"},
    "log-bilinear, same view": {"temperature": 0.5, "negatives": "same"},
    "log-bilinear, keller": {"positive_in_denominator": False, "joint": True},
}


def views(n, p=3):
    return torch.randn(n, p, dtype=torch.float64), torch.randn(n, p, dtype=torch.float64)


def log_bilinear(**settings):
    loss = LogBilinearInfoNCELoss(dim=3, **settings).double()
    nn.init.normal_(loss.weight)
    return loss


class Draws(nn.Module):
    """CRL-TAC's loss of three weighted draws per sample, which are made from two views."""

    def __init__(self, **settings):
        super().__init__()
        self.loss = AugmentationChannelLoss(**settings)

    def forward(self, z1, z2):
        return self.loss(torch.stack([z1, z2, z1 - z2.flip(1)], dim=1), z1 * z2)


LOSSES = {
    **{name: (InfoNCELoss, form) for name, form in FORMS.items()},
    **{name: (VICRegLoss, form) for name, form in VICREG_FORMS.items()},
    **{name: (log_bilinear, form) for name, form in LOG_BILINEAR_FORMS.items()},
    "augmentation channel": (Draws, {}),
    "augmentation channel, exact": (Draws, {"beta": 3.0, "jensen": False}),
}


class Method(nn.Module):
    def __init__(self, loss):
        super().__init__()
        self.network, self.loss = small_network(), loss

    def forward(self, x1, x2):
        return self.loss(*self.network(torch.cat([x1, x2])).chunk(2))


def step(process, x1, x2, sizes, loss):
    x1, x2 = (x.split(sizes)[process] for x in (x1, x2))
    method = Method(loss)
    value = method(x1, x2)
    value.backward()
    return value.detach(), mean_gradients(method, len(sizes))


def ddp_step(process, x1, x2, sizes, loss):
    """Loss and gradients, averaged by DistributedDataParallel itself."""
    x1, x2 = (x.split(sizes)[process] for x in (x1, x2))
    method = nn.parallel.DistributedDataParallel(Method(loss))
    value = method(x1, x2)
    value.backward()
    return value.detach(), {name: parameter.grad for name, parameter in method.module.named_parameters()}


def gradient_of_the_loss(process, x1, x2, sizes, loss):
    """One process's gradient of the loss's own parameters, before it is averaged."""
    x1, x2 = (x.split(sizes)[process] for x in (x1, x2))
    loss(x1, x2).backward()
    return [parameter.grad for parameter in loss.parameters()]


def small_network():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 3)).double()


def own_part(process, x1, x2, sizes, loss):
    x1, x2 = (x.split(sizes)[process] for x in (x1, x2))
    return loss(x1, x2).detach()


def mixed_precision(process, x1, x2, sizes):
    x1, x2 = (x.bfloat16().split(sizes)[process].requires_grad_() for x in (x1, x2))
    loss = InfoNCELoss(temperature=0.1)(x1, x2)
    loss.backward()
    return loss.detach(), x1.grad


@pytest.mark.parametrize("form", FORMS)
def test_info_nce_module_is_the_function(form):
    z1, z2 = views(6)
    assert torch.equal(InfoNCELoss(**FORMS[form])(z1, z2), info_nce(z1, z2, **FORMS[form]))


@pytest.mark.parametrize("form", VICREG_FORMS)
def test_vicreg_module_is_the_function(form):
    z1, z2 = views(6)
    assert torch.equal(VICRegLoss(**VICREG_FORMS[form])(z1, z2), vicreg(z1, z2, **VICREG_FORMS[form]))


@pytest.mark.parametrize("form", LOG_BILINEAR_FORMS)
def test_log_bilinear_module_is_the_function(form):
    z1, z2 = views(6)
    loss = log_bilinear(**LOG_BILINEAR_FORMS[form])
    assert torch.equal(loss(z1, z2), log_bilinear_info_nce(z1, z2, loss.weight, **LOG_BILINEAR_FORMS[form]))


@pytest.mark.parametrize("jensen", [True, False])
def test_augmentation_channel_module_is_the_function(jensen):
    z, log_weight = torch.randn(6, 4, 3), torch.randn(6, 4)
    loss = AugmentationChannelLoss(beta=2.0, jensen=jensen)
    assert torch.equal(loss(z, log_weight), augmentation_channel_loss(z, log_weight, 2.0, jensen=jensen))
    assert repr(loss) == f"AugmentationChannelLoss(beta=2.0, jensen={jensen})"


@pytest.mark.parametrize("run", [step, ddp_step], ids=["plain", "ddp"])
@pytest.mark.parametrize("sizes", [(4, 4), (7, 2), (1, 5), (5, 0)], ids=str)
@pytest.mark.parametrize("name", LOSSES)
def test_two_processes_equal_one(two_processes, name, sizes, run):
    x1, x2 = views(sum(sizes))
    make, settings = LOSSES[name]
    loss = make(**settings)
    answers = two_processes(run, x1, x2, sizes, loss)
    value, gradients = step(0, x1, x2, [sum(sizes)], loss)
    for rank_value, rank_gradients in answers:
        torch.testing.assert_close(rank_value, value)
        torch.testing.assert_close(rank_gradients, gradients)


@pytest.mark.parametrize("sizes", [(4, 4), (7, 2)], ids=str)
@pytest.mark.parametrize("form", LOG_BILINEAR_FORMS)
def test_each_process_has_the_whole_gradient_of_the_matrix(two_processes, form, sizes):
    x1, x2 = views(sum(sizes))
    loss = log_bilinear(**LOG_BILINEAR_FORMS[form])
    answers = two_processes(gradient_of_the_loss, x1, x2, sizes, loss)
    for gradients in answers:
        torch.testing.assert_close(gradients, gradient_of_the_loss(0, x1, x2, [sum(sizes)], loss))
        loss.zero_grad()


@pytest.mark.parametrize("make", [InfoNCELoss, VICRegLoss, log_bilinear], ids=["info_nce", "vicreg", "log_bilinear"])
def test_without_gather_each_process_has_its_own_loss(two_processes, make):
    x1, x2 = views(9)
    loss = make(gather=False)
    for rank, value in enumerate(two_processes(own_part, x1, x2, (5, 4), loss)):
        torch.testing.assert_close(value, own_part(rank, x1, x2, (5, 4), loss))


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


@pytest.mark.parametrize(
    ("loss", "shown"),
    [
        (InfoNCELoss(temperature=0.1, joint=True), ["temperature=0.1", "joint=True", "gather=True"]),
        (VICRegLoss(variance=5.0), ["variance=5.0", "covariance=1.0", "eps=0.0001", "gather=True"]),
        (LogBilinearInfoNCELoss(3, 0.1, joint=True), ["dim=3", "temperature=0.1", "joint=True", "gather=True"]),
    ],
    ids=["info_nce", "vicreg", "log_bilinear"],
)
def test_module_is_picklable_and_shows_its_settings(loss, shown):
    assert all(setting in repr(loss) for setting in shown)
    z1, z2 = views(5)
    assert torch.equal(pickle.loads(pickle.dumps(loss))(z1, z2), loss(z1, z2))


def test_the_matrix_begins_as_a_scaled_product():
    loss = LogBilinearInfoNCELoss(dim=64)
    torch.testing.assert_close(loss.weight.detach(), torch.eye(64) / 8)
    z1, z2 = torch.randn(2, 512, 64)
    torch.testing.assert_close(loss(z1, z2), info_nce(z1, z2, 8.0, normalize=False))
    assert (z1 @ loss.weight @ z2.T).std().item() == pytest.approx(1, rel=0.05)  # whatever the dimensions


def test_the_matrix_learns_how_the_views_are_related():
    z1 = torch.randn(64, 4)
    z2 = z1.roll(1, dims=1)  # a permutation of the dimensions: z1^T W z2 is largest where W shifts z2 back
    loss = LogBilinearInfoNCELoss(dim=4, symmetric=False, negatives="other")
    optimizer = torch.optim.Adam(loss.parameters(), lr=0.1)
    before = loss(z1, z2).item()
    for _ in range(50):
        optimizer.zero_grad()
        loss(z1, z2).backward()
        optimizer.step()
    assert loss(z1, z2).item() < math.log(64) < before  # which unrelated views have at best
    assert loss.weight.argmax(dim=1).tolist() == [1, 2, 3, 0]


def test_the_matrix_is_in_the_optimizer_and_the_checkpoint_of_a_method():
    from lightning_ssl_geometry.methods import SimCLRModule  # here: the two processes load this file without Lightning

    loss = LogBilinearInfoNCELoss(dim=3)
    method = SimCLRModule(nn.Flatten(), nn.Linear(4, 3), loss, lr_scheduler=torch.optim.lr_scheduler.ConstantLR)
    optimizer = method.configure_optimizers()["optimizer"]
    assert any(parameter is loss.weight for group in optimizer.param_groups for parameter in group["params"])
    assert "loss.weight" in method.state_dict()
    method.observe({"views": tuple(torch.randn(2, 5, 1, 2, 2))})["loss"].backward()
    assert (loss.weight.grad != 0).any()


GATHER = ({"gather": "no"}, "Expected `gather` to be True or False, but got 'no'")
OF_INFO_NCE = [
    ({"temperature": 0.0}, r"Expected `temperature` > 0 and finite, but got 0\.0"),
    ({"negatives": "none"}, r"Expected `negatives` to be one of \('both', 'same', 'other'\), but got 'none'"),
    ({"joint": True, "symmetric": False}, "Expected `symmetric` = True with `joint`"),
    GATHER,
]
REQUIRES_GRAD = torch.ones(2, requires_grad=True)
SETTINGS = {
    InfoNCELoss: [
        *OF_INFO_NCE,
        ({"temperature": [0.5, -1.0]}, r"Expected `temperature` > 0 and finite, but got -1\.0"),
        ({"temperature": REQUIRES_GRAD}, "Expected `temperature` that requires a gradient to be a nn."),
    ],
    VICRegLoss: [
        ({"invariance": -1.0}, r"Expected `invariance` >= 0 and finite, but got -1\.0"),
        ({"variance": -1.0}, r"Expected `variance` >= 0 and finite, but got -1\.0"),
        ({"covariance": float("nan")}, "Expected `covariance` >= 0 and finite, but got nan"),
        ({"gamma": -1.0}, r"Expected `gamma` > 0 and finite, but got -1\.0"),
        ({"eps": -1.0}, r"Expected `eps` with 0 < eps < gamma\^2 = 1\.0, but got -1\.0"),
        GATHER,
    ],
    LogBilinearInfoNCELoss: [
        *[({"dim": 3} | settings, message) for settings, message in OF_INFO_NCE],
        ({"dim": 0}, "Expected `dim` >= 1, but got 0"),
        (
            {"dim": 3, "temperature": [1.0, 1.0, 1.0]},
            r"Expected `temperature` to be one number, since W .*, but got \[1\.0, 1\.0, 1\.0\]",
        ),
    ],
    AugmentationChannelLoss: [
        ({"beta": -1.0}, "`beta` > 0 and finite, but got -1"),
        ({"jensen": "no"}, "`jensen` to be True or False, but got 'no'"),
    ],
}


@pytest.mark.parametrize(
    ("loss", "settings", "message"), [(loss, *row) for loss, rows in SETTINGS.items() for row in rows]
)
def test_wrong_settings_are_named_when_the_module_is_made(loss, settings, message):
    with pytest.raises(ValueError, match=message):
        loss(**settings)


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (InfoNCELoss([0.5, 1.0]), "Expected `temperature` with P = 3 values, one per dimension, but got 2"),
        (LogBilinearInfoNCELoss(dim=4), r"Expected `weight` of shape \(P, P\), P = 3.* but got \(4, 4\)"),
    ],
)
def test_wrong_dimensions_are_named_when_they_meet_the_embeddings(loss, message):
    with pytest.raises(ValueError, match=message):
        loss(*views(4))


def by_hand(z1, z2):
    """The loss of the global batch by functions, as docs/speed.md has it."""
    views, own = gather_and_place(torch.stack((z1, z2), dim=1))
    mean = info_nce(*views.unbind(dim=1), temperature=0.5, anchors=own)
    return all_reduce_sum(mean * len(z1)) / len(views)


@pytest.mark.parametrize("run", [step, ddp_step], ids=["plain", "ddp"])
def test_the_functions_give_the_loss_of_the_global_batch(two_processes, run):
    x1, x2 = views(9)
    value, gradients = step(0, x1, x2, [9], InfoNCELoss(0.5))
    for found, found_gradients in two_processes(run, x1, x2, (7, 2), by_hand):
        torch.testing.assert_close(found, value)
        torch.testing.assert_close(found_gradients, gradients)
