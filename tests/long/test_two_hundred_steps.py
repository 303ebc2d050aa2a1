"""Every method trains for 240 steps in each precision: loss and weights stay finite, and the loss does not rise."""

import lightning as L
import pytest
import torch
from hosts import quiet
from lightning.pytorch.plugins import MixedPrecision
from small_methods import METHODS, data

PRECISIONS = {
    "float32": {},
    "bfloat16": {"precision": "bf16-mixed"},
    "float16": {"plugins": [MixedPrecision("16-mixed", "cpu")]},  # with a scaler of gradients
}


class Losses(L.Callback):
    """Keep the loss of each step."""

    def __init__(self):
        self.seen = []

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        self.seen.append(outputs["loss"].item() if outputs else float("nan"))


# The scaler of float16 leaves out the first steps, until their gradients fit.
@pytest.mark.filterwarnings(r"ignore:Detected call of `lr_scheduler.step\(\)` before")
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("method", METHODS)
def test_two_hundred_steps_stay_finite(method, precision, tmp_path):
    losses, model = Losses(), METHODS[method]()
    trainer = quiet(tmp_path, max_epochs=40, callbacks=[losses], **PRECISIONS[precision])
    trainer.fit(model, datamodule=data(50))
    found = torch.tensor(losses.seen)
    assert len(found) == 240
    assert found.isfinite().all()
    assert all(value.isfinite().all() for value in model.state_dict().values())
    assert found[-20:].mean() < found[:20].mean() + 0.02 * found[:20].mean().abs()  # that of the flow hardly moves
