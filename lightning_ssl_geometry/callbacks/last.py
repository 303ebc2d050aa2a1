"""Find the checkpoint from which an experiment continues."""

__all__ = ["last_checkpoint"]

import json
import zipfile
from pathlib import Path


def last_checkpoint(runs: str | Path) -> Path:
    """Return the path of the last checkpoint of an experiment, to resume the experiment with `ckpt_path`.

    It is the last checkpoint of the experiment's newest version. If this version has saved none, the checkpoint from
    which it was resumed is returned. Versions without logs and incomplete files are skipped.

    Args:
        runs: Folder of the versions, `save_dir/name` of the logger. `ModelCheckpoint(save_last=True)` writes
            `version_*/checkpoints/last.ckpt` there. A ValueError is raised if there is no checkpoint.
    """
    versions = _newest_first(Path(runs))
    for version in versions:
        if found := _saved(version) or _resumed_from(version):
            return found
        if (version / "metrics.csv").exists():
            older = next((path for path in map(_saved, versions) if path), None)
            hint = f" To go on from an older version: {older}." if older else ""
            raise ValueError(
                f"Expected a last checkpoint in {version / 'checkpoints'}, the newest version, but there is none. "
                f"`ModelCheckpoint(save_last=True)` saves one.{hint}"
            )
    raise ValueError(
        f"Expected a last checkpoint in {Path(runs) / 'version_*' / 'checkpoints'}, but there is none. Name a "
        "checkpoint's file, or leave `ckpt_path` out to train from the start."
    )


def _newest_first(runs: Path) -> list[Path]:
    def age(folder: Path) -> tuple[int, float]:
        number = folder.name.removeprefix("version_")
        return (int(number), 0.0) if number.isascii() and number.isdigit() else (-1, folder.stat().st_mtime)

    return sorted((path for path in runs.glob("*") if path.is_dir()), key=age, reverse=True)


def _saved(version: Path) -> Path | None:
    whole = [path for path in version.glob("checkpoints/last*.ckpt") if path.is_dir() or zipfile.is_zipfile(path)]
    return max(whole, key=lambda path: path.stat().st_mtime, default=None)


def _resumed_from(version: Path) -> Path | None:
    try:
        path = version / json.loads((version / "history.json").read_bytes())["resumed"][-1]["checkpoint"]
    except (OSError, ValueError, KeyError, IndexError, TypeError):
        return None
    return path.resolve() if path.exists() else None
