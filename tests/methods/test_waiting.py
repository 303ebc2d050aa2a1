"""On a GPU, a program that reads a tensor's value waits until everything before it is computed."""

import lightning as L
import pytest
import torch
from hosts import quiet
from small_methods import METHODS, data
from torch.utils._python_dispatch import TorchDispatchMode

READING = {"_local_scalar_dense", "nonzero", "masked_select", "_unique2", "equal", "is_nonzero"}
# What reads on purpose: {method: reads of a training step}.
READS = {
    "adaptive_temperature": 8,  # the temperatures are numbers, made from the spectrum of a batch
    "contrastive_flow": 2,  # the least and the largest index are compared with the number of points
    "crl_tac": 1,  # whether the policy's weights are finite, which is asked on the CPU alone
}


class Reads(TorchDispatchMode):
    """Counts the operations whose result, or its shape, is read from a tensor's values."""

    def __init__(self):
        super().__init__()
        self.found = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        masks = [x for x in args[1] if x is not None and x.dtype == torch.bool] if name == "index" else []
        self.found += [name] * (name in READING) + ["mask"] * len(masks)
        return func(*args, **(kwargs or {}))


class InSteps(L.Callback):
    """Counts the reads from the training step of a batch, whose views are made already, to the optimizer's step."""

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
