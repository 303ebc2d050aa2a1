"""The page of a run: what a person sees, and what a browser is given."""

import io
import os
import re
from pathlib import Path

import numpy as np
import pytest
from pages import (
    compared,
    comparison,
    declare,
    entry,
    lines,
    report,
    texts,
    write_array,
    write_csv,
    write_info,
    write_log,
    write_rows,
    write_snapshot,
)
from pages import drawn as drawn_of
from rich.console import Console

from lightning_ssl_geometry import plots
from lightning_ssl_geometry.quantity import Chart, Paper, Picture
from lightning_ssl_geometry.report import __file__ as room
from lightning_ssl_geometry.report import read_run, summary_table, write_report
from lightning_ssl_geometry.report.headline import headline
from lightning_ssl_geometry.report.svg import inline_svg

PAPER = Paper("Ada et al. 2021", "On <Ranks>", "2101.00001")
SHARE = Chart("share", "Share of it", "share", "It is a share.")


def write_run(folder):
    """Two stages, six epochs; a rank of h and z with a cap, a share with a baseline, a probe, an evaluation."""
    share = np.linspace(0, 1, 7)[1:]
    columns = {"loss": 5 - share, "rank_h": 4 + 8 * share, "rank_z": 3 + share, "acc": 0.5 + 0.4 * share}
    columns |= {"share_full": 0.1 + 0.2 * share, "share_null": 0.5 + 0 * share, "own_thing": share}
    columns = {f"{stage}__{name}": values for stage in ("train", "val") for name, values in columns.items()}
    write_log(folder, **columns | {"val__loss": 5.5 - share})
    rank = {"of": "Rank", "unit": "directions", "bounds": (0, None), "cap": "min(V * N, D)", "paper": PAPER,
            "where": "Eq. 2", "headline": True}  # fmt: skip
    about = {
        "loss": entry("Loss", of="Host", key="loss", section="learning", better="low"),
        "rank_h": entry("Rank", space="h", width=16, **rank),
        "rank_z": entry("Rank", space="z", width=8, **rank),
        "acc": entry("Accuracy", of="Probe", section="probes", percent=True, better="high", bounds=(0, 1)),
        "share_full": entry("Share", of="Share", key="full", null="null", chart=SHARE, label="whole", headline=True),
        "share_null": entry("Random share", of="Share", key="null", chart=SHARE, label="random", baseline=True),
    }
    declare(folder, **{f"{stage}__{name}": each for stage in ("train", "val") for name, each in about.items()})
    for stage, samples in (("train", 5), ("val", 100)):
        write_csv(folder / f"geometry/{stage}/rows_seen.csv", ["epoch", "step", "samples", "views", "h", "z"],
                  [[5, 60, samples, 2, 16, 8]])  # fmt: skip
    rows = [["pixels", "all", 0.952, ""], ["frozen", "all", 0.931, ""], ["trained", "all", 0.969, ""]]
    rows += [["frozen", 10, 0.842, 0.015], ["trained", 10, 0.925, 0.009]]
    rows = [[*row, "test", 360] for row in rows]
    header = ["features", "labels_per_class", "accuracy", "accuracy_std", "split", "test_size"]
    write_csv(folder / "linear_evaluation.csv", header, rows)
    (folder / "config.yaml").write_text("seed_everything: 0\n")
    info = {"model": "SimCLRModule", "data": "DigitsDataModule", "seed": 0, "status": "finished", "epochs": 6}
    info |= {"command": "ssl-geometry fit", "versions": {"torch": "2.15.0"}, "steps": 300, "parameters": 123456}
    return write_info(folder, **info, started="2026-01-02T10:00:03+00:00", ended="2026-01-02T10:03:21+00:00")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return write_run(tmp_path_factory.mktemp("runs") / "digits")


@pytest.fixture(scope="module")
def page(run):
    return report(run)


@pytest.fixture(scope="module")
def drawn(run):
    return drawn_of(run)


# --- what a person sees


def test_the_header_says_what_ran(page):
    facts = "digitsfinishedSimCLRModule on DigitsDataModule6 epochs300 steps123,456 parametersseed 0"
    assert f"{facts}started 2026-01-02 10:00 UTCtook 3 min 18 s" in page.text.replace("\n", "")
    assert "status finished" in page.values("class")
    headings = ["Is it learning?", "Probes", "Ranks and dimensions", "Other logs", "All numbers", "Papers"]
    assert [each for each in re.findall("<h2>(.*?)</h2>", page.source) if each in headings] == headings
    made = page.text[page.text.rindex("Run\n") :]
    assert all(text in made for text in ("ssl-geometry fit", "torch 2.15.0", "config.yaml", "seed_everything: 0"))


def test_a_quantity_has_its_title_sentences_and_paper_and_its_axis_the_unit(page, drawn):
    assert {"Loss", "Accuracy", "Rank", "Share of it", "own_thing"} <= set(re.findall(r"<h3>(.*?)</h3>", page.source))
    for title in ("Loss", "Accuracy", "Rank", "Share"):
        assert page.text.count(f"Low {title}.") == page.text.count(f"High {title}.") == 1
    assert "(Ada et al. 2021, Eq. 2)" in page.text
    assert "Ada et al. 2021. On <Ranks>" in page.text
    assert PAPER.address in page.values("href")
    assert texts(drawn["rank"])[0] == "directions"
    assert texts(drawn["probe"])[0] == "value, %"
    assert "It is a share." in page.text


def test_quantities_have_colours_and_data_have_dashes(drawn, page):
    assert [line.get_linestyle() for line in lines(drawn["rank"])] == ["-", "--"]
    assert {"h 12", "z 4"} <= set(texts(drawn["rank"]))
    assert drawn["rank"].get_ylim()[0] == 0  # a full scale
    assert "Identical lines: train = val." in page.text
    assert np.allclose(lines(drawn["probe"])[0].get_ydata(), 100 * (0.5 + 0.4 * np.arange(1, 7) / 6))
    assert "train, val 90.0%" in texts(drawn["probe"])
    assert "Loss over training: train from 4.83 to 4; val from 5.33 to 4.50." in page.values("aria-label")
    assert "h val: 12 (epoch 5, step 59)" in page.source


def test_a_baseline_is_grey_and_drawn_once_where_data_agree(drawn, page):
    assert "Identical lines: share" not in page.text
    (baseline,) = lines(drawn["share"], "muted")
    assert set(baseline.get_ydata()) == {0.5}
    assert sum("random" in text for text in texts(drawn["share"])) == 1


def test_tiles_are_headlines_and_what_training_added(run, page):
    tiles = {tile.name: (tile.value, tile.of, tile.remark) for tile in headline(read_run(run))}
    networks = "trained network {}%, untrained network {}%{}"
    assert tiles == {
        "Trained over untrained, all labels": ("+3.8", "points", networks.format(96.9, 93.1, ", raw pixels 95.2%")),
        "Trained over untrained, 10 labels per class": ("+8.3", "points", networks.format(92.5, 84.2, "")),
        "Rank (h)": ("12", "of 16", "val, from 5.33"),
        "Rank (z)": ("4", "of 8", "val, from 3.17"),
        "Share": ("0.300", "", "val, from 0.133, random 0.500"),
    }
    assert "Rank (h)12 of 16val, from 5.33" in page.text
    assert "92.5% ± 0.9" in page.text
    assert "First, lowest, highest and last value of 14 scalars" in page.text
    assert "val/rank_h5.335.3312126" in page.text.replace("\n", "")
    assert "Accuracy on the split test (360 samples)." in page.text


def test_the_terminal_table_has_first_last_and_a_best_where_one_end_is_better(run):
    console = Console(record=True, width=140, file=io.StringIO())
    console.print(summary_table(run))
    text = console.export_text()
    assert re.search(r"val/acc .* 56\.7% .* 90\.0% \(epoch 5\) .* 90\.0%", text)
    assert re.search(r"train/loss +│ +4\.83 +│ +4 \(epoch 5\) +│ +4 ", text)
    assert re.search(r"train/rank_h +│ +5\.33 +│ +│ +12 \(at most 10 here\)", text)
    assert re.search(r"trained network .* 92\.5% ± 0\.9", text)


# --- what a browser is given


def test_the_page_needs_nothing_from_elsewhere_and_runs_nothing(page):
    found = page.runs_nothing()
    assert all(re.search('role="img" aria-label="[^"]{20,}"', each) for each in found)
    assert all("type=radio" in each for each in re.findall("<figure.*?</figure>", page.source, re.DOTALL))
    addresses = [attributes["href"] for tag, attributes in page.attributes if tag == "a"]
    assert all(address.startswith(("https://arxiv.org/abs/", "data:text/csv;", "#")) for address in addresses)
    inside = {address[1:] for address in addresses if address.startswith("#")}
    assert inside
    assert inside <= set(page.values("id"))


def _luminance(color):
    parts = [int(color[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return float(np.dot([0.2126, 0.7152, 0.0722], linear))


PALE = ("ramp-0", "ramp-1", "ramp-2")  # of lines alone


def test_labels_of_pale_lines_have_the_contrast_of_texts():
    y = np.arange(3.0)
    drawn = [plots.Curve(f"line {at}", y, y + at, color=color) for at, color in enumerate(plots.ramp(7))]
    html = inline_svg(plots.curves(drawn, xlabel="x", ylabel="y"), key="f", label="a")
    colors = set(re.findall(r"<text[^>]*fill: var\(--([\w-]+)\)", html))
    assert {"ramp-3", "ramp-6"} <= colors
    assert not colors & set(PALE)


def test_colours_have_contrast_in_both_modes_and_figures_share_the_light_ones():
    css = (Path(room).parent / "page.css").read_text()
    light, dark = (
        dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", part)) for part in css.split("(prefers-color-scheme: dark)", 1)
    )
    assert light.keys() == dark.keys()
    for palette in (light, dark):
        paper = _luminance(palette["paper"])
        for name in palette.keys() - {"paper", "grid", "line", "tint"}:
            bright, dim = sorted([paper, _luminance(palette[name])], reverse=True)
            assert (bright + 0.05) / (dim + 0.05) >= (3.0 if name in PALE else 4.5), name
    assert {name: light[name] for name in plots.COLORS} == plots.COLORS
    assert tuple(light[f"ramp-{place}"] for place in range(7)) == plots.RAMP


# --- how it is written


def test_an_interrupted_write_leaves_the_old_page(run, page, tmp_path, monkeypatch):
    path = write_report(run, tmp_path / "new" / "page.html")
    old = path.read_bytes()
    assert old.decode() == page.source  # the same run gives the same page
    monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(OSError("disk")))
    with pytest.raises(OSError, match="disk"):
        write_report(run, path)
    assert path.read_bytes() == old
    assert list(path.parent.iterdir()) == [path]
    with pytest.raises(ValueError, match=r"Expected `output` to be a file, but .* is a folder"):
        write_report(run, tmp_path)


def test_the_evaluation_of_an_average_over_augmentations_says_its_weights(tmp_path):
    rows = {"pixels": 0.899, "head, uniform": 0.62, "f, learned": 0.973, "head, learned": 0.955}
    rows = [[f'"{name}"', accuracy] for name, accuracy in rows.items()]
    write_csv(write_info(tmp_path) / "linear_evaluation.csv", ["features", "accuracy"], rows)
    (tile,) = headline(read_run(tmp_path))
    assert (tile.name, tile.value) == ("Linear evaluation of the head, all labels", "95.5%")
    assert tile.remark == "f 97.3%, uniform weights 62.0%, pixels 89.9%"
    text = report(tmp_path).text
    assert "Their weights: P(T | X) (learned)" in text
    assert "raw pixels89.9%" in text.replace("\n", "")
    names = [str(cell).strip() for cell in summary_table(tmp_path).columns[0].cells]
    assert names[1:] == ["raw pixels", "f, learned", "head, learned", "head, uniform"]


# --- runs that are odd


EVIL = "<script>alert(1)</script>"


@pytest.mark.filterwarnings("ignore:Glyph .* missing from font")  # of a PNG
def test_a_hostile_run_is_shown_and_not_run(tmp_path):
    folder = tmp_path / "<script>alert(1)<"
    names = [f"val/{EVIL}", "val/$\\bad{$", "[red]x", "val/日本語", "\x01\x1b[31m", "val/" + "long " * 30]
    rows = [[e, 10 * e + 9, *[e] * len(names), f"1e{60 * e}", f"-1e{70 * e}", "nan", "1e-310"] for e in range(6)]
    write_csv(folder / "metrics.csv", ["epoch", "step", *names, "huge", "deep", "none", "tiny"], rows)
    write_array(folder, f"val/{EVIL.replace('/', '')}", [2, 3])
    write_array(folder, "val/parts", *[range(20_000)] * 2)
    write_array(folder, "val/spectrum", [1e4, "-inf"], ["nan", 2], [1e300, 1e-300])
    write_snapshot(folder, "val/$map$", [[1, np.inf], [np.nan, -1e30]])
    write_csv(folder / "layers.csv", ["layer", "width", EVIL], [[EVIL, 1, 2], ["$x$", 1, 2]])
    write_csv(folder / "linear_evaluation.csv", ["features", "accuracy"], [[EVIL + "\x01", 0.5], ["trained", 1e300]])
    words = {"title": f"\0{EVIL}", "low": f"{EVIL} $\\x{{$ {{0}}", "high": "</dd>", "unit": "$\\frac{$\x1b" * 30}
    words |= {"label": f"{EVIL}\x01", "remark": "$\\bad{$\x02"}
    chart, path = Chart(EVIL, "\x01$\\bad{$ </h3>", "$\x1b", "\0$\\x{$"), Chart("path", "\0", "\0")
    about = {"val/$\\bad{$": entry(**words, section=EVIL, chart=chart), "tiny": entry(**words, key="t", chart=chart),
             "val/spectrum": entry(**words, xlabel="$x$\x02", key="s", picture=Picture("spectrum")),
             "val/parts": entry(**words, key="p", picture=Picture("components", names=("$\\x{$\0", EVIL))),
             "[red]x": entry(**words, key="r", chart=path, picture=Picture("path", "x")),
             "deep": entry(**words, key="d", chart=path, picture=Picture("path")),
             "val/日本語": entry("J", text="</p>", paper=Paper(EVIL, EVIL, '"><script>'), where=EVIL)}  # fmt: skip
    declare(folder, **about)
    known = dict.fromkeys(["model", "data", "status", "command", "started", "seed", EVIL], EVIL)
    write_info(folder, **known, machine={EVIL: [EVIL]})
    (folder / "config.yaml").write_text(f"</pre>{EVIL}")
    page = report(folder)
    for each in (page, comparison(tmp_path, **{EVIL: [folder], "\x01": [folder]})):
        each.runs_nothing()
        assert "<script" not in each.source
        assert not any(name.startswith("on") for _, attributes in each.attributes for name in attributes)
    for axes in [*drawn_of(folder).values(), *compared(**{"$x{$": [folder]}).values()]:
        axes.figure.savefig(io.BytesIO(), format="png")
    assert page.text.count("<script>alert(1)") > 20
    assert "none is not a finite number in 6 of 6 rows" in page.text
    console = Console(record=True, width=200, file=io.StringIO())
    console.print(summary_table(folder))
    assert EVIL in console.export_text()


def test_noisy_values_of_every_step_stand_behind_their_means(tmp_path):
    rows = ([step // 100, step, 5 - step / 500 + (-1) ** step] for step in range(1000))
    behind, front = drawn_of(write_rows(tmp_path, ["train/loss"], *rows))["loss"].lines[:2]
    assert behind.get_ydata().max() == 6
    assert np.abs(front.get_ydata() - (5 - front.get_xdata() / 5)).max() < 0.2
    assert "Thick lines are means of 7 values each." in report(tmp_path).text


def test_no_more_undeclared_logs_are_drawn_than_a_page_holds_and_one_epoch_is_told_in_steps(tmp_path):
    write_log(write_array(tmp_path, "val/own", [1, 2]), **{f"val__metric_{number}": [1] for number in range(29)})
    page = report(tmp_path)
    assert page.count() == 24
    assert "6 more logs are not drawn; they are among all numbers." in page.text
    assert "val/metric_28" in page.text
    assert "steps of training" in page.source
    assert "after 10 steps" in texts(drawn_of(write_array(tmp_path / "one", "val/own", [1]))["val_own"])
