"""The settings of a training run, by which runs are compared that differ in one of them alone."""

__all__ = ["run_settings"]

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from lightning_ssl_geometry.diagnose.model_source import newest_version

_SECTIONS = ("seed_everything", "model", "data", "optimizer", "lr_scheduler")  # of config.yaml
_NOT_LEARNED = {  # arguments of the Trainer that do not change what is learned
    *("accelerator", "barebones", "callbacks", "default_root_dir", "detect_anomaly", "enable_autolog_hparams"),
    *("enable_checkpointing", "enable_model_summary", "enable_progress_bar", "inference_mode", "log_every_n_steps"),
    *("check_val_every_n_epoch", "limit_predict_batches", "limit_test_batches", "limit_val_batches", "logger"),
    *("num_sanity_val_steps", "profiler", "val_check_interval"),
}


def run_settings(what: str) -> dict[str, Any] | None:
    """Return the settings of a training run of this package as {"model.temperature": 0.1}, or None if it is none.

    `what` is the run's folder, or the one of its `version_*`, or a checkpoint in it. The name of a checkpoint counts as
    a setting, "checkpoint". Settings that do not change what is learned, such as callbacks, the logger and paths of
    caches, are left out.
    """
    import yaml

    place = Path(what)
    checkpoint = {"checkpoint": place.stem} if place.is_file() and place.suffix == ".ckpt" else {}
    if not place.is_dir() and not checkpoint:
        return None
    folders = [newest_version(place)] if not checkpoint else [place.parent]
    if checkpoint and place.parent.name == "checkpoints":
        folders.append(place.parent.parent)
    found = [path for path in (folder / "config.yaml" for folder in folders) if path.is_file()]
    if not found:
        return None
    try:
        held = yaml.safe_load(found[0].read_text("utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError):  # not of this package
        return None
    if not isinstance(held, dict):
        return None
    kept = {key: held[key] for key in _SECTIONS if key in held}
    if isinstance(trainer := held.get("trainer"), dict):
        kept["trainer"] = {key: value for key, value in trainer.items() if key not in _NOT_LEARNED}
    return checkpoint | {key: value for key, value in _flat(kept) if not key.endswith(".cache")}


def _flat(held: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in held.items():
        name = f"{before}{key}" if key != "init_args" else before.removesuffix(".")
        if isinstance(value, dict):
            yield from _flat(value, f"{name}." if name else "")
        elif key == "class_path":
            yield before.removesuffix("."), value
        else:
            yield name, value
