import lightning as L
import pytest
import torch
from hosts import quiet
from torch import nn
from torch.nn.functional import mse_loss

from lightning_ssl_geometry.data import InvertibleMLP, LatentDGPDataModule
from lightning_ssl_geometry.losses import InfoNCELoss
from lightning_ssl_geometry.methods import SimCLRModule

SPHERE = {"space": "sphere", "conditional": "von_mises_fisher"}
SIZES = {"batch_size": 16, "epoch_size": 64, "val_size": 40, "test_size": 24}


def process(dim=6, content_dim=3, mixing=None, **settings):
    mixing = mixing or InvertibleMLP(dim, candidates=200)
    return LatentDGPDataModule(dim, content_dim, mixing=mixing, **(SIZES | settings))


def drawn(data, loader):
    return [data.on_after_batch_transfer(batch, 0) for batch in loader]


def joined(batches, name="latent"):
    return torch.cat([batch[name] for batch in batches], dim=1 if name == "latent" else 0)


def epoch_of(data, epoch):
    loader = data.train_dataloader()
    loader.sampler.set_epoch(epoch)
    return drawn(data, loader)


class Record(L.LightningModule):
    """Keeps the latents that it was trained and validated on."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(()))
        self.trained, self.validated, self.tested = [], [], []

    def training_step(self, batch, batch_idx):
        self.trained.append(batch["latent"])
        self.dtypes = {name: batch[name].dtype for name in ("latent", "content", "index")}
        self.dtypes["views"] = batch["views"][0].dtype
        return self.weight * batch["views"][0].mean()

    def validation_step(self, batch, batch_idx):
        self.validated.append(batch["latent"])

    def test_step(self, batch, batch_idx):
        self.tested.append(batch)

    def predict_step(self, batch, batch_idx):
        return batch["image"]

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


@pytest.mark.parametrize("settings", [{}, SPHERE, {"space": "unbounded", "marginal": "laplace"}])
@pytest.mark.parametrize("content_dim", [0, 2, 6])
def test_a_training_batch(settings, content_dim):
    data = process(content_dim=content_dim, **settings)
    batches = epoch_of(data, 0)
    assert len(batches) == 4
    for batch in batches:
        assert set(batch) == {"views", "latent", "content", "index"}
        assert batch["latent"].shape == (2, 16, 6)
        assert batch["content"].tolist() == [True] * content_dim + [False] * (6 - content_dim)
        kept = (batch["latent"][0] == batch["latent"][1]).all(0)
        assert kept[batch["content"]].all()
        assert not kept[~batch["content"]].any()
        for view, latent in zip(batch["views"], batch["latent"], strict=True):
            assert torch.allclose(data.mixing.inverse(view), latent, atol=1e-5)


def test_evaluation_batches_have_the_anchors_as_images():
    data = process()
    for loader, size in ((data.val_dataloader(), 40), (data.test_dataloader(), 24), (data.predict_dataloader(), 24)):
        batches = drawn(data, loader)
        assert torch.equal(joined(batches, "index"), torch.arange(size))
        assert all(torch.equal(batch["image"], batch["views"][0]) for batch in batches)


def test_every_epoch_and_every_split_has_latents_of_its_own():
    data = process()
    loaders = (data.unaugmented_dataloader("val"), data.unaugmented_dataloader("test"))
    parts = [joined(epoch_of(data, epoch)) for epoch in (0, 1, 2)] + [joined(drawn(data, one)) for one in loaders]
    anchors = torch.cat([part[0] for part in parts])
    assert len(anchors.unique(dim=0)) == len(anchors) == 3 * 64 + 40 + 24
    other = joined(epoch_of(process(seed=1), 0))
    assert not (other == parts[0]).any()


def test_the_same_epoch_is_the_same_in_any_batch_size():
    whole = epoch_of(process(), 3)
    small = epoch_of(process(batch_size=4), 3)
    assert torch.equal(joined(whole), joined(small))
    assert torch.equal(joined(whole, "index"), joined(small, "index"))
    views, others = (torch.cat([batch["views"][1] for batch in batches]) for batches in (whole, small))
    assert torch.allclose(views, others)
    data = process()
    assert torch.equal(joined(drawn(data, data.unaugmented_dataloader("train"))), joined(epoch_of(data, 0)))


def rank_latents(rank, folder, batch_size):
    model = Record()
    arguments = {} if rank is None else {"devices": 2, "strategy": "ddp"}
    quiet(folder, **arguments).fit(model, datamodule=process(batch_size=batch_size))
    return model.trained, model.validated


def test_two_processes_draw_the_same_global_batches(two_processes, tmp_path):
    trained, validated = rank_latents(None, tmp_path, 16)
    ranks = two_processes(rank_latents, str(tmp_path), 8)
    for whole, kind in ((trained, 0), (validated, 1)):
        for batch, *halves in zip(whole, *(rank[kind] for rank in ranks), strict=True):
            assert all(torch.equal(batch[:, rank::2], half) for rank, half in enumerate(halves))


def test_validation_is_the_same_in_every_epoch_and_training_new(tmp_path):
    model = Record()
    quiet(tmp_path, max_epochs=2, num_sanity_val_steps=0).fit(model, datamodule=process())
    first, second = model.validated[:3], model.validated[3:]
    assert all(torch.equal(one, other) for one, other in zip(first, second, strict=True))
    assert len(torch.cat(model.trained, 1)[0].unique(dim=0)) == 128


@pytest.mark.filterwarnings("ignore:You requested to overfit but enabled:UserWarning")
def test_overfitted_batches_are_the_same_in_every_epoch(tmp_path):
    model = Record()
    quiet(tmp_path, max_epochs=2, overfit_batches=2).fit(model, datamodule=process())
    assert torch.equal(torch.cat(model.trained[:2], 1), torch.cat(model.trained[2:], 1))


def test_no_validation_set():
    assert process(val_size=0).val_dataloader() == []


def test_it_resumes_within_an_epoch(tmp_path):
    whole, first, second = Record(), Record(), Record()
    quiet(tmp_path, max_epochs=3).fit(whole, datamodule=process())
    trainer = quiet(tmp_path, max_steps=6)
    trainer.fit(first, datamodule=process())
    trainer.save_checkpoint(tmp_path / "x.ckpt")
    quiet(tmp_path, max_epochs=3).fit(second, datamodule=process(), ckpt_path=tmp_path / "x.ckpt")
    assert torch.equal(torch.cat(first.trained + second.trained, 1), torch.cat(whole.trained, 1))


@pytest.mark.parametrize("function", ["fit", "test", "validate", "predict"])
def test_a_checkpoint_brings_the_mixing_back(function, tmp_path):
    saved, other = (process(mixing=InvertibleMLP(6, candidates=200, seed=seed)) for seed in (1, 2))
    trainer = quiet(tmp_path, max_epochs=1)
    trainer.fit(Record(), datamodule=saved)
    trainer.save_checkpoint(tmp_path / "x.ckpt")
    assert not torch.equal(other.mixing.weight, saved.mixing.weight)
    getattr(quiet(tmp_path, max_epochs=2), function)(Record(), datamodule=other, ckpt_path=tmp_path / "x.ckpt")
    assert torch.equal(other.mixing.weight, saved.mixing.weight)


@pytest.mark.parametrize(
    ("precision", "dtype"), [("32-true", torch.float32), ("bf16-true", torch.bfloat16), ("64-true", torch.float64)]
)
def test_observations_have_the_precision_of_the_run_and_latents_their_own(precision, dtype, tmp_path):
    model, data = Record(), process()
    quiet(tmp_path, max_epochs=1, precision=precision).fit(model, datamodule=data)
    kinds = {"latent": torch.float32, "content": torch.bool, "index": torch.int64}
    assert model.dtypes == kinds | {"views": dtype}
    assert data.mixing.weight.dtype == torch.float32


def test_a_given_mixing_is_frozen_and_float32():
    mixing = nn.Sequential(nn.Linear(6, 9), nn.Dropout(0.5)).double()
    data = process(mixing=mixing)
    batch = epoch_of(data, 0)[0]
    assert batch["views"][0].shape == (16, 9)
    assert not batch["views"][0].requires_grad
    assert not any(parameter.requires_grad for parameter in data.mixing.parameters())
    assert torch.equal(batch["views"][0], mixing(batch["latent"][0]))


def test_without_a_mixing_it_draws_one_by_its_seed(monkeypatch):
    monkeypatch.setattr(InvertibleMLP.__init__, "__defaults__", (3, 0.2, 100, 0.0, 100_000, 0))  # 100 candidates
    one, other = LatentDGPDataModule(4, 2, seed=3), LatentDGPDataModule(4, 2, seed=4)
    assert torch.equal(one.mixing.weight, InvertibleMLP(4, seed=3).weight)
    assert not torch.equal(one.mixing.weight, other.mixing.weight)


def rank_mixing(rank, folder):
    torch.manual_seed(rank)
    data, model = process(mixing=nn.Linear(6, 9)), Record()
    own = data.mixing.weight.clone()
    quiet(folder, devices=2, strategy="ddp").test(model, datamodule=data, verbose=False)
    return own, data.mixing.weight, model.tested[0]


def test_all_processes_have_the_mixing_of_the_first(two_processes, tmp_path):
    (first, used, one), (second, other, two) = two_processes(rank_mixing, str(tmp_path))
    assert not torch.equal(first, second)
    assert torch.equal(used, first)
    assert torch.equal(other, first)
    bias = torch.cat([batch["image"] - batch["latent"][0] @ first.T for batch in (one, two)])
    assert torch.allclose(bias, bias[:1], atol=1e-5)


@pytest.mark.parametrize(
    ("mixing", "came"),
    [
        (lambda: nn.Linear(5, 9), r"RuntimeError\(.*1x6 and 5x9.*\)"),
        (lambda: InvertibleMLP(4, candidates=50), "RuntimeError"),
        (lambda: nn.Sequential(nn.Linear(6, 8), nn.Unflatten(1, (2, 4))), r"\(1, 2, 4\) from \(1, 6\)"),
        (lambda: nn.Flatten(0), r"\(6,\) from \(1, 6\)"),
        (lambda: nn.LSTM(6, 9), "a tuple"),
    ],
)
def test_a_mixing_that_does_not_map_latents_to_vectors(mixing, came):
    with pytest.raises(ValueError, match=rf"Expected `mixing` to map latents \(N, d = 6\) to \(N, D\), but got {came}"):
        process(mixing=mixing())


@pytest.mark.parametrize("settings", [{}, SPHERE])
def test_simclr_learns_from_it_without_labels(settings, tmp_path):
    torch.manual_seed(0)
    similarity = InfoNCELoss(temperature=0.5)
    model = SimCLRModule(nn.Linear(6, 8), nn.Linear(8, 6, bias=False), similarity)
    data = process(**settings)
    trainer = quiet(tmp_path, max_epochs=20)
    before = trainer.validate(model, datamodule=data, verbose=False)[0]["val/loss"]
    trainer.fit(model, datamodule=data)
    assert trainer.validate(model, datamodule=data, verbose=False)[0]["val/loss"] < before
    h = torch.cat(trainer.predict(model, datamodule=data))
    assert h.shape == (24, 8)


def test_positives_are_as_far_as_they_were_said_to_be():
    data = process(
        content_scale=[0.0, 0.1, 0.2], style_scale=0.01, space="unbounded", marginal="normal", epoch_size=4096
    )
    anchor, positive = joined(epoch_of(data, 0)).double()
    expected = torch.tensor([0, 0.1, 0.2, 0.01, 0.01, 0.01], dtype=torch.float64)
    assert mse_loss((positive - anchor).std(0) / expected.clamp(min=1e-9), (expected > 0).double()) < 1e-3


LEAST = {"batch_size": 1, "epoch_size": 1, "val_size": 0, "test_size": 1}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        *[(lambda s={name: n - 1}: process(**s), f"`{name}` .*>= {n}, but got {n - 1}") for name, n in LEAST.items()],
        (lambda: process(batch_size=1, epoch_size=1).setup("fit"), "`epoch_size` >= 2, but got 1"),
        (lambda: process(batch_size=65), "`epoch_size` of at least one batch of 65, but got 64"),
        (lambda: process(conditional="von_mises_fisher"), "`space` 'sphere' for von Mises-Fisher positives"),
        (
            lambda: process().unaugmented_dataloader("all"),
            r"`split` to be one of \('train', 'val', 'test'\), but got 'all'",
        ),
    ],
)
def test_bad_settings(call, message):
    with pytest.raises(ValueError, match=f"Expected {message}"):
        call()
