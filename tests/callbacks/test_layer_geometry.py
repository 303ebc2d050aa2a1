import copy

import lightning as L
import numpy as np
import pandas as pd
import pytest
import torch
from hosts import HalvesHost, InterleavedHost, PlainHost, attach, loader, pairs, quiet, rankme
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics import MeanMetric

from lightning_ssl_geometry.callbacks import GeometryMonitor, Host, LayerGeometry
from lightning_ssl_geometry.data import DigitsDataModule
from lightning_ssl_geometry.diagnostics import EffectiveRank
from lightning_ssl_geometry.functional import alignment, effective_rank, linear_cka
from lightning_ssl_geometry.methods import HSSLModule, SimCLRModule
from lightning_ssl_geometry.nn import EquivariantCNN, MLPProjector, SmallCNN
from lightning_ssl_geometry.views import GroupViews


def model(projector=None):
    torch.manual_seed(0)
    return SimCLRModule(SmallCNN(1, 4), projector or MLPProjector(32, 16, 8, depth=2))


def digits():
    return DigitsDataModule(batch_size=64, subset=600)


@pytest.fixture
def fitted(tmp_path):
    trained = model()
    trainer = quiet(tmp_path, callbacks=[LayerGeometry()], max_epochs=2)
    trainer.fit(trained, datamodule=digits())
    return trained.eval(), trainer, tmp_path


def test_each_layer_has_its_row_with_its_own_values(fitted):
    trained, trainer, folder = fitted
    table = pd.read_csv(folder / "layers.csv", index_col="layer")
    assert table.index.tolist() == ["h", "hidden_1", "z"]
    assert table["width"].tolist() == [32, 16, 8]
    with torch.no_grad():
        views = torch.cat([torch.stack(batch["views"]) for batch in transferred(trainer, "val")], 1)
        h = trained(views.flatten(0, 1))
        layers = {"h": h, "hidden_1": hidden(trained.projector, h), "z": trained.projector(h)}
    for name, rows in layers.items():
        assert table.loc[name, "effective_rank"] == pytest.approx(effective_rank(rows).item(), rel=1e-4)
        assert table.loc[name, "alignment"] == pytest.approx(alignment(*rows.chunk(2)).item(), rel=1e-4)
    assert table.notna().all(axis=None)


def test_cka_and_representations_are_of_clean_images(fitted):
    trained, trainer, folder = fitted
    with np.load(folder / "representations.npz") as held:
        kept = {name: torch.from_numpy(held[name]) for name in held}
    assert list(kept) == ["h", "hidden_1", "z", "index", "label"]
    batches = transferred(trainer, "val")
    image, index, label = (torch.cat([batch[name] for batch in batches]) for name in ("image", "index", "label"))
    place = {int(i): row for row, i in enumerate(index)}
    rows = torch.tensor([place[int(i)] for i in kept["index"]])
    assert len(rows) == len(set(rows.tolist())) == 60
    assert torch.equal(label[rows], kept["label"])
    with torch.no_grad():
        torch.testing.assert_close(kept["h"], trained(image[rows]), rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(kept["z"], trained.projector(kept["h"]), rtol=1e-4, atol=1e-5)
    with np.load(folder / "geometry/val/layer_cka.npz") as held:
        assert held["values"].shape == (3, 3)
        assert held["values"][0, 2] == pytest.approx(linear_cka(kept["h"], kept["z"]).item(), rel=1e-5)


def hidden(projector, h):
    for layer in list(projector)[:-1]:
        h = layer(h)
    return h


def transferred(trainer, split):
    data = digits()
    data.setup()
    return [data.on_after_batch_transfer(batch, 0) for batch in data.val_dataloader()]


def test_training_is_the_same_bit_for_bit(tmp_path):
    bare = model()
    watched = copy.deepcopy(bare)
    for network, callbacks in [(bare, []), (watched, [LayerGeometry()])]:
        torch.manual_seed(1)
        quiet(tmp_path / str(len(callbacks)), callbacks=callbacks, max_epochs=2).fit(network, datamodule=digits())
    for name, value in bare.state_dict().items():
        assert torch.equal(value, watched.state_dict()[name]), name


def test_in_a_test_with_diagnostics_of_ones_own(tmp_path):
    callback = LayerGeometry({"rank": EffectiveRank()}, stage="test", sample_size=50)
    quiet(tmp_path, callbacks=[callback]).test(model(nn.Linear(32, 8)), datamodule=digits(), verbose=False)
    table = pd.read_csv(tmp_path / "layers.csv")
    assert table.columns.tolist() == ["layer", "width", "rank"]
    assert table["layer"].tolist() == ["h", "z"]
    with np.load(tmp_path / "representations.npz") as held:
        assert held["h"].shape == (50, 32)


def test_a_projector_of_fibers_is_seen_at_its_ends(tmp_path):
    data = DigitsDataModule(batch_size=64, image_size=9, subset=300, views=GroupViews(action=None, num_views=1))
    hssl = HSSLModule(EquivariantCNN(width=4, group="scale"), group="scale")
    callback = LayerGeometry({"rank": EffectiveRank()}, stage="test")
    quiet(tmp_path, callbacks=[callback]).test(hssl, datamodule=data, verbose=False)
    assert pd.read_csv(tmp_path / "layers.csv")["layer"].tolist() == ["h", "z"]


def test_bad_input(tmp_path):
    with pytest.raises(ValueError, match=r"`stage` to be one of \('val', 'test'\), but got 'train'"):
        LayerGeometry(stage="train")
    with pytest.raises(ValueError, match="`contrast_size` >= 2, but got 1"):
        LayerGeometry(sample_size=1)
    with pytest.raises(ValueError, match="`taps` for PlainHost, whose validation step returns none of h, z: name its"):
        quiet(tmp_path, callbacks=[LayerGeometry()]).fit(PlainHost(), loader(), loader(seed=1))
    only_z = LayerGeometry(taps={"z": "head"})
    with pytest.raises(ValueError, match="the val step to have `h` for LayerGeometry, but it has index, z"):
        quiet(tmp_path / "z", callbacks=[only_z]).fit(PlainHost(), loader(), loader(seed=1))

    class Asks(MeanMetric):
        def update(self, latent):
            super().update(latent)

    callback = LayerGeometry({"asks": Asks()}, stage="test")
    with pytest.raises(ValueError, match="`latent` for the diagnostic 'asks', but the test step has only h, h_image"):
        quiet(tmp_path, callbacks=[callback]).test(model(), datamodule=digits(), verbose=False)


@pytest.mark.parametrize("precision", ["bf16-mixed", "bf16-true"])
def test_bfloat16(tmp_path, precision):
    quiet(tmp_path, callbacks=[LayerGeometry()], precision=precision).fit(model(), datamodule=digits())
    table = pd.read_csv(tmp_path / "layers.csv", index_col="layer")
    assert table.index.tolist() == ["h", "hidden_1", "z"]
    assert (table["effective_rank"] > 1).all()
    with np.load(tmp_path / "representations.npz") as held:
        assert held["z"].dtype == np.float32


class Collapsed(nn.Module):
    """Maps everything to one point."""

    def forward(self, x):
        return torch.full((len(x), 3), 0.1) + 0 * x[:, :3]


def test_a_collapsed_layer_has_no_similarity_and_ends_nothing(tmp_path):
    quiet(tmp_path, callbacks=[LayerGeometry(stage="test")]).test(
        model(Collapsed()), datamodule=digits(), verbose=False
    )
    with np.load(tmp_path / "geometry/test/layer_cka.npz") as held:
        assert np.isnan(held["values"]).tolist() == [[False, True], [True, True]]
        assert held["values"][0, 0] == pytest.approx(1)
    assert pd.read_csv(tmp_path / "layers.csv")["layer"].tolist() == ["h", "z"]


class Foreign(PlainHost):
    """A host of somebody else's that returns what is observed; its samples are numbered in their label's column."""

    def __init__(self, fails=False):
        super().__init__()
        self.fails = fails

    def validation_step(self, batch, batch_idx):
        if self.fails and batch_idx:
            raise RuntimeError("out of memory")
        x1, x2, index = batch
        return {"h": torch.stack([self.trunk(x1), self.trunk(x2)]), "projector": self.head, "index": index}


class OfOneRank(torch.utils.data.IterableDataset):
    """All of it on rank 0, nothing on the others."""

    def __init__(self, rank):
        self.rank = rank

    def __iter__(self):
        return iter([] if self.rank else list(numbered(8, 4).dataset))


def numbered(n, batch_size):
    data = pairs(n)
    return DataLoader(TensorDataset(*data.tensors[:2], torch.arange(n)), batch_size=batch_size)


def sharded(rank, folder, n, batch_size):
    torch.manual_seed(0)
    trainer = quiet(folder, callbacks=[LayerGeometry({"rank": EffectiveRank()})], devices=2, strategy="ddp")
    trainer.fit(Foreign(), loader(), numbered(n, batch_size))
    if rank:
        return None  # the other one writes
    with np.load(folder / "representations.npz") as held:
        return held["index"].tolist()


@pytest.mark.parametrize("batch_size", [8, 20])
def test_two_processes_keep_each_sample_once(tmp_path, two_processes, batch_size):
    assert sorted(two_processes(sharded, tmp_path, 41, batch_size)[0]) == list(range(41))


def without_a_batch(rank, folder):
    trainer = quiet(folder, callbacks=[LayerGeometry({"rank": EffectiveRank()})], devices=2, strategy="ddp")
    with pytest.raises(ValueError, match=r"batches of the val set on each of 2 processes .*, but 1 had none"):
        trainer.validate(Foreign(), DataLoader(OfOneRank(rank), batch_size=4), verbose=False)
    return True


def test_a_process_without_a_batch_is_an_error_on_all(tmp_path, two_processes):
    assert two_processes(without_a_batch, tmp_path) == [True, True]


def test_an_interrupted_validation_leaves_nothing_to_the_next(tmp_path):
    callback = LayerGeometry({"rank": EffectiveRank()})
    with pytest.raises(RuntimeError, match="out of memory"):
        quiet(tmp_path, callbacks=[callback]).validate(Foreign(fails=True), numbered(40, 8), verbose=False)
    quiet(tmp_path, callbacks=[callback]).validate(Foreign(), numbered(6, 3), verbose=False)
    with np.load(tmp_path / "representations.npz") as held:
        assert sorted(held["index"].tolist()) == list(range(6))


def foreign(kind=PlainHost):
    """A host with a projector of two linear layers."""
    torch.manual_seed(0)
    host = kind()
    host.head = nn.Sequential(nn.Linear(10, 5), nn.ReLU(), nn.Linear(5, 4, bias=False))
    return host


TAPS = {"h": "trunk", "z": "head", "projector": "head"}
LABELLED = {"views": [0, 1], "label": 2}


def layers_by_hand(host, batches):
    """The rows of each layer, all first views before all second views."""
    x = torch.cat([torch.cat([batch[view] for batch in batches]) for view in (0, 1)])
    with torch.no_grad():
        h = host.eval().trunk(x)
        return {"h": h, "hidden_1": host.head[0](h).relu(), "z": host.head(h)}


def without_validation(kind):
    return type("Silent", (kind,), {"validation_step": L.LightningModule.validation_step})


SILENT = pytest.mark.filterwarnings("ignore:You passed in a `val_dataloader` but have no `validation_step`")


@SILENT
@pytest.mark.parametrize(
    ("kind", "layout"),
    [
        (PlainHost, "calls"),
        (HalvesHost, "halves"),
        (InterleavedHost, "interleaved"),
        (without_validation(PlainHost), "calls"),
        (without_validation(HalvesHost), "halves"),
    ],
)
def test_the_layers_of_a_host_are_named_by_taps(tmp_path, kind, layout):
    host = foreign(kind)
    places = {"taps": TAPS, "view_layout": layout, "batch_keys": LABELLED}
    trainer = quiet(tmp_path, callbacks=[LayerGeometry(host=Host(**places))], max_epochs=2, num_sanity_val_steps=1)
    trainer.fit(host, loader(), loader(seed=1))
    table = pd.read_csv(tmp_path / "layers.csv", index_col="layer")
    assert table["width"].to_dict() == {"h": 10, "hidden_1": 5, "z": 4}
    expected = layers_by_hand(host, list(loader(seed=1)))
    for name, rows in expected.items():
        assert table.loc[name, "effective_rank"] == pytest.approx(rankme(rows), rel=1e-4)
        assert table.loc[name, "alignment"] == pytest.approx(alignment(*rows.chunk(2)).item(), rel=1e-4)
    assert "label_agreement_fine" in table
    with np.load(tmp_path / "representations.npz") as held:
        assert sorted(held["index"]) == list(range(40))
        assert held["label"].tolist() == pairs(seed=1).tensors[2][held["index"]].tolist()
        for name, rows in expected.items():
            torch.testing.assert_close(torch.from_numpy(held[name]), rows[:40][held["index"]])


@SILENT
@pytest.mark.parametrize("kind", [PlainHost, without_validation(PlainHost)])
def test_the_training_of_a_host_is_the_same_bit_for_bit(tmp_path, kind):
    bare, watched = foreign(kind), foreign(kind)
    for host, callbacks in [(bare, []), (watched, [LayerGeometry(taps=TAPS, batch_keys=LABELLED)])]:
        torch.manual_seed(1)
        trainer = quiet(tmp_path / str(len(callbacks)), callbacks=callbacks, max_epochs=2)
        trainer.fit(host, DataLoader(pairs(), batch_size=8, shuffle=True), loader(seed=1))
    assert bare.state_dict().keys() == watched.state_dict().keys()
    for name, value in bare.state_dict().items():
        assert torch.equal(value, watched.state_dict()[name]), name


class Inverted(nn.Module):
    """Two views of a vector in [0, 1]."""

    def forward(self, image, index, epoch):
        return image, 1 - image


def test_views_are_made_of_the_images_of_a_batch(tmp_path):
    host, x = foreign(), torch.rand(40, 6)
    callback = LayerGeometry(taps=TAPS, batch_keys={"image": 0}, augment=Inverted())
    quiet(tmp_path, callbacks=[callback]).validate(
        host, DataLoader(TensorDataset(x, x, torch.zeros(40)), batch_size=8), verbose=False
    )
    rows = layers_by_hand(host, [(x, 1 - x)])["z"]
    table = pd.read_csv(tmp_path / "layers.csv", index_col="layer")
    assert table.loc["z", "alignment"] == pytest.approx(alignment(*rows.chunk(2)).item(), rel=1e-4)


def test_one_view_has_no_alignment_and_says_so(tmp_path):
    class OneView(PlainHost):
        def validation_step(self, batch, batch_idx):
            self.trunk(batch[0])  # as in lightly's benchmarks: the projection head is not called

    callback = LayerGeometry(taps=TAPS, batch_keys={"label": 2})
    with pytest.warns(UserWarning, match="With one view of each sample .* leaves out: alignment, label_agreement"):
        quiet(tmp_path, callbacks=[callback]).validate(foreign(OneView), loader(), verbose=False)
    table = pd.read_csv(tmp_path / "layers.csv", index_col="layer")
    assert table.index.tolist() == ["h", "hidden_1", "z"]
    assert "effective_rank" in table
    assert "alignment" not in table


def test_without_a_projector_the_ends_are_compared(tmp_path):
    host = foreign()
    callback = LayerGeometry(taps={"h": "trunk", "z": "head"})
    quiet(tmp_path, callbacks=[callback]).validate(host, loader(), verbose=False)
    table = pd.read_csv(tmp_path / "layers.csv", index_col="layer")
    expected = layers_by_hand(host, list(loader()))
    assert table["width"].to_dict() == {"h": 10, "z": 4}
    assert table.loc["z", "effective_rank"] == pytest.approx(rankme(expected["z"]), rel=1e-4)


@SILENT
@pytest.mark.parametrize("kind", [PlainHost, without_validation(PlainHost)])
@pytest.mark.parametrize(
    ("places", "message"),
    [
        ({"taps": {"h": "trunk", "projector": "hed"}}, r"submodules of \w+, but got projector='hed'. Did you mean `h"),
        (
            {"taps": {"h": "head", "projector": "head"}},
            r"`projector` to take h \(80, 4\), but Seq.* `taps` has projector='he",
        ),
        ({"batch_keys": {"views": [0, 1], "label": 7}}, "label=7 to be in the batch, which has 3 positions"),
    ],
)
def test_what_does_not_fit_a_host_is_named_before_training(tmp_path, kind, places, message):
    host = foreign(kind)
    before = copy.deepcopy(host.state_dict())
    callback = LayerGeometry(**({"taps": TAPS, "batch_keys": LABELLED} | places))
    trainer = quiet(tmp_path, callbacks=[callback], num_sanity_val_steps=1)
    with pytest.raises(ValueError, match=message):
        trainer.fit(host, loader(), DataLoader(pairs(), batch_size=40))
    for name, value in host.state_dict().items():
        assert torch.equal(value, before[name]), name


def test_hosts_that_cannot_be_compared_are_refused():
    with pytest.raises(ValueError, match=r"one path for each name in `taps` of LayerGeometry, .* but got lists for h."):
        LayerGeometry(taps={"h": ["visual", "text"]})
    for callback in (LayerGeometry, GeometryMonitor):
        with pytest.raises(ValueError, match="Expected `taps` beside `augment`"):
            callback(augment=Inverted())
    with pytest.raises(ValueError, match="Expected `host` alone, but got `taps` beside it"):
        LayerGeometry(host=Host(TAPS), taps=TAPS)


def test_a_host_without_a_validation_set_is_told(tmp_path):
    with pytest.warns(UserWarning, match="LayerGeometry compares no layers: the Trainer was given no validation set"):
        quiet(tmp_path, callbacks=[LayerGeometry(taps=TAPS)]).fit(foreign(without_validation(PlainHost)), loader())
    assert not (tmp_path / "layers.csv").exists()


def test_beside_other_callbacks_of_an_example(tmp_path):
    def compared(scene):
        scene["CALLBACKS"].append(LayerGeometry(**scene["SEEN"]))

    scene = attach(tmp_path, "tuple_batches", before=compared)
    table = pd.read_csv(tmp_path / "layers.csv", index_col="layer")
    found = scene["trainer"].callback_metrics
    for name in ("h", "z"):
        assert table.loc[name, "effective_rank"] == pytest.approx(found[f"val/effective_rank_{name}"].item(), rel=1e-4)
