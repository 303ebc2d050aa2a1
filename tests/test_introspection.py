import pytest
import torch
from torch import nn

from lightning_ssl_geometry.introspection import (
    gradient_isolated,
    hidden_layers,
    layer_outputs,
    matching_submodules,
    submodule,
)
from lightning_ssl_geometry.spelling import one_of_these


def mlp():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 5), nn.ReLU(inplace=True), nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 2))


def test_hidden_layers_are_what_linear_layers_see():
    network, x = mlp(), torch.randn(6, 3)
    found = hidden_layers(network, x)
    assert list(found) == ["hidden_1", "hidden_2", "output"]
    torch.testing.assert_close(found["hidden_1"], network[:2](x))
    torch.testing.assert_close(found["hidden_2"], network[:4](x))
    torch.testing.assert_close(found["output"], network(x))
    assert not any(module._forward_pre_hooks for module in network.modules())


def test_hidden_layers_of_networks_without_or_behind_a_linear_layer():
    x = torch.randn(6, 3)
    assert list(hidden_layers(nn.Identity(), x)) == ["output"]
    assert list(hidden_layers(nn.Linear(3, 2), x)) == ["output"]
    normalised = nn.Sequential(nn.LayerNorm(3), nn.Linear(3, 2))
    torch.testing.assert_close(hidden_layers(normalised, x)["hidden_1"], normalised[0](x))


def test_layer_outputs_by_name():
    network, x = mlp(), torch.randn(6, 3)
    with layer_outputs(network, ["", "1"]) as run:
        found = run(x)
    torch.testing.assert_close(found[""], network(x))
    torch.testing.assert_close(found["1"], network[:2](x))


def test_names_pass_through_what_torch_compile_wraps():
    network = nn.Sequential(nn.Linear(3, 5), mlp())
    compiled = nn.Sequential(network[0], torch.compile(network[1], backend="eager"))
    assert submodule(compiled, "1.2", "taps") is network[1][2]
    assert submodule(torch.compile(network, backend="eager"), "1.2", "taps") is network[1][2]


NAMED = nn.ModuleDict(
    {"stem": nn.Linear(1, 1), "blocks": nn.ModuleList(nn.ModuleDict({"attn": nn.Linear(1, 1)}) for _ in range(11))}
)


@pytest.mark.parametrize(
    ("patterns", "names"),
    [
        ([], []),
        (["stem"], ["stem"]),
        (["blocks.*"], [f"blocks.{k}" for k in range(11)]),
        (["blocks.?"], [f"blocks.{k}" for k in range(10)]),
        (["blocks.[02].attn"], ["blocks.0.attn", "blocks.2.attn"]),
        (["*.1?", "stem", "s*"], ["stem", "blocks.10"]),  # once each, in the network's order
    ],
)
def test_a_wildcard_stands_for_letters_of_one_part_of_a_name(patterns, names):
    assert matching_submodules(NAMED, patterns, "layers") == names
    compiled = torch.compile(nn.Sequential(NAMED), backend="eager")
    assert matching_submodules(compiled, [f"0.{each}" for each in patterns], "layers") == [f"0.{n}" for n in names]


@pytest.mark.parametrize(
    ("pattern", "near"),
    [
        ("block.*", "blocks.9, blocks.8, blocks.7"),
        ("attn", "blocks.0.attn, blocks.1.attn, blocks.2.attn"),
        ("zzz", "stem, blocks"),
    ],
)
def test_a_pattern_that_matches_nothing_is_answered_with_near_names(pattern, near):
    with pytest.raises(ValueError) as refused:
        matching_submodules(NAMED, ["stem", pattern], "layers")
    said = f"Expected `layers` to name submodules of ModuleDict, but got {pattern!r}.{one_of_these(near.split(', '))}"
    assert str(refused.value) == said


def test_less_than_an_output_can_be_kept():
    with layer_outputs(mlp(), ["0", "1"], read=lambda name, z: z[:1] + 0) as run:
        found = run(torch.randn(6, 3))
    assert [len(z) for z in found.values()] == [1, 1]
    assert (found["0"] < 0).any()  # before the ReLU that works in place


def test_near_names_are_offered():
    network = nn.ModuleDict({"backbone": nn.Linear(1, 1), "head": nn.Linear(1, 1)})
    with pytest.raises(ValueError, match=r"`taps` to name .* ModuleDict, but got h='bakbone'. Did you mean `backbone`"):
        submodule(network, "bakbone", "taps", "h='bakbone'")
    with pytest.raises(ValueError, match=r"`layer` to .* but got 'zzz'. Did you mean `backbone` or `head`"):
        submodule(network, "zzz", "layer")
    with pytest.raises(ValueError, match=r"but got ''. It has none."):
        submodule(nn.Linear(1, 1), "", "layer")


def test_a_layer_that_works_in_place_leaves_the_output_of_a_block():
    torch.manual_seed(0)
    layers = [nn.Conv2d(1, 2, 1), nn.ReLU(inplace=True)]
    network, x = nn.Sequential(*layers), torch.randn(2, 1, 3, 3)
    with gradient_isolated(network, ["0"], "blocks") as outputs:
        network(x)
    assert torch.equal(outputs[0], layers[0](x))
    assert outputs[0].min() < 0
