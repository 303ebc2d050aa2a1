import json
import re

import numpy as np
import pytest
import yaml
from pages import write_log, write_rows, write_snapshot

from lightning_ssl_geometry.cli import main
from lightning_ssl_geometry.manifest import Declared, written
from lightning_ssl_geometry.quantity import Chart, Paper, Picture, Quantity
from lightning_ssl_geometry.report import figures, read_run, write_card

PAPER = Paper("Somebody 2020", "On ranks", "2001.00001")
RANK = Quantity(title="Rank", low="Few directions.", high="Many directions.", paper=PAPER, where="Eq. 2", null="chance")
INFO = {
    "kind": "diagnosis",
    "model": "mine",
    "data": "Digits",
    "data_path": "/home/me/photos",
    "seed": 0,
    "samples": 1200,
}


def run(folder, info=INFO, quantities=None, **columns):
    write_log(folder, **(columns or {"test__rank": [3.0, 4.1234]}))
    (folder / "run.json").write_text(json.dumps(info))
    (folder / "geometry").mkdir(exist_ok=True)
    declared = {
        name: Declared(quantity=each, section="ranks") for name, each in (quantities or {"test/rank": RANK}).items()
    }
    (folder / "geometry/quantities.json").write_text(written(declared))
    return folder


def parts(card):
    front, body = re.fullmatch(r"---\n(.*?\n)---\n(.*)", card, re.DOTALL).groups()
    return yaml.safe_load(front), body


def cells(body, first):
    """The cells of the row that begins with `first`."""
    (row,) = [line for line in body.splitlines() if line.startswith(f"| {first} |")]
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1]]


def test_a_card_says_what_ran_and_each_quantity(tmp_path):
    path = write_card(run(tmp_path / "one", INFO | {"command": "ssl-geometry diagnose timm:mine"}))
    assert path == tmp_path / "one/README.md"
    front, body = parts(path.read_text())
    assert front["library_name"] == "lightning-ssl-geometry"
    assert "license" not in front
    assert "self-supervised-learning" not in front["tags"]  # nothing was trained
    assert body.startswith("\n# mine\n")
    assert cells(body, "samples") == ["samples", "1,200"]
    assert "```sh\nssl-geometry diagnose timm:mine\n```" in body
    assert "### Ranks and dimensions" in body
    assert cells(body, "Rank") == ["Rank", "4.12", "Few directions.", "Many directions.", "Somebody 2020, Eq. 2"]
    assert "- Somebody 2020: On ranks ([arXiv:2001.00001](https://arxiv.org/abs/2001.00001))" in body
    assert "/home/me" not in body


def test_a_card_of_a_training_run(tmp_path):
    folder = run(tmp_path / "two", {"model": "SimCLRModule", "epochs": 2}, {"val/rank": RANK}, val__rank=[1.0, 2.0])
    front, body = parts(write_card(folder).read_text())
    assert "self-supervised-learning" in front["tags"]
    assert cells(body, "model") == ["model", "SimCLRModule"]
    assert cells(body, "Rank")[1] == "2"


def test_tables_of_layers_and_of_the_linear_evaluation(tmp_path):
    folder = run(tmp_path / "one")
    (folder / "layers.csv").write_text("layer,width,rank\nblocks.0,8,2.5\nh,8,3.5\n")
    (folder / "linear_evaluation.csv").write_text("features,accuracy\ntrained,0.93\npixels,0.5\n")
    _, body = parts(write_card(folder).read_text())
    assert cells(body, "blocks.0") == ["blocks.0", "8", "2.50"]
    assert "## Linear evaluation" in body
    assert "93.0%" in body


def test_a_run_without_descriptions(tmp_path):
    _, body = parts(write_card(write_rows(tmp_path / "bare", ["loss"], (0, 1, 2.0))).read_text())
    assert "The run has no scalars with a description." in body
    assert "- run.json is missing" in body


HOSTILE = "a | b --- <script>alert(1)</script> *c* `d` [e](http://f) ![g](www.h) ~i~ $j$ \\\n---\n# k\x00"


def test_texts_of_a_run_are_neither_markdown_nor_html(tmp_path):
    quantity = Quantity(title=HOSTILE, low=HOSTILE, high=HOSTILE, paper=Paper(HOSTILE, HOSTILE, "1)(javascript:x"))
    info = INFO | {key: HOSTILE for key in ("model", "data", "layers", "started")}
    info["command"] = "x ```` \n```\n# y"
    folder = run(tmp_path / "hostile", info, {"test/rank": quantity})
    front, body = parts(write_card(folder).read_text())
    assert set(front) == {"library_name", "tags"}
    assert "<" not in body
    assert "javascript:x" not in body
    assert "\x00" not in body
    assert re.findall(r"^#+ .*", re.sub(r"`{5}sh.*?`{5}", "", body, flags=re.DOTALL), re.MULTILINE)[1:] == [
        *("## What ran", "## Geometry", "### Ranks and dimensions", "## Papers"),
    ]
    assert "`````sh\nx ```` ``` # y\n`````" in body
    for special in "*[]$~":
        assert not re.search(rf"(?<!\\)\{special}", body.split("## Geometry")[1].split("## Papers")[0])
    assert "http://" not in body
    assert "www." not in body
    rows = [line for line in body.splitlines() if line.startswith("|")]
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {3, 6}  # of the two tables


def test_a_file_that_is_there_stays(tmp_path, capsys):
    folder = run(tmp_path / "one")
    (folder / "README.md").write_text("mine")
    with pytest.raises(FileExistsError, match=r"no file at .*README.md, but there is one. `overwrite=True`"):
        write_card(folder)
    with pytest.raises(SystemExit) as ended:
        main(["card", str(folder)])
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert said.startswith("ssl-geometry: error: Expected no file at ")
    assert said.endswith("but there is one. --overwrite replaces it.\n")
    assert (folder / "README.md").read_text() == "mine"
    main(["card", str(folder), "--overwrite"])
    assert (folder / "README.md").read_text().startswith("---\n")
    main(["card", str(folder), "--output", str(tmp_path / "deep/card.md")])
    assert "deep/card.md" in capsys.readouterr().out
    assert (tmp_path / "deep/card.md").read_text() == (folder / "README.md").read_text()


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["nowhere"], "nowhere"),
        (["."], "to hold metrics.csv or geometry/"),
        ([], "The following arguments are required: RUN"),
    ],
)
def test_bad_input(tmp_path, monkeypatch, capsys, args, message):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit):
        main(["card", *args])
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1


def test_a_folder_is_no_card(tmp_path):
    with pytest.raises(ValueError, match=r"`output` to be a file, but .* is a folder"):
        write_card(run(tmp_path / "one"), tmp_path, overwrite=True)


def test_spectra_of_layers_are_drawn(tmp_path):
    chart, picture = Chart("layer_spectrum", "Spectra"), Picture("spectra", logarithm=True)
    quantity = Quantity(title="Spectra", text="-", chart=chart, picture=picture)
    folder = run(tmp_path / "one", quantities={"test/layer_spectrum": quantity})
    names = [f"blocks.{place}" for place in range(14)]
    (folder / "layers.csv").write_text("\n".join(["layer,width", *(f"{name},4" for name in names), ""]))
    values = np.log(np.outer(np.arange(1.0, 15.0), [1.0, 0.1, 0.01, 0.001]))
    values[0, 2:] = np.nan
    write_snapshot(folder, "test/layer_spectrum", values)
    figure = figures(read_run(folder))["test_layer_spectrum"]
    lines = [line for line in figure.axes[0].lines if len(line.get_xdata()) in (2, 4)]
    np.testing.assert_allclose(lines[-1].get_ydata()[:4], [14, 1.4, 0.14, 0.014], rtol=1e-5)
    shown = [text.get_text() for text in figure.axes[0].texts]
    assert [name for name in names if name in shown] == names[1::2]  # every second, and the last
