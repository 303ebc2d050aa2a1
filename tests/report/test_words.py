"""The page explains the symbols and the stages that its names use, and no others."""

from pages import declare, entry, report, write_info, write_log

from lightning_ssl_geometry.report import read_run
from lightning_ssl_geometry.report.figures import View
from lightning_ssl_geometry.report.words import words

SYMBOLS = ["h", "z", "V, N, D"]


def test_the_stages_of_a_run_in_the_order_of_the_page(tmp_path):
    run = write_log(tmp_path, probe__loss=[3, 2], train__loss=[2, 1], own__name=[1, 2])
    assert [word for word, _ in words(View.of(read_run(run)))] == ["train", "probe"]


def test_symbols_where_a_tensor_was_observed(tmp_path):
    run = declare(write_log(tmp_path, val__rank=[2, 3]), val__rank=entry(space="h", title="Rank", low="a", high="b"))
    assert [word for word, _ in words(View.of(read_run(run)))] == [*SYMBOLS, "val"]
    page = report(run)
    assert "What h, z, V, N, D, val mean here" in page.source
    assert "the same samples at each readout" not in page.source


def test_a_diagnosis_has_no_stages(tmp_path):
    run = declare(write_log(tmp_path, test__rank=[2]), test__rank=entry(space="z", title="Rank", low="a", high="b"))
    write_info(run, kind="diagnosis")
    assert [word for word, _ in words(View.of(read_run(run)))] == SYMBOLS


def test_a_page_without_logs_says_nothing(tmp_path):
    (tmp_path / "run").mkdir()
    assert "mean here" not in report(write_info(tmp_path / "run", model="M")).source
