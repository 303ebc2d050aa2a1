"""LossGap: none for an equivariant network, and one for any other."""

import pytest
import torch
from torch import nn

from lightning_ssl_geometry.diagnostics import LossGap
from lightning_ssl_geometry.nn import EquivariantCNN, MLPProjector, UnstructuredCNN

INDEX = torch.randperm(40, generator=torch.Generator().manual_seed(0))


def images(side=13, content=13):
    x = torch.zeros(40, 1, side, side, dtype=torch.float64)
    start = (side - content) // 2
    patch = torch.rand(40, 1, content, content, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    x[..., start : start + content, start : start + content] = patch
    return x


def head(seed=0):
    torch.manual_seed(seed)
    return MLPProjector(32, 16, 8, norm="layer").double()


def gap(network, group, x, parts=1, projector=None, **arguments):
    metric, projector = LossGap(group, **arguments), projector or head()
    for rows in torch.arange(40).tensor_split(parts):
        metric.update(x[rows], network, projector, INDEX[rows])
    return {name: value.item() for name, value in metric.compute().items()}


def network(group, **arguments):
    torch.manual_seed(0)
    return EquivariantCNN(width=8, group=group, norm="group", **arguments).double()


def quarters():
    """A network without structure whose four copies stand for orientations."""
    torch.manual_seed(0)
    net = UnstructuredCNN(width=8, copies=4).double()
    net.group_shape = (1, 4)
    return net


@pytest.mark.parametrize("interaction", [False, True])
def test_no_gap_for_quarter_turns(interaction):
    found = gap(network("rotation", interaction=interaction), "rotation", images())
    assert abs(found["difference"]) < 1e-5
    assert found["similarity"] == pytest.approx(1, abs=1e-6)


def test_no_gap_for_translations_inside_of_the_image():
    """Far from the border, and without normalisation over space, zero padding has no effect."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(1, 32, 3, stride=2, padding=1), nn.Tanh()).double()
    found = gap(net, "translation", images(side=41, content=9), stride=2)
    assert abs(found["difference"]) < 1e-5
    assert found["similarity"] == pytest.approx(1, abs=1e-6)


def test_a_margin_leaves_out_the_positions_that_the_padding_reaches():
    """Images whose content goes to the border: the padding reaches one position of a convolution of width 3."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(1, 32, 3, stride=2, padding=1), nn.Tanh()).double()
    x, fill = images(side=41, content=41), 0.5
    settings = {"stride": 2, "fill": fill, "contrast_size": 40}
    assert gap(net, "translation", x, **settings)["similarity"] < 1 - 1e-4
    inside = gap(net, "translation", x, **settings, margin=2)
    assert inside["similarity"] == pytest.approx(1, abs=1e-6)
    assert abs(inside["difference"]) < 1e-5
    with pytest.raises(ValueError, match=r"Expected `margin` that leaves positions .* of 21 x 21, 2 pixels apart, but"):
        gap(net, "translation", x, **settings, margin=14)
    with pytest.raises(ValueError, match="Expected no `margin` for `group` = 'rotation', but got 3"):
        LossGap("rotation", margin=3)


def test_a_small_gap_for_scales_and_a_large_one_without_structure():
    """The gaps of three heads are added; for each head the gap of the plain network is 3 to 20 times as large."""
    blobs = nn.functional.avg_pool2d(images(side=33, content=11), 5, 1, 2)
    torch.manual_seed(0)
    unstructured = UnstructuredCNN(width=8).double()
    scales = (1.0, 1.25, 1.33, 1.5, 1.66, 1.75)
    scale = sum(1 - gap(network("scale"), "scale", blobs, projector=head(i))["similarity"] for i in range(3))
    plain = sum(1 - gap(unstructured, "scale", blobs, projector=head(i), scales=scales)["similarity"] for i in range(3))
    assert plain > 5 * scale > 1e-6


def test_a_network_without_structure_has_a_gap():
    found = gap(quarters(), "rotation", images())
    assert found["similarity"] < 0.9


def test_the_gap_does_not_depend_on_batches():
    net = quarters()
    assert gap(net, "rotation", images(), 1) == pytest.approx(gap(net, "rotation", images(), 3), rel=1e-4)
    assert gap(net, "rotation", images(), contrast_size=16) == pytest.approx(
        gap(net, "rotation", images(), 4, contrast_size=16), rel=1e-4
    )


def test_modes_are_left_as_they_were():
    net = quarters().train()
    gap(net, "rotation", images())
    assert all(child.training for child in net.modules())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"group": "colour"}, "Expected `group` to be one of"),
        ({"temperature": 0}, "Expected `temperature` > 0, but got 0"),
    ],
)
def test_wrong_arguments_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        LossGap(**arguments)


def test_what_a_network_does_not_say_must_be_given():
    with pytest.raises(ValueError, match="Expected 6 `scales`, as many as the feature map has, but got None"):
        gap(UnstructuredCNN(width=8).double(), "scale", images())
    with pytest.raises(ValueError, match="Expected `stride` >= 1 for a network that does not name its own"):
        gap(nn.Conv2d(1, 32, 3).double(), "translation", images())
    with pytest.raises(ValueError, match="group axis of more than one rotation"):
        gap(nn.Conv2d(1, 32, 3).double(), "rotation", images())


def test_the_head_of_a_larger_base_space_is_refused():
    with pytest.raises(ValueError, match=r"`projector` of one fiber, 32 features, .* base size of 4"):
        gap(network("translation"), "translation", images(), projector=MLPProjector(4 * 32, 16, 8).double())


@pytest.mark.parametrize("scales", [(1.0, 1.0), (2.0, 1.0), (1.0, float("nan")), (0.0, 1.0), (1.0,)])
def test_scales_out_of_order_are_refused(scales):
    with pytest.raises(ValueError, match="Expected `scales` > 0, at least 2, ascending, but got"):
        LossGap("scale", scales)


def test_a_background_that_is_not_finite_is_refused():
    with pytest.raises(ValueError, match="Expected finite `fill`"):
        LossGap("scale", fill=float("nan"))


def test_the_cosine_between_samples_is_that_of_all_pairs():
    """A slow loop over all pairs of different samples, as the null of the similarity."""
    metric = LossGap("rotation", contrast_size=40)
    x, net, projector = images(), network("rotation"), head()
    metric.update(x, net, projector, INDEX)
    kept = metric.rows()
    one, other = (kept[name].double() for name in ("augmented", "homomorphic"))
    cosines = [
        torch.cosine_similarity(one[i, view], other[j, view], dim=0)
        for view in range(2)
        for i in range(40)
        for j in range(40)
        if i != j
    ]
    found = metric.compute()
    assert found["between_samples"].item() == pytest.approx(torch.stack(cosines).mean().item(), abs=1e-6)


def test_embeddings_that_hardly_differ_have_no_gap_and_no_evidence():
    """A network without structure whose embeddings all have one direction: both cosines are near 1."""
    projector = head()
    with torch.no_grad():
        list(projector.parameters())[-1].fill_(50.0)
    found = gap(quarters(), "rotation", images(), projector=projector)
    assert abs(found["difference"]) < 0.05
    assert found["similarity"] > 0.99
    assert found["between_samples"] > 0.99


def test_no_gap_for_circular_translations_of_a_circular_network():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(1, 32, 3, stride=2, padding=1, padding_mode="circular"), nn.Tanh()).double()
    found = gap(net, "translation", images(side=12, content=12), stride=2, circular=True)
    assert abs(found["difference"]) < 1e-5
    assert found["similarity"] == pytest.approx(1, abs=1e-6)
    zeros = gap(net, "translation", images(side=12, content=12), stride=2)
    assert zeros["similarity"] < 0.999
