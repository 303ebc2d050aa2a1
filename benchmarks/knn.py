"""Extra memory of a kNN probe with a bank of 50,000 x 512, and seconds of its validation.

    python benchmarks/knn.py [--rounds 3]

A Trainer fits a host whose step makes up representations of two views (512 dimensions, 512 samples a batch, 50,000 an
epoch) and then validates on 10,000 samples, once with and once without `KNNProbe(bank_size=50_000)`, each in a process
of its own: the difference of their peak resident memory is the probe's. The seconds are those of predicting 10,000
queries alone, beside the matrix product that no exact search can do without.
"""

import argparse
import logging
import resource
import statistics
import subprocess
import sys
import time
import warnings

import lightning as L
import torch
from machine import machine
from torch.utils.data import DataLoader, TensorDataset

from lightning_ssl_geometry.callbacks import KNNProbe
from lightning_ssl_geometry.functional.knn import knn_predict

BANK, DIM, QUERIES, BATCH, CLASSES = 50_000, 512, 10_000, 512, 100


class Host(L.LightningModule):
    """Made-up representations, around a mean for each class, that a step returns."""

    def __init__(self):
        super().__init__()
        self.mean = torch.nn.Parameter(torch.randn(CLASSES, DIM))

    def training_step(self, batch, batch_idx):
        (label,) = batch
        h = self.mean[label] + 4 * torch.randn(2, len(label), DIM)
        return {"loss": h.square().mean(), "h": h, "label": label}

    validation_step = training_step

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=1e-3)


def fit(probe):
    """Peak resident memory of this process in MiB, after an epoch and its validation."""
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    warnings.simplefilter("ignore")
    callbacks = [KNNProbe(bank_size=BANK, num_classes=CLASSES)] if probe else []
    sets = [DataLoader(TensorDataset(torch.arange(n) % CLASSES), BATCH) for n in (BANK, QUERIES)]
    trainer = L.Trainer(
        accelerator="cpu",
        max_epochs=1,
        callbacks=callbacks,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
    )
    trainer.fit(Host(), *sets)
    if probe:
        assert trainer.callback_metrics["val/knn_probe_accuracy"] > 0.5
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def seconds(rounds):
    """Of 10,000 queries in batches of 512, and of their products with the bank alone."""
    bank, h, label = torch.randn(BANK, DIM), torch.randn(QUERIES, DIM), torch.randint(CLASSES, (BANK,))
    found = {"knn_predict": [], "the product alone": []}
    for _ in range(rounds):
        for name, times in found.items():
            began = time.perf_counter()
            for part in h.split(BATCH):
                knn_predict(part, bank, label, CLASSES) if name == "knn_predict" else part @ bank.T
            times.append(time.perf_counter() - began)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--fit", choices=["with", "without"], help="one process of the measurement")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    if options.fit:
        print(f"{fit(options.fit == 'with'):.0f}")
        return
    print(machine("lightning"))
    command = [sys.executable, __file__, "--threads", str(options.threads), "--fit"]
    peaks = {"without": [], "with": []}
    for _ in range(options.rounds):
        for which, mib in peaks.items():
            mib.append(float(subprocess.run([*command, which], capture_output=True, text=True, check=True).stdout))
    base, probed = (statistics.median(peaks[which]) for which in ("without", "with"))
    print("| process | peak resident memory, MiB |\n| --- | ---: |")
    print(f"| without the probe | {base:,.0f} |\n| with the probe | {probed:,.0f} |\n| extra | {probed - base:,.0f} |")
    print(f"\nThe bank itself: {BANK * DIM * 4 / 2**20:.0f} MiB.\n")
    print("| 10,000 queries | seconds, median (range) |\n| --- | ---: |")
    for name, times in seconds(options.rounds).items():
        print(f"| {name} | {statistics.median(times):.2f} ({min(times):.2f}-{max(times):.2f}) |")


if __name__ == "__main__":
    main()
