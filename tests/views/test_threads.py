"""How many threads make views: one for short operations where idle threads sleep."""

import pytest
import torch

from lightning_ssl_geometry.views import SimCLRViews
from lightning_ssl_geometry.views.threads import threads_for

CPU = torch.device("cpu")


@pytest.fixture
def two_threads():
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(threads)


@pytest.mark.parametrize(
    ("policy", "pixels", "device", "threads"),
    [
        ("passive", 2**19, CPU, 1),
        ("PASSIVE", 1, CPU, 1),
        ("passive", 2**19 + 1, CPU, 2),
        ("passive", 1, torch.device("meta"), 2),
        ("active", 1, CPU, 2),
        (None, 1, CPU, 2),
    ],
)
def test_few_pixels_have_one_thread_where_idle_ones_sleep(two_threads, monkeypatch, policy, pixels, device, threads):
    if policy is None:
        monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    else:
        monkeypatch.setenv("OMP_WAIT_POLICY", policy)
    with threads_for(pixels, device):
        assert torch.get_num_threads() == threads
    assert torch.get_num_threads() == 2


def test_an_error_leaves_the_number_of_threads(two_threads, monkeypatch):
    monkeypatch.setenv("OMP_WAIT_POLICY", "passive")
    with pytest.raises(RuntimeError, match="of the operation"), threads_for(1, CPU):
        raise RuntimeError("of the operation")
    assert torch.get_num_threads() == 2


@pytest.mark.parametrize("color", ["exact", "fast"])
def test_the_number_of_threads_changes_no_view(two_threads, monkeypatch, color):
    image, index = torch.rand(64, 3, 32, 32), torch.arange(64)
    views = SimCLRViews(color=color, blur=0.5)
    found = []
    for policy in ("active", "passive"):
        monkeypatch.setenv("OMP_WAIT_POLICY", policy)
        found.append(torch.cat(views(image, index)))
    assert torch.equal(*found)
