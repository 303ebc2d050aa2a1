"""Processor time to make the page of a run.

    python -m lightning_ssl_geometry fit --config examples/simclr/laptop.yaml
    OMP_NUM_THREADS=1 python benchmarks/page.py runs/simclr_digits/version_0

The first page of a process also loads matplotlib's fonts and builds the empty figures that all others copy. Later pages
show the drawing alone. With `--other FOLDER`, a checkout of another version is timed in turn with this one, and the
table has the ratio of each pair: the ratio says more than seconds on a machine with other work.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from machine import machine

_CHILD = """
import sys, time
from pathlib import Path
from lightning_ssl_geometry.report import write_report
import matplotlib.figure, matplotlib.backends.backend_svg, jinja2
run, page = sys.argv[1:]
for _ in sys.stdin:
    start = time.process_time()
    write_report(run, page)
    print(time.process_time() - start, flush=True)
"""


class Maker:
    """A process that makes the page of a run whenever it is asked to, with the package in a folder."""

    def __init__(self, package: Path, run: Path, page: Path) -> None:
        command = [sys.executable, "-c", _CHILD, str(run), str(page)]
        known = {**os.environ, "PYTHONPATH": str(package)}
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=known, cwd=page.parent
        )

    def seconds(self) -> float:
        """Make the page once more."""
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline())

    def close(self) -> None:
        """End the process."""
        self.process.communicate()


def main() -> None:
    """Print the seconds of the first page and of later ones."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("run", type=Path, help="the folder of a run")
    parser.add_argument("--other", type=Path, help="a checkout of another version, to compare with")
    parser.add_argument("--pairs", type=int, default=5, help="pages after the first")
    asked = parser.parse_args()
    packages = [Path(__file__).parents[1], *([asked.other.resolve()] if asked.other else [])]
    with tempfile.TemporaryDirectory() as folder:
        pages = [Path(folder) / f"{place}.html" for place in range(len(packages))]
        makers = [Maker(each, asked.run.resolve(), page) for each, page in zip(packages, pages, strict=True)]
        rounds = [[each.seconds() for each in makers] for _ in range(asked.pairs + 1)]
        size = pages[0].stat().st_size
        for each in makers:
            each.close()
    print(machine("matplotlib"))
    print(f"{size / 1e6:.2f} MB\n\n| | first page, s | later pages, s, least (range) |\n| --- | ---: | ---: |")
    for name, (first, *later) in zip(("this version", "the other"), zip(*rounds, strict=True), strict=False):
        print(f"| {name} | {first:.2f} | {min(later):.2f} ({min(later):.2f}-{max(later):.2f}) |")
    if asked.other:
        first, *later = (new / old for new, old in rounds)
        print(
            f"| this / the other | {first:.2f} | {statistics.median(later):.2f} ({min(later):.2f}-{max(later):.2f}) |"
        )


if __name__ == "__main__":
    main()
