import pickle

import pytest
import torch
from ranks import mean_gradients
from torch import nn

from lightning_ssl_geometry.functional import LpDistance, info_nce
from lightning_ssl_geometry.losses import (
    ContentStyleTemperature,
    GradientSpectrumTemperature,
    InfoNCELoss,
    LearnedTemperature,
)

FORMS = {
    "distance": {},
    "distance, feature": {"mode": "feature"},
    "distance, normalised": {"normalize": True},
    "dot": {"similarity": "dot"},
    "dot, feature": {"similarity": "dot", "mode": "feature"},
    "cosine": {"similarity": "dot", "normalize": True},
    "cosine, feature": {"similarity": "dot", "normalize": True, "mode": "feature"},
    "l1": {"similarity": LpDistance(p=1.0)},
    "l3": {"similarity": LpDistance(p=3.0)},
    "l3, feature": {"similarity": LpDistance(p=3.0), "mode": "feature"},
    "l3, no power": {"similarity": LpDistance(p=3.0, power=False)},
    "l3, no power, feature": {"similarity": LpDistance(p=3.0, power=False), "mode": "feature"},
    "both": {"symmetric": True, "negatives": "both"},
    "own": {"include_self": True, "negatives": "other"},
}
TAU = [0.5, 0.8, 1.3]


def rusak(temperature=1.0, **settings):
    """Eq. 1 of Rusak et al. for unnormalised embeddings."""
    return InfoNCELoss(temperature, **{"form": "RUSAK", "normalize": False, "similarity": "distance"} | settings)


def views(n=6, p=3):
    return torch.randn(n, p, dtype=torch.float64), torch.randn(n, p, dtype=torch.float64)


def slow(z1, z2, tau, normalize=False, similarity="distance", mode="distance", **negatives):
    """The loss, pair by pair, with anchors and negatives from view 1."""
    assert not negatives
    p, power = (similarity.p, similarity.power) if isinstance(similarity, LpDistance) else (2.0, True)
    if normalize:
        z1, z2 = (z / z.norm(dim=1, keepdim=True) for z in (z1, z2))
    if mode == "feature" or not power:
        z1, z2 = z1 / tau, z2 / tau
        tau = torch.ones_like(tau)

    def logit(a, b):
        if similarity == "dot":
            return (a * b / tau).sum()
        distance = ((a - b).abs() ** p / tau).sum()
        return -distance if power else -(distance ** (1 / p))

    terms = []
    for i in range(len(z1)):
        logits = [logit(z1[i], z2[i])] + [logit(z1[i], z1[j]) for j in range(len(z1)) if j != i]
        terms.append(torch.stack(logits).logsumexp(dim=0) - logits[0])
    return torch.stack(terms).mean()


@pytest.mark.parametrize("form", FORMS)
def test_one_temperature_equals_as_many_equal_ones(form):
    z1, z2 = views()
    one = rusak(0.7, **FORMS[form])(z1, z2)
    torch.testing.assert_close(rusak([0.7] * 3, **FORMS[form])(z1, z2), one, rtol=1e-12, atol=0)
    rule = ContentStyleTemperature(3, tau_c=0.7, tau_s=0.7)
    torch.testing.assert_close(rusak(rule, **FORMS[form])(z1, z2), one, rtol=1e-12, atol=0)


@pytest.mark.parametrize("form", [form for form in FORMS if form not in ("both", "own")])
def test_it_is_the_slow_loop(form):
    z1, z2 = views()
    expected = slow(z1, z2, torch.tensor(TAU, dtype=torch.float64), **FORMS[form])
    torch.testing.assert_close(rusak(TAU, **FORMS[form])(z1, z2), expected)


def test_a_number_divides_a_norm_without_power():
    z1, z2 = views()
    loss = rusak(0.5, similarity=LpDistance(p=1.0, power=False))
    torch.testing.assert_close(loss(z1, z2), rusak(0.5, similarity=LpDistance(p=1.0))(z1, z2))


def test_the_defaults_are_equation_1_on_distances():
    z1, z2 = views()
    expected = info_nce(z1, z2, 1.0, normalize=False, symmetric=False, negatives="same", similarity="distance")
    assert torch.equal(rusak()(z1, z2), expected)


def test_the_feature_mode_scales_the_embeddings():
    z1, z2 = views()
    tau = torch.tensor(TAU, dtype=torch.float64)
    for form in ({}, {"similarity": "dot"}, {"similarity": LpDistance(p=3.0)}):
        scaled = rusak(1.0, **form)(z1 / tau, z2 / tau)
        torch.testing.assert_close(rusak(TAU, mode="feature", **form)(z1, z2), scaled)


def test_a_permutation_of_dimensions_and_temperatures_changes_nothing():
    z1, z2 = views()
    order = [2, 0, 1]
    found = rusak([TAU[k] for k in order])(z1[:, order], z2[:, order])
    torch.testing.assert_close(found, rusak(TAU)(z1, z2))


def test_the_learned_form_is_an_info_nce():
    # -1/2 (f - f')^T Lambda (f - f'), pair by pair: value and gradients of the embeddings and of log Lambda
    z1, z2 = (z.requires_grad_() for z in views())
    loss = rusak(LearnedTemperature(3, TAU).double())
    log_precision = (2 / torch.tensor(TAU, dtype=torch.float64)).log().requires_grad_()
    with torch.no_grad():
        loss.temperature.log_precision.copy_(log_precision)
    terms = []
    for i in range(len(z1)):
        others = torch.cat([z2[i : i + 1], z1[:i], z1[i + 1 :]])
        logits = torch.stack([-0.5 * (z1[i] - o) @ log_precision.exp().diag() @ (z1[i] - o) for o in others])
        terms.append(logits.logsumexp(dim=0) - logits[0])
    expected = torch.stack(terms).mean()
    found = loss(z1, z2)
    torch.testing.assert_close(found, expected)
    gradients = torch.autograd.grad(found, [z1, z2, loss.temperature.log_precision])
    torch.testing.assert_close(gradients, torch.autograd.grad(expected, [z1, z2, log_precision]))


@pytest.mark.parametrize("form", FORMS)
def test_gradcheck(form):
    log_precision = (2 / torch.tensor(TAU, dtype=torch.float64)).log().requires_grad_()
    loss = rusak(LearnedTemperature(3).double(), **FORMS[form])

    def value(z1, z2, log_precision):
        return torch.func.functional_call(loss, {"temperature.log_precision": log_precision}, (z1, z2))

    assert torch.autograd.gradcheck(value, (*(z.requires_grad_() for z in views(4)), log_precision))


def test_exact_content_gains_by_growing():
    z1, _ = views(20)
    z2 = z1 + torch.tensor([0.0, 0.3, 0.3]) * torch.randn_like(z1)
    scale = torch.ones(3, dtype=torch.float64, requires_grad=True)
    gradient = torch.autograd.grad(rusak()(z1 * scale, z2 * scale), scale)[0]
    assert gradient[0] < 0


def test_the_temperature_is_shown():
    z1, z2 = views()
    for temperature, shown in [
        (0.5, [0.5] * 3),
        (TAU, TAU),
        (torch.tensor([0.5, 1.0, 2.0]), [0.5, 1.0, 2.0]),
        (LearnedTemperature(3, TAU), TAU),
    ]:
        for mode in ("distance", "feature"):
            loss = rusak(temperature, mode=mode)
            value, tau = loss.with_temperature(z1, z2)
            assert torch.equal(value, loss(z1, z2))
            assert tau.shape == (3,)
            assert tau.tolist() == pytest.approx(shown)


def test_a_rule_sees_what_the_temperatures_meet():
    class Look(nn.Module):
        def forward(self, z1, z2):
            self.seen = z1, z2
            return torch.ones(z1.shape[1])

    z1, z2 = views()
    for normalize in (False, True):
        rule = Look()
        rusak(rule, normalize=normalize)(z1.requires_grad_(), z2)
        expected = [z / z.norm(dim=1, keepdim=True) if normalize else z for z in (z1.detach(), z2)]
        torch.testing.assert_close(list(rule.seen), expected)
        assert not rule.seen[0].requires_grad


RULES = {
    "fixed": lambda: TAU,
    "learned": lambda: LearnedTemperature(3, TAU).double(),
    "gradient spectrum": lambda: GradientSpectrumTemperature(3, min_ratio=1.5),
}


def small_network():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 3)).double()


def step(process, x1, x2, sizes, loss):
    x1, x2 = (x.split(sizes)[process] for x in (x1, x2))
    method = nn.ModuleList([small_network(), loss])
    value, tau = loss.with_temperature(*method[0](torch.cat([x1, x2])).chunk(2))
    value.backward()
    return value.detach(), tau.detach(), mean_gradients(method, len(sizes)), dict(loss.named_buffers())


@pytest.mark.parametrize("settings", [{}, {"normalize": True}, {"mode": "feature"}], ids=str)
@pytest.mark.parametrize("sizes", [(4, 4), (7, 2), (1, 5)], ids=str)
@pytest.mark.parametrize("rule", RULES)
def test_two_processes_equal_one(two_processes, rule, sizes, settings):
    x1, x2 = views(sum(sizes))
    loss = rusak(RULES[rule](), **settings)
    answers = two_processes(step, x1, x2, sizes, loss)
    expected = step(0, x1, x2, [sum(sizes)], loss)
    for answer in answers:
        torch.testing.assert_close(answer, expected)


def own_part(process, x1, x2, sizes, loss):
    x1, x2 = (x.split(sizes)[process] for x in (x1, x2))
    return tuple(tensor.detach() for tensor in loss.with_temperature(x1, x2))


def test_without_gather_the_rule_still_sees_all(two_processes):
    x1, x2 = views(9)
    loss = rusak(GradientSpectrumTemperature(3, min_ratio=1.1), gather=False)
    answers = two_processes(own_part, x1, x2, (5, 4), loss)
    tau = loss.temperature(x1, x2)
    assert tau.min() < 1
    for rank, (value, temperature) in enumerate(answers):
        torch.testing.assert_close(temperature.float(), tau)
        torch.testing.assert_close(value, own_part(rank, x1, x2, (5, 4), rusak(tau, gather=False))[0])


def test_it_is_picklable_and_shows_its_settings():
    loss = rusak(TAU, similarity=LpDistance(p=3.0), mode="feature")
    for setting in ("temperature=(0.5, 0.8, 1.3)", "p=3.0", "negatives='same'", "mode='feature'", "gather=True"):
        assert setting in repr(loss)
    z1, z2 = views()
    assert torch.equal(pickle.loads(pickle.dumps(loss))(z1, z2), loss(z1, z2))
    assert "LearnedTemperature(dim=3)" in repr(rusak(LearnedTemperature(3)))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"temperature": 0.0}, r"Expected `temperature` > 0 and finite, but got 0\.0"),
        ({"temperature": [0.5, -1.0]}, r"Expected `temperature` > 0 and finite, but got -1\.0"),
        ({"temperature": torch.ones(3, requires_grad=True)}, "to be a nn.Parameter or a rule, but got another tensor"),
        ({"temperature": "many"}, "`temperature` to be a number, P numbers or a rule, but got 'many'"),
        ({"similarity": "cosine"}, r"`similarity` to be one of \('dot', 'distance'\), but got 'cosine'"),
        ({"negatives": "none"}, r"`negatives` to be one of \('both', 'same', 'other'\), but got 'none'"),
        ({"symmetric": 1}, "`symmetric` to be True or False, but got 1"),
        ({"normalize": "no"}, "`normalize` to be True or False, but got 'no'"),
        ({"include_self": None}, "`include_self` to be True or False, but got None"),
        ({"mode": "x"}, r"`mode` to be one of \('distance', 'feature'\), but got 'x'"),
        ({"gather": "no"}, "`gather` to be True or False, but got 'no'"),
    ],
    ids=str,
)
def test_wrong_settings_are_named_when_the_module_is_made(settings, message):
    with pytest.raises(ValueError, match=message):
        rusak(**settings)


@pytest.mark.parametrize("temperature", [[0.5, 1.0], LearnedTemperature(2), GradientSpectrumTemperature(2)])
def test_a_wrong_length_is_named_when_it_meets_the_embeddings(temperature):
    with pytest.raises(
        ValueError, match=r"`temperature` with P = 3 values, .* but got 2|`z1` .* P = 2, but got \(6, 3\)"
    ):
        rusak(temperature)(*views())
