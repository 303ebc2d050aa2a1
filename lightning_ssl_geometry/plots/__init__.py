"""Figures of a run's geometry: numpy arrays -> matplotlib Figure, without pyplot and its global state.

One look for all: hue says what is measured (or, in a comparison, on which group of runs), dashes say on which data,
grey to violet says when. A name stands at the end of its line instead of in a legend. Sizes are in CSS pixels at 72
dpi, so that a figure has the same text size on a page, and `figure.savefig("loss.png", dpi=200)` makes a picture of it.
"""

__all__ = [
    "COLORS",
    "RAMP",
    "Caption",
    "Curve",
    "Dash",
    "Dot",
    "curves",
    "dots",
    "matrix",
    "overlay",
    "policy_maps",
    "ramp",
    "scatter",
    "trajectory",
]

from lightning_ssl_geometry.plots.canvas import Caption
from lightning_ssl_geometry.plots.dot import Dot, dots
from lightning_ssl_geometry.plots.embedding import overlay, scatter
from lightning_ssl_geometry.plots.line import Curve, curves
from lightning_ssl_geometry.plots.maps import policy_maps
from lightning_ssl_geometry.plots.matrix import matrix
from lightning_ssl_geometry.plots.path import trajectory
from lightning_ssl_geometry.plots.style import COLORS, RAMP, Dash, ramp
