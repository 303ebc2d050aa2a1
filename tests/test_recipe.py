"""examples/recipe.py: its arguments, and fits that are shared, killed, continued and refused."""

import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from matplotlib.text import Text
from recipes import EXAMPLES, beside, script


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--jobs", "0"], "argument --jobs: Expected an integer >= 1, but got '0'."),
        (["--seeds", "0", "x"], "argument --seeds: Expected an integer from 0 to 4294967295, but got 'x'."),
        (["--seeds=-1"], "argument --seeds: Expected an integer from 0 to 4294967295, but got '-1'."),
        (["--seeds", "1", "0", "1"], "argument --seeds: Expected different numbers, but got [1, 0, 1]."),
        (["--output", __file__], "argument --output: Expected a folder, or the name of a new one, but"),
        (["--output", f"{__file__}/below"], "test_recipe.py' is a file."),
    ],
)
def test_a_recipe_refuses_what_it_cannot_run(words, message, monkeypatch, capsys):
    recipe = script("tabular")
    monkeypatch.setattr(sys, "argv", ["reproduce.py", *words])
    with pytest.raises(SystemExit):
        recipe.main()
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["law", "--dataset", "cifar10"], "argument --dataset: Expected mnist for law of size laptop."),
        (["table1", "--dataset", "cifar10", "--size", "paper"], "Expected mnist for table1 of size paper."),
        (["strength", "--size", "paper"], "argument --size: Expected laptop for strength, whose steps"),
    ],
)
def test_the_homomorphic_recipe_refuses_what_it_cannot_run(words, message, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["reproduce.py", *words])
    with pytest.raises(SystemExit):
        script("homomorphic_ssl").main()
    assert message in capsys.readouterr().err


def test_a_file_that_cannot_be_read_ends_a_recipe_in_one_line(tmp_path, monkeypatch, capsys):
    recipe = script("tabular").recipe
    monkeypatch.setattr(sys, "argv", ["examples/tabular/reproduce.py"])
    with pytest.raises(SystemExit) as ended, recipe.errors_in_one_line():
        (tmp_path / "missing").read_text()
    assert ended.value.code == 2
    error = capsys.readouterr().err
    assert error.startswith("reproduce.py: error: [Errno 2] No such file or directory: ")
    assert error.count("\n") == 1
    texts = [path.read_text() for path in EXAMPLES.glob("*/reproduce.py")]
    assert all("errors_in_one_line():\n        " in text for text in texts)


def test_a_recipe_that_is_interrupted_says_so_in_one_line(monkeypatch, capsys):
    recipe = script("tabular").recipe
    monkeypatch.setattr(sys, "argv", ["examples/tabular/reproduce.py"])
    with pytest.raises(SystemExit) as ended, recipe.errors_in_one_line():
        raise KeyboardInterrupt
    assert ended.value.code == 130
    assert capsys.readouterr().err == "reproduce.py: stopped. The same command does not repeat what has finished.\n"


@pytest.mark.parametrize("code", [1, 2])
def test_a_fit_that_refuses_its_arguments_ends_the_recipe(code, tmp_path, capsys):
    """Exit status 2 is that of wrong arguments, which the other fits have, too. Others may succeed after an error."""
    module = script("tabular").recipe
    words = ["-c", f"import sys; print('Expected a folder.\\n'); sys.exit({code})"]
    fits = [module.Fit(f"fit {k}", words, tmp_path / str(k), lambda folder: None) for k in range(9)]
    if code == 2:
        with pytest.raises(SystemExit, match=r"fit 0: wrong arguments or missing files .*; no other run is started"):
            module.run_all(fits, jobs=1)
    else:
        module.run_all(fits, jobs=1)
    said = capsys.readouterr().out
    assert f"fit 0: failed ({code}), see {tmp_path / '0' / 'log.txt'}: Expected a folder.\n" in said
    assert said.count("failed") == (9 if code == 1 else 1)


def heed_interrupts():
    """A shell lets its background jobs ignore Ctrl-C, and so a pytest there, and what it starts."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGKILL])
def test_processes_that_are_ended_say_so_in_one_line(ending, tmp_path):
    """Ctrl-C goes to all processes of a terminal, and a kill for memory to one of the pool."""
    code = f"""
import os, sys, time
sys.path[:0] = [{str(EXAMPLES)!r}]
import recipe

def work(path):
    open(path, "w").write(str(os.getpid()))
    time.sleep(60)

if __name__ == "__main__":
    with recipe.errors_in_one_line(), recipe.processes(2) as pool:
        list(pool.map(work, sys.argv[1:]))
"""
    file, ready = tmp_path / "recipe_of_two.py", [tmp_path / "a", tmp_path / "b"]
    file.write_text(code)
    words = [sys.executable, str(file), *map(str, ready)]
    heeded = {"start_new_session": True, "preexec_fn": heed_interrupts}
    run = subprocess.Popen(words, stderr=subprocess.PIPE, text=True, **heeded)
    deadline = time.monotonic() + 60
    while not all(path.exists() and path.read_text() for path in ready):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    if ending == signal.SIGINT:
        os.killpg(run.pid, ending)
    else:
        os.kill(int(ready[0].read_text()), ending)
    said = run.communicate(timeout=60)[1]
    if ending == signal.SIGINT:
        assert (run.returncode, said) == (
            130,
            "recipe_of_two.py: stopped. The same command does not repeat what has finished.\n",
        )
    else:
        assert (
            said == "A process was ended, or ran out of memory. The same command does not repeat what has finished.\n"
        )


@pytest.fixture
def killed(tmp_path, monkeypatch):
    """Start a run with words and a YAML file of a text. It is killed, and leaves the version and checkpoint asked for.

    Returns the version whose checkpoint it continued from, or None.
    """
    recipe = script("trainable_augmentation_channel")
    config = tmp_path / "one.yaml"

    def killed(more, text, version, checkpoint="whole"):
        def run(words, **_):
            started.append(Path(words[words.index("--ckpt_path") + 1]) if "--ckpt_path" in words else None)
            if version is not None:
                folder = tmp_path / f"version_{version}" / "checkpoints"
                folder.mkdir(parents=True, exist_ok=True)
                if checkpoint == "whole":
                    torch.save({}, folder / "last.ckpt")
                elif checkpoint == "torn":
                    (folder / "last.ckpt").write_text("PK")
            return recipe.argparse.Namespace(returncode=-9)

        started = []
        monkeypatch.setattr(sys.modules["recipe"].subprocess, "run", run)
        config.write_text(text)
        options = recipe.argparse.Namespace(root=None, more=more)
        words = recipe.command(options, tmp_path, configs=[config], added=[], seed=0)
        sys.modules["recipe"].run_all([recipe.Fit("one", words, tmp_path, lambda folder: None)], jobs=1)
        (found,) = started
        return None if found is None else found.parent.parent.name

    return killed


def test_a_recipes_run_continues_from_the_checkpoint_of_the_same_command(killed):
    longer = ["--trainer.max_epochs=2"]
    assert killed([], "a", version=0) is None
    assert killed([], "a", version=1) == "version_0"
    assert killed([], "a", version=2) == "version_1"
    assert killed(longer, "a", version=3) is None
    assert killed(longer, "a", version=4) == "version_3"
    assert killed(longer, "b", version=5) is None
    assert killed(longer, "b", version=6) == "version_5"


def test_a_recipes_run_does_not_continue_from_a_checkpoint_of_other_words(killed):
    longer = ["--trainer.max_epochs=2"]
    assert killed([], "a", version=0) is None
    assert killed(longer, "a", version=None) is None  # killed before it made its folder
    assert killed(longer, "a", version=1) is None  # and not version_0, which had other words
    assert killed(longer, "a", version=2) == "version_1"


def test_a_recipes_run_continues_from_an_older_version_if_the_newest_has_no_whole_checkpoint(killed):
    assert killed([], "a", version=0) is None
    assert killed([], "a", version=1, checkpoint="none") == "version_0"
    assert killed([], "a", version=2, checkpoint="torn") == "version_0"
    assert killed([], "a", version=3) == "version_0"
    assert killed([], "a", version=4) == "version_3"


def test_a_command_that_waited_refuses_a_run_of_other_words(tmp_path, monkeypatch):
    recipe = sys.modules[script("trainable_augmentation_channel").Fit.__module__]
    (tmp_path / "result").touch()
    (tmp_path / recipe.COMMAND).write_text(json.dumps({"words": ["fit", "--beta=5"], "configs": [], "first": 0}))
    found = iter([None])  # not finished before the wait
    fit = recipe.Fit("one", ["fit", "--beta=0.5"], tmp_path, lambda folder: next(found, folder / "result"))
    with pytest.raises(SystemExit, match=r"finished run with \['--beta=5'\] for \['--beta=0.5'\]"):
        recipe.run_all([fit], jobs=1)


HOLD = """
import fcntl, sys, time
with open(sys.argv[1] + "/lock", "w") as file:
    fcntl.flock(file, fcntl.LOCK_EX)
    print("held", flush=True)
    sys.stdin.readline()
    open(sys.argv[1] + "/done", "w").write("by the other")
"""


def test_two_commands_share_the_fits_of_one_folder(tmp_path):
    script("tabular")
    module = sys.modules["recipe"]

    def fit(name):
        folder = tmp_path / name
        words = ["-c", f"open({str(folder / 'done')!r}, 'w').write('here')"]
        return module.Fit(name, words, folder, lambda folder: (folder / "done").exists())

    fits = [fit(name) for name in ("locked", "free", "left")]
    (tmp_path / "locked").mkdir()
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path / "locked")], **pipes) as other:
        assert other.stdout.readline() == "held\n"
        with ThreadPoolExecutor(1) as pool:
            running = pool.submit(module.run_all, fits, 1)
            while not (tmp_path / "left" / "done").exists():  # the others do not wait for the locked one
                assert not running.done()
                time.sleep(0.05)
            assert not (tmp_path / "locked" / "done").exists()
            other.stdin.write("\n")
            other.stdin.flush()
            running.result()
    assert (tmp_path / "locked" / "done").read_text() == "by the other"
    assert (tmp_path / "free" / "done").read_text() == "here"


def test_a_finished_run_with_other_arguments_is_not_taken(tmp_path):
    script("tabular")
    module = sys.modules["recipe"]
    config = tmp_path / "one.yaml"

    def run(folder, *added, text="a"):
        config.write_text(text)
        options = module.argparse.Namespace(root=None, more=[])
        words = module.command(options, folder, configs=[config], added=added, seed=0, program=["-c", "pass"])
        finished = tmp_path / "finished"
        fit = module.Fit("one", words, folder, lambda folder: finished.exists())
        module.run_all([fit], jobs=1)
        finished.touch()

    first, moved = tmp_path / "first", tmp_path / "moved"
    run(first, "--beta=1")
    run(first, "--beta=1")
    first.rename(moved)
    run(moved, "--beta=1")
    with pytest.raises(SystemExit, match=r"finished run with \['--beta=1'\] for \['--beta=2'\]. Give another --output"):
        run(moved, "--beta=2")
    with pytest.raises(SystemExit, match="finished run with other contents of the YAML files"):
        run(moved, "--beta=1", text="b")


STOPPED = """
import os, sys
sys.path.insert(0, sys.argv[1])
import recipe
from pathlib import Path
from typing import NamedTuple
folder = Path(sys.argv[2])
code = "import time\\nfor _ in range(400):\\n    time.sleep(0.05)"
recipe.run_all([recipe.Fit("one", ["-c", code], folder, lambda folder: False)], jobs=1)
"""


def test_a_fit_that_outlives_its_recipe_keeps_its_folder(tmp_path):
    script("tabular")
    module = sys.modules["recipe"]
    with subprocess.Popen(
        [sys.executable, "-c", STOPPED, str(EXAMPLES), str(tmp_path)], stdout=subprocess.DEVNULL, start_new_session=True
    ) as process:
        while not (tmp_path / "log.txt").exists():
            time.sleep(0.05)
        time.sleep(0.5)
        process.kill()
        process.wait()
        with module.alone(tmp_path, False) as lock:
            assert lock is None
        os.killpg(process.pid, signal.SIGKILL)
        with module.alone(tmp_path, True) as lock:
            assert lock is not None


@pytest.mark.parametrize("content", ["", "{", "{}", "[]", '{"status": "failed"}'])
def test_a_damaged_record_is_no_finished_run(tmp_path, content):
    script("tabular")
    from recipe import finished

    (tmp_path / "version_0").mkdir()
    (tmp_path / "version_0" / "run.json").write_text(content)
    assert finished(tmp_path) is None
    (tmp_path / "version_1").mkdir()
    (tmp_path / "version_1" / "run.json").write_text('{"status": "finished"}')
    assert finished(tmp_path) == tmp_path / "version_1"


def test_every_way_to_name_a_yaml_file_is_noticed(tmp_path):
    script("tabular")
    from recipe import _said

    config = tmp_path / "one.yaml"
    for words in (["--config", str(config)], [f"--config={config}"], ["fit", "-c", str(config)]):
        config.write_text("a: 1")
        before = _said(words)
        config.write_text("a: 2")
        assert _said(words) != before
    assert _said(["fit", "--folder", "/a"]) == _said(["fit", "--folder", "/b"])
    assert _said(["fit", "--encoder_epochs=1", "--epochs=2"]) != _said(["fit", "--encoder_epochs=3", "--epochs=2"])
    assert _said(["fit", "--encoder_epochs=1", "--epochs=2"]) != _said(["fit", "--encoder_epochs=1", "--epochs=4"])


def test_the_help_says_the_defaults_that_there_are():
    parser = beside(".", "recipe").parser("What it makes.", "runs/made")
    parser.add_argument("--first", type=int, default=0, help="of all")
    said = parser.format_help()
    assert "of all (default: 0)" in said
    assert "(default: 1)" in said
    assert "(default: runs/made)" in said
    assert "default: None" not in said
    assert "default: []" not in said


TABLE = "Before.\n\n| a | b |\n| --- | --- |\n| 1 | 2 |\n\n| c |\n| --- |\n| 3 |\n"


def test_a_table_of_a_readme_is_compared_and_replaced_by_its_header(tmp_path, capsys):
    recipe = beside(".", "recipe")
    readme = tmp_path / "README.md"
    readme.write_text(TABLE)
    assert recipe.replace_tables(readme, {("a", "b"): [["1", "2"]], ("c",): [["3"]]}, write=False) == 0
    assert not capsys.readouterr().out
    assert recipe.replace_tables(readme, {("a", "b"): [["1", "5"], ["6", "7"]]}, write=False) == 1
    assert capsys.readouterr().out == "README.md: otherwise in the file:\n| a | b |\n| 1 | 5 |\n| 6 | 7 |\n"
    assert readme.read_text() == TABLE
    assert recipe.replace_tables(readme, {("a", "b"): [["1", "5"], ["6", "7"]], ("c",): [["4"]]}, write=True) == 0
    assert readme.read_text() == TABLE.replace("| 1 | 2 |", "| 1 | 5 |\n| 6 | 7 |").replace("| 3 |", "| 4 |")
    assert recipe.replace_tables(readme, {("a", "b"): [["8", None], [None, "9"]]}, write=True) == 0
    assert "| 8 | 5 |\n| 6 | 9 |\n" in readme.read_text()
    with pytest.raises(
        ValueError, match=r"Expected a table in .*README.md with the first line '\| d \|', but got none"
    ):
        recipe.replace_tables(readme, {("d",): [["4"]]}, write=True)


@pytest.mark.parametrize(
    "recipe", ["choosing", "geometry_of_contrastive_learning", "homomorphic_ssl", "variational_and_dynamics"]
)
def test_the_tables_of_a_readme_are_those_of_its_committed_results(recipe):
    done = subprocess.run([sys.executable, str(EXAMPLES / recipe / "readme_tables.py")], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr


class Kept(NamedTuple):
    """A row of a recipe's file."""

    name: str
    value: float


@pytest.mark.parametrize("seed", ["-1", "4294967296", "x"])
def test_seeds_are_those_that_processes_take(seed, capsys):
    with pytest.raises(SystemExit):
        beside("", "recipe").parser("", "runs").parse_args(["--seeds", seed])
    assert "Expected an integer from 0 to 4294967295, but got" in capsys.readouterr().err


def test_seeds_without_a_run_are_named_at_the_end():
    recipe = beside("", "recipe")
    recipe.end_if_seeds_are_missing({"a": {0: 1, 1: 1}}, [0, 1])
    with pytest.raises(
        SystemExit, match=r"No finished run of \[\('a', 1\)\]: the tables and figures above are of fewer"
    ):
        recipe.end_if_seeds_are_missing({"a": {0: 1}, "b": {0: 1, 1: 1}}, [0, 1])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "FileNotFoundError"),
        ("", "Expected rows of name, value in "),
        ("name,value\n", "Expected rows of name, value in "),
        ("na\n1\n", "KeyError: 'name'"),
        ("name,value\na,x\n", "could not convert string to float: 'x'"),
    ],
)
def test_a_damaged_file_of_results_is_named(tmp_path, text, said):
    path = tmp_path / "kept.csv"
    if text is not None:
        path.write_text(text)
    with pytest.raises(SystemExit) as ended:
        beside("", "recipe").read(path, Kept)
    assert said in str(ended.value)
    assert str(path) in str(ended.value)


def test_batch_norms_take_the_mean_of_batches_and_then_their_own_settings_again():
    recipe = beside("", "recipe")
    model = torch.nn.Sequential(torch.nn.BatchNorm1d(3, momentum=0.1), torch.nn.Linear(3, 2)).double().eval()
    batches = torch.randn(4, 50, 3, dtype=torch.float64) * 1e-3 + 5.0
    with recipe.mean_statistics(model):
        for batch in batches:
            model(batch)
    norm = model[0]
    assert torch.allclose(norm.running_mean, batches.mean(1).mean(0))
    assert torch.allclose(norm.running_var, batches.var(1).mean(0))
    assert (norm.momentum, norm.training) == (0.1, False)


def test_figure_2_compares_the_same_seeds():
    made = script("homomorphic_ssl")
    rows = [made.Row(cell, seed, "classifier", 0.5 + 0.1 * seed) for cell in ("1", "4") for seed in (0, 1, 2)]
    rows = [row for row in rows if (row.cell, row.seed) not in {("1", 0), ("4", 2)}]  # seed 1 is left
    drawn = made.figure(rows, "classifier", "x", "data")
    assert "of 1 seeds" in " ".join(text.get_text() for text in drawn.findobj(Text))
    lines = [line for axes in drawn.axes for line in axes.lines if list(line.get_xdata()) == [0.0, 1.0]]
    assert [0.0, 0.0] in [list(line.get_ydata()) for line in lines]
    assert all(value == 0 for line in lines for value in line.get_ydata() if line.get_label() == "H-SSL")
    with pytest.raises(SystemExit, match="a seed that all cells of the figure have, but 1, 4 have none"):
        made.figure([row for row in rows if row.seed != 1], "classifier", "x", "data")
