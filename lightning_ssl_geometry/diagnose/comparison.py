"""Compare diagnoses of several models on the same images."""

__all__ = [
    "compare",
    "data_in",
    "data_of",
    "diagnosis_in",
    "labels_of",
    "layer_similarity",
    "refuse_different_data",
    "refuse_too_few",
    "same_samples",
    "settings_of",
    "similarity",
]

import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from zipfile import BadZipFile, is_zipfile

import numpy as np
import torch
from numpy.lib.npyio import NpzFile
from numpy.typing import NDArray
from torch import Tensor

from lightning_ssl_geometry.diagnose.model_source import newest_version
from lightning_ssl_geometry.functional.cka import cka_between, cka_by_chance, cka_or_nan
from lightning_ssl_geometry.report import LayerSimilarity, write_comparison
from lightning_ssl_geometry.report.files import attempt
from lightning_ssl_geometry.report.panel import Panel
from lightning_ssl_geometry.report.records import read_info

_LEAST = 4  # samples of the unbiased CKA
_VIEWS = "views"
_FILE, _RECORD, _NO_LAYERS = "representations.npz", "run.json", ("index", "label")
_SEEDED = "If the samples draw their own random views, call `lightning.seed_everything(0)` before each `diagnose`."


def compare(
    diagnoses: Mapping[str, str | Path],
    output: str | Path,
    layer: str = "h",
    *,
    choosing: Sequence[Panel] = (),
    advice: Sequence[str] = (),
) -> Path:
    """Write a page that compares the diagnostics of models and of their layers, and shows the CKA between models.

    The page also has the CKA between each layer of the first model and each layer of each other model. CKA is the
    unbiased estimate, which is 0 on average for unrelated representations. The biased one grows with the widths of the
    models, so that it would compare widths.

    Args:
        diagnoses: Name of a model -> folder of its diagnosis.
        output: Path of the page. It is also returned.
        layer: Name of the layer whose outputs CKA compares. Its width may differ between models.
        choosing: Figures on which model is best, such as those of :meth:`Choice.panels`. They stand first.
        advice: Sentences on which model is best, such as those of :meth:`Choice.advice`. They stand below the title.

    Raises:
        FileNotFoundError: If a folder has no `representations.npz`.
        ValueError: If a file is broken, there are fewer than two diagnoses, their data or samples differ, or one of
            them lacks `layer`.
    """
    refuse_too_few(diagnoses)
    values, chance = similarity(diagnoses, layer), cka_by_chance(samples_of(Path(next(iter(diagnoses.values())))))
    groups = {name: [folder] for name, folder in diagnoses.items()}
    first, *others = diagnoses
    layers = [layer_similarity(diagnoses, first, other) for other in others]
    similar, title = (list(diagnoses), values), "Comparison of models"
    return write_comparison(
        groups, output, title=title, similarity=similar, layers=layers, chance=chance, choosing=choosing, advice=advice
    )


def similarity(diagnoses: Mapping[str, str | Path], layer: str = "h") -> NDArray[np.float64]:
    """Return a matrix (M, M) with the unbiased linear CKA between M models, at most 1.

    CKA compares the outputs of `layer` on the same samples. It is NaN for a model that maps all samples to the same
    output. If the diagnoses cannot be compared, the errors of :func:`compare` are raised.
    """
    outputs = list(same_samples(diagnoses, layer).values())
    refuse_few_samples(len(outputs[0]))
    return cka_or_nan(outputs, unbiased=True).numpy()


def same_samples(diagnoses: Mapping[str, str | Path], layer: str = "h") -> dict[str, Tensor]:
    """Return the outputs (n, D) of a layer of each model, of the same samples in the order of their indices.

    Raises:
        FileNotFoundError: If a folder has no `representations.npz`.
        ValueError: If the data or the samples of the diagnoses differ, or one of them lacks `layer`.
    """
    found = {name: _read(name, Path(folder), layer) for name, folder in diagnoses.items()}
    refuse_different_data({name: data_of(Path(folder)) for name, folder in diagnoses.items()}, _SEEDED)
    first, (index, _) = next(iter(found.items()))
    for name, (other, _) in found.items():
        if not torch.equal(index, other):
            shared = len(np.intersect1d(index.numpy(), other.numpy()))
            raise ValueError(
                f"Expected diagnoses of the same samples, but of {len(index)} of {first!r} and {len(other)} of "
                f"{name!r} only {shared} are. Diagnose them on the same images."
            )
    if all("checksum" in _record(Path(folder)) for folder in diagnoses.values()):  # earlier versions wrote few
        refuse_different_data({name: _seen(Path(folder)) for name, folder in diagnoses.items()}, _SEEDED)
    _refuse_different_labels(diagnoses)
    return {name: outputs for name, (_, outputs) in found.items()}


def _refuse_different_labels(diagnoses: Mapping[str, str | Path]) -> None:
    labels = {name: each for name, folder in diagnoses.items() if (each := labels_of(Path(folder))) is not None}
    for name, label in labels.items():
        first = next(iter(labels))
        if not np.array_equal(label, labels[first]):
            raise ValueError(f"Expected diagnoses with the same labels, but those of {first!r} and {name!r} differ.")


def labels_of(folder: Path) -> NDArray[np.int64] | None:
    """Return the labels of the samples of a diagnosis, in the order of their indices, or None if they have none."""
    with _opened(folder.name, folder) as held:
        return held["label"][held["index"].argsort()] if "label" in held else None


def layer_similarity(diagnoses: Mapping[str, str | Path], first: str, second: str) -> LayerSimilarity:
    """Return the unbiased linear CKA between each layer of the model `first` and each layer of the model `second`.

    The layers are those of `representations.npz`, in their order. One layer of `first` is in memory at a time.

    Raises:
        FileNotFoundError: If a folder has no `representations.npz`.
        ValueError: If the two diagnoses have different numbers of samples.
    """
    rows, columns = (_layers(name, Path(diagnoses[name])) for name in (first, second))
    ours = (_read(first, Path(diagnoses[first]), layer)[1] for layer in rows)
    theirs = [_read(second, Path(diagnoses[second]), layer)[1] for layer in columns]
    values = cka_between(ours, theirs, unbiased=True).numpy()
    return LayerSimilarity(first, second, rows, columns=columns, values=values)


def samples_of(folder: Path) -> int:
    """Return the number of samples of a diagnosis."""
    with _opened(folder.name, folder) as held:
        return len(held["index"])


def refuse_few_samples(n: int) -> None:
    """Raise a ValueError if there are too few samples for the unbiased CKA."""
    if n < _LEAST:
        raise ValueError(f"Expected at least {_LEAST} samples, which CKA between models needs, but got {n}.")


def _layers(name: str, folder: Path) -> list[str]:
    with _opened(name, folder) as held:
        return [key for key in held.files if key not in _NO_LAYERS]


def diagnosis_in(folder: Path) -> Path | None:
    """Return `folder`, or the newest `version_*` in it, if it holds the diagnosis of a model, or else None.

    Raises a ValueError if it has a diagnosis's outputs and no checkpoints, but its record is missing or broken.
    """
    held = newest_version(folder, _FILE)
    if not (held / _FILE).is_file():
        return None
    kind = _record(held).get("kind")
    if kind is None and not (held / "checkpoints").is_dir():
        raise ValueError(
            f"Expected {held / _RECORD} to be the record of a diagnosis, but it is missing or broken. Diagnose this "
            "model again."
        )
    return held if kind == "diagnosis" else None


def settings_of(folder: Path) -> dict[str, Any] | None:
    """Return the settings of the training run that was diagnosed, or None if they are not known."""
    held = _record(folder).get("settings")
    return held if isinstance(held, dict) else None


def data_in(held: Mapping[str, Any]) -> dict[str, str]:
    """Return the data of a diagnosis in words, from the entries of its `run.json`: key -> words."""
    return {key: f"{held[key]}" for key in ("data", "data_path", "image_shape", _VIEWS) if held.get(key)}


def data_of(folder: Path) -> dict[str, str]:
    """Return the data of the diagnosis in a folder, as :func:`data_in` does."""
    return data_in(_record(folder))


def refuse_different_data(seen: Mapping[str, Mapping[str, str]], remedy: str, of_views: str = "") -> None:
    """Raise a ValueError if not all of these data are the same.

    Args:
        seen: Name of a model -> its data, as :func:`data_in` returns them.
        remedy: Sentence on what to do, for the message.
        of_views: The same, if only the views differ. "": `remedy`.
    """
    first = next(iter(seen))
    for name, data in seen.items():
        if data != seen[first]:
            only_views = {**data, _VIEWS: ""} == {**seen[first], _VIEWS: ""}
            what, remedy = ("views", of_views) if only_views and of_views else ("data", remedy)
            ours, theirs = (", ".join(each.values()) for each in (seen[first], data))
            raise ValueError(
                f"Expected diagnoses of the same {what}, but those of {first!r} and {name!r} differ. {remedy} "
                f"{first!r} is of {ours}; {name!r} is of {theirs}."
            )


def refuse_too_few(models: Mapping[str, Any]) -> None:
    """Raise a ValueError if there are fewer than two models."""
    if len(models) < 2:
        raise ValueError(f"Expected at least 2 models to compare, but got {len(models)}.")


def _seen(folder: Path) -> dict[str, str]:
    return data_of(folder) | {"checksum": f"checksum {_record(folder)['checksum']}"}


def _record(folder: Path) -> dict[str, Any]:
    record = folder / _RECORD
    held, _ = attempt(str(record), lambda: read_info(record)[0])
    return dict(held or {})


def _read(name: str, folder: Path, layer: str) -> tuple[Tensor, Tensor]:
    with _opened(name, folder) as held:
        if layer not in held or layer in _NO_LAYERS:
            layers = ", ".join(key for key in held if key not in _NO_LAYERS)
            raise ValueError(f"Expected `layer` {layer!r} in the diagnosis of {name!r}, but it has {layers}.")
        index, h = torch.from_numpy(held["index"]), torch.from_numpy(held[layer])
    order = index.argsort()
    return index[order], h[order]


@contextmanager
def _opened(name: str, folder: Path) -> Iterator[NpzFile]:
    path = folder / _FILE
    if not path.is_file():
        raise FileNotFoundError(f"Expected a diagnosis of {name!r} in {folder}, but it has no {_FILE}.")
    broken = f"Expected the outputs of {name!r} in {path}, but the file is broken. Diagnose this model again."
    if not is_zipfile(path):
        raise ValueError(broken)
    try:
        with np.load(path) as held:
            yield held
    except (BadZipFile, EOFError, KeyError, zlib.error) as error:
        raise ValueError(broken) from error
