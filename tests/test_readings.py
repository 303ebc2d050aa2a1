"""README's table and docs/readings.md are as the classes declare, and say what a class declares."""

import importlib.util
from pathlib import Path
from typing import ClassVar

import pytest

from lightning_ssl_geometry.cost import Cost
from lightning_ssl_geometry.quantity import Chart, Paper, Picture, Quantity

ROOT = Path(__file__).parents[1]


def module():
    spec = importlib.util.spec_from_file_location("readings", ROOT / "docs" / "readings.py")
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


readings = module()
PAPER = Paper("Somebody 2024", "A *title*", "2401.00001")


class Tightness:
    section = "ranks"
    quantities: ClassVar = {
        "share": Quantity(
            title="Tightness",
            text="How tight the embeddings are, P(z | x).",
            low="They are spread.",
            high="They coincide.",
            paper=PAPER,
            where="Eq. 3",
            bounds=(0, 1),
            percent=True,
            null="share_random",
            invariances=("rotation", "scale"),
            comparable=("width",),
        ),
        "share_random": Quantity(title="Random", text="Of random embeddings.", baseline=True, paper=PAPER),
        "rank": Quantity(
            title="Rank",
            low="Few.",
            high="Many.",
            bounds=(1, None),
            cap="min(N - 1, D)",
            chart=Chart("rank", "Ranks", "directions", remark="Ranks compare at one N."),
        ),
        "first": Quantity(title="First", text="For the remark.", shown=False),
        "label": Quantity(title="Label", text="Colours.", picture=Picture("points", role="label")),
    }


class Loss:
    section = "learning"
    quantities: ClassVar = {"loss": Quantity(title="Loss", low="Fits.", high="Does not.", paper=PAPER)}


class OtherLoss(Loss):
    quantities: ClassVar = {"loss": Quantity(title="Loss", low="Fits.", high="Does not.")}


class Own(Loss):
    section = "My own heading"
    cost = Cost(update="n D", compute="N^2 D", memory="N D", uncounted="a sort of numpy")


def test_the_files_are_as_the_classes_declare(capsys):
    assert readings.main([]) == 0, capsys.readouterr().out


def test_a_quantity_is_said_with_its_ends_bounds_baseline_and_paper():
    page = readings.page([Tightness])
    entry = page[page.index("### Tightness") : page.index("### Rank")]
    assert (
        entry
        == r"""### Tightness

How tight the embeddings are, P(z \| x). From 0% to 100%.

- **Low.** They are spread.
- **High.** They coincide.
- **Beside it, Random.** Of random embeddings.

`Tightness`, `share` ([Somebody 2024](https://arxiv.org/abs/2401.00001), Eq. 3). Unchanged by a rotation of the space and another scale. Models may be compared that differ in width.

"""  # noqa: E501
    )
    assert "From 1 to `min(N - 1, D)` (directions). Ranks compare at one N." in page
    assert "## Ranks and dimensions\n" in page
    assert r"- [Somebody 2024](https://arxiv.org/abs/2401.00001): A \*title\*" in page
    assert "### First" not in page
    assert "### Label" not in page


def test_every_result_of_the_package_says_what_is_measured():
    for kind in readings.declaring(*readings.ROOMS):
        for key, quantity in kind.quantities.items():
            assert quantity.text or readings._serves(quantity), (kind.__name__, key)


def test_what_several_classes_declare_alike_stands_there_once():
    page = readings.page([Tightness, Loss, OtherLoss, Own])
    assert page.count("### Loss") == 2  # the second under a heading of its own
    assert "`Loss`, `loss` ([Somebody 2024](https://arxiv.org/abs/2401.00001)); `OtherLoss`, `loss`." in page
    headings = [line for line in page.splitlines() if line.startswith("## ")]
    assert headings == ["## Is it learning?", "## Ranks and dimensions", "## My own heading", "## Cost", "## Papers"]


def test_the_costs_that_classes_declare_are_a_table():
    page = readings.page([Tightness, Own])
    cost = page[page.index("## Cost") : page.index("## Papers")]
    assert "| `Own` | `n D` | `N^2 D` (not counted: a sort of numpy) | `N D` |\n" in cost
    assert "- `D`: width of the observed vectors, such as h and z\n" in cost
    assert "Tightness" not in cost
    assert "## Cost" not in readings.page([Tightness])


def test_the_table_has_a_row_for_each_section():
    rows = readings.table([Tightness, Loss, OtherLoss]).splitlines()
    assert rows[2:] == [
        "| Is it learning? | `Loss` (Somebody 2024); `OtherLoss` |",
        "| Ranks and dimensions | `Tightness` (Somebody 2024) |",
    ]


def test_stale_files_are_named_and_written(tmp_path, capsys):
    (tmp_path / "docs").mkdir()
    readme = tmp_path / "README.md"
    readme.write_text("Before.\n\n<!-- made by docs/readings.py: diagnostics -->\nold\n<!-- end -->\nAfter.\n")
    assert readings.main(["--root", str(tmp_path)]) == 1
    assert "README.md: not as the classes declare" in capsys.readouterr().out
    assert readings.main(["--root", str(tmp_path), "--write"]) == 0
    assert readings.main(["--root", str(tmp_path)]) == 0
    text = readme.read_text()
    assert text.startswith("Before.\n")
    assert text.endswith("<!-- end -->\nAfter.\n")
    assert "old" not in text
    with pytest.raises(ValueError, match=r"Expected `readme` with .* once, but got 0"):
        readings.with_table("nothing", "table")
