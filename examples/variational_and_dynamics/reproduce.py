"""Make one of the paper's figures, with its table.

    python examples/variational_and_dynamics/reproduce.py figure_3

`figure_1`: t-SNE of pixels and of SimCLR's representation; `figure_3`: the loss of evenly spaced atoms; `figure_5` and
`figure_6`: the flow with and without a network, as stills and as a film; `dynamics`: Thm. 4.2, Remark 4.4, Prop. A.1
and steps of the rank; `kernel_identities`: Props. 4.3 and 4.4, Thm. 4.5 and Cor. 4.6. On 2 cores `figure_6` takes 25 to
50 minutes, and the others up to 12. OUTPUT has results/*.csv, figures/*, and flows/*.npz with the fits of Fig. 5 and 6,
which are not repeated.
"""

import argparse
import os
import platform
import resource
import sys
import time
from datetime import date
from importlib.metadata import version
from pathlib import Path

START = time.perf_counter()  # before the imports that take time
HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
import dynamics  # noqa: E402
import figure_1  # noqa: E402
import figure_3  # noqa: E402
import figure_5  # noqa: E402
import figure_6  # noqa: E402
import kernel_identities  # noqa: E402
from recipe import Help, errors_in_one_line, output_folder  # noqa: E402

FIGURES = {
    "figure_1": figure_1,
    "figure_3": figure_3,
    "figure_5": figure_5,
    "figure_6": figure_6,
    "dynamics": dynamics,
    "kernel_identities": kernel_identities,
}
PACKAGES = ("torch", "lightning", "scikit-learn", "numpy")


def made_by(seconds: float) -> str:
    """The line below the tables: machine, versions, date, command and time, of the clock and of the processors."""
    own, fits = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    busy = own.ru_utime + own.ru_stime + fits.ru_utime + fits.ru_stime
    packages = ", ".join(f"{name} {version(name)}" for name in PACKAGES)
    words = " ".join([Path(sys.argv[0]).name, *sys.argv[1:]])
    machine = f"{os.cpu_count()} cores of {platform.machine()}, {platform.system()}"
    time = f"{seconds:.0f} s, {busy:.0f} s of processor time"
    return f"{machine}; Python {platform.python_version()}, {packages}; {date.today()}; `{words}`: {time}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parsers = parser.add_subparsers(dest="what", required=True, metavar="FIGURE", title="what to make")
    for name, figure in FIGURES.items():
        first = (figure.__doc__ or "").partition("\n")[0]
        one = parsers.add_parser(name, description=figure.__doc__, formatter_class=Help, help=first)
        folder = "runs/variational_and_dynamics"
        one.add_argument("--output", type=output_folder, default=folder, help="folder of the results")
        figure.add_arguments(one)
    options = parser.parse_args()
    options.output = options.output.resolve()
    FIGURES[options.what].run(options)
    print(f"\n{made_by(time.perf_counter() - START)}")


if __name__ == "__main__":
    with errors_in_one_line():
        main()
