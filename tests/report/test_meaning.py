"""What a run declares of its logs is what its page says; what nobody declared is shown without a claim."""

import json
import time
from itertools import product
from typing import get_args

import numpy as np
import pytest
from pages import (
    compared,
    comparison,
    declare,
    drawn,
    entry,
    lines,
    report,
    texts,
    write_array,
    write_info,
    write_log,
    write_results,
    write_rows,
    write_snapshot,
)

from lightning_ssl_geometry.quantity import Chart, Kind, Picture, Role
from lightning_ssl_geometry.recording.quantities_file import meaning
from lightning_ssl_geometry.report import read_run


def unsaid(text, computed):
    """What a page does not say of results that are drawn for themselves."""
    for name, (metric, found) in computed.items():
        for key in found:
            quantity = meaning(metric, key).quantity
            serves = quantity.baseline or not quantity.shown or (quantity.picture and quantity.picture.role)
            said = [quantity.text, quantity.low, quantity.high, quantity.paper.title if quantity.paper else ""]
            yield from ((name, key, part) for part in said if part not in text and not serves)


def test_every_diagnostic_has_its_text_whatever_its_name_also_where_nothing_was_trained(
    renamed, whole_page, computed, tmp_path
):
    assert list(unsaid(whole_page.text, computed)) == []
    assert "Other logs" not in whole_page.text
    looked = write_info(write_results(tmp_path, renamed, "test", 1), kind="diagnosis")
    assert list(unsaid(report(looked).text, computed)) == []


def test_without_a_manifest_every_log_has_its_own_name_and_no_text(tmp_path):
    names = ("accuracy", "momentum", "effective_rank_h", "loss", "x")
    write_log(tmp_path, **{f"val__{name}": [1.0, 0.5] for name in names}, lr=[1, 1])
    write_snapshot(write_array(tmp_path, "val/log_spectrum_h", [2, 1], [3, 1]), "val/blocks", np.eye(2))
    page = report(tmp_path)
    first, last = page.tags.index("section"), page.tags.index("table")
    assert not {"cite", "dd"} & set(page.tags[first:last])
    assert "Papers" not in page.text
    assert list(drawn(tmp_path)) == [
        "loss",
        "accuracy",
        "momentum",
        "effective_rank_h",
        "x",
        "lr",
        "val_log_spectrum_h",
        "blocks",
    ]
    learning, _, other = page.text.rpartition("Is it learning?")[2].partition("Other logs")
    assert all(name in other and name not in learning for name in names if name != "loss")
    write_rows(tmp_path / "b", ["a_b_2", "a b", "a/b", "a.b"], [0, 9, 1, 2, 3, 4])  # names of files are told apart
    assert list(drawn(tmp_path / "b")) == ["a_b_2", "a_b", "a_b_3", "a_b_4"]
    declare(tmp_path / "b", a_b_2=entry("A", of="LiDARRank", key="b"))
    assert next(iter(drawn(tmp_path / "b"))) == "li_dar_rank_b"


def test_a_space_is_named_where_there_are_several_or_another_one(tmp_path):
    write_log(tmp_path, val__a=[1, 2], val__b=[2, 3], val__c=[1, 1])
    about = {"val__a": entry("Rank", of="A", space="h"), "val__b": entry("Rank", of="A", space="h_image")}
    declare(tmp_path, **about, val__c=entry("Spread", space="z", renamed=True))
    assert {"h 2", "h, clean images 3"} <= set(texts(drawn(tmp_path)["a"]))
    assert "Spread (z)" in report(tmp_path).text
    declare(tmp_path, val__c=entry("Spread", space="z"))
    assert "Spread (z)" not in report(tmp_path).text


@pytest.mark.parametrize(("one", "two"), [("near", "far"), ("teacher/rank", "student/rank")])
def test_two_objects_of_one_class_and_two_monitors_are_told_apart_by_their_names(tmp_path, one, two):
    names = {f"val__{name}".replace("/", "__"): value for name, value in ((one, [1, 2]), (two, [2, 3]))}
    declare(write_log(tmp_path, **names), **{name: entry("Rank", space="h", headline=True) for name in names})
    page = report(tmp_path)
    one, two = one.partition("/")[0], two.partition("/")[0]  # the monitor's name is enough
    assert {f"{one} 2", f"{two} 3"} <= set(texts(drawn(tmp_path)["toy"]))
    assert f"Rank ({one})2val, from 1" in page.text
    assert f"Rank ({two})3val, from 2" in page.text
    assert page.text.count("High Rank.") == 1


@pytest.mark.parametrize(
    ("layers", "named", "end"),
    [
        (("layer1", "layer10", "layer2"), "layer2", "layer2"),
        (("layers_0", "layers_3", "layers_10"), "3rd layer, layers.10", "3rd layer"),
    ],
)
def test_the_last_layer_is_the_last_that_was_declared_whatever_its_name(tmp_path, layers, named, end):
    about = {f"val__rank_{layer}": entry("Rank", key="rank", part=layer, headline=True) for layer in layers}
    declare(write_log(tmp_path, **{name: [4, place] for place, name in enumerate(about)}), **about)
    parts = {f"val__own_{layer}": entry("Own", key="own", part=layer, picture=Picture("components"))
             for layer in layers}  # fmt: skip
    for place, name in enumerate(parts):
        write_array(tmp_path, name.replace("__", "/"), [4, place], [5, place])
    declare(tmp_path, **parts)
    text = report(tmp_path).text
    assert (f"Rank ({named})2val" in text, text.count("2val")) == (True, 1)
    axes = drawn(tmp_path)
    assert f"{end} 2" in texts(axes["toy_rank"])
    (own,) = (each for name, each in axes.items() if name.startswith("toy_own"))
    assert lines(own, "green")[0].get_ydata().tolist() == [2, 2]
    assert lines(compared(a=[tmp_path])["toy_rank"])[0].get_ydata().tolist() == [4, 2]


def test_joined_logs_of_different_names_are_said_to_be(tmp_path):
    one = declare(write_log(tmp_path / "one", train__k5=[1, 2], val__k50=[2, 3]),
                  train__k5=entry("Rank"), val__k50=entry("Rank"))  # fmt: skip
    said = "Logged under different names, so settings may differ: "
    assert f"{said}k5 (train), k50 (val)." in report(one).text
    two = declare(write_log(tmp_path / "two", val__k200=[2, 3]), val__k200=entry("Rank"))
    text = comparison(tmp_path, a=[one], b=[two]).text
    assert f"{said}k50 (a), k200 (b)." in text
    assert "val/k50 or val/k200" in text
    assert said not in comparison(tmp_path, a=[one], b=[one]).text
    assert said not in report(two).text


def test_a_log_that_nobody_declared_joins_no_figure_of_its_name(tmp_path):
    charts = {"val__c": entry("C", of="Other", section="other", chart=Chart("own", "On a chart"))}
    declare(write_log(tmp_path, val__a=[1, 2], val__toy=[3, 4], val__c=[5, 6], val__own=[7, 8]),
            val__a=entry("A", section="other"), **charts)  # fmt: skip
    assert [len(lines(axes)) for axes in drawn(tmp_path).values()] == [1, 1, 1, 1]


def test_percents_and_others_have_no_axis_in_common(tmp_path):
    both = Chart("both", "Both")
    declare(write_log(tmp_path, val__a=[1, 2], val__b=[0.25, 0.5], val__n=[0.1, 0.1]),
            val__a=entry("A", key="a", chart=both), val__b=entry("B", key="b", chart=both, percent=True),
            val__n=entry("N", key="n", chart=both, percent=True, baseline=True))  # fmt: skip
    axes = drawn(tmp_path)
    assert [texts(each)[0] for each in axes.values()] == ["value", "value, %"]
    assert lines(axes["both_percent"])[0].get_ydata().tolist() == [25, 50]
    assert len(lines(axes["both_percent"], "muted")) == 1
    assert list(axes) == list(compared(a=[tmp_path])) == ["both", "both_percent"]
    assert "Both, in percent" in report(tmp_path).text
    declare(tmp_path, val__b=entry("B", key="b", chart=both, percent=True, baseline=True))
    # baselines of another scale are drawn by themselves
    assert lines(drawn(tmp_path)["both_percent"])[0].get_ydata().tolist() == [25, 50]


# --- manifests of anybody


def test_entries_that_are_not_as_they_should_be_are_left_out_and_said_so_in_seconds(tmp_path):
    write_log(tmp_path, val__good=[1, 2], val__bad=[1, 2])
    declare(tmp_path, val__good=entry("Good"))
    path = tmp_path / "geometry/quantities.json"
    good = json.loads(path.read_text())["val/good"]
    bad = [{"long_name": 3}, {"cap": "9**9**9"}, {"picture": "line"}, {"valid_range": [0, 1e999]}]
    entries = {f"val/bad{place}": good | each for place, each in enumerate(bad)} | {"val/bad": None, "x": [], "y": 1}
    path.write_text(json.dumps(entries | {"val/good": good}))
    assert list(read_run(tmp_path).declared) == ["val/good"]
    said = f"geometry/quantities.json: {len(entries)} malformed entries were left out: "
    said += "val/bad0, val/bad1, val/bad2, .... Their results are shown without a text."
    assert said in report(tmp_path).text
    started, entries = time.monotonic(), ",".join(f'"{place}":{{"long_name":""}}' for place in range(10**6))
    path.write_text(f"{path.read_text().rstrip().rstrip('}')}}}, {entries}}}")
    assert any("geometry/quantities.json" in note for note in read_run(tmp_path).notes)
    assert "val/good" in report(tmp_path).text
    assert time.monotonic() - started < 30


@pytest.mark.parametrize("remark", ["{a.__class__}", "{a!r}", "{a[0]}", "{a:.99f}", "{a:1000000d}", "{}", "{"])
def test_a_remark_fills_in_values_and_nothing_else_and_is_left_out_without_one(tmp_path, remark):
    remarks = {"b": f"From {{a}}, {{a:.1f}}: {remark}", "c": "To {gone} and {0:.0f}."}
    about = {f"val__x_{key}": entry(key, key=key, remark=remarks.get(key, ""), shown=key != "a") for key in "abc"}
    write_log(tmp_path, val__x_a=[1, 2.25], val__x_b=[1, 2], val__x_c=[1, 2])
    text = report(declare(tmp_path, **about)).text
    assert list(drawn(tmp_path)) == ["toy_b", "toy_c"]  # what only explains others is in the tables alone
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
    assert report(tmp_path).count() > 30  # a warning of what is not drawn is an error
    comparison(tmp_path, a=[tmp_path, tmp_path])
    report(write_info(tmp_path, kind="diagnosis"))


def test_a_scalar_and_an_array_that_claim_to_be_one_result_are_drawn_apart(tmp_path):
    write_log(write_array(tmp_path, "val/row", [1, 2, 3]), val__number=[1.0, 2.0], own=[3.0, 4.0])
    declare(write_array(tmp_path, "val/own", [1, 2, 3]), val__row=entry("Both"), val__number=entry("Both"))
    axes = drawn(tmp_path)
    assert list(axes) == ["val_toy", "toy", "own", "val_own"]
    assert [len(lines(each)[0].get_ydata()) for each in axes.values()] == [3, 2, 2, 3]
