"""What would fail after the first epoch fails before the first step, and the rehearsal leaves the host as it was."""

import copy

import lightning as L
import pytest
import torch
from hosts import HalvesHost, PlainHost, loader, pairs, quiet
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset
from torchmetrics import MeanMetric

from lightning_ssl_geometry.callbacks import GeometryMonitor, KNNProbe, LinearProbe
from lightning_ssl_geometry.diagnostics import (
    Alignment,
    EffectiveRank,
    LabelAgreement,
    NullSpaceFraction,
    ProjectorRank,
)

TAPS = {"h": "trunk", "z": "head", "projector": "head"}
RANK = {"rank": EffectiveRank()}


class Counting(PlainHost):
    """Counts its optimizer steps, keeps a queue and a moving average, and draws random numbers."""

    def __init__(self):
        super().__init__()
        self.trunk[2] = nn.Sequential(nn.BatchNorm1d(10), nn.Dropout(0.3))
        self.teacher = copy.deepcopy(self.trunk)
        self.register_buffer("queue", torch.zeros(3, 4))
        self.seen = []
        self.steps = 0

    def training_step(self, batch, batch_idx):
        self.seen.append(batch_idx)
        batch[0] *= 1.0 + 0.1 * torch.rand(())  # a host that writes into its batch
        with torch.no_grad():
            for mine, theirs in zip(self.trunk.parameters(), self.teacher.parameters(), strict=True):
                theirs.lerp_(mine, 0.1)
            self.queue.copy_(self(batch[0])[:3])
        self.log("their/loss", 1.0)
        return super().training_step(batch, batch_idx)

    def on_before_zero_grad(self, optimizer):
        self.steps += 1


def fit(folder, host, *callbacks, train=None, val=None, **arguments):
    torch.manual_seed(0)
    trainer = quiet(folder, callbacks=list(callbacks), **arguments)
    trainer.fit(host, loader() if train is None else train, loader(seed=1) if val is None else val)
    return trainer


def refused(folder, host, *callbacks, match, **arguments):
    """The error comes before the first optimizer step and leaves the weights as they were."""
    before = copy.deepcopy(host.state_dict())
    with pytest.raises(ValueError, match=match):
        fit(folder, host, *callbacks, **arguments)
    for name, value in host.state_dict().items():
        assert torch.equal(value, before[name]), name


def test_the_host_trains_the_same_and_counts_the_same(tmp_path):
    torch.manual_seed(0)
    bare = Counting()
    watched = copy.deepcopy(bare)
    shuffled = [DataLoader(pairs(), 8, shuffle=True, generator=torch.Generator().manual_seed(3)) for _ in range(2)]
    fit(tmp_path / "a", bare, train=shuffled[0], max_epochs=2)
    fit(tmp_path / "b", watched, GeometryMonitor(taps=TAPS), train=shuffled[1], max_epochs=2)
    assert watched.seen == bare.seen == [0, 1, 2, 3, 4] * 2
    assert watched.steps == bare.steps
    for name, value in bare.state_dict().items():
        assert torch.equal(value, watched.state_dict()[name]), name


@pytest.mark.parametrize("workers", [0, 2])
def test_loaders_with_workers_and_random_transforms_give_the_same(tmp_path, workers):
    class Noisy(Dataset):
        def __len__(self):
            return 16

        def __getitem__(self, place):
            return [torch.randn(6), torch.randn(6), place % 2]

    found = []
    for place, callbacks in enumerate(([], [GeometryMonitor(taps=TAPS)])):
        torch.manual_seed(0)
        host = PlainHost()
        loaders = [DataLoader(Noisy(), 8, num_workers=workers, persistent_workers=workers > 0) for _ in range(2)]
        fit(tmp_path / str(place), host, *callbacks, train=loaders[0], val=loaders[1])
        found.append(host.state_dict())
    for name, value in found[0].items():
        assert torch.equal(value, found[1][name]), name


def test_a_validation_that_would_fail_after_an_epoch_fails_first(tmp_path):
    class Short(PlainHost):
        def validation_step(self, batch, batch_idx):
            self.log("val/zero", 0.0)  # no submodule is called

    match = r"GeometryMonitor, stage 'val', before the first step: .*`taps` \['h', 'z'\], but 'trunk' was never called"
    refused(tmp_path, Short(), GeometryMonitor(RANK, taps={"h": "trunk", "z": "head"}), match=match)


@pytest.mark.parametrize("sanity", [0, 2])
def test_lightnings_sanity_check_is_a_rehearsal(tmp_path, sanity):
    match = "stage 'val', before the first step: Expected `label` for the diagnostic 'labels', but the val step has"
    monitor = GeometryMonitor({"labels": LabelAgreement()}, taps=TAPS, stages=["val"])
    refused(tmp_path, PlainHost(), monitor, match=match, num_sanity_val_steps=sanity)


def test_a_teacher_that_the_step_does_not_call_is_named(tmp_path):
    class Teacher(PlainHost):
        def __init__(self):
            super().__init__()
            self.teacher = copy.deepcopy(self.trunk)

    for stages, match in (
        (["train"], "GeometryMonitor 'teacher', stage 'train', before the first step: .*'teacher' was never called"),
        (["probe"], "'teacher' was never called.*add 'encoder': 'teacher' and 'projector': 'head' to `taps`"),
    ):
        taps, keys = {"h": "teacher", "z": "head"}, {"views": [0, 1]}
        monitor = GeometryMonitor(RANK, taps=taps, stages=stages, name="teacher", batch_keys=keys)
        refused(tmp_path, Teacher(), monitor, match=match)
    taps = {"h": "teacher", "z": "head", "encoder": "teacher", "projector": "head"}
    trainer = fit(tmp_path, Teacher(), GeometryMonitor(RANK, taps=taps, stages=["probe"], batch_keys=keys))
    assert trainer.callback_metrics["probe/rank"] > 1  # the fix of the message works


def test_h_and_z_exchanged(tmp_path):
    monitor = GeometryMonitor(RANK, taps={"h": "head", "z": "trunk"})
    match = r"h before z, but 'trunk' \(z\) returned before 'head' \(h\). Exchange them: {'h': 'trunk', 'z': 'head'}"
    refused(tmp_path, PlainHost(), monitor, match=match)


@pytest.mark.filterwarnings("ignore:.*no `validation_step`")
def test_h_and_z_exchanged_where_a_probe_calls_them_itself(tmp_path):
    class Bare(PlainHost):
        forward, validation_step = L.LightningModule.forward, L.LightningModule.validation_step

    seen = {"taps": {"h": "head", "z": "trunk"}, "batch_keys": {"label": 2, "views": [0, 1]}}
    match = (
        r"Expected `taps` h='head' to take a tensor of shape \(8, 6\), but it raised RuntimeError: .*"
        "If the two are exchanged, say {'h': 'trunk', 'z': 'head'}"
    )
    refused(tmp_path, Bare(), LinearProbe(2, **seen), GeometryMonitor(RANK, **seen), match=match)
    seen["taps"] = {"encoder": "head", "projector": "trunk"}
    probe = GeometryMonitor(RANK, **seen, stages=["probe"])
    refused(tmp_path, Bare(), probe, match="`taps` encoder='head' .* say {'encoder': 'trunk', 'projector': 'head'}")


def test_the_error_of_the_hosts_own_step_is_said_once(tmp_path, caplog):
    class Failing(PlainHost):
        def training_step(self, batch, batch_idx):
            raise ValueError("two views, please")

    with pytest.raises(ValueError, match=r"\Atwo views, please\Z"):
        fit(tmp_path, Failing(), GeometryMonitor(RANK, taps=TAPS))
    assert "The train step is not rehearsed on a copy (ValueError)" in caplog.text
    assert "two views" not in caplog.text


def test_layouts_that_do_not_fit(tmp_path):
    match = r"once on 2N rows \(`view_layout`='halves'\), got \[8, 8\]. Each call is of one view: `view_layout='calls'`"
    refused(tmp_path, PlainHost(), GeometryMonitor(RANK, taps=TAPS, view_layout="halves"), match=match)
    match = r"`label` with 16 rows, .* but got 8. One call on both views is `view_layout='halves'` or `'interleaved'`"
    refused(tmp_path, HalvesHost(), GeometryMonitor(RANK, taps=TAPS, batch_keys={"label": 2}), match=match)


def labelled(make):
    class Labelled(Dataset):
        def __len__(self):
            return 16

        def __getitem__(self, place):
            x1, x2, label = pairs(16)[place]
            return [x1, x2, make(int(label))]

    return DataLoader(Labelled(), 8)


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda label: "cat", "but got a tuple of str. Number the classes in the data set"),
        (lambda label: nn.functional.one_hot(torch.tensor(label), 2), r"but got shape \(8, 2\). Of one-hot labels"),
        (lambda label: torch.tensor([1.0, 0.0, 1.0]), r"but got shape \(8, 3\).*several labels per sample"),
        (lambda label: 0.5 + label, r"but got torch.float64. Hand over `label.long\(\)`"),
        (lambda label: label + 5, "labels from 0 to 1, but got [56]"),
        (lambda label: -1, "labels from 0 to 1, but got -1"),
    ],
    ids=["strings", "one-hot", "several", "floats", "too-large", "negative"],
)
@pytest.mark.parametrize("probe", [LinearProbe, KNNProbe])
def test_labels_that_are_no_class_numbers(tmp_path, probe, make, match):
    callback = probe(num_classes=2, taps={"h": "trunk"}, batch_keys={"label": 2})
    match = f"{probe.__name__} '{callback.name}', stage 'val', before the first step: .*{match}"
    refused(tmp_path, PlainHost(), callback, train=labelled(make), val=labelled(make), match=match)


def test_labels_of_a_diagnostic_are_checked_too(tmp_path):
    monitor = GeometryMonitor({"labels": LabelAgreement()}, taps=TAPS, batch_keys={"label": 2}, stages=["train"])
    match = (
        r"GeometryMonitor, diagnostic 'labels' \(LabelAgreement\), stage 'train', before the first step: "
        "Expected `label` as class numbers.* but got a tuple of str"
    )
    refused(tmp_path, PlainHost(), monitor, train=labelled(lambda label: "cat"), match=match)


def test_an_error_of_a_diagnostic_names_it(tmp_path):
    class Product(MeanMetric):
        def update(self, h):
            super().update(h[0] @ h[0])

    class Text(MeanMetric):
        def update(self, h):
            super().update(h)

        def compute(self):
            return {"mean": "high"}

    for metric, match in (
        (
            Product(),
            r"GeometryMonitor, diagnostic 'a' \(Product\), stage 'val', before the first step: RuntimeError: mm",
        ),
        (
            Text(),
            r"diagnostic 'a' \(Text\), stage 'val', before the first step: Expected `mean` of `compute` to be a ten",
        ),
    ):
        refused(tmp_path, PlainHost(), GeometryMonitor({"a": metric}, taps=TAPS), match=match)


class Activation(PlainHost):
    """Its projector begins with a layer that is not linear."""

    def __init__(self):
        super().__init__()
        self.head = nn.Sequential(nn.Sequential(nn.Tanh()), nn.Linear(10, 4))


@pytest.mark.parametrize(
    ("metric", "projector", "match"),
    [
        (ProjectorRank, "head.0", "to hold a torch.nn.Linear, but got Sequential. `taps` has projector='head.0'. "
         "Linear layers elsewhere: trunk.0, head.1.$"),
        (NullSpaceFraction, "head", "to be one torch.nn.Linear, .* `taps` has projector='head'. "
         "Linear layers inside of it: head.1.$"),
    ],
)  # fmt: skip
def test_a_projector_without_its_linear_layer_is_told_where_linear_layers_are(tmp_path, metric, projector, match):
    monitor = GeometryMonitor({"a": metric()}, taps={"h": "trunk", "projector": projector})
    refused(tmp_path, Activation(), monitor, match=match)


def test_a_name_that_the_host_logs_too(tmp_path):
    class Host(PlainHost):
        def training_step(self, batch, batch_idx):
            self.log("train/rank", 3.0)
            return super().training_step(batch, batch_idx)

    monitor = GeometryMonitor(RANK, taps=TAPS, stages=["train"])
    match = "each name to be logged once, but the module itself and GeometryMonitor both log 'train/rank'"
    refused(tmp_path, Host(), monitor, match=match)
    fit(tmp_path, Host(), GeometryMonitor(RANK, taps=TAPS, stages=["train"], name="mine"))


def test_two_callbacks_with_one_name(tmp_path):
    taps = {"taps": TAPS, "batch_keys": {"label": 2}}
    twins = [GeometryMonitor(RANK, **taps), GeometryMonitor({"rank": Alignment()}, **taps)]
    refused(tmp_path, PlainHost(), *twins, match="two monitors log 'train/rank'. Give one of them a `name`")
    probes = [LinearProbe(2, **taps), LinearProbe(2, **taps, optimizer=lambda p: torch.optim.SGD(p, 0.1))]
    match = "LinearProbe 'linear_probe' and LinearProbe 'linear_probe' both log 'val/linear_probe_accuracy'"
    with pytest.raises((ValueError, RuntimeError), match=f"{match}|unique"):
        fit(tmp_path, PlainHost(), *probes)
    both = [LinearProbe(2, **taps), LinearProbe(2, **taps, name="other_probe")]
    found = fit(tmp_path, PlainHost(), *both).callback_metrics
    assert {"val/linear_probe_accuracy", "val/other_probe_accuracy", "train/other_probe_loss"} <= found.keys()


def test_a_host_that_steps_by_hand_or_cannot_be_copied_is_checked_in_its_first_step(tmp_path):
    class ByHand(PlainHost):
        def __init__(self):
            super().__init__()
            self.automatic_optimization = False

        def training_step(self, batch, batch_idx):
            optimizer = self.optimizers()
            optimizer.zero_grad()
            self.manual_backward(super().training_step(batch, batch_idx))
            optimizer.step()

    class Uncopied(PlainHost):
        def __deepcopy__(self, memo):
            raise TypeError("holds a socket")

    for place, host in enumerate((ByHand(), Uncopied())):
        monitor = GeometryMonitor(RANK, taps=TAPS, view_layout="halves", stages=["train"])
        with pytest.raises(ValueError, match=r"GeometryMonitor, stage 'train', step 1 .*\(`view_layout`='halves'\)"):
            fit(tmp_path / f"{place}a", host, monitor)
        found = fit(tmp_path / f"{place}b", host, GeometryMonitor(taps=TAPS)).callback_metrics
        assert found["train/effective_rank_h"] > 1


class ReadsItsHook(PlainHost):
    """Its step needs what its own hook left, which comes after the rehearsal."""

    def on_train_batch_start(self, batch, batch_idx):
        self.current = batch[0].mean()

    def training_step(self, batch, batch_idx):
        return super().training_step(batch, batch_idx) * (1 + self.current)


class ReadsItsTrainer(PlainHost):
    def training_step(self, batch, batch_idx):
        loss = super().training_step(batch, batch_idx)
        self.logger.log_metrics({"lr": self.trainer.optimizers[0].param_groups[0]["lr"]}, step=self.global_step)
        return loss


class Schedules(PlainHost):
    """Lets its learning rate decay within its step, by hand and by a schedule."""

    def training_step(self, batch, batch_idx):
        self.trainer.optimizers[0].param_groups[0]["lr"] *= 0.9
        self.lr_schedulers().step()
        return super().training_step(batch, batch_idx)

    def configure_optimizers(self):
        optimizer = super().configure_optimizers()
        return [optimizer], [torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)]


class Spectral(PlainHost):
    def __init__(self):
        super().__init__()
        self.head = nn.utils.parametrizations.spectral_norm(self.head)


def bare_and_watched(folder, make, train, val, *callbacks):
    found = []
    for place, each in enumerate(([], callbacks)):
        torch.manual_seed(0)
        host = make()
        trainer = fit(folder / str(place), host, *each, train=train(), val=val(), max_epochs=2)
        found.append((host.state_dict(), trainer.callback_metrics.get("their_loss"), trainer.global_step))
    (bare, loss, steps), (watched, other, count) = found
    assert (loss, steps) == (other, count)
    for name, value in bare.items():
        assert torch.equal(value, watched[name]), name


@pytest.mark.parametrize("make", [ReadsItsHook, ReadsItsTrainer, Schedules, Spectral])
def test_hosts_that_look_around_train_the_same(tmp_path, make):
    monitor = GeometryMonitor(taps=TAPS, stages=["train", "val", "probe"], batch_keys={"views": [0, 1]})
    bare_and_watched(tmp_path, make, loader, lambda: loader(seed=1), monitor)


def test_a_host_that_reads_its_trainer_is_rehearsed(tmp_path):
    class Logs(ReadsItsTrainer):
        def training_step(self, batch, batch_idx):
            self.log("train/rank", 1.0)
            return super().training_step(batch, batch_idx)

    match = "the module itself and GeometryMonitor both log 'train/rank'"
    refused(tmp_path, Logs(), GeometryMonitor(RANK, taps=TAPS, stages=["train"]), match=match)


class Normed(PlainHost):
    def __init__(self):
        super().__init__()
        self.trunk.insert(1, nn.BatchNorm1d(10))


class Resumes(IterableDataset):
    """A stream that goes on from where it was."""

    def __init__(self):
        self.place = 0

    def __iter__(self):
        for _ in range(16):
            self.place += 1
            yield pairs(200)[self.place % 200]


def persistent():
    return DataLoader(pairs(), 8, shuffle=True, num_workers=1, persistent_workers=True)


LOADERS = {
    "generator": lambda: (batch for batch in loader(80)),
    "stream": lambda: DataLoader(Resumes(), 8),
    "persistent": persistent,
}


@pytest.mark.filterwarnings("ignore:Readouts before training take batch norm as the identity", "ignore:Your `val_data")
@pytest.mark.parametrize("which", LOADERS)
def test_loaders_that_are_used_up_or_live_on_give_the_host_the_same(tmp_path, which):
    monitor = GeometryMonitor(taps=TAPS, stages=["train", "probe"], batch_keys={"views": [0, 1]}, probe_size=16)
    val = persistent if which == "persistent" else lambda: loader(seed=1)
    bare_and_watched(tmp_path, Normed, LOADERS[which], val, monitor)


def test_a_validation_that_is_used_up_is_the_hosts(tmp_path):
    monitor = GeometryMonitor(taps=TAPS, stages=["val"])
    bare_and_watched(tmp_path, PlainHost, loader, LOADERS["stream"], monitor)


@pytest.mark.filterwarnings(
    "ignore:You are using the `dataloader_iter` step", "ignore:Found `dataloader_iter` argument"
)
def test_a_host_that_takes_its_batches_itself(tmp_path):
    class Takes(PlainHost):
        def training_step(self, dataloader_iter):
            batch, batch_idx, _ = next(dataloader_iter)
            return PlainHost.training_step(self, batch, batch_idx)

    monitor = GeometryMonitor(taps=TAPS, stages=["train"], every_n_steps=1)
    trainer = quiet(tmp_path, callbacks=[monitor], max_epochs=2)
    trainer.fit(Takes(), loader(), loader(seed=1))
    assert trainer.callback_metrics["train/effective_rank_h"] > 1


def test_a_host_without_a_validation_step_is_rehearsed_as_the_probes_look(tmp_path):
    class Stacked(Dataset):
        def __len__(self):
            return 16

        def __getitem__(self, place):
            x1, x2, label = pairs(16)[place]
            return torch.stack([x1, x2]), label

    class OnStacks(PlainHost):
        def training_step(self, batch, batch_idx):
            return super().training_step([*batch[0].unbind(1), batch[1]], batch_idx)

    OnStacks.validation_step = L.LightningModule.validation_step
    probe = LinearProbe(2, taps={"h": "trunk"}, batch_keys={"views": 0, "label": 1})
    match = "stage 'val', before the first step: .*Let the data set return a list of views"
    stacks = DataLoader(Stacked(), 8)
    with pytest.warns(UserWarning, match="no `validation_step`"):
        refused(tmp_path, OnStacks(), probe, train=stacks, val=stacks, match=match)
