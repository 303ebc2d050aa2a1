"""The page: one HTML file that needs nothing else."""

__all__ = ["write_report"]

import os
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from lightning_ssl_geometry.report.html import Html, element
from lightning_ssl_geometry.report.run import Run, read_run
from lightning_ssl_geometry.report.sections import article

# The browser itself then refuses scripts and any request, whatever a run's names and values may hold.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def write_report(run: str | Path, output: str | Path | None = None) -> Path:
    r"""Write one self-contained HTML page from what a run wrote to disk.

    The file appears whole or not at all. It has no script and asks for nothing from the network.

    Args:
        run: The run's folder, or one that holds its versions (`version_0`, ...); then the newest.
        output: The page's path; `report.html` in the run's folder if None. Folders on the way are made.

    Returns:
        The page's path.

    Raises:
        FileNotFoundError: If `run` does not exist.
        ValueError: If `run` is no run, or `output` is a folder.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> _ = (folder / "metrics.csv").write_text("epoch,step,train/loss\n0,9,4.5\n1,19,4.0\n")
    >>> write_report(folder).name
    'report.html'
    """
    read = read_run(run)
    path = read.folder / "report.html" if output is None else Path(output)
    if path.is_dir():
        raise ValueError(f"Expected `output` to be a file, but {path} is a folder.")
    path.parent.mkdir(parents=True, exist_ok=True)
    _replace(path, _page([read]).encode("utf-8", errors="replace"))
    return path


def _page(runs: Sequence[Run]) -> Html:
    title = ", ".join(run.name for run in runs)
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", title),
        element("style", Html(files("lightning_ssl_geometry.report").joinpath("page.css").read_text("utf-8"))),
    )
    articles = [article(run, f"run{number}") for number, run in enumerate(runs)]
    body = element("body", element("main", *articles))
    return Html("<!doctype html>\n" + element("html", head, body, lang="en") + "\n")


def _replace(path: Path, content: bytes) -> None:
    """Write beside the target and rename: a reader sees the old page or the new one."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        beside.write_bytes(content)
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
