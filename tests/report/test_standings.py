"""The tables at the top of a comparison: headline numbers, the best of them, and differences with intervals."""

from dataclasses import replace

import numpy as np
import pytest
from pages import comparison, declare, entry, write_csv, write_info, write_log, write_rows
from scipy import stats

from lightning_ssl_geometry.report.figures import View
from lightning_ssl_geometry.report.groups import read_groups
from lightning_ssl_geometry.report.standings import differences_table, standings_table

VALUES = {"small": [0.90, 0.91, 0.95, 0.93, 0.9], "large": [0.97, 0.96, 0.99, 0.95, 0.98],
          "odd": [0.91, 0.99, 0.90, 0.97, 0.86]}  # fmt: skip
RANKS = {"small": [10.0, 11.0, 12.5, 9.0, 11.0], "large": [20.0, 24.0, 21.0, 26.0, 22.5],
         "odd": [5.0, 5.5, 5.0, 6.0, 5.25]}  # fmt: skip
ACCURACY = entry("Accuracy", of="Probe", percent=True, bounds=(0, 1), better="high", headline=True)
RANK = entry("Rank", of="Rank", headline=True)
OF_FEW = "Numbers of one group alone, or of fewer than half of the groups, are in the table of all values below."


def write_run(folder, accuracy, rank, seed=None):
    write_log(folder, val__acc=[0.1, accuracy], val__rank=[1.0, rank], val__other=[1.0, 2.0])
    write_info(folder, seed=seed)
    return declare(folder, val__acc=ACCURACY, val__rank=RANK, val__other=entry("Other", of="Other"))


def view(tmp_path, seeds=(None, None, None), runs=3):
    folders = {
        name: [
            write_run(tmp_path / f"{name}_{run}", VALUES[name][run], RANKS[name][run], seed=seeds[run])
            for run in range(runs)
        ]
        for name in VALUES
    }
    return folders, View(tuple(read_groups(folders)))


def test_headline_numbers_of_each_group_with_the_best_in_bold(tmp_path):
    table = standings_table(view(tmp_path)[1])
    assert table.header == ["", "Runs", "Accuracy, val", "Rank, val"]
    assert table.rows == [
        ["small", "3 runs, 2 epochs", "92.0% ± 2.6", "11.2 ± 1.3"],
        ["large", "3 runs, 2 epochs", "97.3% ± 1.5", "21.7 ± 2.1"],
        ["odd", "3 runs, 2 epochs", "93.3% ± 4.9", "5.17 ± 0.29"],
    ]
    assert not table.best  # the intervals of all accuracies overlap, and neither more nor less rank is better
    assert "No mean is bold" in table.remark


def test_a_number_that_only_one_group_has_is_in_no_column(tmp_path):
    folders = {}
    for name in ("a", "b", "c"):
        write_log(tmp_path / name, val__acc=[0.1, 0.9], **{f"val__of_{name}": [1.0, 2.0]})
        own = entry(f"Of {name}", of=name, headline=True)
        folders[name] = [declare(tmp_path / name, val__acc=ACCURACY, **{f"val__of_{name}": own})]
    table = standings_table(View(tuple(read_groups(folders))))
    assert table.header == ["", "Runs", "Accuracy, val"]
    assert OF_FEW in table.remark
    alone = standings_table(View(tuple(read_groups({"a": folders["a"]}))))
    assert alone.header == ["", "Runs", "Accuracy, val", "Of a, val"]
    assert OF_FEW not in alone.remark


def test_a_number_that_fewer_than_half_of_the_groups_have_is_in_no_column(tmp_path):
    folders, rarer, commoner = {}, entry("Rarer", of="Rarer", headline=True), entry("Commoner", of="C", headline=True)
    for name in "abcde":
        own = {"val__rarer": rarer} if name in "ab" else {"val__commoner": commoner}
        write_log(tmp_path / name, val__acc=[0.1, 0.9], **{key: [1.0, 2.0] for key in own})
        folders[name] = [declare(tmp_path / name, val__acc=ACCURACY, **own)]
    table = standings_table(View(tuple(read_groups(folders))))
    assert table.header == ["", "Runs", "Accuracy, val", "Commoner, val"]
    assert OF_FEW in table.remark


def test_values_that_are_shown_alike_are_both_best_and_a_group_without_a_value_makes_none_best(tmp_path):
    held = (("a", 0.9), ("b", 0.90001), ("worse", 0.8))
    folders = {name: [write_run(tmp_path / name, value, 1.0)] for name, value in held}
    table = standings_table(View(tuple(read_groups(folders))))
    assert table.best == {(0, 2), (1, 2)}
    assert "Bold: the best value" in table.remark
    assert not standings_table(View(tuple(read_groups({name: folders[name] for name in "ab"})))).best  # all alike
    write_log(tmp_path / "c", val__rank=[1.0, 2.0])
    folders["c"] = [declare(tmp_path / "c", val__rank=RANK)]
    table = standings_table(View(tuple(read_groups(folders))))
    assert table.rows[3][:3] == ["c", "2 epochs", "\N{EN DASH}"]
    assert not table.best


def of_accuracies(tmp_path, about=ACCURACY, **accuracies):
    """The table of groups of runs, each with an accuracy and what run.json says."""
    folders = {}
    for name, runs in accuracies.items():
        for place, (accuracy, info) in enumerate(runs):
            folder = write_log(tmp_path / f"{name}{place}", val__acc=[0.1, accuracy])
            folders.setdefault(name, []).append(declare(write_info(folder, **info), val__acc=about))
    return standings_table(View(tuple(read_groups(folders))))


def runs_of(mean, spread, **info):
    return [(mean + shift, info) for shift in (-spread, 0.0, spread)]


def test_means_that_cannot_be_told_from_the_best_are_as_bold_as_it_and_nothing_is_bold_if_no_mean_can(tmp_path):
    groups = {"a": runs_of(0.9, 0.01), "b": runs_of(0.905, 0.01), "c": runs_of(0.7, 0.01)}
    table = of_accuracies(tmp_path / "two", **groups)
    assert table.best == {(0, 2), (1, 2)}
    assert "means that a 95% interval of the difference cannot tell from it" in table.remark
    table = of_accuracies(tmp_path / "all", **{name: groups[name] for name in "ab"})
    assert not table.best
    assert "No mean is bold" in table.remark


@pytest.mark.parametrize(("knob", "setting"), [("method", "model"), ("temperature", "loss_temperature"), ("width", "")])
def test_nothing_is_best_where_the_groups_differ_in_a_setting_in_which_values_are_not_comparable(
    tmp_path, knob, setting
):
    for comparable in ((), (knob,)):
        about = entry("Accuracy", of="Probe", percent=True, better="high", headline=True, comparable=comparable)
        folders = {}
        for name, accuracy, value in (("a", 0.5, 1), ("b", 0.9, 2)):
            folder = write_log(tmp_path / f"{name}{len(comparable)}", val__acc=[0.1, accuracy])
            width = value if knob == "width" else None
            declare(write_info(folder, **({setting: value} if setting else {})), val__acc=replace(about, width=width))
            folders[name] = [folder]
        table = standings_table(View(tuple(read_groups(folders))))
        assert table.best == ({(1, 2)} if comparable else set())


def test_nothing_is_best_where_the_sizes_differ_at_which_values_can_be_compared(tmp_path):
    loss = entry("Loss", of="Loss", key="loss", better="low", headline=True, comparable_at="size")
    for sizes in ((4, 4), (4, 8)):
        folders = {}
        for name, value, size in zip("ab", (1.0, 2.0), sizes, strict=True):
            folder = write_log(tmp_path / f"{name}{sum(sizes)}", val__loss=[3.0, value], val__size=[size, size])
            size_of = entry("Size", of="Loss", key="size", shown=False)
            folders[name] = [declare(folder, val__loss=loss, val__size=size_of)]
        assert standings_table(View(tuple(read_groups(folders)))).best == ({(0, 2)} if sizes == (4, 4) else set())


def lengths(tmp_path, **groups):
    """The column of how long the runs of each group were trained, and the sentences below the table."""
    found = {}
    for name, runs in groups.items():
        found[name] = [write_run(tmp_path / f"{name}_{place}", 0.9, 1.0) for place in range(len(runs))]
        for folder, info in zip(found[name], runs, strict=True):
            write_info(folder, **info)
    table = standings_table(View(tuple(read_groups(found))))
    return [row[1] for row in table.rows], table.remark


def done(epochs, steps, **info):
    return {"status": "finished", "epochs": epochs, "steps": steps} | info


def test_the_table_says_how_long_and_how_often_each_was_trained(tmp_path):
    seeds = [done(20, 1000, seed=seed) for seed in (0, 1, 2)]
    said, remark = lengths(tmp_path / "a", a=seeds, b=[done(20, 1000)] * 2, c=[{**each, "seed": 0} for each in seeds])
    assert said == ["3 seeds, 20 epochs", "2 runs, 20 epochs", "3 runs, 20 epochs"]
    assert "different" not in remark
    said, remark = lengths(tmp_path / "b", a=[done(5, 250)], b=[done(50, 2500)], c=[done(20, 1000), done(50, 2500)])
    assert said == ["5 epochs", "50 epochs", "2 runs, 20 to 50 epochs"]
    assert "The groups were trained for different lengths of time." in remark
    said, remark = lengths(tmp_path / "c", a=[done(20, 1000)], b=[done(20, 4000)])
    assert said == ["20 epochs, 1,000 steps", "20 epochs, 4,000 steps"]
    assert "different lengths" in remark
    assert lengths(tmp_path / "d", a=[done(0, 200)], b=[done(0, 1)])[0] == ["200 steps", "1 step"]


def test_a_run_that_did_not_finish_counts_the_epochs_that_it_logged(tmp_path):
    assert lengths(tmp_path, a=[done(20, 200, status="running")])[0] == ["2 epochs"]


def test_single_diagnoses_have_no_length(tmp_path):
    for name in ("a", "b"):
        write_log(tmp_path / name, val__rank=[1.0])
        write_info(declare(tmp_path / name, val__rank=RANK), kind="diagnosis")
    table = standings_table(View(tuple(read_groups({name: [tmp_path / name] for name in ("a", "b")}))))
    assert table.header == ["", "Rank"]


def test_an_accuracy_without_a_chance_of_its_own_is_held_against_a_guess_among_the_classes(tmp_path):
    probe = entry("Accuracy", of="Probe", percent=True, unit="accuracy", better="high", headline=True)
    for name, accuracy in (("a", 0.2), ("b", 0.25)):
        write_log(tmp_path / name, val__acc=[0.1, accuracy])
        write_info(declare(tmp_path / name, val__acc=probe), classes=4)
    table = standings_table(View(tuple(read_groups({name: [tmp_path / name] for name in ("a", "b")}))))
    assert table.header == ["", "Runs", "Accuracy, val (chance 25.0%)"]
    assert not table.best


def test_means_that_are_shown_with_different_digits_are_not_both_best(tmp_path):
    loss, folders = entry("Loss", of="Loss", better="low", headline=True), {}
    for name, values in (("a", [4.6143, 4.6147]), ("b", [4.6127, 4.6129])):
        for seed, value in enumerate(values):
            write_log(tmp_path / f"{name}{seed}", val__loss=[5.0, value])
            folders.setdefault(name, []).append(declare(tmp_path / f"{name}{seed}", val__loss=loss))
    table = standings_table(View(tuple(read_groups(folders))))
    assert [row[2][:6] for row in table.rows] == ["4.6145", "4.6128"]  # with three digits, both would be 4.61
    assert table.best == {(1, 2)}


def numbers(cell):
    mean, low, high = cell.replace("\N{MINUS SIGN}", "-").replace("[", "").replace("]", "").replace(",", "").split()
    return [float(mean), float(low), float(high)]


@pytest.mark.parametrize("runs", [2, 3, 5])
@pytest.mark.parametrize("paired", [False, True], ids=["Welch", "paired"])
def test_differences_have_the_intervals_of_scipy(tmp_path, paired, runs):
    table = differences_table(view(tmp_path, [run if paired else None for run in range(runs)], runs)[1])
    assert table.header == ["minus small", "Accuracy, val", "Rank, val"]
    for row, name in zip(table.rows, ("large", "odd"), strict=True):
        for cell, values, scale in zip(row[1:], (VALUES, RANKS), (100, 1), strict=True):
            ours, theirs = (scale * np.array(values[each][:runs]) for each in (name, "small"))
            test = stats.ttest_rel(ours, theirs) if paired else stats.ttest_ind(ours, theirs, equal_var=False)
            interval = test.confidence_interval(0.95)
            assert numbers(cell) == pytest.approx([(ours - theirs).mean(), *interval], rel=6e-3)
            sure = interval.low > 0 or interval.high < 0
            at = (table.rows.index(row), row.index(cell))
            assert (at in table.faint) != sure
    assert ("the run of the same seed" in table.remark) == paired
    assert ("Two runs give very wide intervals." in table.remark) == (runs == 2)


def stopped_early(tmp_path, name, lengths):
    folders = []
    for run, epochs in enumerate(lengths):
        folder = tmp_path / f"{name}_{run}"
        rows = [[epoch, 10 * epoch + 9, float(epoch), ""] for epoch in range(epochs)]
        write_rows(folder, ["val/rank", "test/acc"], *rows, [epochs, 10 * epochs, "", 0.5 + 0.1 * run])
        folders.append(declare(folder, val__rank=RANK, test__acc=ACCURACY))
    return folders


def test_runs_that_stopped_at_different_epochs_have_their_own_last_values_and_tests(tmp_path):
    groups = {name: stopped_early(tmp_path, name, lengths) for name, lengths in (("a", (10, 4, 7)), ("b", (5, 5, 9)))}
    table = standings_table(View(tuple(read_groups(groups))))
    assert table.header == ["", "Runs", "Rank, val", "Accuracy, test"]
    assert [row[2:] for row in table.rows] == [["6.0 ± 3.0", "60.0% ± 10.0"], ["5.3 ± 2.3", "60.0% ± 10.0"]]
    assert "60.0% ± 10.0" in comparison(tmp_path, **groups).source


def test_nothing_is_best_on_different_data_and_chances_that_differ_are_not_averaged(tmp_path):
    probe = entry("Accuracy", of="Probe", percent=True, unit="accuracy", better="high", headline=True)
    groups = {}
    for name, classes, accuracy in (("a", 10, 0.5), ("b", 100, 0.3)):
        folder = write_log(tmp_path / name, val__acc=[0.1, accuracy])
        write_info(folder, data=f"CIFAR{classes}", classes=classes)
        groups[name] = [declare(folder, val__acc=probe)]
    table = standings_table(View(tuple(read_groups(groups))))
    assert table.header[-1] == "Accuracy, val"
    assert not table.best


def test_single_runs_have_no_differences(tmp_path):
    assert differences_table(view(tmp_path, runs=1)[1]) is None


def test_a_comparison_opens_with_its_tables(tmp_path):
    folders, _ = view(tmp_path)
    page = comparison(tmp_path / "page", **folders)
    assert page.text.index("92.0% ± 2.6") < page.text.index("minus small") < page.text.index("First and last values")
    for named in ("Accuracy, val", "small, last"):  # where a row is a card, each number stands below its name
        assert named in page.values("data-of")


def test_accuracies_of_the_linear_evaluation_are_headline_numbers(tmp_path):
    folders = {}
    for name, accuracy in (("a", 0.5), ("b", 0.75)):
        write_log(tmp_path / name, loss=[2.0, 1.0])
        rows = [["pixels", "all", 0.4], ["trained", "all", accuracy]]
        write_csv(tmp_path / name / "linear_evaluation.csv", ["features", "labels_per_class", "accuracy"], rows)
        folders[name] = [tmp_path / name]
    table = standings_table(View(tuple(read_groups(folders))))
    assert table.header == ["", "Runs", "Linear evaluation, all labels"]
    assert table.rows == [["a", "2 epochs", "50.0%"], ["b", "2 epochs", "75.0%"]]
    assert table.best == {(1, 2)}


def test_a_number_that_is_no_better_than_chance_is_not_best_and_the_cap_stands_beside_a_rank(tmp_path):
    folders = {}
    for name, accuracy in (("a", 0.08), ("b", 0.12)):
        write_log(tmp_path / name, val__acc=[0.1, accuracy], val__chance=[0.15, 0.15], val__rank=[1.0, 3.0])
        probe = entry("Accuracy", of="Probe", key="acc", null="chance", percent=True, better="high", headline=True)
        chance = entry("Chance", of="Probe", key="chance", percent=True, baseline=True)
        rank = entry("Rank", of="Rank", headline=True, cap="min(N, D)", width=8)
        declare(tmp_path / name, val__acc=probe, val__chance=chance, val__rank=rank)
        rows = [[1, 20, 5 if name == "a" else 100, 2, 8, 8]]
        columns = ["epoch", "step", "samples", "views", "h", "z"]
        write_csv(tmp_path / name / "geometry/val/rows_seen.csv", columns, rows)
        folders[name] = [tmp_path / name]
    table = standings_table(View(tuple(read_groups(folders))))
    assert table.header == ["", "Runs", "Accuracy, val (chance 15.0%)", "Rank, val"]
    assert table.rows == [["a", "2 epochs", "8.0%", "3 of 5*"], ["b", "2 epochs", "12.0%", "3 of 8"]]
    assert not table.best
    assert "*: the number of samples limits the value" in table.remark
