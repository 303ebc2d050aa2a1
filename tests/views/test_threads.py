"""How many threads make views: one for small images where idle threads sleep."""

import pytest
import torch

from lightning_ssl_geometry.views import SimCLRViews, render
from lightning_ssl_geometry.views.threads import one_thread, threads_sleep


@pytest.fixture
def two_threads():
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(threads)


@pytest.mark.parametrize(
    ("policy", "device", "asleep"),
    [("passive", "cpu", True), ("PASSIVE", "cpu", True), ("passive", "meta", False), ("active", "cpu", False)],
)
def test_threads_sleep_on_a_processor_if_they_are_told_to(monkeypatch, policy, device, asleep):
    monkeypatch.setenv("OMP_WAIT_POLICY", policy)
    assert threads_sleep(torch.device(device)) == asleep
    monkeypatch.delenv("OMP_WAIT_POLICY")
    assert not threads_sleep(torch.device(device))


def test_an_error_leaves_the_number_of_threads(two_threads):
    with one_thread():
        assert torch.get_num_threads() == 1
    with one_thread(False):
        assert torch.get_num_threads() == 2
    with pytest.raises(RuntimeError, match="of the operation"), one_thread():
        raise RuntimeError("of the operation")
    assert torch.get_num_threads() == 2


@pytest.mark.parametrize("color", ["exact", "fast"])
@pytest.mark.parametrize(("size", "threads"), [(32, 1), (127, 1), (128, 2)])
def test_the_number_of_threads_changes_no_view(two_threads, monkeypatch, color, size, threads):
    image, index, used = torch.rand(8, 3, size, size), torch.arange(8), []
    views, crop = SimCLRViews(color=color, blur=0.5), render._crop
    monkeypatch.setattr(render, "_crop", lambda *a, **k: (used.append(torch.get_num_threads()), crop(*a, **k))[1])
    monkeypatch.setenv("OMP_WAIT_POLICY", "active")
    expected = torch.cat(views(image, index))
    assert set(used) == {2}
    used.clear()
    monkeypatch.setenv("OMP_WAIT_POLICY", "passive")
    torch.testing.assert_close(torch.cat(views(image, index)), expected, rtol=0, atol=1e-6)
    assert set(used) == {threads}
    assert torch.get_num_threads() == 2
