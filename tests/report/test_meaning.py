"""What a run declares of its logs is what its page says; what nobody declared is shown without a claim."""

import json
import time
from itertools import product
from typing import ClassVar, get_args

import numpy as np
import pytest
import torch
from pages import (
    declare,
    entry,
    lines,
    page_of,
    texts,
    write_array,
    write_info,
    write_log,
    write_results,
    write_snapshot,
)
from torchmetrics import Metric

from lightning_ssl_geometry.callbacks.quantities_file import meaning
from lightning_ssl_geometry.quantity import Chart, Kind, Paper, Picture, Quantity, Role
from lightning_ssl_geometry.report import comparison_figures, figures, read_run, write_comparison, write_report


@pytest.fixture(scope="module")
def renamed(computed, tmp_path_factory):
    """All diagnostics under names that a user chose."""
    found = {f"mine{place}": each for place, each in enumerate(computed.values())}
    return write_results(tmp_path_factory.mktemp("runs") / "all", found)


def unsaid(text, computed):
    """What a page does not say of results that are drawn for themselves."""
    for name, (metric, found) in computed.items():
        for key in found:
            quantity = meaning(metric, key).quantity
            serves = quantity.baseline or not quantity.shown or (quantity.picture and quantity.picture.role)
            said = [quantity.text, quantity.low, quantity.high, quantity.paper.title if quantity.paper else ""]
            yield from ((name, key, part) for part in said if part not in text and not serves)


def test_every_diagnostic_has_its_text_whatever_its_name_also_where_nothing_was_trained(renamed, computed, tmp_path):
    text = page_of(write_report(renamed)).text
    assert list(unsaid(text, computed)) == []
    assert "Other logs" not in text
    write_results(tmp_path, {f"mine{place}": each for place, each in enumerate(computed.values())}, "test", 1)
    text = page_of(write_report(write_info(tmp_path, kind="diagnosis"))).text
    assert list(unsaid(text, computed)) == []


def test_without_a_manifest_every_log_has_its_own_name_and_no_text(tmp_path):
    names = ("accuracy", "momentum", "effective_rank_h", "loss", "x")
    write_log(tmp_path, **{f"val__{name}": [1.0, 0.5] for name in names}, lr=[1, 1])
    write_snapshot(write_array(tmp_path, "val/log_spectrum_h", [2, 1], [3, 1]), "val/blocks", np.eye(2))
    page = page_of(write_report(tmp_path))
    assert {"figcaption", "svg"} <= set(page.tags)
    assert not {"cite", "dd"} & set(page.tags[: page.tags.index("table")])
    assert "Papers" not in page.text
    drawn = list(figures(read_run(tmp_path)))
    assert drawn == ["loss", "accuracy", "momentum", "effective_rank_h", "x", "lr", "val_log_spectrum_h", "blocks"]
    learning, _, other = page.text.partition("Other logs")
    assert "Is it learning?" in learning
    assert all(name in other and name not in learning for name in names if name != "loss")


def test_a_space_is_named_where_there_are_several_or_another_one(tmp_path):
    write_log(tmp_path, val__a=[1, 2], val__b=[2, 3], val__c=[1, 1])
    about = {"val__a": entry("Rank", of="A", space="h"), "val__b": entry("Rank", of="A", space="h_image")}
    declare(tmp_path, **about, val__c=entry("Spread", space="z", renamed=True))
    axes = {name: figure.axes[0] for name, figure in figures(read_run(tmp_path)).items()}
    assert {"h 2", "h, clean images 3"} <= set(texts(axes["a"]))
    assert "Spread (z)" in page_of(write_report(tmp_path)).text
    declare(tmp_path, val__c=entry("Spread", space="z"))
    assert "Spread (z)" not in page_of(write_report(tmp_path)).text


@pytest.mark.parametrize(("one", "two"), [("near", "far"), ("teacher/rank", "student/rank")])
def test_two_objects_of_one_class_and_two_monitors_are_told_apart_by_their_names(tmp_path, one, two):
    names = {f"val__{name}".replace("/", "__"): value for name, value in ((one, [1, 2]), (two, [2, 3]))}
    declare(write_log(tmp_path, **names), **{name: entry("Rank", space="h", headline=True) for name in names})
    page = page_of(write_report(tmp_path))
    assert {f"{one} 2", f"{two} 3"} <= set(texts(figures(read_run(tmp_path))["toy"].axes[0]))
    assert f"Rank ({one})2val, from 1" in page.text
    assert f"Rank ({two})3val, from 2" in page.text
    assert page.text.count("High Rank.") == 1


def test_parts_of_a_result_have_their_names_and_the_headline_is_the_last(tmp_path):
    about = {f"val__rank_layers_{part}": entry("Rank", key="rank", part=f"layers_{part}", headline=True)
             for part in (0, 3, 10)}  # fmt: skip
    write_log(tmp_path, **{name: [4, part] for part, name in enumerate(about)})
    page = page_of(write_report(declare(tmp_path, **about)))
    assert {"layers.0 0", "layers.3 1", "layers.10 2"} <= set(texts(figures(read_run(tmp_path))["toy_rank"].axes[0]))
    assert "Rank (layers.10)2val" in page.text
    assert "Rank (layers.3)" not in page.text


@pytest.mark.parametrize("layers", [("layer1", "layer10", "layer2"), ("stem", "body", "head")])
def test_the_last_layer_is_the_last_that_was_declared_whatever_its_name(tmp_path, layers):
    about = {f"val__rank_{layer}": entry("Rank", key="rank", part=layer, headline=True) for layer in layers}
    declare(write_log(tmp_path, **{name: [4, place] for place, name in enumerate(about)}), **about)
    parts = {f"val__own_{layer}": entry("Own", key="own", part=layer, picture=Picture("components"))
             for layer in layers}  # fmt: skip
    for place, name in enumerate(parts):
        write_array(tmp_path, name.replace("__", "/"), [4, place], [5, place])
    declare(tmp_path, **parts)
    assert f"Rank ({layers[-1]})2val" in page_of(write_report(tmp_path)).text
    (drawn,) = (figure for name, figure in figures(read_run(tmp_path)).items() if name.startswith("toy_own"))
    assert lines(drawn.axes[0], "green")[0].get_ydata().tolist() == [2, 2]
    joined = comparison_figures({"a": [tmp_path]})
    assert lines(joined["toy_rank"].axes[0])[0].get_ydata().tolist() == [4, 2]


def test_joined_logs_of_different_names_are_said_to_be(tmp_path):
    one = declare(write_log(tmp_path / "one", train__k5=[1, 2], val__k50=[2, 3]),
                  train__k5=entry("Rank"), val__k50=entry("Rank"))  # fmt: skip
    said = "Logged under different names, so settings may differ: "
    assert f"{said}k5 (train), k50 (val)." in page_of(write_report(one)).text
    two = declare(write_log(tmp_path / "two", val__k200=[2, 3]), val__k200=entry("Rank"))
    text = page_of(write_comparison({"a": [one], "b": [two]}, tmp_path / "page.html")).text
    assert f"{said}k50 (a), k200 (b)." in text
    assert "val/k50 or val/k200" in text
    assert said not in page_of(write_comparison({"a": [one], "b": [one]}, tmp_path / "page.html")).text
    assert said not in page_of(write_report(two)).text


def test_a_log_that_nobody_declared_joins_no_figure_of_its_name(tmp_path):
    charts = {"val__c": entry("C", of="Other", section="other", chart=Chart("own", "On a chart"))}
    declare(write_log(tmp_path, val__a=[1, 2], val__toy=[3, 4], val__c=[5, 6], val__own=[7, 8]),
            val__a=entry("A", section="other"), **charts)  # fmt: skip
    drawn = figures(read_run(tmp_path)).values()
    assert [len(lines(figure.axes[0])) for figure in drawn] == [1, 1, 1, 1]


def test_percents_and_others_have_no_axis_in_common(tmp_path):
    both = Chart("both", "Both")
    declare(write_log(tmp_path, val__a=[1, 2], val__b=[0.25, 0.5], val__n=[0.1, 0.1]),
            val__a=entry("A", key="a", chart=both), val__b=entry("B", key="b", chart=both, percent=True),
            val__n=entry("N", key="n", chart=both, percent=True, baseline=True))  # fmt: skip
    drawn = figures(read_run(tmp_path))
    assert [texts(figure.axes[0])[0] for figure in drawn.values()] == ["value", "value, %"]
    assert lines(drawn["both_percent"].axes[0])[0].get_ydata().tolist() == [25, 50]
    assert len(lines(drawn["both_percent"].axes[0], "muted")) == 1
    assert list(drawn) == list(comparison_figures({"a": [tmp_path]})) == ["both", "both_percent"]
    assert "Both, in percent" in page_of(write_report(tmp_path)).text
    declare(tmp_path, val__b=entry("B", key="b", chart=both, percent=True, baseline=True))
    drawn = figures(read_run(tmp_path))  # baselines of another scale are drawn by themselves
    assert [each.get_ydata().tolist() for each in lines(drawn["both_percent"].axes[0])[:1]] == [[25, 50]]


def test_logarithms_on_a_plain_axis_are_called_so(tmp_path):
    about = entry("A", unit="nats", picture=Picture("spectrum", logarithm=True))
    declare(write_log(tmp_path, val__a=[1, 2]), val__a=about)  # a scalar, which is drawn as a line
    assert texts(figures(read_run(tmp_path))["toy"].axes[0])[0] == "logarithm of nats"


class Described(Metric):
    """A user's."""

    section = "My own section"
    quantities: ClassVar = {
        "norm": Quantity(title="Norm", low="Short rows.", high="Long rows.", unit="lengths",
                         chart=Chart("norms", "Norms"), paper=Paper("Me 2026", "On norms")),
        "norms": Quantity(title="All norms", text="The norms.", picture=Picture("quantiles")),
    }  # fmt: skip

    def update(self, h):
        self.h = h

    def compute(self):
        norm = self.h.norm(dim=-1).flatten()
        return {"norm": norm.mean(), "norms": norm}


class UndescribedNorm(Described):
    """The mean norm of `h`. More is said here."""

    section, quantities = "", {}
    higher_is_better, plot_lower_bound = True, 0.0

    def compute(self):
        return super().compute()["norm"]


def test_a_users_metric_has_its_place_and_one_that_declares_nothing_its_docstring(tmp_path):
    found = {}
    for name, metric in (("a", Described()), ("b", UndescribedNorm())):
        metric.update(torch.eye(3)[None])
        result = metric.compute()
        found[name] = metric, result if isinstance(result, dict) else {"": result}
    page = page_of(write_report(write_results(tmp_path, found)))
    assert "<h2>My own section</h2>" in page.source
    for text in ("Norms", "Short rows.", "Long rows.", "(Me 2026)", "Me 2026. On norms", "The norms."):
        assert text in page.text
    assert "Undescribed norm" in page.text
    assert "The mean norm of h." in page.text
    assert "More is said" not in page.text
    drawn = figures(read_run(tmp_path))
    assert list(drawn) == ["norms", "val_described_norms", "undescribed_norm"]
    assert texts(drawn["norms"].axes[0])[0] == "lengths"


# --- manifests of anybody


def test_entries_that_are_not_as_they_should_be_are_left_out_and_said_so_in_seconds(tmp_path):
    write_log(tmp_path, val__good=[1, 2], val__bad=[1, 2])
    declare(tmp_path, val__good=entry("Good"))
    path = tmp_path / "geometry/quantities.json"
    good = json.loads(path.read_text())["val/good"]
    bad = [{"long_name": 3}, {"section": ["a"]}, {"cap": "9**9**9"}, {"cap": "N.__class__"}, {"width": -1}]
    bad += [{"picture": {"kind": "gif"}}, {"picture": {"kind": "line", "role": "king"}}, {"picture": "line"}]
    bad += [{"valid_range": [1, 0]}, {"valid_range": [0, 1e999]}, {"valid_range": "ab"}, {"better": "up"}, {"low": {}}]
    bad += [{"chart": {"name": 1, "title": ""}}, {"invariances": ["luck"]}, {"long_name": ""}, {"text": "a" * 5_000}]
    entries = {f"val/bad{place}": good | each for place, each in enumerate(bad)} | {"val/bad": None, "x": [], "y": 1}
    path.write_text(json.dumps(entries | {"val/good": good}))
    assert list(read_run(tmp_path).declared) == ["val/good"]
    said = f"geometry/quantities.json: {len(entries)} malformed entries were left out: "
    said += "val/bad0, val/bad1, val/bad2, .... Their results are shown without a text."
    assert said in page_of(write_report(tmp_path)).text
    started, entries = time.monotonic(), ",".join(f'"{place}":{{"long_name":""}}' for place in range(10**6))
    path.write_text(f"{path.read_text().rstrip().rstrip('}')}}}, {entries}}}")
    assert any("geometry/quantities.json" in note for note in read_run(tmp_path).notes)
    assert "val/good" in page_of(write_report(tmp_path)).text
    assert time.monotonic() - started < 30


@pytest.mark.parametrize("remark", ["{a.__class__}", "{a!r}", "{a[0]}", "{a:.99f}", "{a:1000000d}", "{}", "{"])
def test_a_remark_fills_in_values_and_nothing_else_and_is_left_out_without_one(tmp_path, remark):
    remarks = {"b": f"From {{a}}, {{a:.1f}}: {remark}", "c": "To {gone} and {0:.0f}."}
    about = {f"val__x_{key}": entry(key, key=key, remark=remarks.get(key, "")) for key in "abc"}
    write_log(tmp_path, val__x_a=[1, 2.25], val__x_b=[1, 2], val__x_c=[1, 2])
    text = page_of(write_report(declare(tmp_path, **about))).text
    assert f"From 2.25, 2.2: {remark}" in text
    assert "To " not in text.partition("All numbers")[0].replace("To know when", "")


def shaped(folder, name, shape):
    """A log of a shape: a scalar over training, an array, or the latest readout of one with more axes."""
    value = np.linspace(0.5, 2, int(np.prod(shape, dtype=int))).reshape(shape)
    if len(shape) == 1:
        write_array(folder, f"val/{name}", value, value)
    elif shape:
        write_snapshot(folder, f"val/{name}", value)
    return {} if shape else {f"val__{name}": [1.0, 2.0]}


def test_a_picture_and_a_shape_that_contradict_each_other_leave_no_figure_undrawn(tmp_path):
    columns, about = {}, {}
    for kind, shape, role in product(get_args(Kind), ((), (4,), (5,), (3, 3), (2, 3), (2, 2, 2)), get_args(Role)):
        size = "".join(map(str, shape))
        name, shared = f"{kind}_{size}_{role}", kind if len(shape) < 2 else f"{kind}_{size}"
        columns |= shaped(tmp_path, name, shape)
        picture = Picture(kind, role, names=("one", "two"), logarithm=role == "x" and kind in ("spectrum", "profile"))
        about[f"val__{name}"] = entry(name, key=name, picture=picture, chart=Chart(shared, shared))
    declare(write_log(tmp_path, **columns), **about)
    page = page_of(write_report(tmp_path))  # a warning of what is not drawn is an error
    assert page.values("class").count("figure") > 30
    write_comparison({"a": [tmp_path, tmp_path]}, tmp_path / "both.html")
    write_report(write_info(tmp_path, kind="diagnosis"))


def test_a_scalar_and_an_array_that_claim_to_be_one_result_are_drawn_apart(tmp_path):
    write_log(write_array(tmp_path, "val/row", [1, 2, 3]), val__number=[1.0, 2.0], own=[3.0, 4.0])
    declare(write_array(tmp_path, "val/own", [1, 2, 3]), val__row=entry("Both"), val__number=entry("Both"))
    drawn = figures(read_run(tmp_path))
    assert list(drawn) == ["val_toy", "toy", "own", "val_own"]
    assert [len(lines(drawn[name].axes[0])[0].get_ydata()) for name in drawn] == [3, 2, 2, 3]
