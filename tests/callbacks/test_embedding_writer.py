"""The embeddings that `Trainer.predict` writes to a file: their values, rows and place."""

import lightning as L
import numpy as np
import pytest
import torch
from hosts import quiet
from torch import nn
from torch.utils.data import DataLoader, SubsetRandomSampler

from lightning_ssl_geometry.callbacks import EmbeddingWriter, embedding_writer
from lightning_ssl_geometry.callbacks.row_files import write_sorted
from lightning_ssl_geometry.data import ClusterDataModule, DigitsDataModule
from lightning_ssl_geometry.diagnose import DiagnosedModel
from lightning_ssl_geometry.loggers import ResumableCSVLogger
from lightning_ssl_geometry.methods import (
    ContrastiveFlowModule,
    CRLTACModule,
    HSSLModule,
    SimCLRModule,
    SupervisedModule,
)
from lightning_ssl_geometry.nn import EquivariantCNN, MLPProjector, ShallowCNN, SmallCNN
from lightning_ssl_geometry.views import CropFamily

N = 41


def simclr():
    torch.manual_seed(0)
    return SimCLRModule(SmallCNN(1, 4), MLPProjector(32, 16, 8, depth=2))


class Numbered(torch.utils.data.Dataset):
    """Images with a label and, if asked for, an index that is not their position."""

    def __init__(self, n=N, keys=("image", "label", "index"), as_tuple=False):
        self.image = torch.rand(n, 1, 8, 8, generator=torch.Generator().manual_seed(0))
        self.keys, self.as_tuple = keys, as_tuple

    def __len__(self):
        return len(self.image)

    def __getitem__(self, i):
        held = {"image": self.image[i], "label": i % 3, "index": 1000 - i}
        return tuple(held[key] for key in self.keys) if self.as_tuple else {key: held[key] for key in self.keys}


def predicted(folder, module, data, writer=None, **settings):
    writer = writer or EmbeddingWriter()
    trainer = quiet(folder, callbacks=[writer], **settings)
    trainer.predict(module, data, return_predictions=False)
    return writer


def arrays(path):
    with np.load(path) as held:
        return {name: torch.from_numpy(held[name]) for name in held}


def test_each_sample_has_one_row_with_its_own_values(tmp_path, capsys):
    module, data = simclr(), Numbered()
    writer = predicted(tmp_path, module, DataLoader(data, batch_size=8))
    found = arrays(writer.path)
    assert list(found) == ["index", "h", "z", "label"]
    with torch.no_grad():
        h = module.eval()(data.image).flip(0)  # by index, which falls
        torch.testing.assert_close(found["h"], h)
        torch.testing.assert_close(found["z"], module.projector(h))
    assert found["index"].tolist() == list(range(1000 - N + 1, 1001))
    assert found["label"].tolist() == [i % 3 for i in reversed(range(N))]
    assert f"The embeddings of {N} samples: {writer.path}\n" in capsys.readouterr().out


def test_it_is_in_the_runs_folder_and_alone_there(tmp_path):
    data = DataLoader(Numbered(), batch_size=8)
    writer = predicted(tmp_path, simclr(), data, logger=ResumableCSVLogger(tmp_path, name="run", version="a"))
    assert writer.path == tmp_path / "run" / "a" / "embeddings.npz"
    assert [path.name for path in writer.path.parent.iterdir()] == ["embeddings.npz"]


def test_another_file_is_kept(tmp_path):
    (tmp_path / "embeddings.npz").write_text("of another")
    paths = [predicted(tmp_path, simclr(), DataLoader(Numbered(), batch_size=8), logger=False).path for _ in range(2)]
    assert [path.name for path in paths] == ["embeddings-1.npz", "embeddings-2.npz"]
    assert (tmp_path / "embeddings.npz").read_text() == "of another"
    for name, array in arrays(paths[0]).items():
        assert torch.equal(array, arrays(paths[1])[name])


def test_samples_without_an_index_have_their_position(tmp_path):
    found = arrays(predicted(tmp_path, simclr(), DataLoader(Numbered(keys=["image"]), batch_size=8)).path)
    assert list(found) == ["index", "h", "z"]
    assert found["index"].tolist() == list(range(N))
    torch.testing.assert_close(found["h"], simclr().eval()(Numbered().image).detach())


class Pairs:
    """Batches of the positions 1, 0, then 3, 2, and so on."""

    def __iter__(self):
        return ([place + 1, place] for place in range(0, N - 1, 2))

    def __len__(self):
        return N // 2


shuffles = pytest.mark.filterwarnings("ignore:Your `predict_dataloader`'s sampler has shuffling enabled")  # on purpose
ORDERS = {
    "shuffled": {"batch_size": 8, "shuffle": True},
    "a part of the set": {"batch_size": 8, "sampler": SubsetRandomSampler([5, 2, 30, 7, 11, 40, 0, 3, 9])},
    "an order of its own": {"batch_sampler": Pairs()},
    "workers": {"batch_size": 8, "shuffle": True, "num_workers": 1},
}


@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS.keys())
@pytest.mark.filterwarnings("ignore:You are using a custom batch sampler `Pairs`")  # Lightning's, of every such one
@shuffles
def test_without_an_index_a_loader_of_any_order_says_the_positions(tmp_path, order):
    data = DataLoader(Numbered(keys=["image"]), **order)
    found = arrays(predicted(tmp_path, simclr(), data).path)
    expected = simclr().eval()(Numbered().image).detach()
    torch.testing.assert_close(found["h"], expected[found["index"]])
    assert found["index"].tolist() == sorted(index for batch in data.batch_sampler for index in batch)  # in any order


@shuffles
def test_a_shuffled_loader_of_whole_batches_is_an_error(tmp_path):
    batches = [{"image": image[None]} for image in Numbered().image]
    said = "Expected `index` in the batches of a loader that shuffles whole batches, but got none"
    with pytest.raises(ValueError, match=said):
        predicted(tmp_path, simclr(), DataLoader(batches, batch_size=None, shuffle=True))
    found = arrays(predicted(tmp_path, simclr(), DataLoader(batches, batch_size=None)).path)
    torch.testing.assert_close(found["h"], simclr().eval()(Numbered().image).detach())


def all_but_one(rows):
    return {"image": torch.stack([row["image"] for row in rows[1:]])}


def test_a_batch_with_fewer_rows_than_the_loader_drew_needs_an_index(tmp_path):
    data = DataLoader(Numbered(), batch_size=8, collate_fn=all_but_one)
    said = "Expected `index` in a batch whose 7 rows are not the 8 samples that the loader drew, but got none"
    with pytest.raises(ValueError, match=said):
        predicted(tmp_path, simclr(), data)


def of_two(rank, folder, keys):
    data = DataLoader(Numbered(keys=keys), batch_size=8)
    writer = predicted(folder, simclr(), data, devices=2, strategy="ddp")
    return str(writer.path)


@pytest.mark.parametrize("keys", [("image", "label", "index"), ("image",)], ids=["index", "no_index"])
def test_two_processes_write_the_same_file_as_one(tmp_path, two_processes, keys):
    first, second = two_processes(of_two, tmp_path / "2", keys)
    assert first == second
    alone = arrays(predicted(tmp_path / "1", simclr(), DataLoader(Numbered(keys=keys), batch_size=8)).path)
    for name, array in arrays(first).items():
        torch.testing.assert_close(array, alone[name], rtol=1e-5, atol=1e-6)
    assert [path.name for path in (tmp_path / "2").rglob("*") if path.is_file()] == ["embeddings.npz"]


def of_two_seeds(rank, folder):
    order = torch.Generator().manual_seed(rank)
    data = DataLoader(Numbered(keys=("image",)), batch_size=8, shuffle=True, generator=order)
    with pytest.raises(ValueError, match="The processes drew different random orders") as error:
        predicted(folder, simclr(), data, devices=2, strategy="ddp")
    return str(error.value)


@pytest.mark.filterwarnings("ignore")
def test_processes_with_orders_of_their_own_would_lose_samples(tmp_path, two_processes):
    assert "Use `shuffle=False`" in two_processes(of_two_seeds, tmp_path)[0]
    assert not [path.name for path in tmp_path.rglob("*") if path.is_file()]


def supervised():
    return SupervisedModule(SmallCNN(1, 4), nn.Linear(32, 10))


def crl_tac():
    encoder, policy = ShallowCNN(image_size=4, out_dim=16, width=4), ShallowCNN(image_size=8, out_dim=9, width=4)
    return CRLTACModule(encoder, nn.Linear(16, 8), CropFamily(image_size=8, size=4, stride=2), policy, draws=2)


def hssl():
    network = EquivariantCNN(width=4, group="scale", scales=(1.0, 1.5))
    return HSSLModule(network, group="scale", projector=MLPProjector(16, 16, 8))


METHODS = {"simclr": simclr, "supervised": supervised, "crl_tac": crl_tac, "hssl": hssl}


@pytest.mark.parametrize("method", METHODS)
def test_what_is_written_is_what_a_method_observes_of_the_image(tmp_path, method):
    torch.manual_seed(0)
    module, data = METHODS[method](), DigitsDataModule(batch_size=64, subset=200)
    found = arrays(predicted(tmp_path, module, data).path)
    data.setup("test")
    caught = {}

    class Observed(L.Callback):
        def on_test_batch_end(self, trainer, pl_module, outputs, batch, *rest):
            caught.update(outputs)
            if method in ("simclr", "supervised"):  # the others' projectors do not take the backbone's output
                caught["z_image"] = module.project(module.backbone(batch["image"]))

    quiet(tmp_path, callbacks=[Observed()], limit_test_batches=1).test(module, data, verbose=False)
    order = torch.argsort(caught["index"])
    rows = torch.searchsorted(found["index"], caught["index"][order])
    torch.testing.assert_close(found["h"][rows], caught["h_image"][order])
    z = caught.get("z_image")
    assert ("z" in found) == (z is not None) == (method != "hssl")
    if z is not None:
        torch.testing.assert_close(found["z"][rows], z[order])


def test_points_of_a_flow(tmp_path):
    module = ContrastiveFlowModule(num_points=40, dim=2)
    data = ClusterDataModule(clusters=2, points_per_cluster=20)
    found = arrays(predicted(tmp_path, module, data).path)
    torch.testing.assert_close(found["h"], module.backbone(found["index"]).detach())


class Backbone(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.trunk, self.head = SmallCNN(1, 4), nn.Linear(32, 5)


@pytest.mark.parametrize("projector", [None, "head"])
def test_any_network(tmp_path, projector):
    keys = {"image": 0, "label": 1, "index": 2}
    module = DiagnosedModel(Backbone(), backbone="trunk", projector=projector, batch_keys=keys)
    data = DataLoader(Numbered(as_tuple=True), batch_size=8)
    found = arrays(predicted(tmp_path, module, data, EmbeddingWriter(module.batch_keys)).path)
    assert list(found) == ["index", "h", *(["z"] if projector else []), "label"]
    torch.testing.assert_close(found["h"], module.eval()(Numbered().image).detach().flip(0))
    if projector:
        torch.testing.assert_close(found["z"], module.projector(found["h"]).detach())


class Foreign(L.LightningModule):
    def __init__(self, answer):
        super().__init__()
        self.answer = answer

    def predict_step(self, batch, batch_idx):
        return self.answer(batch["image"].flatten(1))


def test_a_foreign_module_returns_both(tmp_path):
    module = Foreign(lambda x: {"h": x.bfloat16(), "z": x[:, :3].double(), "more": 1})
    found = arrays(predicted(tmp_path, module, DataLoader(Numbered(), batch_size=8)).path)
    x = Numbered().image.flatten(1).flip(0)
    assert torch.equal(found["h"], x.bfloat16().float())  # numpy has no bfloat16
    assert torch.equal(found["z"], x[:, :3].double())


RETURNS = "Expected `predict_step` to return h .N, D., or a dict of h and z, but got"
WRONG = {
    "no rows": (lambda x: x[:, 0], Numbered(), {}, RETURNS),
    "a list": (lambda x: [x], Numbered(), {}, RETURNS),
    "a dict without h": (lambda x: {"z": x}, Numbered(), {}, RETURNS),
    "too few": (lambda x: x[1:], Numbered(), {}, "Expected `index` of the batch to be a tensor of 7 rows, as h has"),
    "a label that is nowhere": (lambda x: x, Numbered(), {"label": "y"}, "label"),
    "a width that changes": (lambda x: x[:, : len(x)], Numbered(), {}, "Expected batches with the same arrays"),
}


@pytest.mark.parametrize(("answer", "data", "keys", "said"), WRONG.values(), ids=WRONG.keys())
def test_what_cannot_be_written_is_an_error_and_leaves_nothing(tmp_path, answer, data, keys, said):
    with pytest.raises(ValueError, match=said):
        predicted(tmp_path, Foreign(answer), DataLoader(data, batch_size=8), EmbeddingWriter(keys))
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_two_loaders_are_an_error(tmp_path):
    class OfSeveral(Foreign):
        def predict_step(self, batch, batch_idx, dataloader_idx=0):
            return batch["image"].flatten(1)

    loader = DataLoader(Numbered(), batch_size=8)
    with pytest.raises(ValueError, match="Expected one data loader to predict, but got 2"):
        predicted(tmp_path, OfSeveral(None), [loader, loader])


def test_a_trial_writes_nothing(tmp_path):
    writer = predicted(tmp_path, simclr(), DataLoader(Numbered(), batch_size=8), fast_dev_run=True)
    assert writer.path is None
    assert list(tmp_path.rglob("*.npz")) == []


@pytest.mark.parametrize("links", [True, False])
def test_the_file_is_never_there_in_part(tmp_path, monkeypatch, links):
    def write(folder, ranks, path):
        assert not list(tmp_path.glob("*.npz"))  # a process that is killed here leaves no empty file
        return write_sorted(folder, ranks, path)

    def refuse(*_):
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(embedding_writer, "write_sorted", write)
    if not links:
        monkeypatch.setattr(embedding_writer.os, "link", refuse)
    loader = DataLoader(Numbered(), batch_size=8)
    writer = predicted(tmp_path, simclr(), loader)
    assert len(arrays(writer.path)["h"]) == N
    monkeypatch.setattr(embedding_writer, "write_sorted", write_sorted)
    assert predicted(tmp_path, simclr(), loader).path.name == "embeddings-1.npz"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["embeddings-1.npz", "embeddings.npz"]
