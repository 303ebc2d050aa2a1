"""Fig. 6: like Fig. 5 with four linear layers, on the circle and, for clusters in space, on the sphere.

reproduce.py figure_6                     # 3 seeds
reproduce.py figure_6 --seeds 0 --jobs 1
"""

import argparse

from draw_stills import stills
from flows import HEADER, NOTES, Flow, film, fit_all, measure, rows_of_stills, table
from recipe import markdown, save, write

PLANE, SPACE = ("figure_5", "figure_6"), ("figure_5", "figure_6", "figure_6_3d")
FLOWS = {
    "2d": (
        Flow("2-D, network", PLANE, (0, 70, 80, 100, 500)),
        Flow("2-D, free points", (*PLANE, "points"), (0, 50, 200, 400, 800), 0.1),
    ),
    "3d": (
        Flow("3-D, network", SPACE, (0, 700, 1000, 1500, 2000)),
        Flow("3-D, free points", (*SPACE, "points"), (0, 50, 400, 1000, 2000), 0.1),
    ),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which seeds, and how many at once."""
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--steps", type=int, help="end each fit early, to try the command")


def run(options: argparse.Namespace) -> None:
    """Fit, measure, write and draw."""
    flows = [flow for pair in FLOWS.values() for flow in pair]
    runs = fit_all(flows, options.seeds, options.jobs, options.steps)
    rows = [row for found in runs for row in measure(found)]
    print(markdown(HEADER, table(rows)), end="\n\n")
    print(write(rows, options.output / "results" / "figure_6.csv"))
    for name, pair in FLOWS.items():
        shown = [found for found in runs if found.flow in pair and found.seed == options.seeds[0]]
        drawn = stills(rows_of_stills(shown), caption=NOTES)
        print(save(drawn, options.output / "figures" / f"figure_6_{name}_stills.png"))
        print(film(shown, options.output / "figures" / f"figure_6_{name}.gif"))
