"""Enlarged figures, tips without a mouse, and the size of a page and the work to make it."""

import json
import re
import subprocess
from collections import Counter

import numpy as np
import pytest
from matplotlib.backend_bases import RendererBase
from matplotlib.figure import Figure
from pages import CHROMIUM, FLAGS, declare, entry, figures_of, report, write_array, write_info, write_log

from lightning_ssl_geometry.plots import Curve, curves, measure
from lightning_ssl_geometry.quantity import Chart, Picture
from lightning_ssl_geometry.report.svg import inline_svg

LOGARITHM = Picture("spectrum", logarithm=True)
CHECK = """
const out = {};
for (const frame of document.querySelectorAll('iframe')) {
  const page = frame.contentDocument, tips = [...page.querySelectorAll('.tips input')];
  const seen = each => each.getClientRects().length > 0;
  const shown = each => getComputedStyle(each, '::after').content;
  const before = tips.filter(seen).length, figures = page.querySelectorAll('figure').length;
  frame.contentWindow.focus();
  const first = tips.find(seen);
  const silent = shown(first);
  first.focus();
  const said = shown(first), boxed = first.closest('.panel').querySelector('.zoom');
  const rect = first.getBoundingClientRect(), canvas = first.closest('.drawing').getBoundingClientRect();
  const inside = rect.left > canvas.left - 8 && rect.right < canvas.right + 8 && rect.width === 14;
  boxed.click();
  out[frame.width] = {
    before, figures, silent, said, inside, groups: new Set(tips.map(each => each.name)).size,
    after: tips.filter(seen).length, all: tips.length, sideways: page.documentElement.scrollWidth - frame.width,
    drawings: [...boxed.closest('.panel').querySelectorAll('svg.figure')].filter(seen).length,
    lines: [...boxed.closest('.panel').querySelectorAll('g.every path')].filter(seen).length,
  };
}
document.body.dataset.report = JSON.stringify(out);
"""


def write_spectra(folder, readouts, width=12, stages=("val",)):
    for stage in stages:
        rows = [np.log(np.linspace(2, 0.1, width)) - 0.1 * at for at in range(readouts)]
        write_array(folder, f"{stage}/s", *rows)
    return declare(folder, **{f"{stage}__s": entry("S", section="spectra", picture=LOGARITHM) for stage in stages})


def figure_of(page):
    return re.search(r"<figure.*?</figure>", page.source, re.DOTALL)[0]


def behind(html):
    return [len(re.findall("<path", group)) for group in re.findall(r'<g class="every">(.*?)</g>', html, re.DOTALL)]


# --- all readouts


@pytest.mark.parametrize(("readouts", "drawn", "said"), [(5, 5, "all 5 readouts"), (40, 16, "16 of 40 readouts")])
def test_an_enlarged_spectrum_has_every_readout_on_two_scales_and_says_how_many(tmp_path, readouts, drawn, said):
    html = figure_of(report(write_spectra(tmp_path, readouts)))
    assert behind(html) == [drawn, drawn]
    assert f"after 1 epoch<i></i>after {readouts} epochs<span>{said}</span>" in html
    assert re.findall(r'class="(r\d)"', html)[:drawn][0] == "r0"
    assert re.findall(r'class="(r\d)"', html)[:drawn][-1] == "r6"
    assert "singular value (log scale)" not in html  # the unit of this spectrum is not declared
    assert html.count("(log scale)<") == 1
    tips = re.findall(r'<div class="tips every".*?</div>', html, re.DOTALL)
    assert [len(set(re.findall(r"after \d+ epochs?", each))) for each in tips] == [drawn, drawn]


def test_a_figure_that_has_all_readouts_has_no_more_when_enlarged(tmp_path):
    html = figure_of(report(write_spectra(tmp_path, 3)))
    assert (behind(html), html.count("<svg class"), "readouts" in html) == ([], 1, False)


def test_the_lines_of_the_enlarged_figure_are_not_in_a_picture_of_the_figure(tmp_path):
    (axes,) = (figure.axes[0] for figure in figures_of(write_spectra(tmp_path, 9)).values())
    assert [each.get_visible() for each in axes.collections if each.get_gid() == "every"] == [False]
    low, high = axes.get_ylim()
    assert low < 0.1 * np.exp(-0.8) < 2 < high  # but they fit into it


# --- tips


def test_tips_are_one_group_of_buttons_per_figure_above_their_points():
    line = Curve("a", np.arange(3.0), np.array([0.0, 1.0, 4.0]), tips=["<one>", "", 'th"ree'])
    html = inline_svg(curves([line], xlabel="x", ylabel="y"), key="figure7-1", label="Loss: from 0 to 4")
    assert re.findall(r'<input type=radio name=(\S+) style=\S+ aria-label="([^"]*)">', html) == [
        ("t7-1", "&lt;one&gt;"), ("t7-1", "th&#34;ree"),
    ]  # fmt: skip
    assert 'role="radiogroup" aria-label="Values: Loss"' in html
    assert "<title" not in html
    (left, bottom), (right, top) = re.findall(r"<input[^>]* style=(\S+?);(\S+)", html)
    assert (left.split(":")[0], bottom.split(":")[0]) == ("left", "bottom")
    assert (right.split(":")[0], top.split(":")[0]) == ("right", "top")


@pytest.mark.parametrize("seed", range(5))
def test_lines_are_drawn_within_a_fraction_of_a_pixel_with_fewer_points(seed):
    y = np.cumsum(np.random.default_rng(seed).normal(size=200)) + np.linspace(0, 100, 200)
    figure = curves([Curve("", np.arange(200.0), y)], xlabel="x", ylabel="y")
    html = inline_svg(figure, key="f", label="a")
    path = max(re.findall(r'<path d="M([^"zCQ]*)"', html), key=len)
    drawn = np.array(path.split(), dtype=float).reshape(-1, 2)
    pixels = figure.axes[0].transData.transform(np.column_stack([np.arange(200.0), y]))
    tall = 72 * figure.get_figheight()
    away = np.abs(np.interp(pixels[:, 0], drawn[:, 0], drawn[:, 1]) - (tall - pixels[:, 1]))
    steep = np.abs(np.gradient(pixels[:, 1], pixels[:, 0])).max()
    assert away.max() < (0.15 + 0.1) * (1 + steep)
    assert len(drawn) < 200


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here")
def test_tips_answer_to_the_keyboard_and_enlarging_shows_what_was_hidden(tmp_path):
    page = report(write_spectra(tmp_path / "run", 9, stages=("train", "val")))
    inner = page.source.replace("&", "&amp;").replace('"', "&quot;")
    frames = "".join(f'<iframe width="{width}" height="900" srcdoc="{inner}"></iframe>' for width in (390, 1440))
    wrapper = tmp_path / "wrapper.html"
    wrapper.write_text(f"<!doctype html><body>{frames}<script>onload = () => {{{CHECK}}}</script></body>", "utf-8")
    flags = [*FLAGS, f"--user-data-dir={tmp_path / 'profile'}", "--hide-scrollbars", "--virtual-time-budget=4000"]
    done = subprocess.run(
        [CHROMIUM, *flags, "--dump-dom", wrapper.as_uri()], capture_output=True, text=True, timeout=120
    )
    found = json.loads(re.search(r'data-report="([^"]*)"', done.stdout)[1].replace("&quot;", '"'))
    for each in found.values():
        assert (each["silent"], each["inside"], each["sideways"]) == ("none", True, 0)
        assert re.fullmatch(r'"after 1 epoch, index 1: 2"', each["said"])
        assert each["figures"] == 2
        assert each["groups"] == 4  # a button group for each of the two scales
        assert each["drawings"] == 2
        assert each["lines"] == 18
        assert each["before"] < each["after"] < each["all"]


# --- the size


def write_laptop_run(folder):
    """As much as examples/simclr/laptop.yaml records: 100 epochs, validated every 5; widths 128 and 64."""
    generator = np.random.default_rng(0)
    scalars, about = {}, {}
    names = {"loss": 1, "probe": 2, "rank": 2, "projector": 2, "bound": 3, "terms": 3, "entropy": 1, "alignment": 2}
    names |= dict.fromkeys(("potential", "augmentation", "knn", "classes", "batch", "thresholds", "size"), 1)
    said = "A text of the length that a diagnostic has here, which explains what the number is and how it is computed. "
    for stage, every in (("train", 1), ("val", 5)):
        for chart, count in names.items():
            for place in range(count):
                name = f"{stage}__{chart}{place}"
                values = 5 + generator.normal(size=100).cumsum() / 10
                scalars[name] = [value if epoch % every == every - 1 else "" for epoch, value in enumerate(values)]
                about[name] = entry(f"{chart} {place}", key=f"{chart}{place}", text=said, label=f"line {place}",
                                    chart=Chart(chart, chart))  # fmt: skip
        weights = {"W0": 128, "W3": 64} if stage == "train" else {}  # the same on all data: drawn once
        for chart, width in ({"h": 128, "z": 64, "augmentations": 128} | weights).items():
            noise = 0.05 * generator.normal(size=(100 // every, width))
            rows = np.sort(-np.linspace(0, 4, width) + noise)[:, ::-1]
            write_array(folder, f"{stage}/{chart}", *rows)
            about[f"{stage}__{chart}"] = entry(f"Spectrum {chart}", of=chart, section="spectra", text=said,
                                               picture=LOGARITHM)  # fmt: skip
    return write_info(declare(write_log(folder, **scalars), **about), status="finished", epochs=100)


def test_the_page_of_an_ordinary_run_is_smaller_than_a_megabyte(tmp_path):
    page = report(write_laptop_run(tmp_path))
    assert page.count() == 23
    assert 400_000 < len(page.source.encode()) < 1_000_000


def test_each_figure_of_an_ordinary_run_is_made_and_drawn_once_and_each_text_is_measured_once(tmp_path, monkeypatch):
    calls = Counter()

    def count(owner, name, key):
        call = getattr(owner, name)
        monkeypatch.setattr(owner, name, lambda *args: (calls.update([(name, key(*args))]), call(*args))[1])

    run = write_laptop_run(tmp_path)
    curves([Curve("", np.arange(2.0), np.arange(2.0))], xlabel="", ylabel="")  # the empty figure to copy
    measure._size.cache_clear()
    count(Figure, "__init__", lambda *_: None)
    count(Figure, "__setstate__", lambda *_: None)
    count(Figure, "draw", lambda figure, _: id(figure))
    count(RendererBase, "get_text_width_height_descent", lambda _, text, font, __: (text, font.get_size()))
    drawn = report(run).source.count('<svg class="figure"')
    assert drawn == 23 + 8  # the spectra have a second scale
    assert calls.pop(("__setstate__", None)) == drawn
    assert ("__init__", None) not in calls
    assert Counter(name for name, _ in calls)["draw"] == drawn
    assert set(calls.values()) == {1}
    assert len(calls) < 300


def test_a_vector_of_the_weights_is_drawn_for_one_stage_of_a_fit_and_for_a_test(tmp_path):
    about = {}
    for stage, readouts in (("train", 2), ("probe", 3), ("test", 1)):
        rows = [np.linspace(2, 1, 6) + 0.1 * at for at in range(readouts)]  # the same weights, at other steps
        for name, of_weights in (("weight", True), ("data", False)):
            write_array(tmp_path, f"{stage}/{name}", *rows)
            about[f"{stage}__{name}"] = entry(f"Spectrum of {name}", of=name, of_weights=of_weights)
    found = figures_of(declare(write_log(tmp_path, train__loss=[1.0, 0.5]), **about))
    assert {name for name in found if "weight" in name} == {"probe_weight", "test_weight"}
    assert {name for name in found if "data" in name} == {"train_data", "probe_data", "test_data"}
