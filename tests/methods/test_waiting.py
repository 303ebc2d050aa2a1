"""On a GPU, a program that reads a tensor's value waits until everything before it is computed."""

import lightning as L
import pytest
from hosts import quiet
from reads import Reads
from small_methods import METHODS, data

from lightning_ssl_geometry.callbacks import GeometryMonitor

# What reads on purpose: {method: reads of a training step}.
READS = {
    "adaptive_temperature": 8,  # the temperatures are numbers, made from the spectrum of a batch
    "contrastive_flow": 2,  # the least and the largest index are compared with the number of points
    "crl_tac": 1,  # whether the policy's weights are finite, which is asked on the CPU alone
}


class InSteps(L.Callback):
    """Counts the reads from the training step of a batch, whose views are made already, to its last hook."""

    def __init__(self):
        self.steps = []

    def on_train_batch_start(self, *_):
        self.steps.append(Reads())
        self.steps[-1].__enter__()

    def on_train_batch_end(self, *_):
        self.steps[-1].__exit__(None, None, None)

    def on_exception(self, *_):
        self.on_train_batch_end()


@pytest.mark.parametrize("method", METHODS)
def test_a_training_step_reads_no_values(method, tmp_path):
    counts = InSteps()
    quiet(tmp_path, max_epochs=1, callbacks=[counts], log_every_n_steps=3).fit(METHODS[method](), data(93))
    assert len(counts.steps) == 3
    assert len(counts.steps[1].found) == READS.get(method, 0), counts.steps[1].found


def test_only_an_observed_step_reads_values(tmp_path):
    """Whether h and z are finite, whether rows are those of another diagnostic, and which of the samples are kept."""
    monitor, counts = GeometryMonitor(every_n_steps=2), InSteps()
    quiet(tmp_path, max_epochs=1, callbacks=[monitor, counts], log_every_n_steps=3).fit(METHODS["simclr"](), data(93))
    assert [len(step.found) for step in counts.steps] == [7, 0, 7], [step.found for step in counts.steps]
