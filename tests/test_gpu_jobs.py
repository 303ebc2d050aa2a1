"""examples/gpu.py: jobs in their order, ended by the clock, continued by a second command, left out without data."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from types import SimpleNamespace

import pytest
import torch
from recipes import EXAMPLES, beside

ROOT = EXAMPLES.parent


@pytest.fixture
def gpu(monkeypatch, tmp_path):
    """Call the command with words, where a machine with a GPU is pretended."""
    module = beside("", "gpu")
    monkeypatch.setattr(module.torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(module.signal, "signal", lambda *_: None)  # of the tests' own process

    def call(jobs, *words):
        rest = {"minutes": 1, "settles": "", "smoke": []}
        monkeypatch.setattr(module, "JOBS", [module.Job(**rest | job) for job in jobs])
        monkeypatch.setattr(sys, "argv", ["gpu.py", "--output", str(tmp_path / "out"), *words])
        module.main()
        return {name: status for name, (_, status) in json.loads((tmp_path / "out" / "jobs.json").read_text()).items()}

    call.module = module
    return call


def says(text):
    return ["-c", f"open(__import__('sys').argv[1], 'a').write({text!r})", "OUTPUT.txt"]


def test_finished_jobs_are_not_repeated_and_failed_ones_are(gpu, tmp_path):
    jobs = [
        {"name": "good", "words": says("once")},
        {"name": "bad", "words": ["-c", "raise SystemExit(3)"]},
        {"name": "blind", "words": says("never"), "data": "MNIST"},
    ]
    for _ in range(2):
        with pytest.raises(SystemExit, match="Some jobs failed"):
            gpu(jobs, "--data", str(tmp_path))
    states = json.loads((tmp_path / "out" / "jobs.json").read_text())
    assert [states[name][1] for name in ("good", "bad")] == ["finished", "failed (3)"]
    assert states["blind"][1].startswith("left out: no MNIST in --data ")
    assert (tmp_path / "out" / "good.txt").read_text() == "once"
    (tmp_path / "MNIST").mkdir()
    jobs[1]["words"] = says("mended")
    assert gpu(jobs, "--data", str(tmp_path)) == dict.fromkeys(("good", "bad", "blind"), "finished")


def test_the_clock_ends_a_job_and_a_second_command_goes_on(gpu, tmp_path):
    slow = ["-c", "import sys, time; open(sys.argv[1], 'a').write('started '); time.sleep(100)", "OUTPUT.txt"]
    jobs = [{"name": "slow", "words": slow}, {"name": "next", "words": says("ran")}]
    assert gpu(jobs, "--minutes", "0.05") == {"slow": "cut off"}
    assert (tmp_path / "out" / "slow.txt").read_text() == "started "
    jobs[0]["words"] = says("and ended")
    assert gpu(jobs) == {"slow": "finished", "next": "finished"}
    assert (tmp_path / "out" / "slow.txt").read_text() == "started and ended"


def test_a_second_command_in_one_folder_is_refused(gpu, tmp_path):
    (tmp_path / "out").mkdir()
    with gpu.module.alone(tmp_path / "out", waits=True), pytest.raises(SystemExit, match="Another command, or a job"):
        gpu([{"name": "one", "words": says("never")}])


@pytest.mark.parametrize("content", ["", "[]", '{"one": {"minutes": 1}}', '{"one": 3}', '{"one": ["x", "finished"]}'])
def test_damaged_states_are_named(gpu, tmp_path, content):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "jobs.json").write_text(content)
    with pytest.raises(SystemExit, match=r"jobs\.json is damaged"):
        gpu([{"name": "one", "words": says("never")}])


def test_folders_may_be_called_like_the_places(gpu, tmp_path):
    module = gpu.module
    assert module.placed(["--output", "OUTPUT", "DATA/x"], tmp_path / "DATA", tmp_path / "OUTPUT") == [
        "--output",
        str(tmp_path / "DATA"),
        f"{tmp_path / 'OUTPUT'}/x",
    ]


def test_a_job_that_begins_anew_is_not_begun_without_time_for_it(gpu, tmp_path):
    jobs = [
        {"name": "long", "words": says("never"), "minutes": 8, "whole": True},
        {"name": "next", "words": says("ran")},
    ]
    assert gpu(jobs, "--minutes", "5") == {"long": "left out: it needs 8 minutes at once", "next": "finished"}


def test_a_fit_that_is_cut_off_has_time_to_save(gpu, tmp_path):
    """Its recipe has ended by then."""
    saved = tmp_path / "saved"
    child = (
        "import signal, sys, time\n"
        f"signal.signal(signal.SIGTERM, lambda *_: (time.sleep(1), open({str(saved)!r}, 'w').close(), sys.exit()))\n"
        "time.sleep(100)"
    )
    jobs = [
        {"name": "fit", "words": ["-c", f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"]}
    ]
    assert gpu(jobs, "--minutes", "0.05") == {"fit": "cut off"}
    assert saved.exists()


def test_a_fit_on_a_lost_machine_goes_on_from_its_last_minutes(gpu, tmp_path):
    """It is killed within its first epoch, which no other checkpoint callback has seen the end of."""
    recipe = beside("", "recipe")
    often = [word.replace("0:05:00", "0:00:01") for word in gpu.module.SAVING]
    options = SimpleNamespace(root=None, more=["--trainer.max_epochs=100", "--data.init_args.batch_size=2", *often])
    configs, data = [EXAMPLES / "simclr" / "laptop.yaml"], ["--data=lightning_ssl_geometry.data.DigitsDataModule"]
    words = recipe.command(options, tmp_path, configs=configs, added=data, seed=0)
    fit = recipe.Fit("fit", words, tmp_path, lambda folder: None)
    first = threading.Thread(target=recipe.run_all, args=([fit], 1))
    first.start()
    killed = killed_once(tmp_path, "version_0/checkpoints/last-timed*.ckpt")
    first.join()
    second = threading.Thread(target=recipe.run_all, args=([fit], 1))
    second.start()
    went_on = killed_once(tmp_path, "version_*/checkpoints/last-timed*.ckpt", after=killed)
    second.join()
    assert went_on > killed > 0


def killed_once(folder, pattern, after=0):
    """Wait for a whole checkpoint of a step > `after`, kill the fit, and return the step."""
    for _ in range(1200):
        for path in folder.glob(pattern):
            state = {"global_step": 0}
            with suppress(RuntimeError, OSError, EOFError):  # it is being written
                state = torch.load(path, weights_only=False)
            if state["global_step"] > after:
                subprocess.run(["pkill", "-9", "-P", str(os.getpid()), "-f", "lightning_ssl_geometry fit"], check=True)
                assert state["epoch"] == 0
                return state["global_step"]
        time.sleep(0.1)
    raise AssertionError(f"no checkpoint {pattern} in {folder}")


@pytest.mark.parametrize("kind", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_ends_the_job(kind, tmp_path):
    """Both the command and the job are gone."""
    slow = f"import time; open({str(tmp_path / 'started')!r}, 'w'); time.sleep(100)"
    code = (
        f"import sys; sys.path.insert(0, {str(EXAMPLES)!r}); import gpu; "
        f"gpu.JOBS = [gpu.Job('slow', 1, '', [], ['-c', {slow!r}])]; "
        f"sys.argv = ['gpu.py', '--smoke', '--jobs', 'slow', '--output', {str(tmp_path / 'out')!r}]; gpu.main()"
    )
    heeded = {"preexec_fn": lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)}  # not that of a background job
    with subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True, **heeded) as process:
        while not (tmp_path / "started").exists():
            assert process.poll() is None
            time.sleep(0.05)
        process.send_signal(kind)
        said = "Ctrl-C" if kind == signal.SIGINT else kind.name
        assert process.communicate()[1].splitlines()[-1] == f"Ended by {said}. The same command goes on from here."
    with beside("", "gpu").alone(tmp_path / "out" / "smoke", waits=False) as lock:
        assert lock is not None  # the job would hold it


def test_the_jobs_name_what_is_there():
    module = beside("", "gpu")
    assert len({job.name for job in module.JOBS}) == len(module.JOBS)
    for job in module.JOBS:
        for words in (job.words, job.smoke):
            files = [word for word in words if word.startswith(("examples/", "benchmarks/", "tests/"))]
            assert files
            assert all((ROOT / word).exists() for word in files)


def test_data_that_are_not_there_are_named_at_once(gpu, tmp_path, capsys):
    with pytest.raises(SystemExit):
        gpu([], "--data", str(tmp_path / "nowhere"))
    assert "Expected --data to be a folder, but there is none at" in capsys.readouterr().err


def test_without_a_gpu_the_command_says_so(gpu, monkeypatch, capsys):
    monkeypatch.setattr(gpu.module.torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit):
        gpu([])
    assert "Expected a GPU, or --smoke, but torch finds none." in capsys.readouterr().err
