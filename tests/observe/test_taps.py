import pytest
import torch
from torch import nn

from lightning_ssl_geometry.observe.taps import Taps


class Host(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Linear(3, 4)
        self.head = nn.Linear(4, 2)
        self.unused = nn.Linear(1, 1)
        self.pair = Pair()

    def forward(self, x):
        self.pair(x)
        return self.head(self.backbone(x))


class Pair(nn.Module):
    def forward(self, x):
        return x, x


def observed(views, *calls):
    host, taps = Host(), Taps({"h": "backbone", "z": "head", "projector": "head"}, views)
    taps.attach(host)
    host(torch.randn(5, 3))  # before it is open
    taps.open()
    for x in calls:
        host(x)
    found = taps.close()
    host(torch.randn(5, 3))
    taps.detach()
    assert not host.backbone._forward_hooks
    return host, found


def test_the_three_layouts_see_the_same():
    x = torch.randn(2, 7, 3)
    for views, calls in [
        ("calls", [x[0], x[1]]),
        ("halves", [x.flatten(0, 1)]),
        ("interleaved", [x.transpose(0, 1).flatten(0, 1)]),
    ]:
        host, found = observed(views, *calls)
        torch.testing.assert_close(found["h"], host.backbone(x))
        torch.testing.assert_close(found["z"], host(x))
        assert found["projector"] is host.head
        assert not found["z"].requires_grad


@pytest.mark.parametrize("views", ["calls", "halves", "interleaved"])
@pytest.mark.parametrize("count", [1, 3, 4])
def test_any_number_of_views_in_every_layout(views, count):
    host, x = nn.ModuleDict({"backbone": nn.Linear(5, 3)}), torch.randn(count, 6, 5)
    taps = Taps({"h": "backbone"}, views)
    taps.attach(host)
    taps.open()
    for call in taps.calls(list(x)):
        host["backbone"](call)
    torch.testing.assert_close(taps.close()["h"], host["backbone"](x).detach())
    taps.detach()


class MultiCrop(nn.Module):
    """The backbone is called once for each size of crops, and the head once on all rows."""

    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Conv1d(1, 4, 3), nn.AdaptiveAvgPool1d(1))
        self.head = nn.Linear(4, 2)

    def forward(self, crops):
        return self.head(torch.cat([self.backbone(crop) for crop in crops]).flatten(1))


@pytest.mark.parametrize("own", [False, True])
def test_crops_of_several_sizes(own):
    large, small = torch.randn(2, 5, 1, 12), torch.randn(4, 5, 1, 6)
    host, taps = MultiCrop(), Taps({"h": "backbone"} | ({} if own else {"z": "head"}), "halves", None if own else 6)
    taps.attach(host)
    taps.open()
    if own:
        for call in taps.calls([*large, *small]):
            host.backbone(call)
    else:
        host([large.flatten(0, 1), small.flatten(0, 1)])
    found, h = taps.close(), torch.stack([host.backbone(crop).flatten(1) for crop in (*large, *small)])
    torch.testing.assert_close(found["h"], h.detach())
    if not own:
        torch.testing.assert_close(found["z"], host.head(h).detach())


@pytest.mark.parametrize(
    ("layout", "num_views", "rows", "message"),
    [
        ("halves", 3, [4], r"tap 'h' to be called on 3N rows \(`view_layout`='halves'\), got \[4\]"),
        ("halves", 4, [3, 5], r"to be called on 4N rows \(`view_layout`='halves'\), got \[3, 5\]"),
        ("interleaved", 4, [4, 4], r"to be called once on 4N rows .*, got \[4, 4\]. Each call is of one view"),
        ("calls", 4, [4], "Expected `num_views` beside `view_layout`='halves' or 'interleaved', but got 'calls', wh"),
        ("halves", 0, [4], "Expected `num_views` to be an integer >= 1, but got 0"),
    ],
)
def test_rows_that_are_no_whole_views_are_refused(layout, num_views, rows, message):
    with pytest.raises(ValueError, match=message):
        passed(layout, num_views, rows)


def passed(layout, num_views, rows):
    host = nn.ModuleDict({"backbone": nn.Linear(3, 2)})
    taps = Taps({"h": "backbone"}, layout, num_views)
    taps.attach(host)
    taps.open()
    for n in rows:
        host["backbone"](torch.randn(n, 3))
    return taps.close()


def test_bad_input():
    x = torch.randn(5, 3)
    with pytest.raises(
        ValueError, match=r"`view_layout` to be one of \('calls', 'halves', 'interleaved'\), but got 'both'"
    ):
        Taps({}, "both")
    with pytest.raises(ValueError, match=r"submodules of Host, but got h='backbon'. Did you mean `backbone`"):
        Taps({"h": "backbon"}).attach(Host())
    with pytest.raises(ValueError, match=r"h='zzz'. Did you mean `backbone`, `head`, `unused` or `pair`"):
        Taps({"h": "zzz"}).attach(Host())
    with pytest.raises(ValueError, match=r"one shape per view, but got \[\(5, 4\), \(4, 4\)\]"):
        observed("calls", x, x[:4])
    with pytest.raises(ValueError, match=r"called once on 2N rows \(`view_layout`='halves'\), got \[5\]"):
        observed("halves", x)
    with pytest.raises(ValueError, match=r"called once on 2N rows \(`view_layout`='interleaved'\), got \[4, 4\]"):
        observed("interleaved", x[:4], x[:4])
    for name, path, message in [
        ("h", "unused", r"pass through `taps` \['h'\], but 'unused' was never called"),
        ("h", "pair", r"tap 'h' \('pair'\) to return a tensor, but got a tuple of 2 tensors"),
    ]:
        host, taps = Host(), Taps({name: path})
        taps.attach(host)
        taps.open()
        with pytest.raises(ValueError, match=message):
            (host(x), taps.close())


class Towers(nn.Module):
    """A small CLIP: images (N, 3) and token numbers (N, 2)."""

    def __init__(self, width=4):
        super().__init__()
        self.visual = nn.Linear(3, 4)
        self.text = nn.Sequential(nn.Embedding(9, width), nn.Flatten(), nn.Linear(2 * width, width))
        self.visual_head = nn.Linear(4, 2)
        self.text_head = nn.Sequential(nn.Linear(width, 2))

    def forward(self, image, text):
        return self.visual_head(self.visual(image)), self.text_head(self.text(text))


INPUTS = torch.randn(5, 3), torch.arange(10).view(5, 2) % 9
BOTH = {"h": ["visual", "text"], "z": ["visual_head", "text_head"]}
MODULES = {"encoder": ["visual", "text"], "projector": ["visual_head", "text_head"]}


def looked(taps, host=None, inputs=INPUTS):
    """What the taps record if they pass the views through the host themselves."""
    host, taps = host or Towers(), Taps(taps)
    taps.attach(host)
    taps.open()
    for call in taps.calls(inputs):
        taps.forward(host, call)
    found = taps.close()
    taps.detach()
    return host, found


class NoForward(Towers):
    forward = None


NoForward.forward = type("Lacks", (), {"forward": lambda self: None}).forward
NoForward.forward.__qualname__ = "LightningModule.forward"


@pytest.mark.parametrize(
    ("host", "taps"), [(Towers, BOTH), (Towers, BOTH | MODULES), (NoForward, BOTH)], ids=["forward", "modules", "none"]
)
def test_each_tower_gets_its_view(host, taps):
    host, found = looked(taps, host())
    h, z = (host.visual(INPUTS[0]), host.text(INPUTS[1])), Towers.forward(host, *INPUTS)
    for name, expected in (("h.visual", h[0]), ("h.text", h[1]), ("z.visual_head", z[0]), ("z.text_head", z[1])):
        torch.testing.assert_close(found[name], expected.detach())
    torch.testing.assert_close(found["h"], torch.stack(h).detach())
    torch.testing.assert_close(found["z"], torch.stack(z).detach())


def test_towers_of_different_widths_have_no_joint_h():
    host, found = looked(BOTH | MODULES, Towers(width=6))
    assert "h" not in found
    assert found["h.visual"].shape == (5, 4)
    assert found["h.text"].shape == (5, 6)
    assert found["z"].shape == (2, 5, 2)
    assert found["encoder.text"] is host.text
    assert "encoder" not in found  # no module maps both kinds of input
    assert dict(found["projector"].items()) == {"visual_head": host.visual_head, "text_head": host.text_head}


def test_towers_in_the_hosts_own_step():
    host, taps = Towers(), Taps(BOTH)
    taps.attach(host)
    taps.open()
    host(*INPUTS)
    torch.testing.assert_close(taps.close()["z"], torch.stack(host(*INPUTS)).detach())
    taps.open()
    host(*INPUTS)
    host(*INPUTS)
    with pytest.raises(
        ValueError, match=r"tower 'visual' \(tap 'h.visual'\) to be called once in a step.* called 2 times"
    ):
        taps.close()


def test_one_module_may_return_the_embeddings_of_both_towers():
    host = nn.ModuleDict({"clip": Towers()})
    _, found = looked({"z": ["clip:0", "clip:1"]}, Wrapped(host["clip"]))
    torch.testing.assert_close(found["z"], torch.stack(host["clip"](*INPUTS)).detach())
    assert found.keys() == {"z", "z.0", "z.1"}


class Wrapped(nn.Module):
    def __init__(self, clip):
        super().__init__()
        self.clip = clip

    def forward(self, *x):
        return self.clip(*x)


@pytest.mark.parametrize(
    ("taps", "layout", "message"),
    [
        ({"h": ["a"]}, "calls", r"Expected `taps` h to be a path, or a list of two or more, but got \['a'\]"),
        ({"h": 3}, "calls", "Expected `taps` h to be a path, or a list of two or more, but got 3"),
        ({"h": ["a", "a"]}, "calls", "h to list different towers, .* called once per view, say h='a'"),
        ({"h": ["a", "b"], "z": ["a", "b", "c"]}, "calls", "one path for each tower, but got {'h': 2, 'z': 3}"),
        ({"h": ["a", "b"]}, "halves", "`view_layout`='calls' beside lists in `taps`.* but got 'halves'"),
        ({"h": ["a", "b:"]}, "calls", "Expected `taps` h.b_ as 'path' or 'path:part'"),
    ],
)
def test_bad_lists(taps, layout, message):
    with pytest.raises(ValueError, match=message):
        Taps(taps, layout)


@pytest.mark.parametrize(
    ("taps", "inputs", "message"),
    [
        (BOTH, INPUTS[:1], "Expected one view for each of 2 towers in `taps`, but got 1 views"),
        (
            {"h": ["visual_head", "text_head"], "z": ["visual", "text"]},
            INPUTS,
            r"h before z, but 'visual' \(z\) returned before 'visual_head' \(h\)",
        ),
        (BOTH | MODULES, INPUTS[::-1], r"`taps` encoder.visual='visual' to take a tensor of shape \(5, 2\)"),
        ({"h": ["visual", "txt"]}, INPUTS, "submodules of Towers, but got h.txt='txt'. Did you mean `text`"),
    ],
)
def test_what_towers_cannot_do_is_named(taps, inputs, message):
    with pytest.raises(ValueError, match=message):
        looked(taps, inputs=inputs)


class Tokens(nn.Module):
    """A transformer of three tokens, the first of which is the class token."""

    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(3, 12), nn.Unflatten(1, (3, 4)))
        self.head = nn.Linear(4, 2)

    def forward(self, x):
        return self.head(self.encoder(x)[:, 0])


def test_tokens_become_rows_in_the_output_and_in_the_encoder():
    x = torch.randn(2, 5, 3)
    host, found = looked({"h": "encoder:cls", "z": "head", "encoder": "encoder:cls", "projector": "head"}, Tokens(), x)
    torch.testing.assert_close(found["h"], torch.stack([host.encoder(view)[:, 0] for view in x]).detach())
    torch.testing.assert_close(found["encoder"](x[0]), found["h"][0])
    torch.testing.assert_close(found["z"], torch.stack([host(view) for view in x]).detach())


def test_the_hosts_own_step_does_not_fail_where_a_tap_does():
    host, taps = Tokens(), Taps({"h": "encoder"})
    taps.attach(host)
    taps.open()
    host(torch.randn(5, 3))
    with pytest.raises(ValueError, match=r"tokens of shape \(5, 3, 4\). Say what h is: 'encoder:cls'"):
        taps.close()


def test_a_later_layer_in_place_changes_nothing():
    host = nn.Sequential(nn.Linear(3, 4), nn.ReLU(inplace=True))
    x, taps = torch.randn(5, 3), Taps({"h": "0"})
    taps.attach(host)
    taps.open()
    host(x)
    torch.testing.assert_close(taps.close()["h"][0], host[0](x).detach())
