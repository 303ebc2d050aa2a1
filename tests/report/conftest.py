"""All diagnostics and what they compute of one cloud, once for all pages."""

import inspect

import pytest
from clouds import cloud
from observations import metric_of, observed, results
from pages import report, write_results
from torchmetrics import Metric

from lightning_ssl_geometry import diagnostics


@pytest.fixture(scope="session")
def computed():
    """Name of a class -> (an object of it, its results by key)."""
    found = {name: getattr(diagnostics, name) for name in diagnostics.__all__}
    kinds = {name: kind for name, kind in found.items() if inspect.isclass(kind) and issubclass(kind, Metric)}
    metrics = {name: metric_of(kind) for name, kind in kinds.items() if not inspect.isabstract(kind)}
    return {name: (metric, results(metric, observed(cloud("isotropic")))) for name, metric in metrics.items()}


@pytest.fixture(scope="session")
def renamed(computed):
    """The same under names that a user chose."""
    return {f"mine{place}": each for place, each in enumerate(computed.values())}


@pytest.fixture(scope="session")
def whole_run(renamed, tmp_path_factory):
    """A run of all diagnostics."""
    return write_results(tmp_path_factory.mktemp("runs") / "one", renamed)


@pytest.fixture(scope="session")
def whole_page(whole_run):
    return report(whole_run)
