"""The manifest of a run: it is read as it was written, and a malformed file does no harm."""

import json
from dataclasses import replace

import pytest

from lightning_ssl_geometry.manifest import Declared, merged, read_manifest, resumed, undeclared, written
from lightning_ssl_geometry.quantity import Chart, Paper, Picture, Quantity

PLAIN = Quantity(title="Rank", low="Few.", high="Many.")
FULL = Quantity(
    title="Ränk",
    text="How many.",
    low="Few.",
    high="Many.",
    short="rank",
    paper=Paper("A & B 2024", "On <ranks>", arxiv="2401.00001"),
    where="Eq. 1",
    unit="directions",
    bounds=(0.0, None),
    cap="min(V * N, D)",
    null="isotropic",
    invariances=("rotation", "scale"),
    comparable=("width",),
    better="high",
    percent=True,
    chart=Chart("ranks", "Ranks", "directions", "A remark."),
    label="all",
    baseline=True,
    picture=Picture("profile", "x", True, ("a", "b")),
    xlabel="place",
    remark="To {last:.0f}.",
    headline=True,
    shown=False,
)
DECLARED = Declared(
    quantity=FULL,
    section="ranks",
    diagnostic="Rank",
    key="layers",
    part="layers_3",
    space="h_image",
    width=64,
    reads=("h", "label"),
)


def entry(**changes):
    return json.loads(written({"val/x": DECLARED}))["val/x"] | changes


def test_what_is_written_is_read():
    manifest = {"val/full": DECLARED, "val/plain": Declared(quantity=PLAIN), "val/a\nb": Declared(quantity=PLAIN)}
    manifest |= {"val/silent": undeclared("val/silent")}
    assert read_manifest(written(manifest)) == (manifest, [])
    assert list(read_manifest(written(manifest))[0]) == list(manifest), "the order of the page"


def test_infinite_bounds_are_none():
    infinite = replace(PLAIN, bounds=(0.0, float("inf")))
    assert read_manifest(written({"x": Declared(quantity=infinite)}))[0]["x"].quantity.bounds == (0.0, None)


def test_attributes_go_by_the_names_of_cf_conventions():
    held = entry()
    assert held["long_name"] == "Ränk"
    assert (held["units"], held["valid_range"], held["space"], held["width"]) == (
        "directions",
        [0.0, None],
        "h_image",
        64,
    )
    assert held["references"] == {"short": "A & B 2024", "title": "On <ranks>", "arxiv": "2401.00001"}
    assert set(json.loads(written({"x": Declared(quantity=PLAIN)}))["x"]) == {"long_name", "low", "high", "section"}


@pytest.mark.parametrize("text", ["", "{", "[]", "3", '"x"', "null", "NaN", "\0", '{"a": 1} {"b": 2}'])
def test_what_is_no_object_is_refused(text):
    with pytest.raises(ValueError, match=r"Expecting|it holds a|Extra data"):
        read_manifest(text)


def test_what_is_nested_deeply_is_refused_or_left_out():
    with pytest.raises(RecursionError):
        read_manifest("[" * 100_000)
    cap = "(" * 39 + "1" + ")" * 39  # within the length of a cap
    assert read_manifest(json.dumps({"x": entry(cap=cap)}))[0]["x"].quantity.cap == cap
    assert read_manifest(json.dumps({"x": entry(references={"short": {"title": [[]]}})})) == ({}, lost(1, "x"))


@pytest.mark.parametrize(
    "changes",
    [
        {"long_name": None},
        {"long_name": ""},
        {"long_name": ["Rank"]},
        {"long_name": "x" * 5_000},
        {"low": 3},
        {"text": {"a": "b"}},
        {"valid_range": "01"},
        {"valid_range": [0]},
        {"valid_range": [0, 1, 2]},
        {"valid_range": [1, 0]},
        {"valid_range": [0, float("inf")]},
        {"valid_range": [float("nan"), 1]},
        {"valid_range": [0, 10**400]},
        {"valid_range": 1},
        {"valid_range": ["0", "1"]},
        {"valid_range": [False, True]},
        {"cap": "__import__('os').system('true')"},
        {"cap": "2 ** 100"},
        {"cap": "D" + " + D" * 100},
        {"cap": 3},
        {"better": "higher"},
        {"better": 1},
        {"invariances": ["gravity"]},
        {"invariances": [3]},
        {"comparable": {"width": 1}},
        {"comparable": ["age"]},
        {"references": "A & B"},
        {"references": {"short": "A"}},
        {"references": {"short": 1, "title": "B"}},
        {"chart": {"name": "x"}},
        {"chart": [1, 2]},
        {"picture": {"kind": "video"}},
        {"picture": {"kind": "line", "role": "villain"}},
        {"picture": {"kind": "matrix", "logarithm": True}},
        {"picture": {"kind": "components", "names": [1]}},
        {"picture": {"kind": "components", "names": "abc"}},
        {"picture": {}},
        {"earlier": "abc"},
        {"earlier": {"a": "b"}},
        {"earlier": [3]},
        {"section": 3},
        {"space": ["h"]},
        {"width": -1},
        {"width": 1.5},
        {"width": True},
        {"width": 2**60},
        {"width": "64"},
    ],
    ids=str,
)
def test_an_entry_that_is_not_as_it_should_be_is_left_out_and_the_others_stay(changes):
    found, notes = read_manifest(json.dumps({"bad": entry(**changes), "good": entry()}))
    assert found == {"good": DECLARED}
    assert notes == lost(1)


@pytest.mark.parametrize("wrong", [None, 3, "x", [], {}, [["long_name", "x"]]])
def test_an_entry_that_is_no_object_is_left_out(wrong):
    assert read_manifest(json.dumps({"bad": wrong, "good": entry()})) == ({"good": DECLARED}, lost(1))


def test_what_a_later_version_may_add_is_passed_over():
    added = entry(colour="red", references=entry()["references"] | {"doi": "10.1/2"})
    assert read_manifest(json.dumps({"x": added})) == ({"x": DECLARED}, [])


def test_switches_are_set_by_true_alone():
    found, _ = read_manifest(json.dumps({"x": entry(percent="false", headline=1, baseline=[0])}))
    quantity = found["x"].quantity
    assert (quantity.percent, quantity.headline, quantity.baseline) == (False, False, False)


def test_no_more_entries_are_read_than_a_run_can_have():
    found, notes = read_manifest(json.dumps({str(place): entry() for place in range(6_000)}))
    assert len(found) == 5_000
    assert notes == ["geometry/quantities.json has 6,000 entries; only the first 5,000 were read."]


def test_entries_that_are_left_out_are_named():
    long = {f"{place}{'a' * 100}": entry(long_name="b" * 4_001) for place in range(4)}
    _, notes = read_manifest(json.dumps(long | {"good": entry()}))
    assert notes == lost(4, ", ".join(f"{place}{'a' * 79}…" for place in range(3)) + ", ...")


def test_names_that_json_has_made_of_numbers_are_names():
    assert list(read_manifest(json.dumps({3: entry(), None: entry()}))[0]) == ["3", "null"]


def test_manifests_are_joined_by_name():
    other = replace(DECLARED, space="z")
    assert merged({"a": DECLARED, "b": other}, {"b": other, "c": DECLARED}, {}) == {
        "a": DECLARED,
        "b": other,
        "c": DECLARED,
    }
    assert merged() == {}


def test_a_contradiction_names_both():
    of_z = replace(DECLARED, space="z")
    single = Declared(quantity=PLAIN, diagnostic="Other")
    words = r", in directions, shown in percent \(Rank, layers, part layers_3\)"
    said = rf"one meaning of 'val/x', but got 'Ränk' of h_image{words} and "
    with pytest.raises(ValueError, match=rf"{said}'Ränk' of z{words}\."):
        merged({"val/x": DECLARED}, {"val/x": of_z})
    with pytest.raises(ValueError, match=said + r"'Rank' \(Other, its only result\)\."):
        merged({"val/x": DECLARED}, {}, {"val/x": single})


OTHERS = [
    replace(DECLARED, diagnostic="Other"),
    replace(DECLARED, diagnostic=""),
    undeclared("val/x"),
    replace(DECLARED, key="rank"),
    replace(DECLARED, part="layers_4"),
    replace(DECLARED, part=""),
    replace(DECLARED, space="z"),
    *(
        replace(DECLARED, quantity=replace(FULL, **changes))
        for changes in (
            {"title": "Other"},
            {"unit": "bits"},
            {"unit": ""},
            {"unit": "directions, shown in percent", "percent": False},
            {"percent": False},
        )
    ),
]


@pytest.mark.parametrize("other", OTHERS, ids=lambda other: other.in_words)
def test_a_resumed_run_keeps_in_words_whatever_other_meaning_there_was(other):
    assert other.meaning != DECLARED.meaning
    held = resumed({"val/x": other}, {"val/x": DECLARED})
    assert held == {"val/x": DECLARED}
    assert held["val/x"].earlier == (other.in_words,)
    assert other.in_words != DECLARED.in_words
    again = resumed(held, {"val/x": other})["val/x"]
    assert again.earlier == (DECLARED.in_words,), "what it means now is nothing earlier"
    assert resumed(held, {"val/x": DECLARED})["val/x"].earlier == (other.in_words,)


def test_an_earlier_meaning_of_any_length_is_read_again():
    long = replace(DECLARED, quantity=replace(FULL, title="x" * 3_999, unit="bits"))
    held = resumed({"val/x": long}, {"val/x": DECLARED})
    read, notes = read_manifest(written(held))
    assert (read, notes) == (held, [])
    assert read["val/x"].earlier[0].startswith("'xxx")


def lost(count, named="bad"):
    entries = "entry was" if count == 1 else "entries were"
    said = f"geometry/quantities.json: {count} malformed {entries} left out: {named}."
    return [f"{said} Their results are shown without a text."]
