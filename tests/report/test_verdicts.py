"""The page says in words what follows from declared thresholds, and nothing where a number is missing."""

from dataclasses import replace

import numpy as np
import pytest
from pages import comparison, declare, entry, report, write_array, write_csv, write_info, write_log
from scipy.stats import kendalltau, theilslopes

from lightning_ssl_geometry.callbacks import KNNProbe
from lightning_ssl_geometry.callbacks.evaluation import Evaluation
from lightning_ssl_geometry.diagnostics import EffectiveRank, LogSpectrum, UpperBound
from lightning_ssl_geometry.manifest import read_manifest, written
from lightning_ssl_geometry.quantity import TREND_OF_LOSS, Paper, Picture, Verdict
from lightning_ssl_geometry.recording.quantities_file import meaning
from lightning_ssl_geometry.report import read_run, remarks, write_card
from lightning_ssl_geometry.report.seen import cap_of
from lightning_ssl_geometry.report.verdicts import findings, trend

PAPER = Paper("Somebody 2024", "A paper", "2401.00001")
LOW = Verdict(
    says="{space} is low: {value} of {D}, and {limit} is the least.",
    when="value < limit",
    source="Eq. 3",
    paper=PAPER,
    topic="a low value",
)


def says(folder):
    return [each.says for each in findings(read_run(folder)).held]


def low(folder, value, **fields):
    """A run whose last value is compared with its limit 5."""
    entries = {"val__rank": entry("Rank", space="z", width=8, verdicts=(LOW,), **fields)}
    entries["val__rank_limit"] = entry("Limit", key="limit", shown=False)
    declare(write_log(folder, val__rank=[9, value], val__rank_limit=[5, 5]), **entries)
    write_array(folder, "val/rows_seen", [100, 2, 16, 8], [100, 2, 16, 8])
    return folder


def test_a_sentence_stands_on_the_page_with_its_number_source_and_figure(tmp_path):
    page = report(low(tmp_path, 3))
    assert "What this run shows" in page.text
    assert "z is low: 3 of 8, and 5 is the least. (Somebody 2024, Eq. 3; figure)" in page.text
    assert page.values("href").count("#figure-toy") == 1
    assert "A paper" in page.text.partition("Papers")[2]
    assert "z is low: 3 of 8" in remarks(read_run(tmp_path))
    assert "z is low: 3 of 8" in write_card(tmp_path).read_text()


def test_what_does_not_hold_is_looked_for_and_not_found(tmp_path):
    page = report(low(tmp_path, 6))
    assert "is low" not in page.text
    assert "The run was tested for the following, and does not show it: a low value (z)." in page.text


def test_without_a_number_or_a_declaration_the_page_is_silent(tmp_path):
    unknown = low(tmp_path / "a", float("nan"))
    assert findings(read_run(unknown)) == ((), ())
    assert "What this run shows" not in report(unknown).text
    lost = declare(write_log(tmp_path / "b", val__rank=[9, 3]), val__rank=entry("Rank", verdicts=(LOW,)))
    assert "What this run shows" not in report(lost).text
    undeclared = declare(write_log(tmp_path / "c", val__rank=[9, 3]), val__rank=entry("Rank"))
    assert "What this run shows" not in report(undeclared).text


def test_of_two_monitors_the_sentence_says_which(tmp_path):
    columns, entries = {}, {}
    for name, value in (("teacher", 1.0), ("student", 9.0)):
        columns |= {f"val__{name}__rank": [9, value], f"val__{name}__rank_limit": [5, 5]}
        entries[f"val__{name}__rank"] = entry("Rank", space="z", width=8, verdicts=(LOW,))
        entries[f"val__{name}__rank_limit"] = entry("Limit", key="limit", shown=False)
    found = findings(read_run(declare(write_log(tmp_path, **columns), **entries)))
    assert [each.says for each in found.held] == ["z of teacher is low: 1 of 8, and 5 is the least."]
    assert found.absent == ("a low value (z of student)",)


def test_a_comparison_says_what_the_runs_of_each_group_show_and_in_how_many(tmp_path):
    folders = {
        "all": [low(tmp_path / f"all{value}", value) for value in (3, 4)],
        "some": [low(tmp_path / f"some{value}", value) for value in (6, 2, 7)],
        "one": [low(tmp_path / "one", 1)],
        "none": [low(tmp_path / "none", 9)],
    }
    page = comparison(tmp_path / "page", **folders)
    text = page.text.partition("What these models show")[2].replace("\n", "")
    source = "(Somebody 2024, Eq. 3; figure)"
    assert f"allz is low: 3 of 8, and 5 is the least. In all 2 runs. {source}" in text
    assert f"somez is low: 2 of 8, and 5 is the least. In 1 of 3 runs. {source}" in text
    assert f"onez is low: 1 of 8, and 5 is the least. {source}" in text
    assert "noneNothing of what it was tested for." in text
    assert "those of the first run of a group that shows it" in text
    assert "not found" not in text
    assert "A paper" in text.partition("Papers")[2]
    nothing = comparison(tmp_path / "page", none=folders["none"], same=folders["none"]).text
    assert "The models were tested for the following, and none shows it: a low value (z)." in nothing
    assert "Nothing of what" not in nothing


def test_a_caveat_of_a_group_is_among_the_notes_of_a_comparison(tmp_path):
    caveat = Verdict(says="It is at {value}.", when="value > 0", source="x", caveat=True)
    for name, value in (("a", 1.0), ("b", 0.0)):
        declare(write_log(tmp_path / name, val__a=[1, value]), val__a=entry("A", verdicts=(caveat,)))
    text = comparison(tmp_path / "page", a=[tmp_path / "a"], b=[tmp_path / "b"]).text
    assert "a: It is at 1." in text.partition("To know when reading")[2]
    assert "What these models show" not in text


def test_a_caveat_is_among_the_notes(tmp_path):
    caveat = Verdict(
        says="It is at {value}, the loss at {loss_temperature}.",
        when="value > loss_temperature",
        source="x",
        caveat=True,
    )
    declare(write_log(tmp_path, val__a=[1, 0.5]), val__a=entry("A", verdicts=(caveat,)))
    assert "It is at" not in report(write_info(tmp_path, loss_temperature=0.5)).text
    page = report(write_info(tmp_path, loss_temperature=0.1))
    assert "It is at 0.500, the loss at 0.100." in page.text.partition("To know when reading")[2]
    assert "What this run shows" not in page.text


def test_verdicts_are_saved_with_the_run():
    text = written({"val/rank": entry("Rank", verdicts=(LOW, *TREND_OF_LOSS))})
    assert read_manifest(text)[0]["val/rank"].quantity.verdicts == (LOW, *TREND_OF_LOSS)


@pytest.mark.parametrize(
    "wrong",
    [
        '"value < 1"',
        '[{"says": "x"}]',
        '[{"says": "x", "when": "__import__(1)", "source": "x"}]',
        '[{"says": 1, "when": "value < 1", "source": "x"}]',
        '[{"says": "x", "when": "value < 1", "source": "x", "references": 3}, 3]',
    ],
)
def test_a_verdict_that_is_none_costs_its_entry_and_no_more(wrong):
    text = f'{{"a": {{"long_name": "A", "text": "A."}}, "b": {{"long_name": "B", "text": "B.", "verdicts": {wrong}}}}}'
    found, notes = read_manifest(text)
    assert list(found) == ["a"]
    assert "1 malformed entry was left out: b" in notes[0]


@pytest.mark.parametrize("when", ["value < 1 / zero", "value < nobody", "sqrt(zero - 1) > value", "log(zero) < value"])
def test_a_condition_without_a_value_says_nothing(tmp_path, when):
    verdict = Verdict(says="It is <b>{value}</b>.", when=when, source="x")
    entries = {"val__a": entry("A", verdicts=(verdict,)), "val__a_zero": entry("Zero", key="zero", shown=False)}
    declare(write_log(tmp_path, val__a=[1, 2], val__a_zero=[0, 0]), **entries)
    assert says(tmp_path) == []


def test_sentences_of_a_hostile_file_are_escaped(tmp_path):
    verdict = Verdict(says="<script>{value}</script>" + "x" * 3_000, when="value > 0", source="<img src=x>")
    page = report(declare(write_log(tmp_path, val__a=[1, 2]), val__a=entry("A", verdicts=(verdict,))))
    page.runs_nothing()
    assert "<script>2</script>" in page.text
    assert len(says(tmp_path)[0]) <= 1_000


@pytest.mark.parametrize("ties", [False, True])
def test_the_trend_is_that_of_mann_kendall_and_sen(ties):
    generator = np.random.default_rng(0)
    for n in (6, 7, 20, 60):
        values = generator.normal(size=n) - 0.1 * np.arange(n)
        values = np.round(values) if ties else values
        z, change = trend(values)
        pairs = [np.sign(values[j] - values[i]) for i in range(n) for j in range(i + 1, n)]
        assert np.sign(z) * (abs(sum(pairs)) > 1) == np.sign(sum(pairs)) * (abs(sum(pairs)) > 1)
        assert change == pytest.approx(theilslopes(values).slope * (n - 1))
        counts = np.unique(values, return_counts=True)[1]
        free = n * (n - 1) * (2 * n + 5) - (counts * (counts - 1) * (2 * counts + 5)).sum()
        assert abs(z) == pytest.approx((abs(sum(pairs)) - 1) / (free / 18) ** 0.5)
        assert np.sign(z) == np.sign(kendalltau(np.arange(n), values).statistic)
    assert trend(np.ones(9)) == (0, 0)


def test_noise_is_no_trend_and_a_fall_is_one(tmp_path):
    noise = np.random.default_rng(0)
    wrong = sum(abs(trend(noise.normal(size=20))[0]) > 2.326 for _ in range(400))
    assert wrong <= 20  # 2% are expected: 1% on each side
    loss = entry("Loss", of="Method", key="loss", verdicts=TREND_OF_LOSS)
    falls = declare(write_log(tmp_path / "a", train__loss=np.linspace(2, 1, 30)), train__loss=loss)
    assert says(falls) == ["The loss was still falling: by 0.310 in the last third of the run, to 1."]
    flat = [*np.linspace(2, 1, 30), *noise.normal(1, 0.01, size=15)]
    assert says(declare(write_log(tmp_path / "b", train__loss=flat), train__loss=loss)) == []
    short = declare(write_log(tmp_path / "c", train__loss=np.linspace(2, 1, 17)), train__loss=loss)
    assert findings(read_run(short)) == ((), ())


def spectrum(folder, sigma, samples, views=2):
    """A run with the logarithm of a spectrum of h, of this number of samples."""
    write_array(
        folder, "val/log_spectrum_h", [0.0] * len(sigma), ["-inf" if each == 0 else np.log(each) for each in sigma]
    )
    write_array(folder, "val/rows_seen", *[[samples, views, len(sigma), 4]] * 2)
    return declare(folder, val__log_spectrum_h=meaning(LogSpectrum(), "", "h", len(sigma)))


@pytest.mark.parametrize(("row", "of_h", "of_z"), [([8, 1, 40, 40, 2], 8, 16), ([8, 2, 40, 40, 2], 16, 16),
                                                   ([8, 2, 40, 40], 16, 16)])  # fmt: skip
def test_h_and_z_may_have_different_numbers_of_views(tmp_path, row, of_h, of_z):
    """Row: samples, views of h, widths of h and z, views of z, which earlier versions did not write."""
    write_log(tmp_path, val__h=[3.0], val__z=[3.0])
    declare(tmp_path, **{f"val__{space}": meaning(EffectiveRank(), "", space, 40) for space in "hz"})
    write_array(tmp_path, "val/rows_seen", row)
    caps = [cap_of(read_run(tmp_path), f"val/{space}") for space in "hz"]
    assert [(cap.most, cap.views) for cap in caps] == [(of_h, of_h // 8), (of_z, of_z // 8)]


def test_a_spectrum_with_zeros_is_a_partial_collapse_only_if_there_are_enough_rows(tmp_path):
    assert says(spectrum(tmp_path / "a", [3, 2, 1, 0], 100)) == [
        "h leaves 1 of its 4 dimensions unused: as many singular values are 0 up to rounding (collapse in part)."
    ]
    assert says(spectrum(tmp_path / "b", [3, 2, 1, 0.1], 100)) == []
    assert findings(read_run(tmp_path / "b")).absent == ("unused dimensions (h)",)
    assert says(spectrum(tmp_path / "c", [3, 2] + [0] * 6, 1)) == [
        "Whether h has collapsed in part cannot be said: 2 rows span at most 2 of its 8 dimensions."
    ]
    assert says(spectrum(tmp_path / "d", [3, 2, 1, 1, 1, 0, 0, 0], 5)) == []


@pytest.mark.parametrize(("samples", "said"), [(6, ()), (1_000, ("kNN is not above chance",))])
def test_a_probe_of_few_samples_is_not_judged(tmp_path, samples, said):
    about = {key: meaning(KNNProbe(num_classes=2), key) for key in ("accuracy", "chance")}
    declare(
        write_log(tmp_path, val__knn_probe_accuracy=[0.5, 0.1], val__knn_probe_chance=[0.1, 0.1]),
        **{f"val__knn_probe_{key}": each for key, each in about.items()},
    )
    write_array(tmp_path, "val/rows_seen", *[[samples, 2, 16, 4]] * 2)
    found = findings(read_run(tmp_path))
    assert [each.says.partition(":")[0] for each in found.held] == [*said]
    assert found.absent == ()


@pytest.mark.parametrize(("rank", "said"), [(1.2, True), (1.6, False)])
def test_one_direction_is_a_collapse_in_whole(tmp_path, rank, said):
    declare(write_log(tmp_path, val__a=[8, rank]), val__a=meaning(EffectiveRank(), "", "h", 16))
    write_array(tmp_path, "val/rows_seen", *[[100, 2, 16, 4]] * 2)
    found = says(tmp_path)
    assert len(found) == said
    assert all("The rows of h lie nearly along one of 16 directions (effective rank 1.20): collapse" in each
               for each in found)  # fmt: skip


@pytest.mark.parametrize(
    ("loss", "upper", "said"),
    [
        (4.0, 5.0, ""),
        (5.5, 5.4, "is above its upper bound (5.40)"),
        (np.log(254), 6.0, "no better than equal embeddings"),
    ],
)
def test_infonce_beside_its_bound_and_the_value_of_equal_embeddings(tmp_path, loss, upper, said):
    values = {"info_nce": loss, "upper": upper, "negatives": 254, "temperature": 0.5}
    bound = {f"val__bound_{key}": meaning(UpperBound(), key, "z", 4) for key in values}
    declare(write_log(tmp_path, **{f"val__bound_{key}": [value, value] for key, value in values.items()}), **bound)
    if "equal" in said:
        assert says(tmp_path) == []  # the model's loss is not known to be contrastive
    write_info(tmp_path, loss_temperature=0.5)
    found = says(tmp_path)
    assert [said in each for each in found] == [True] * bool(said)
    assert len(findings(read_run(tmp_path)).absent) == 2 - bool(said)


@pytest.mark.parametrize(
    ("trained", "frozen", "count"), [(0.9, 0.8, 0), (0.70, 0.8, 1), (0.70, 0.72, 0), (0.5, 0.5, 0)]
)
def test_the_trained_network_against_the_untrained_one(tmp_path, trained, frozen, count):
    header = ["features", "labels_per_class", "accuracy", "test_size"]
    rows = [[name, "all", value, 360] for name, value in {"trained": trained, "frozen": frozen}.items()]
    write_csv(tmp_path / "linear_evaluation.csv", header, rows)
    quantity = Evaluation.quantities["linear_evaluation"]
    about = entry("x", of="Evaluation", verdicts=quantity.verdicts, percent=True, picture=Picture("dots"))
    declare(write_log(tmp_path, val__a=[1, 2]), linear_evaluation=about)
    assert len(says(tmp_path)) == count
    if count:
        assert (
            "is better on the untrained network (80.0%) than on the trained network (70.0%), on 360"
            in says(tmp_path)[0]
        )


def test_a_value_that_is_nan_has_its_reason_among_the_notes(tmp_path):
    about = replace(entry("Rank"), undefined=("all of `h` is 0 <b>but for rounding</b>.",))
    assert read_manifest(written({"a": about}))[0]["a"].undefined == about.undefined
    declare(write_log(tmp_path, val__rank=[3, float("nan")]), val__rank=about)
    (note,) = [each for each in read_run(tmp_path).notes if "not a finite" in each]
    assert note == (
        "val/rank is not a finite number in 1 of 2 rows, first at epoch 1, step 19: "
        "all of `h` is 0 <b>but for rounding</b>."
    )
    report(tmp_path).runs_nothing()
