"""Values that may not be compared have figures of their own, and accuracies have chance beside them."""

import numpy as np
import pytest
from pages import compared, declare, drawn, entry, report, sentences, titles, write_log

from lightning_ssl_geometry.quantity import Chart

BOTH = Chart("both", "Loss and bound", "nats")
SIZE = {"of": "Bound", "chart": BOTH, "comparable_at": "negatives", "remark": "{negatives} negatives."}
ABOUT = {
    "bound_loss": entry("Loss", key="loss", label="loss", **SIZE),
    "bound_upper": entry("Upper", key="upper", label="upper", **SIZE),
    "bound_negatives": entry("Negatives", of="Bound", key="negatives", shown=False),
}


def write_run(folder, **negatives):
    columns = {}
    for stage, count in negatives.items():
        columns |= {f"{stage}__bound_loss": [3, 2], f"{stage}__bound_upper": [4, 3]}
        columns |= {f"{stage}__bound_negatives": [count, count]}
    write_log(folder, **columns)
    return declare(folder, **{f"{stage}__{name}": each for stage in negatives for name, each in ABOUT.items()})


@pytest.mark.parametrize(
    ("negatives", "figures"),
    [
        ({"train": 126, "val": 126}, ["both"]),
        ({"train": 126, "val": 125}, ["both"]),  # less than 2 % apart
        ({"train": 126, "val": 62}, ["both_train", "both_val"]),
        ({"probe": 62, "train": 126, "val": 62}, ["both_train", "both_val_probe"]),
        ({"train": 126, "val": np.nan}, ["both"]),
    ],
)
def test_stages_with_other_numbers_of_negatives_have_figures_of_their_own(tmp_path, negatives, figures):
    assert list(drawn(write_run(tmp_path, **negatives))) == figures


def test_a_figure_of_one_stage_says_its_stage_and_its_number_of_negatives(tmp_path):
    page = report(write_run(tmp_path, train=1026, val=62))
    for title, said in (("Loss and bound, train", "1,026 negatives."), ("Loss and bound, val", "62 negatives.")):
        text = page.text[page.text.index(title) :]
        assert said in text[: text.index("negatives.") + 10]


def test_a_sentence_that_differs_between_stages_names_them_and_a_shared_one_stands_once(tmp_path):
    said = SIZE | {"remark": "{negatives} negatives. Compare none other."}
    about = ABOUT | {f"bound_{key}": entry(key, key=key, label=key, **said) for key in ("loss", "upper")}
    about = {f"{stage}__{name}": each for stage in ("train", "val", "probe") for name, each in about.items()}
    run = declare(write_run(tmp_path, train=126, val=125, probe=125), **about)
    text = report(run).text
    assert "train: 126 negatives. val, probe: 125 negatives. Compare none other." in text
    assert text.count("Compare none other") == 1


def write_monitors(folder, **negatives):
    """Two monitors, whose numbers of negatives by stage are given."""
    columns, about = {}, {}
    for monitor, held in negatives.items():
        for stage, count in held.items():
            name = f"{stage}__{monitor}/bound"
            columns |= {f"{name}_loss": [3, 2], f"{name}_upper": [4, 3], f"{name}_negatives": [count, count]}
            about |= {f"{stage}__{monitor}/{base}": each for base, each in ABOUT.items()}
    write_log(folder, **columns)
    return declare(folder, **about)


def test_monitors_with_other_numbers_of_negatives_have_figures_of_their_own(tmp_path):
    run = write_monitors(tmp_path, teacher={"train": 126, "probe": 126}, student={"train": 62, "probe": 126})
    page = report(run)
    found = ["Loss and bound (teacher)", "Loss and bound (student), train", "Loss and bound (student), probe"]
    assert titles(page.source) == found
    assert "train:" not in page.text


def test_monitors_with_equal_numbers_of_negatives_share_figures(tmp_path):
    run = write_monitors(tmp_path, teacher={"train": 126, "probe": 62}, student={"train": 126, "probe": 62})
    assert titles(report(run).source) == ["Loss and bound, train", "Loss and bound, probe"]


def test_a_sentence_that_holds_for_one_monitor_names_it(tmp_path):
    run = write_monitors(tmp_path, teacher={"train": 126, "val": 126}, student={"train": 125, "val": 125})
    assert "teacher: 126 negatives. student: 125 negatives." in report(run).text


def test_the_sentences_of_a_stage_stand_together(tmp_path):
    said = SIZE | {"remark": "{negatives} negatives. Equal rows have log({negatives}). Compare none other."}
    about = ABOUT | {f"bound_{key}": entry(key, key=key, label=key, **said) for key in ("loss", "upper")}
    about = {f"{stage}__{name}": each for stage in ("train", "val") for name, each in about.items()}
    text = report(declare(write_run(tmp_path, train=126, val=125), **about)).text
    assert (
        "train: 126 negatives. Equal rows have log(126). val: 125 negatives. Equal rows have log(125). "
        "Compare none other."
    ) in text


def test_groups_have_chance_in_the_figure_of_each_accuracy(tmp_path):
    probes = Chart("probes", "Probes", "accuracy")
    folders = {}
    for name, shift in (("a", 0.0), ("b", 0.1)):
        write_log(tmp_path / name, val__knn=[0.3, 0.6 + shift], val__linear=[0.2, 0.5], val__knn_chance=[0.1] * 2,
                  val__linear_chance=[0.1] * 2)  # fmt: skip
        about = {}
        for probe in ("knn", "linear"):
            about[f"val__{probe}"] = entry(probe, of=probe, key="", null="chance", chart=probes, label=probe)
            about[f"val__{probe}_chance"] = entry("Chance", of=probe, key="chance", chart=probes, label="chance",
                                                  baseline=True)  # fmt: skip
        folders[name] = [declare(tmp_path / name, **about)]
    figures = compared(**folders)
    assert sorted(figures) == ["knn", "linear"]
    assert all("chance" in sentences(axes) for axes in figures.values())
