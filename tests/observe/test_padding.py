"""The validation set of a host that has no `validation_step`: nothing of it disturbs, and each sample counts once."""

import lightning as L
import numpy as np
import pytest
import torch
from hosts import PlainHost, loader, pairs, quiet
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset, random_split

from lightning_ssl_geometry.callbacks import GeometryMonitor, KNNProbe, LinearProbe
from lightning_ssl_geometry.diagnostics import EffectiveRank
from lightning_ssl_geometry.observe.padding import without_repeats
from lightning_ssl_geometry.types import COLUMNS, SAMPLE_AXIS, Batch, Observation

KEYS = {"views": [0, 1], "label": 2}
TAPS = {"h": "trunk", "z": "head"}


class Seen(EffectiveRank):
    """Remembers the samples; not a state, so each process has its own."""

    def __init__(self):
        super().__init__()
        self.passes = []

    def update(self, h, index):
        self.passes.append((index.tolist(), h[0]))
        super().update(h)


class Labels(EffectiveRank):
    """Remembers the labels."""

    def __init__(self):
        super().__init__()
        self.passes = []

    def update(self, h, label):
        self.passes.append(label.tolist())
        super().update(h)


class StepHost(PlainHost):
    """Trains, and validates nothing."""

    validation_step = L.LightningModule.validation_step


class RandomSplit(L.LightningDataModule):
    """Draws another validation set, by the global random numbers, at each call."""

    def train_dataloader(self):
        return loader()

    def val_dataloader(self):
        return DataLoader(random_split(pairs(40), [24, 16])[1], batch_size=8)


def fitted(folder, watched):
    torch.manual_seed(3)
    host = StepHost()
    monitor = GeometryMonitor({"rank": EffectiveRank()}, stages=["probe"], taps=TAPS, batch_keys=KEYS)
    kinds = (LinearProbe, KNNProbe)
    probes = [kind(num_classes=2, taps={"h": "trunk"}, batch_keys=KEYS) for kind in kinds]
    trainer = quiet(folder, callbacks=[monitor, *probes] if watched else [], max_epochs=2)
    trainer.fit(host, datamodule=RandomSplit())
    return host


@pytest.mark.filterwarnings("ignore:You passed in a `val_dataloader` but have no `validation_step`")
def test_a_random_split_in_val_dataloader_leaves_training_as_it_is(tmp_path):
    watched = fitted(tmp_path / "a", True)
    bare = fitted(tmp_path / "b", False)
    for name, value in bare.state_dict().items():
        assert torch.equal(value, watched.state_dict()[name]), name


@pytest.mark.filterwarnings("ignore:You passed in a `val_dataloader` but have no `validation_step`")
def test_the_set_is_chosen_once_for_a_fit(tmp_path):
    chosen = Labels()
    monitor = GeometryMonitor({"labels": chosen}, stages=["probe"], taps=TAPS, batch_keys=KEYS)
    quiet(tmp_path, callbacks=[monitor], max_epochs=3).fit(StepHost(), datamodule=RandomSplit())
    passes = torch.tensor(monitor.measurements.of("probe")["labels"].passes).reshape(4, 16)  # 3 epochs, and before them
    assert (passes == passes[0]).all()


def sharded(rank, folder, n):
    torch.manual_seed(3)
    seen = Seen()
    monitor = GeometryMonitor({"seen": seen}, stages=["probe"], taps=TAPS, batch_keys=KEYS)
    probe = LinearProbe(num_classes=2, taps={"h": "trunk"}, batch_keys=KEYS)
    devices = {"devices": 2, "strategy": "ddp"} if rank is not None else {}
    trainer = quiet(folder, callbacks=[monitor, probe], **devices)
    trainer.fit(StepHost(), loader(), DataLoader(pairs(n, seed=1), batch_size=4))
    passes = monitor.measurements.of("probe")["seen"].passes
    half = passes[: len(passes) // 2]  # before training
    return [i for index, _ in half for i in index], torch.cat([h for _, h in half]).numpy()


@pytest.mark.filterwarnings("ignore:You passed in a `val_dataloader` but have no `validation_step`")
@pytest.mark.parametrize("n", [17, 16])
def test_two_processes_share_the_set_and_number_it_as_one(tmp_path, two_processes, n):
    index, h = sharded(None, tmp_path / "one", n)
    found = two_processes(sharded, tmp_path / "two", n)
    together = np.concatenate([places for places, _ in found])
    assert sorted(together.tolist()) == index == list(range(n))
    np.testing.assert_allclose(np.concatenate([rows for _, rows in found])[together.argsort()], h, rtol=1e-5)


class Supervised(StepHost):
    """Batches are (image, label)."""

    def training_step(self, batch, batch_idx):
        x, label = batch
        return cross_entropy(self(x), label)


def images(n=40, seed=0):
    x, _, label = pairs(n, seed).tensors
    return DataLoader(TensorDataset(x, label), batch_size=8)


@pytest.mark.filterwarnings("ignore:You passed in a `val_dataloader` but have no `validation_step`")
def test_probes_take_an_image_where_there_are_no_views(tmp_path):
    torch.manual_seed(3)
    keys = {"image": 0, "label": 1}
    host = Supervised()
    probe = LinearProbe(num_classes=2, taps={"h": "trunk"}, batch_keys=keys)
    trainer = quiet(tmp_path, callbacks=[probe], max_epochs=2)
    trainer.fit(host, images(), images(seed=1))
    x, label = images(seed=1).dataset.tensors
    expected = (probe._head(host.eval().trunk(x)).argmax(1) == label).float().mean()
    assert trainer.callback_metrics["val/linear_probe_accuracy"] == pytest.approx(expected.item())


@pytest.mark.filterwarnings("ignore:You passed in a `val_dataloader` but have no `validation_step`")
def test_batches_without_views_are_told_what_to_name(tmp_path):
    probe = KNNProbe(num_classes=2, taps={"h": "trunk"}, batch_keys={"label": 1})
    with pytest.raises(ValueError, match=r'the views are, or the images, such as `batch_keys={"image": 0}`, but got'):
        quiet(tmp_path, callbacks=[probe]).fit(Supervised(), images(), images(seed=1))
    monitor = GeometryMonitor({"rank": EffectiveRank()}, stages=["probe"], taps=TAPS, batch_keys={"label": 1})
    with pytest.raises(ValueError, match=r"where the views are, or the images beside `augment`, such as .*got 'label'"):
        quiet(tmp_path, callbacks=[monitor]).fit(Supervised(), images(), images(seed=1))


def test_fewer_samples_than_processes():
    data = pairs(2)
    lone = DataLoader(data, batch_size=4, sampler=DistributedSampler(data, num_replicas=3, rank=2))
    with pytest.raises(ValueError, match="a set with a sample for each of 3 processes, but got 2"):
        without_repeats({"h": torch.ones(2, 1, 3)}, lone, 0)


class Rank:
    """What Lightning's loader is on the second of two processes, with a last batch that repeats a sample."""

    def __init__(self, size, batch_size):
        self.sampler = DistributedSampler(range(size), num_replicas=2, rank=1, shuffle=False)
        self.batch_size = batch_size


def padded(n=3, **more):
    """The last batch of 2 n - 1 samples, of which the second process has n - 1 and one that repeats."""
    return without_repeats({"h": torch.zeros(2, n, 5), **more}, Rank(2 * n - 1, n), 0)


def test_every_key_is_cut_at_the_axis_of_its_samples():
    n = 3
    given = {
        "views": (torch.zeros(n, 1, 4, 4), torch.zeros(n, 1, 4, 4)),
        "g": (torch.zeros(n, 2), torch.zeros(n, 2)),
        **{name: torch.zeros(n, 7) for name in ("image", "h_image", "z_image", "log_policy", "box")},
        **{name: torch.arange(n) for name in ("label", "coarse_label", "index")},
        **{name: torch.zeros(2, n, 7) for name in ("z", "fibers", "latent")},
        "content": torch.ones(n, dtype=torch.bool),  # as many latents as samples
        "temperature": torch.ones(n),
        "loss": torch.zeros(()),
        "scores": {"accuracy": torch.zeros(())},
        "encoder": torch.nn.Identity(),
    }
    cut = padded(n, **given)
    for name, value in given.items():
        axis = SAMPLE_AXIS[name]
        if axis is None:
            assert cut[name] is value, name
        elif isinstance(value, tuple):
            assert [len(each) for each in cut[name]] == [n - 1] * 2, name
        else:
            assert cut[name].shape[axis] == n - 1, name
            assert cut[name].shape[:axis] == value.shape[:axis], name


def test_a_key_of_no_table_is_cut_where_its_shape_says_so():
    kept = torch.zeros(4, 3)  # of something else
    cut = padded(3, layer=torch.zeros(2, 3, 8), mine=torch.zeros(3, 8), kept=kept, scalar=torch.zeros(()), word="x")
    assert cut["layer"].shape == (2, 2, 8)
    assert cut["mine"].shape == (2, 8)
    assert cut["kept"] is kept
    assert cut["scalar"].ndim == 0
    assert cut["word"] == "x"
    alone = without_repeats({"index": torch.arange(3), "mine": torch.zeros(3, 8), "box": None}, Rank(5, 3), 0)
    assert alone["mine"].shape == (2, 8)


def test_a_key_of_no_table_whose_shape_does_not_say_it_is_refused_by_name():
    with pytest.raises(ValueError, match=r"'mine' to show which .* shape \(2, 2, 8\) of 2 views and 2 samples"):
        padded(2, mine=torch.zeros(2, 2, 8))
    whole = without_repeats({"h": torch.zeros(2, 2, 5), "mine": torch.zeros(2, 2, 8)}, Rank(8, 2), 0)
    assert whole["mine"].shape == (2, 2, 8)  # nothing is cut here


def test_the_table_of_axes_has_every_key():
    assert set(SAMPLE_AXIS) == set(Batch.__annotations__) | set(Observation.__annotations__)
    assert set(COLUMNS) == set(Batch.__annotations__) & set(Observation.__annotations__) - {"views", "image"}


class Layered(PlainHost):
    """Has a tap on a layer of another name: (V, N, ...)."""

    def validation_step(self, batch, batch_idx):
        self.embed(*batch[:2])


class Rows(EffectiveRank):
    def update(self, h):
        super().update(h)

    def compute(self):
        return self.rows


def seen_on_two(rank, folder):
    taps = TAPS | {"layer": "trunk.0"}
    diagnostics = {"of_h": Rows(), "of_layer": Rows()}
    monitor = GeometryMonitor(diagnostics, {"of_layer": {"h": "layer"}}, ["val"], taps=taps, batch_keys=KEYS)
    trainer = quiet(folder, callbacks=[monitor], devices=2, strategy="ddp")
    data = TensorDataset(*(tensor[:17] for tensor in pairs(40).tensors))
    trainer.fit(Layered(), loader(40), DataLoader(data, batch_size=4))
    return {name: int(trainer.callback_metrics[f"val/{name}"]) for name in diagnostics}


def test_a_tap_of_another_name_counts_each_sample_once(tmp_path, two_processes):
    assert two_processes(seen_on_two, tmp_path) == [{"of_h": 34, "of_layer": 34}] * 2
