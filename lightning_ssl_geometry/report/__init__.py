"""Reports on runs from their files: an HTML page, its figures, and a table for the terminal."""

__all__ = [
    "Drawings",
    "Evaluation",
    "LayerSimilarity",
    "Layers",
    "Readouts",
    "Run",
    "Series",
    "comparison_figures",
    "figures",
    "read_run",
    "remarks",
    "summary_table",
    "write_card",
    "write_comparison",
    "write_report",
]

from lightning_ssl_geometry.report.cross import LayerSimilarity
from lightning_ssl_geometry.report.drawn import Drawings
from lightning_ssl_geometry.report.headline import remarks, summary_table
from lightning_ssl_geometry.report.logs import Readouts, Series
from lightning_ssl_geometry.report.model_card import write_card
from lightning_ssl_geometry.report.page import comparison_figures, figures, write_comparison, write_report
from lightning_ssl_geometry.report.records import Evaluation, Layers
from lightning_ssl_geometry.report.run import Run, read_run
