"""Figures of a run: functions from numpy arrays to a matplotlib Figure, without pyplot.

Colours show the quantity or the group of runs, and dashes show the data set. A scale from grey to violet shows time.
Sizes are in CSS pixels at 72 dpi. `figure.savefig("loss.png", dpi=200)` saves a figure.
"""

__all__ = [
    "COLORS",
    "RAMP",
    "Caption",
    "Curve",
    "Dash",
    "Dot",
    "Tiles",
    "cross_matrix",
    "curves",
    "dots",
    "gallery",
    "largest_classes",
    "matrix",
    "overlay",
    "policy_maps",
    "ramp",
    "scatter",
    "trajectory",
]

from lightning_ssl_geometry.plots.canvas import Caption
from lightning_ssl_geometry.plots.dot import Dot, dots
from lightning_ssl_geometry.plots.embedding import largest_classes, overlay, scatter
from lightning_ssl_geometry.plots.gallery import Tiles, gallery
from lightning_ssl_geometry.plots.line import Curve, curves
from lightning_ssl_geometry.plots.maps import policy_maps
from lightning_ssl_geometry.plots.matrix import cross_matrix, matrix
from lightning_ssl_geometry.plots.path import trajectory
from lightning_ssl_geometry.plots.style import COLORS, RAMP, Dash, ramp
