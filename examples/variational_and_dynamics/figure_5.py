"""Fig. 5: a one-hidden-layer network shows the input's clusters on the circle; free points spread over it.

    reproduce.py figure_5                     # 10 seeds
    reproduce.py figure_5 --seeds 0 --jobs 1

Both start from one random cloud on the circle, which is uniform to begin with; a third row starts from a cloud that is
not. The input, stills as rows, a film of them, and over all seeds what the stills suggest: NMI of k-means with the
input's clusters, silhouettes, and the uniformity over that of independent uniform points. The stills and the film are
those of the seed whose network has the median NMI at iteration 15.
"""

import argparse

from draw_stills import stills
from flows import HEADER, NOTES, Flow, film, fit_all, input_figure, measure, output, rows_of_stills, table, typical
from recipe import add_seeds_and_jobs, at_least, markdown, save, write

FLOWS = (
    Flow("network", ("figure_5",), (0, 15, 30, 70, 200)),
    Flow("free points", ("figure_5", "points"), (0, 30, 200, 400, 1000)),
    Flow("free points, bunched", ("figure_5", "points"), (0, 30, 200, 400, 1000), bunching=0.8),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which seeds, and how many at once."""
    add_seeds_and_jobs(parser, list(range(10)), jobs=2)
    parser.add_argument("--steps", type=at_least(1), help="end each fit early, to try the command")


def run(options: argparse.Namespace) -> None:
    """Fit, measure, write and draw."""
    runs = fit_all(FLOWS, options)
    rows = [row for found in runs for row in measure(found)]
    written = write(rows, output(options) / "results" / "figure_5.csv")
    print(markdown(["Fig. 5", *HEADER], table(rows)), written, sep="\n\n")
    seed = typical(rows, FLOWS[0].name, 15)
    print(f"Drawn: seed {seed}.")
    shown = [found for found in runs if found.seed == seed]
    figures = output(options) / "figures"
    print(save(input_figure(shown[0], "Fig. 4: the input"), figures / "figure_5_input.png"))
    print(save(stills(rows_of_stills(shown), caption=NOTES), figures / "figure_5_stills.png"))
    print(film(shown, figures / "figure_5.gif"))
