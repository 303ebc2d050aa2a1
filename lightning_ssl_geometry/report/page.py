"""The page of a run."""

__all__ = ["write_report"]

from pathlib import Path

from lightning_ssl_geometry.report.document import document, write_page
from lightning_ssl_geometry.report.drawn import Drawings
from lightning_ssl_geometry.report.run import Run, read_run
from lightning_ssl_geometry.report.sections import article


def write_report(run: Run | str | Path, output: str | Path | None = None) -> Path:
    r"""Write one self-contained HTML page from what a run wrote to disk.

    The file appears whole or not at all. It has no script and asks for nothing from the network; the numbers of each
    figure are in it as CSV files to be saved.

    Args:
        run: A run that was read, its folder, or one that holds its versions (`version_0`, ...); then the newest.
        output: The page's path; `report.html` in the run's folder if None. Folders on the way are made.

    Returns:
        The page's path.

    Raises:
        FileNotFoundError: If `run` does not exist.
        ValueError: If `run` is no run, or `output` is a folder.

    Warns:
        UserWarning: If there is a figure that could not be drawn; the page says so in its place.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> _ = (folder / "metrics.csv").write_text("epoch,step,train/loss\n0,9,4.5\n1,19,4.0\n")
    >>> write_report(folder).name
    'report.html'
    """
    read = run if isinstance(run, Run) else read_run(run)
    path = read.folder / "report.html" if output is None else Path(output)
    drawings = Drawings()
    written = write_page(path, document(read.name, article(read, "run0", drawings)))
    drawings.warn(str(written))
    return written
