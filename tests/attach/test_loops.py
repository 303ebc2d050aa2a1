"""The scripts of examples/attach with loops that are not of Lightning: observed, they train to the same weights."""

import runpy

import pytest
import torch
from hosts import ATTACH, STANDARD

from lightning_ssl_geometry.report import read_run

_SETTINGS = {"plain_loop": {"epochs": 2}, "hugging_face_trainer": {"gradient_accumulation_steps": 2}}


@pytest.fixture(params=_SETTINGS)
def name(request):
    if request.param == "hugging_face_trainer":
        pytest.importorskip("transformers")
    return request.param


class Unobserved:
    """Takes the place of GeometryLoop, and observes nothing."""

    def __init__(self, model, *arguments, **settings):
        self.model = model

    def step(self, *arguments):
        return torch.enable_grad()

    def look(self, batches):
        pass

    def read_out(self, *arguments):
        return {"val/effective_rank_h": 0.0}

    def close(self):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass


def fit(name, folder, observed=True):
    torch.manual_seed(0)
    scene = runpy.run_path(str(ATTACH / f"{name}.py"))
    if not observed:
        scene["main"].__globals__["GeometryLoop"] = Unobserved
    return scene["main"](str(folder), **_SETTINGS[name])


@pytest.mark.filterwarnings("ignore")  # transformers' own
def test_a_script_leaves_a_page_and_trains_as_without_the_loop(name, tmp_path):
    watched, bare = fit(name, tmp_path / "runs"), fit(name, tmp_path / "bare", observed=False)
    found, expected = watched.model.state_dict(), bare.model.state_dict()
    assert all(torch.equal(found[key], expected[key]) for key in expected)
    run = read_run(watched.folder)
    assert all(any(logged.startswith(f"train/{name}") for logged in run.scalars) for name in STANDARD)
    assert run.seen["train"].values[:, 1].tolist() == [2, 2]  # views
    assert (watched.folder / "report.html").exists()
