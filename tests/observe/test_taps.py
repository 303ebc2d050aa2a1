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


def test_bad_input():
    x = torch.randn(5, 3)
    with pytest.raises(
        ValueError, match=r"`view_layout` to be one of \('calls', 'halves', 'interleaved'\), but got 'both'"
    ):
        Taps({}, "both")
    with pytest.raises(ValueError, match=r"submodules of Host, but got h='backbon'. Near: backbone"):
        Taps({"h": "backbon"}).attach(Host())
    with pytest.raises(ValueError, match=r"h='zzz'. Near: backbone, head, unused, pair"):
        Taps({"h": "zzz"}).attach(Host())
    with pytest.raises(ValueError, match=r"one shape per view, but got \[\(5, 4\), \(4, 4\)\]"):
        observed("calls", x, x[:4])
    with pytest.raises(ValueError, match=r"called once on 2N rows \(`view_layout`='halves'\), got \[5\]"):
        observed("halves", x)
    with pytest.raises(ValueError, match=r"called once on 2N rows \(`view_layout`='interleaved'\), got \[4, 4\]"):
        observed("interleaved", x[:4], x[:4])
    for name, path, message in [
        ("h", "unused", r"pass through `taps` \['h'\], but 'unused' was never called"),
        ("h", "pair", "tap 'h' to return a tensor, but got tuple"),
    ]:
        host, taps = Host(), Taps({name: path})
        taps.attach(host)
        taps.open()
        with pytest.raises(ValueError, match=message):
            (host(x), taps.close())
