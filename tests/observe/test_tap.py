"""What a path with parts picks from an output, and what it says where there is no such part."""

from collections import OrderedDict
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from lightning_ssl_geometry.observe.tap import PickedModule, Tap, tower_names

TOKENS = torch.randn(4, 7, 3, generator=torch.Generator().manual_seed(0))
MAP = torch.arange(48.0).reshape(4, 3, 2, 2)


@pytest.mark.parametrize(
    ("text", "output", "expected"),
    [
        ("m", torch.ones(4, 3), torch.ones(4, 3)),
        ("m", torch.ones(4, 3, 2, 5), torch.ones(4, 30)),  # a feature map
        ("m", torch.ones(4, 3, 1, 1), torch.ones(4, 3)),
        ("m", torch.ones(4, 3, 1), torch.ones(4, 3)),
        ("m", torch.ones(4, 1, 3), torch.ones(4, 3)),
        ("m:cls", TOKENS, TOKENS[:, 0]),
        ("m:mean", TOKENS, TOKENS.mean(1)),
        ("m:patch_mean", TOKENS, TOKENS[:, 1:].mean(1)),
        ("m:mean", MAP, MAP.mean((2, 3))),
        ("m:mean_nhwc", MAP, MAP.mean((1, 2))),
        ("m:flatten", TOKENS, TOKENS.reshape(4, 21)),
        ("m:1", (torch.zeros(4, 3), torch.ones(4, 3)), torch.ones(4, 3)),
        ("m:0:mean", [TOKENS, None], TOKENS.mean(1)),
        ("m:last:cls", {"last": TOKENS}, TOKENS[:, 0]),
        ("m:last:cls", OrderedDict(last=TOKENS), TOKENS[:, 0]),
        ("m:cls", {"cls": torch.ones(4, 3)}, torch.ones(4, 3)),  # a key, since the output is no tensor
        ("m:a:b", SimpleNamespace(a={"b": torch.ones(4, 3)}), torch.ones(4, 3)),
        ("m.n:0", (torch.ones(4, 3),), torch.ones(4, 3)),
    ],
)
def test_it_picks_a_part(text, output, expected):
    torch.testing.assert_close(Tap("h", text)(output), expected)


SAYS = "Say what h is: 'm:cls' .the first token., 'm:mean' .the mean over all tokens, or "


@pytest.mark.parametrize(
    ("text", "output", "message"),
    [
        ("m", TOKENS, rf"tap 'h' \('m'\) to return rows \(N, D\), but got tokens of shape \(4, 7, 3\). {SAYS}"),
        ("m", torch.ones(4), r"tap 'h' \('m'\) to return rows \(N, D\), but got shape \(4,\)"),
        ("m", (TOKENS, 1), "to return a tensor, but got a tuple of Tensor. Name a part of it, such as 'm:0'"),
        ("m", {"x": TOKENS}, "to return a tensor, but got a dict of 'x'. Name a part of it, such as 'm:x'"),
        ("m", None, "to return a tensor, but got one NoneType.$"),
        ("m:x", None, "to have a part 'x', but got one NoneType.$"),
        ("m:2", (TOKENS, TOKENS), "to have a part '2', but got a tuple of 2 tensors .4, 7, 3. with '0', '1'"),
        (
            "m:lost",
            {"last": TOKENS},
            "to have a part 'lost', but got a dict of 'last' with 'last'. Did you mean `last`",
        ),
        ("m:last", {"last": TOKENS}, "Say what h is: 'm:last:cls'"),
        (
            "m:clss",
            TOKENS,
            r"\('m:clss'\) to name one of cls, mean, patch_mean, mean_nhwc, flatten, but got 'clss'.* mean `cls`",
        ),
        ("m:cls", MAP, r"to return tokens \(N, T, D\) for 'cls', but got \(4, 3, 2, 2\)"),
        ("m:mean", torch.ones(4, 3), r"tokens \(N, T, D\) or a map \(N, D, H, W\) for 'mean', but got \(4, 3\)"),
        ("m:patch_mean", torch.ones(4, 1, 3), r"tokens \(N, T, D\) for 'patch_mean', but got \(4, 1, 3\)"),
        ("m:cls:cls", TOKENS, r"tokens \(N, T, D\) for 'cls', but got \(4, 3\)"),
    ],
)
def test_what_is_not_there_is_named(text, output, message):
    with pytest.raises(ValueError, match=message):
        Tap("h", text)(output)


@pytest.mark.parametrize("text", ["", ":cls", "m:", "m::cls", 3])
def test_an_empty_part_is_refused(text):
    with pytest.raises(ValueError, match=r"Expected `taps` h as 'path' or 'path:part', such as 'encoder:cls', but got"):
        Tap("h", text)


def test_a_picked_module_returns_rows():
    module = PickedModule(nn.Linear(3, 2), Tap("encoder", "m:cls"))
    torch.testing.assert_close(module(TOKENS), module.module(TOKENS)[:, 0])


@pytest.mark.parametrize(
    ("texts", "names"),
    [
        (["visual", "text"], ["visual", "text"]),
        (["model.visual.head", "model.text.head"], ["visual", "text"]),
        (["clip.vision:pooled", "clip.text:pooled"], ["vision", "text"]),
        (["clip:image", "clip:text"], ["image", "text"]),
        (["backbone", "backbone.momentum"], ["backbone", "backbone_momentum"]),
        (["a.trunk.0", "b.0"], ["a_trunk", "b"]),
        (["x.a", "x.b", "x.c"], ["a", "b", "c"]),
        (["same", "same"], ["same", "same"]),
    ],
)
def test_towers_are_named_by_what_differs(texts, names):
    assert tower_names(texts) == names
