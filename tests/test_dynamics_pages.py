"""The page of a run that looks at clusters, stationary points and steps; the numbers are made up."""

import matplotlib.pyplot as plt
import pytest
from lightning_ssl_geometry.report.glossary import ENTRIES, PAPERS, lookup
from pages import Page, write_log

from lightning_ssl_geometry.report import figures, read_run, write_report

LOGGED = {
    "clusteredness_nmi": [0.02, 0.97],
    "clusteredness_silhouette": [-0.01, 0.8],
    "clusteredness_kmeans_silhouette": [0.5, 0.82],
    "clusteredness_relative_uniformity": [1.0, 0.6],
    "stationarity_tangential": [0.4, 0.02],
    "stationarity_relative": [0.7, 0.1],
    "step_invariance_distance": [0.0, 0.03],
    "step_invariance_step": [0.3, 0.1],
}


@pytest.fixture
def run(tmp_path):
    write_log(tmp_path, **{f"val__{name}": values for name, values in LOGGED.items()})
    yield tmp_path
    plt.close("all")


def test_the_glossary_knows_what_the_diagnostics_log():
    for name in LOGGED:
        entry = lookup(f"probe/{name}")
        assert entry is not None, name
        assert entry.paper == "calder"
        assert {"low", "high"} <= {word.strip(",").lower() for word in entry.text.split()}, name
    assert len({lookup(f"val/{name}").title for name in LOGGED}) == len(LOGGED)
    assert PAPERS["calder"].address == "https://arxiv.org/abs/2503.10812"


def test_they_have_a_section_of_their_own(run):
    page = Page(write_report(run).read_text("utf-8"))
    assert "What the network adds" in page.text
    assert "Other diagnostics" not in page.text
    assert ENTRIES["stationarity"].text in page.text
    drawn = figures(read_run(run))
    assert list(drawn) == [
        "clusteredness", "stationarity", "stationarity_relative", "step_invariance_distance", "step_invariance",
    ]  # fmt: skip
    shown = {text.get_text() for text in drawn["clusteredness"].findobj(plt.Text)}
    assert {"NMI 0.970", "silhouette 0.800", "of k-means 0.820", "uniformity 0.600"} <= shown
