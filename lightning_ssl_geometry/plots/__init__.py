"""Figures of a run's geometry: functions from numpy arrays to a matplotlib Figure, without pyplot.

In all figures, colours show the quantity (in a comparison, the group of runs), dashes show the data set, and a scale
from grey to violet shows the time. Sizes are in CSS pixels at 72 dpi, so all figures have one text size on a page;
`figure.savefig("loss.png", dpi=200)` saves one.
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
