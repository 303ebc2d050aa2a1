import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from lightning_ssl_geometry.diagnose import load_weights


def network(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))


def equal(a, b):
    return all(torch.equal(value, b.state_dict()[key]) for key, value in a.state_dict().items())


@pytest.mark.parametrize(
    "wrap",
    [
        lambda state: state,
        lambda state: {"state_dict": state, "epoch": 3, "optimizer_states": [{"state": {}}]},
        lambda state: {"model": state},
        lambda state: {"model_state_dict": state},
    ],
    ids=["state dict", "Lightning", "model", "model_state_dict"],
)
def test_where_the_weights_lie(tmp_path, wrap):
    trained, other = network(1), network(2)
    torch.save(wrap(trained.state_dict()), tmp_path / "w.pt")
    load_weights(other, tmp_path / "w.pt")
    assert equal(trained, other)


def save(state, path):
    if path.suffix == ".safetensors":
        save_file(state, path)
    else:
        torch.save({"state_dict": state}, path)


@pytest.mark.parametrize("name", ["w.ckpt", "w.safetensors"])
def test_prefix_and_keys_to_ignore(tmp_path, name):
    trained, other = network(1), network(2)
    state = {f"backbone.{key}": value for key, value in trained.state_dict().items()}
    state |= {"backbone.fc.weight": torch.ones(2, 2), "queue": torch.ones(3)}
    save(state, tmp_path / name)
    load_weights(other, tmp_path / name, prefix="backbone.", ignore=["fc."])
    assert equal(trained, other)


def compiled_part(module):
    return nn.Sequential(torch.compile(module[0]), module[1])


@pytest.mark.parametrize("saved", [torch.compile, compiled_part, lambda module: module], ids=["all", "part", "none"])
@pytest.mark.parametrize("loaded", [torch.compile, compiled_part, lambda module: module], ids=["all", "part", "none"])
def test_weights_of_compiled_networks(tmp_path, saved, loaded):
    trained, other = network(1), network(2)
    torch.save({"state_dict": saved(trained).state_dict()}, tmp_path / "w.ckpt")
    load_weights(loaded(other), tmp_path / "w.ckpt")
    assert equal(trained, other)


@pytest.mark.parametrize("prefix", ["_orig_mod.backbone.", "backbone.", "backbone._orig_mod."])
def test_the_prefix_may_name_the_wrapper_of_a_compiled_network(tmp_path, prefix):
    trained, other = network(1), network(2)
    state = {f"_orig_mod.backbone.{key}": value for key, value in trained.state_dict().items()}
    torch.save(state | {"_orig_mod.backbone.fc.weight": torch.ones(2)}, tmp_path / "w.ckpt")
    load_weights(other, tmp_path / "w.ckpt", prefix=prefix, ignore=["fc."])
    assert equal(trained, other)


@pytest.mark.parametrize("name", ["w.ckpt", "w.safetensors"])
def test_keys_that_do_not_fit_are_named(tmp_path, name):
    path = tmp_path / name
    save({f"encoder.{key}": value for key, value in network().state_dict().items()}, path)
    with pytest.raises(
        ValueError,
        match=r"keys of Sequential, but '0.weight', '0.bias', '1.weight' and 4 more are .*`prefix` 'encoder.'",
    ):
        load_weights(network(), path)
    save(nn.Linear(3, 5).state_dict(), path)
    with pytest.raises(ValueError, match=r"'weight' in `checkpoint` .* of shape \(4, 3\), but got \(5, 3\)"):
        load_weights(nn.Linear(3, 4), path)
    with pytest.raises(ValueError, match=r"but none are missing and 'bias' too many"):
        load_weights(nn.Linear(3, 5, bias=False), path)


def test_only_weights_are_loaded(tmp_path, monkeypatch):
    path = tmp_path / "whole.pt"
    torch.save(network(), path)
    asked = []
    load = torch.load
    monkeypatch.setattr(torch, "load", lambda *args, **kwargs: asked.append(kwargs) or load(*args, **kwargs))
    with pytest.raises(ValueError, match=r"but it holds torch.nn.modules.container.Sequential, which"):
        load_weights(network(), path)
    assert [kwargs["weights_only"] for kwargs in asked] == [True]  # no second try


def test_files_that_are_no_checkpoint(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"`checkpoint` to be a file, but there is none at .*nowhere"):
        load_weights(network(), tmp_path / "nowhere.pt")
    (tmp_path / "text.pt").write_text("hello")
    with pytest.raises(ValueError, match=r"weights_only=True, but it is broken, or no checkpoint"):
        load_weights(network(), tmp_path / "text.pt")
    torch.save(network().state_dict(), tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    whole = (tmp_path / "old.pt").read_bytes()
    for end in range(1, len(whole), 9):  # torch raises errors of many kinds for them
        (tmp_path / "torn.pt").write_bytes(whole[:end])
        with pytest.raises(ValueError, match=r"weights_only=True, but it (is broken|holds)"):
            load_weights(network(), tmp_path / "torn.pt")
    torch.save({"weight": torch.ones(3000)}, tmp_path / "new.pt")
    whole = (tmp_path / "new.pt").read_bytes()
    for end in range(1, len(whole), 997):  # a cut archive is an OSError
        (tmp_path / "torn.pt").write_bytes(whole[:end])
        with pytest.raises(ValueError, match=r"weights_only=True, but it is broken"):
            load_weights(network(), tmp_path / "torn.pt")
    for held, shown in [([1], "list"), ({"epoch": 3}, "epoch"), ({}, "nothing"), ({0: torch.ones(1)}, "0")]:
        torch.save(held, tmp_path / "other.pt")
        with pytest.raises(ValueError, match=f"to hold a state dict, but it holds {shown}"):
            load_weights(network(), tmp_path / "other.pt")


def test_files_that_hold_no_safetensors(tmp_path):
    path = tmp_path / "w.safetensors"
    torch.save(network().state_dict(), path)
    with pytest.raises(ValueError, match=r"w.safetensors to hold safetensors, but it is broken: "):
        load_weights(network(), path)
    save_file(network().state_dict(), path)
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(ValueError, match=r"w.safetensors to hold safetensors, but it is broken: "):
        load_weights(network(), path)
    save_file({}, path)
    with pytest.raises(ValueError, match="to hold a state dict, but it holds nothing"):
        load_weights(network(), path)


@pytest.mark.parametrize("name", ["w.ckpt", "w.safetensors"])
def test_a_weight_that_is_there_twice_is_refused(tmp_path, name):
    state = network(1).state_dict()
    save(state | {"_orig_mod.0.weight": torch.zeros(4, 3)}, tmp_path / name)
    with pytest.raises(ValueError, match=r"each weight once, but '0.weight' is there with and without"):
        load_weights(network(), tmp_path / name)


NO_WEIGHTS = {
    "complex": (lambda x: x.to(torch.complex64), "'0.weight' in `checkpoint` .* to be real, .* got torch.complex64"),
    "sparse": (
        lambda x: x.to_sparse(),
        r"`0.weight` to be a dense tensor, .*sparse_coo.* It is in `checkpoint` ",
    ),
    "meta": (lambda x: x.to("meta"), '`0.weight` to be a dense tensor, but got one on the device "meta"'),
    "quantized": (
        lambda x: torch.quantize_per_tensor(x, 0.1, 0, torch.qint8),
        "`0.weight` to be a dense tensor, but got a quantized one",
    ),
}


@pytest.mark.filterwarnings("ignore::UserWarning")  # of torch, as it saves and reads sparse and quantized tensors
@pytest.mark.parametrize(("changed", "message"), NO_WEIGHTS.values(), ids=NO_WEIGHTS.keys())
def test_weights_of_another_kind_are_refused(tmp_path, changed, message):
    trained, other = network(1), network(2)
    state = trained.state_dict()
    torch.save(state | {"0.weight": changed(state["0.weight"])}, tmp_path / "w.pt")
    with pytest.raises(ValueError, match=message):
        load_weights(other, tmp_path / "w.pt")
    assert equal(other, network(2))
