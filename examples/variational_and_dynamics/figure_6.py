"""Fig. 6: like Fig. 5 with four linear layers, on the circle and, for clusters in space, on the sphere.

    reproduce.py figure_6                     # 3 seeds
    reproduce.py figure_6 --seeds 0 --jobs 1

Two further flows of each kind are long: one with the same step, and one with a step so small that the points become
as even as uniform ones. Stills and films are those of the seed whose network has the median NMI at its second still.
"""

import argparse

from draw_stills import stills
from flows import HEADER, NOTES, Flow, film, fit_all, input_figure, measure, output, rows_of_stills, table, typical
from recipe import add_seeds_and_jobs, at_least, markdown, save, write

PLANE, SPACE = ("figure_5", "figure_6"), ("figure_5", "figure_6", "figure_6_3d")
INPUTS = {"2d": "Fig. 6 (a): the input", "3d": "Fig. 6 (l): the input"}
FLOWS = {
    "2d": (
        Flow("2-D, network", PLANE, (0, 2, 5, 20, 100, 500)),
        Flow("2-D, free points", (*PLANE, "points"), (0, 50, 200, 400, 800), 0.1),
        Flow("2-D, network, long", PLANE, (0, 500, 2000, 8000, 30000)),
        Flow("2-D, network, long, step 0.1", PLANE, (0, 100, 500, 2000, 8000, 30000), 0.1),
    ),
    "3d": (
        Flow("3-D, network", SPACE, (0, 2, 5, 20, 100, 2000)),
        Flow("3-D, free points", (*SPACE, "points"), (0, 50, 400, 1000, 2000), 0.1),
        Flow("3-D, network, long", SPACE, (0, 2000, 4000, 8000, 16000)),
        Flow("3-D, network, long, step 0.1", SPACE, (0, 100, 500, 2000, 8000, 30000), 0.1),
    ),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which seeds, and how many at once."""
    add_seeds_and_jobs(parser, [0, 1, 2], jobs=2)
    parser.add_argument("--steps", type=at_least(1), help="end each fit early, to try the command")


def run(options: argparse.Namespace) -> None:
    """Fit, measure, write and draw."""
    flows = [flow for pair in FLOWS.values() for flow in pair]
    runs = fit_all(flows, options)
    rows = [row for found in runs for row in measure(found)]
    written = write(rows, output(options) / "results" / "figure_6.csv")
    print(markdown(["Fig. 6", *HEADER], table(rows)), written, sep="\n\n")
    for name, pair in FLOWS.items():
        seed = typical(rows, pair[0].name, pair[0].iterations[1])
        print(f"Drawn, {name}: seed {seed}.")
        shown = [found for found in runs if found.flow in pair and found.seed == seed]
        print(save(input_figure(shown[0], INPUTS[name]), output(options) / "figures" / f"figure_6_{name}_input.png"))
        drawn = stills(rows_of_stills(shown), caption=NOTES)
        print(save(drawn, output(options) / "figures" / f"figure_6_{name}_stills.png"))
        print(film(shown[:2], output(options) / "figures" / f"figure_6_{name}.gif"))
