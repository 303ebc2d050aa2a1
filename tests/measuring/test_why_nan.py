"""A value that is NaN has its reason in the run's files, whether it is undefined or its diagnostic failed."""

from typing import ClassVar

import pytest
import torch
from torch import nn

from lightning_ssl_geometry.diagnostics import Diagnostic
from lightning_ssl_geometry.diagnostics.undefined import undefined
from lightning_ssl_geometry.measuring import GeometryLoop
from lightning_ssl_geometry.quantity import Quantity
from lightning_ssl_geometry.report import read_run


class Often(Diagnostic):
    """NaN at even readouts, with a reason, and an error at every third step."""

    quantities: ClassVar = {"": Quantity(title="Often", low="Low.", high="High.")}

    def __init__(self, fails):
        super().__init__()
        self.fails, self.steps = fails, 0

    def update(self, h):
        self.steps += 1
        if self.fails and self.steps == 3:
            raise ValueError("Expected better.")

    def compute(self):
        return undefined(self, "it is even") if not self.fails and self.steps % 2 == 0 else torch.tensor(1.0)


@pytest.mark.parametrize(("fails", "reason"), [(False, "it is even"), (True, "Expected better")])
@pytest.mark.filterwarnings("ignore")
def test_a_loop_writes_down_why_a_value_is_nan(tmp_path, fails, reason):
    model = nn.Sequential(nn.Linear(4, 3))
    geometry = GeometryLoop(model, tmp_path / "run", taps={"h": "0"}, diagnostics={"often": Often(fails)}, page=False)
    for _ in range(4):
        with geometry.step():
            model(torch.randn(8, 4))
        geometry.read_out()
    geometry.close()
    notes = " ".join(read_run(tmp_path / "run").notes)
    assert f"{reason}." in notes
