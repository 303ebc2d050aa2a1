"""examples/gpu.py: jobs in their order, ended by the clock, continued by a second command, left out without data."""

import json
import sys

import pytest
from recipes import EXAMPLES, beside

ROOT = EXAMPLES.parent


@pytest.fixture
def gpu(monkeypatch, tmp_path):
    """Call the command with words, where a machine with a GPU is pretended."""
    module = beside("", "gpu")
    monkeypatch.setattr(module.torch.cuda, "is_available", lambda: True)

    def call(jobs, *words):
        monkeypatch.setattr(module, "JOBS", [module.Job(minutes=1, settles="", smoke=[], **job) for job in jobs])
        monkeypatch.setattr(sys, "argv", ["gpu.py", "--output", str(tmp_path / "out"), *words])
        module.main()
        return {
            name: state["status"] for name, state in json.loads((tmp_path / "out" / "jobs.json").read_text()).items()
        }

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
    assert states["good"]["status"] == "finished"
    assert states["bad"]["status"] == "failed (3)"
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


def test_the_jobs_name_what_is_there():
    module = beside("", "gpu")
    assert len({job.name for job in module.JOBS}) == len(module.JOBS)
    for job in module.JOBS:
        for words in (job.words, job.smoke):
            files = [word for word in words if word.startswith(("examples/", "benchmarks/", "tests/"))]
            assert files
            assert all((ROOT / word).exists() for word in files)


def test_without_a_gpu_the_command_says_so(gpu, monkeypatch, capsys):
    monkeypatch.setattr(gpu.module.torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit):
        gpu([])
    assert "Expected a GPU, or --smoke, but torch finds none." in capsys.readouterr().err
