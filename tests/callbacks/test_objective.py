"""The log of the loss that training descends: found under the name that the host gives it, or written."""

import copy
import json
import re

import lightning as L
import pytest
import torch
from hosts import ManualSteps
from lightning.pytorch.loggers import CSVLogger
from torch import nn
from torch.utils.data import DataLoader

from lightning_ssl_geometry.callbacks import RunReport
from lightning_ssl_geometry.report import read_run
from lightning_ssl_geometry.report.drawn import Drawings
from lightning_ssl_geometry.report.page import page_of

LOADER = DataLoader(torch.arange(24.0).view(12, 2), batch_size=4)


class Host(L.LightningModule):
    """Logs its loss under names that are passed on to `log`, beside another log."""

    def __init__(self, **logs):
        super().__init__()
        self.linear = nn.Linear(2, 1)
        self.logs = logs

    def training_step(self, batch, batch_idx):
        loss = self.linear(batch).square().mean()
        self.log("weight_decay_loss", self.linear.weight.square().sum(), on_epoch=True)
        for name, settings in self.logs.items():
            self.log(name, loss, **settings)
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=1e-4)


class Manual(ManualSteps, Host):
    pass


def fitted(tmp_path, host, **settings):
    torch.manual_seed(0)
    quiet = {"enable_progress_bar": False, "enable_model_summary": False, "accelerator": "cpu"}
    logger = CSVLogger(tmp_path, "run")
    trainer = L.Trainer(max_epochs=2, logger=logger, callbacks=[RunReport(table=False)], **quiet,
                        **{"log_every_n_steps": 1} | settings)  # fmt: skip
    trainer.fit(host, LOADER)
    run = read_run(logger.log_dir)
    return run, json.loads((run.folder / "run.json").read_text()).get("objective")


@pytest.mark.parametrize(
    ("logs", "settings", "found"),
    [
        ({"train_loss": {}}, {}, "train_loss"),
        ({"nll": {"on_step": False, "on_epoch": True}}, {}, "nll"),
        ({"train/ssl": {"on_step": True, "on_epoch": True}}, {}, "train/ssl"),
        ({"a": {}, "contrastive_loss": {}}, {}, "contrastive_loss"),
        ({"train_loss": {}}, {"accumulate_grad_batches": 3}, "train_loss"),
        ({}, {}, "train/objective"),
    ],
    ids=["a step", "an epoch", "both", "two names", "accumulated", "no log"],
)
def test_the_log_of_the_loss_is_found(tmp_path, logs, settings, found):
    run, objective = fitted(tmp_path, Host(**logs), **settings)
    assert objective.removesuffix("_epoch") == found
    page = page_of(run, Drawings())
    title = re.search(r'id="learning"[^>]*>.*?<h3>(.*?)</h3>', page, re.DOTALL)[1]
    assert title == ("Objective" if found == "train/objective" else found.removeprefix("train/"))
    assert page.count("The loss that training descends") == 1


def test_a_loss_that_nobody_logs_is_logged_as_the_mean_of_each_epoch(tmp_path):
    torch.manual_seed(0)
    host = Host()
    start = copy.deepcopy(host)
    run, _ = fitted(tmp_path, host)
    kept = run.scalars["train/objective"].value.tolist()
    optimizer, means = start.configure_optimizers(), []
    for _ in range(2):
        losses = []
        for batch in LOADER:
            loss = start.linear(batch).square().mean()
            losses.append(loss.item())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        means.append(sum(losses) / len(losses))
    assert kept == pytest.approx(means, rel=1e-6)
    assert run.declared["train/objective"].quantity.title == "Objective"


@pytest.mark.filterwarnings("ignore:The number of training batches")
@pytest.mark.parametrize(
    ("settings", "name"),
    [({}, "train/objective"), ({"on_epoch": True}, "my_loss"), ({"on_step": False, "on_epoch": True}, "my_loss")],
)
def test_a_loss_that_is_logged_less_than_once_per_epoch_keeps_its_name(tmp_path, settings, name):
    run, objective = fitted(tmp_path, Host(my_loss=settings), log_every_n_steps=50)
    assert objective.removesuffix("_epoch") == name
    title = re.search(r'id="learning"[^>]*>.*?<h3>(.*?)</h3>', page_of(run, Drawings()), re.DOTALL)[1]
    assert title.removesuffix("_epoch") == "my_loss"


def test_a_step_that_returns_no_loss_has_no_objective(tmp_path):
    assert fitted(tmp_path, Manual())[1] is None


def test_a_record_with_a_strange_objective_is_read(tmp_path):
    run, _ = fitted(tmp_path, Host(train_loss={}))
    record = json.loads((run.folder / "run.json").read_text())
    for strange in ([1], {"a": 1}, 3, "no such log"):
        (run.folder / "run.json").write_text(json.dumps(record | {"objective": strange}))
        assert "train_loss" in page_of(read_run(run.folder), Drawings())
