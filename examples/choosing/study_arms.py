"""The study's data and arms. Each arm changes one setting of examples/simclr/laptop.yaml, or the method."""

__all__ = ["DATA", "Arm", "DataSet", "alike", "arms_of", "knobs"]

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
_SIMCLR = HERE.parent / "simclr"
_LINEAR = "{class_path: torch.nn.Linear, init_args: {in_features: 128, out_features: 64}}"
_OPTIMIZER = "--model.init_args.optimizer.init_args."
_PROJECTOR = "--model.init_args.projector"
_TEMPERATURE = "--model.init_args.loss.init_args.temperature="


class Arm(NamedTuple):
    """A way to train.

    Attributes:
        knob: What differs from the arm "base".
        words: What the arm adds to the command line.
        configs: Its YAML files after laptop.yaml.
        alike: Whether method, temperature and width of z are those of "base", so that scores of z and of the loss can
            be compared.
    """

    knob: str = ""
    words: Sequence[str] = ()
    configs: Sequence[Path] = ()
    alike: bool = False


class DataSet(NamedTuple):
    """What differs between the data sets of the study.

    Attributes:
        diagnosed: YAML file with the data section on which all runs are diagnosed.
        configs: YAML files of each run after study.yaml.
        epochs: The other numbers of epochs that are tried.
        trains: Whether `diagnosed` is also the data section of the runs.
    """

    diagnosed: Path
    configs: Sequence[Path]
    epochs: Sequence[str]
    trains: bool


DATA = {
    "digits": DataSet(HERE / "diagnosed.yaml", (), ("10", "20", "150"), trains=False),
    "cifar10": DataSet(HERE / "diagnosed_cifar10.yaml", (HERE / "study_cifar10.yaml",), ("4", "8", "60"), trains=True),
}


def _arms(knob: str, word: str, *values: str, name: str = "", alike: bool = True) -> dict[str, Arm]:
    return {f"{name or knob} {value}": Arm(knob, [f"{word}{value}"], alike=alike) for value in values}


def _method(*configs: Path) -> Arm:
    return Arm("method", configs=configs)


def arms_of(data: DataSet) -> dict[str, Arm]:
    """The arms of the study on a data set."""
    return {**_ARMS, **_arms("epochs", "--trainer.max_epochs=", *data.epochs), **_METHODS}


_ARMS: dict[str, Arm] = {
    "base": Arm(alike=True),
    **_arms("strength", "--data.init_args.views.init_args.strength=", "small", "large"),
    **_arms("temperature", _TEMPERATURE, "0.05", "0.2", "2", "100", alike=False),
    "no projector": Arm("projector", [f"{_PROJECTOR}=torch.nn.Identity"]),
    "linear projector": Arm("projector", [f"{_PROJECTOR}={_LINEAR}"]),
    **_arms("projector", f"{_PROJECTOR}.init_args.depth=", "3", name="projector depth"),
    **_arms("projector", f"{_PROJECTOR}.init_args.hidden_dim=", "32", name="projector hidden"),
    **_arms("projector", f"{_PROJECTOR}.init_args.out_dim=", "8", "256", name="projector out", alike=False),
    **_arms("weight", f"{_OPTIMIZER}weight_decay=", "0", "0.1", "1", name="weight decay"),
    **_arms("batch", "--data.init_args.batch_size=", "32", "128", "640"),
}
_METHODS: dict[str, Arm] = {
    "VICReg": _method(_SIMCLR / "vicreg.yaml"),
    "BYOL": _method(_SIMCLR / "byol.yaml"),
    "BYOL without predictor": _method(HERE / "no_predictor.yaml"),
    "DirectCLR": _method(HERE / "direct_clr.yaml"),
    "unnormalised": _method(HERE / "adaptive.yaml"),
}


def alike(arms: Mapping[str, Arm]) -> list[str]:
    """The arms whose method, temperature and width of z are those of "base"."""
    return [name for name, arm in arms.items() if arm.alike]


def knobs(arms: Mapping[str, Arm]) -> dict[str, list[str]]:
    """What one setting changes -> the arms that differ in it."""
    return {
        knob: ["base", *(name for name, arm in arms.items() if arm.knob == knob)]
        for knob in dict.fromkeys(arm.knob for arm in arms.values() if arm.knob)
    }
