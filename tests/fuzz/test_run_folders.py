"""Changed files of real runs end in a page that shows and runs nothing of theirs as HTML, or in one line."""

import os
import re
import shutil
import sys
import warnings
from pathlib import Path

import pytest
import torch
from fuzzing import Failures, chance, numbers, outcome
from mutated_runs import ELEMENT, RENDERED, mutate, mutate_several
from pages import page_of

from lightning_ssl_geometry.callbacks import GeometryMonitor, RunReport
from lightning_ssl_geometry.cli import main
from lightning_ssl_geometry.cli_messages import ending_in_one_line
from lightning_ssl_geometry.diagnose import diagnose
from lightning_ssl_geometry.diagnostics import EffectiveRank, LogSpectrum, RepresentationMap
from lightning_ssl_geometry.nn import SmallCNN
from lightning_ssl_geometry.report.page import comparison_numbers, write_comparison, write_report
from lightning_ssl_geometry.report.side_by_side import comparison_remarks, comparison_tables

SMOKE = Path(__file__).parents[2] / "examples" / "simclr" / "smoke.yaml"
SHARED = ["metrics.csv", "run.json", "geometry/*/*.csv", "geometry/*/*.npz", "geometry/quantities.json"]
CHANGED = [
    *(("fit", name) for name in (*SHARED, "config.yaml", "history.json", "layers.csv", "linear_evaluation.csv", "*")),
    *(("diagnosis", name) for name in SHARED),
]
COMPARED = 3  # every third case is also compared with the run before its change
LARGEST = 16 * 2**20  # bytes of a page
OURS = r"#|https://|data:(text/csv;charset=utf-8|image/png;base64)$"  # links, up to their first comma
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
ENDS = ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork", "socket.connect")
WRITES = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.symlink", "os.link", "os.chmod", "os.truncate")


CALLBACKS = """
trainer:
  callbacks:
    - class_path: lightning_ssl_geometry.callbacks.GeometryMonitor
      init_args:
        stages: [val]
        diagnostics:
          rank: lightning_ssl_geometry.diagnostics.EffectiveRank
          spectrum: lightning_ssl_geometry.diagnostics.LogSpectrum
          map: lightning_ssl_geometry.diagnostics.RepresentationMap
    - lightning_ssl_geometry.callbacks.LayerGeometry
    - lightning_ssl_geometry.callbacks.LinearEvaluation
    - lightning_ssl_geometry.callbacks.RunReport
"""


def fit(folder):
    """Few diagnostics, so that a page takes a second."""
    (folder / "callbacks.yaml").write_text(CALLBACKS)
    configs = ["--config", str(SMOKE), "--config", str(folder / "callbacks.yaml")]
    main(["fit", *configs, "--trainer.logger.init_args.save_dir", str(folder)])


def diagnosis(folder):
    torch.manual_seed(0)
    images, labels = torch.rand(64, 1, 8, 8), torch.arange(64) % 4
    monitor = GeometryMonitor({"rank": EffectiveRank(), "spectrum": LogSpectrum(), "map": RepresentationMap()},
                              stages=["test"])  # fmt: skip
    diagnose(SmallCNN(in_channels=1, width=4), (images, labels), folder, "model", callbacks=[monitor, RunReport()],
             progress=False, table=False)  # fmt: skip


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """The folders of a fit and of a diagnosis. Neither is changed: each case has a copy."""
    folder = tmp_path_factory.mktemp("runs")
    for make in (fit, diagnosis):
        made = outcome(make, folder, seconds=600)
        assert made.status == 0, made.err
    found = {"fit": folder / "simclr_smoke" / "version_0", "diagnosis": next(folder.glob("model/**/run.json")).parent}
    for name, run in found.items():
        shutil.rmtree(run / "checkpoints", ignore_errors=True)
        write_report(run)  # what it imports is then there when the children are forked
        ended = outcome(reported, run, seconds=600)
        told = wrong(ended, run / "report.html")
        assert told is None, f"{name} before any change: {told}"
        (run / "report.html").unlink()
    return found


def guarded(folder):
    """From now on, end at a program, a connection, or a change outside of a folder."""
    os.chdir(folder)
    sys.dont_write_bytecode = True
    warnings.simplefilter("always")
    top = os.path.realpath(folder)

    def inside(path):
        around, name = os.path.split(os.path.abspath(path))
        return os.path.commonpath([top, os.path.join(os.path.realpath(around), name)]) == top

    def refuse(event, arguments):
        paths = arguments[:2] if event in ("os.rename", "os.link") else arguments[:1]
        writes = event in WRITES or (event == "open" and arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))
        writes = writes and not isinstance(paths[0], int) and not all(map(inside, map(os.fsdecode, paths)))
        if event in ENDS or writes:
            os.write(2, f"Traceback: forbidden {event} {arguments}\n".encode(errors="replace"))
            os._exit(3)

    sys.addaudithook(refuse)


def reported(folder):
    guarded(folder)
    main(["report", str(folder)])


def compared(folder, whole, page):
    guarded(page.parent)
    groups = {"whole": [whole], "changed": [folder]}
    with ending_in_one_line(ValueError, OSError):
        write_comparison(groups, page)
        for table in comparison_tables(groups, 100):
            print(*(cell for column in table.columns for cell in column.cells))
        print(comparison_remarks(groups), *comparison_numbers(groups)[0])


def wrong(found, page):
    """What is wrong with an outcome, or None."""
    lines = found.err.splitlines()
    ended = [line for line in lines if line.startswith("ssl-geometry: error: ")]
    if found.status not in (0, 2) or "Traceback" in found.err or (found.status == 2) is not (len(ended) == 1):
        return f"status {found.status}\n  " + "\n  ".join([*lines[:2], "...", *lines[-8:]])
    if warned := re.findall(r"\w+Warning: .*", found.err):
        return f"warns: {warned[0][:1000]}"
    if odd := {each for each in found.out + found.err if not each.isprintable()} - {"\n"}:
        return f"prints {sorted(odd)}"
    if found.status == 2:
        return None if len(ended[0]) < 1000 else f"too long: {ended[0]}"
    return wrong_page(page)


def wrong_page(path):
    if not path.is_file() or path.is_symlink() or path.stat().st_size > LARGEST:
        return "no page, or a large one"
    try:
        page = page_of(path)
    except (AssertionError, UnicodeDecodeError) as error:
        return f"tags that do not match, or no UTF-8: {error!r}"
    tags = {"script", "link", "img", "iframe", "object", "embed", "base", "form", ELEMENT} & {*page.tags}
    names = {name for _, held in page.attributes for name in held}
    links = {value.partition(",")[0] for name in ("href", "src", "xlink:href", "action") for value in page.values(name)}
    links = {link for link in links if not re.match(OURS, link)}
    if tags or links or any(name.startswith("on") for name in names) or "<script" in page.source.lower():
        return f"tags {tags}, links {links}, attributes {names}"
    if page.values("content")[0] != POLICY or page.tags.count("meta") != 3:
        return "another policy"
    ids = page.values("id")
    return "an id twice" if len({*ids}) < len(ids) else "a template ran" if RENDERED in page.source else None


def listing(folder):
    found = sorted(path for path in folder.rglob("*"))
    found = [path for path in found if path.name != "report.html" and not path.is_dir()]
    return {str(path): (path.lstat().st_mtime_ns, path.lstat().st_ino) for path in found}


@pytest.mark.parametrize(("run", "changed"), CHANGED, ids=[f"{run}-{name.replace('/', '-')}" for run, name in CHANGED])
def test_a_changed_run_gives_a_page_or_one_line(run, changed, runs, tmp_path, request):
    failures, whole = Failures(request), runs[run]
    names = sorted(path.relative_to(whole).as_posix() for path in whole.rglob("*") if path.is_file())
    names = [name for name in names if name.endswith((".csv", ".json", ".npz", "config.yaml"))]
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret.txt").write_text("secret")
    for number in numbers():
        case, random = tmp_path / "run", chance(run, changed, number)
        shutil.copytree(whole, case)
        name = random.choice(sorted(map(str, whole.glob(changed))))
        inner = os.path.relpath(name, whole)
        said = mutate_several(random, case, names) if changed == "*" else mutate(random, case, inner)
        before, page, beside = listing(tmp_path), case / "report.html", tmp_path / "beside"
        beside.mkdir()
        told = [wrong(outcome(reported, case), page)]
        if number % COMPARED == 0:
            told.append(wrong(outcome(compared, case, whole, beside / "page.html"), beside / "page.html"))
        shutil.rmtree(beside)
        if others := listing(tmp_path).items() ^ before.items():
            told.append(f"other files: {others}")
        for each in filter(None, told):
            failures.add(number, said, each)
        shutil.rmtree(case)
    failures.check()
