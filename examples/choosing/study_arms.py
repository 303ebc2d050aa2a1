"""The study's arms. Each changes one setting of examples/simclr/laptop.yaml, or the method."""

__all__ = ["ALIKE", "ARMS", "KNOBS", "Arm"]

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
_SIMCLR = HERE.parent / "simclr"
_LINEAR = "{class_path: torch.nn.Linear, init_args: {in_features: 128, out_features: 64}}"
_OPTIMIZER = "--model.init_args.optimizer.init_args."
_PROJECTOR = "--model.init_args.projector"
_TEMPERATURE = "--model.init_args.loss.init_args.temperature="


class Arm(NamedTuple):
    """What an arm adds to the command line, and its YAML files after laptop.yaml."""

    words: Sequence[str] = ()
    configs: Sequence[Path] = ()


def _arms(name: str, word: str, values: Sequence[str]) -> dict[str, Arm]:
    return {f"{name} {value}": Arm([f"{word}{value}"]) for value in values}


ARMS: dict[str, Arm] = {
    "base": Arm(),
    **_arms("strength", "--data.init_args.views.init_args.strength=", ["small", "large"]),
    **_arms("temperature", _TEMPERATURE, ["0.05", "0.2", "2", "100"]),
    "no projector": Arm([f"{_PROJECTOR}=torch.nn.Identity"]),
    "linear projector": Arm([f"{_PROJECTOR}={_LINEAR}"]),
    **_arms("projector depth", f"{_PROJECTOR}.init_args.depth=", ["3"]),
    **_arms("projector hidden", f"{_PROJECTOR}.init_args.hidden_dim=", ["32"]),
    **_arms("projector out", f"{_PROJECTOR}.init_args.out_dim=", ["8", "256"]),
    **_arms("weight decay", f"{_OPTIMIZER}weight_decay=", ["0", "0.1", "1"]),
    **_arms("batch", "--data.init_args.batch_size=", ["32", "128", "640"]),
    **_arms("epochs", "--trainer.max_epochs=", ["10", "20", "150"]),
    "VICReg": Arm(configs=[_SIMCLR / "vicreg.yaml"]),
    "BYOL": Arm(configs=[_SIMCLR / "byol.yaml"]),
    "BYOL without predictor": Arm(configs=[HERE / "no_predictor.yaml"]),
    "DirectCLR": Arm(configs=[HERE / "direct_clr.yaml"]),
    "unnormalised": Arm(configs=[HERE / "adaptive.yaml"]),
}
# The arms of one method, temperature and width of z: scores of z and of the loss can be compared between them.
ALIKE = [arm for arm in ARMS if arm.split()[0] in ("base", "strength", "weight", "batch", "epochs")]
ALIKE += ["projector depth 3", "projector hidden 32"]
# What one setting changes -> the arms that differ in it.
KNOBS = {
    knob: ["base", *(arm for arm in ARMS if knob in arm.split()[:2])]
    for knob in ("strength", "temperature", "projector", "weight", "batch", "epochs")
}
KNOBS["method"] = ["base", *(arm for arm, of in ARMS.items() if of.configs)]
