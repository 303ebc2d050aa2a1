"""The checks that a change has to pass: `nox` runs them."""

import re
from pathlib import Path

import nox

# What `nox` alone runs is for every change. `.ci/run` adds `processors`, `escnn` and `hosts`, and in turn `faults` or
# `fuzz`. To be run before a release and when a requirement changes: `lowest` (a second torch: some 3 GB to download,
# 6 GB on disk), `pythons`, and `audit`, which asks a service in the network. `long`, `mutation` and `benchmarks` take
# long, and `cuda` needs a GPU: see tests/README.md.
nox.options.default_venv_backend = "uv"
nox.options.sessions = ["lint", "tests", "docs", "package"]
nox.needs_version = ">=2025.2"

PYPROJECT = nox.project.load_toml("pyproject.toml")
README = Path("benchmarks/README.md")

# The names of processor instructions for torch's own kernels, oneDNN and MKL, the oldest first.
PROCESSORS = {
    "default": ("SSE41", "SSE4_2"),
    "avx2": ("AVX2", "AVX2"),
    "avx512": ("AVX512_CORE", "AVX512"),
}
COMPUTING = [
    f"{root}/{part}"
    for root in ("tests", "lightning_ssl_geometry")
    for part in ("functional", "losses", "nn", "views", "diagnostics", "methods")
] + ["tests/test_losses.py", "tests/test_random.py", "tests/test_distributions.py"]


# Processes side by side, each with one thread: on 2 cores, this is faster than one process with two threads. OpenMP's
# threads sleep, not spin, while they wait: some tests have processes of their own.
SIDE_BY_SIDE = ["-n", "logical", "--maxprocesses", "4", "--dist", "worksteal"]
# Compiled files: some tests start interpreters, each of which would compile torch and lightning again.
THREADS = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive", "PYTHONDONTWRITEBYTECODE": None}


def groups(*names):
    return nox.project.dependency_groups(PYPROJECT, *names)


@nox.session
def lint(session):
    session.install("-e", ".", *groups("lint"))
    session.run("ruff", "check")
    session.run("ruff", "format", "--check")
    session.run("mypy")


@nox.session
def tests(session):
    session.install("-e", ".", *groups("test"))
    session.run("pytest", *SIDE_BY_SIDE, *session.posargs, env=THREADS)


@nox.session
def processors(session):
    """The computing tests with the instructions of older processors; `nox -s processors -- avx512` chooses others.

    The session `tests` has run them on this processor as it is, and the two processes of some tests round as one does.
    About 2 minutes for each.
    """
    session.install("-e", ".", *groups("test"))
    read = "import torch; print(torch.backends.cpu.get_cpu_capability().lower())"
    own = session.run("python", "-c", read, env={"ATEN_CPU_CAPABILITY": None}, silent=True).split()[-1]
    levels = list(PROCESSORS)[: list(PROCESSORS).index(own) + 1] if own in PROCESSORS else ["default"]
    if wrong := set(session.posargs) - set(levels):  # torch would take the word, and end at the first instruction
        session.error(f"Expected processors of {levels}, which this one can imitate, but got {sorted(wrong)}.")
    for level in session.posargs or levels[:-1]:
        onednn, mkl = PROCESSORS[level]
        imitated = {"ATEN_CPU_CAPABILITY": level, "ONEDNN_MAX_CPU_ISA": onednn, "MKL_ENABLE_INSTRUCTIONS": mkl}
        session.log(f"as a processor with {level}")
        session.run("pytest", *SIDE_BY_SIDE, "-k", "not two_processes", *COMPUTING, env=THREADS | imitated)


@nox.session
def faults(session):
    """Runs that are killed, full disks, ranks without batches: nothing may be lost or hang. See tests/README.md."""
    session.install("-e", ".", *groups("test"))
    ranks = "tests/callbacks/test_ranks_without_batches.py"
    session.run("pytest", "tests/faults", ranks, *session.posargs, env=THREADS)


@nox.session
def fuzz(session):
    """Generated bad input. FUZZ_COUNT: cases of each config (20); FUZZ_SEED: other cases. See tests/README.md."""
    session.install("-e", ".", *groups("test"))
    session.run("pytest", "tests/fuzz", *session.posargs, env=THREADS)


@nox.session
def cuda(session):
    """Functions, diagnostics, views and trainings on a GPU, beside the CPU's numbers."""
    session.install("-e", ".", *groups("test"))
    session.run("pytest", "tests/cuda", *session.posargs, env={"PYTHONDONTWRITEBYTECODE": None})


@nox.session
def long(session):
    """Trainings that take minutes: four processes, 200 steps in each precision. See tests/README.md."""
    session.install("-e", ".", *groups("test"))
    session.run("pytest", *SIDE_BY_SIDE, "tests/long", *session.posargs, env=THREADS)


def benchmark_commands():
    """The command lines of benchmarks/README.md: (name, options, environment), without those that name a file."""
    lines = re.findall(r"^ {4}((?:\w+=\w+ )*)python benchmarks/(\w+)\.py(.*)$", README.read_text(), re.MULTILINE)
    return [
        (name, options.split(), dict(pair.split("=") for pair in settings.split()))
        for settings, name, options in lines
        if not re.search("[A-Z]|/", options)  # such as DATA, a folder of one's own
    ]


@nox.session
def benchmarks(session):
    """Tables of benchmarks/README.md again, on idle cores; each names the processor. `-- views crops` makes two."""
    commands = benchmark_commands()
    names = list(dict.fromkeys(name for name, _, _ in commands))
    if wrong := set(session.posargs) - set(names):
        session.error(f"Expected benchmarks of {', '.join(names)}, but got {', '.join(sorted(wrong))}.")
    session.install("-e", ".", *groups("test"))
    for name, options, settings in commands:
        if name in (session.posargs or names):
            session.run("python", f"benchmarks/{name}.py", *options, env=settings)


@nox.session
def mutation(session):
    """Changes to the package's source that a test has to notice; `-- --changed main` for those of changed lines."""
    session.install("-e", ".", *groups("test"))
    session.run("python", "tests/mutation/mutate.py", *session.posargs, env=THREADS)


@nox.session
def escnn(session):
    """The extra `escnn`, in an environment of its own: it holds numpy below 2."""
    session.install("-e", ".[escnn]", *groups("test"))
    session.run("python", "-c", "import escnn.nn, lightning_ssl_geometry")
    session.run("pytest", "tests/escnn", env=THREADS)
    session.run("pytest", "tests/test_examples.py", "-k", "escnn", env=THREADS)


@nox.session
def hosts(session):
    """stable-pretraining, which adds callbacks to every Trainer once it is installed, and UMAP, which compiles."""
    session.install("-e", ".[umap]", *groups("test"), "stable-pretraining>=0.1.8")
    session.run("pytest", "tests/attach/test_stable_pretraining.py", env=THREADS)
    session.run("pytest", "tests/diagnostics/test_pictures_of_data.py", "-k", "umap", env=THREADS)


# What `lowest` and `pythons` test: all but the long trainings and the peers.
WITHOUT_PEERS = [
    f"tests/{name}" for name in ("functional", "losses", "nn", "views", "data", "methods", "diagnostics", "diagnose")
] + [f"tests/test_{name}.py" for name in ("cli", "cli_errors", "hostile_checkpoints", "losses", "contract", "resume")]


@nox.session(python="3.11")
def lowest(session):
    """Every direct dependency at the floor that pyproject.toml claims, on the oldest Python."""
    session.install("--resolution", "lowest-direct", "-e", ".", *groups("test"))
    session.run("python", "tests/installed_floors.py")
    # Old releases warn about new releases of their own requirements.
    ignored = [f"-Wignore::{name}Warning" for name in ("Deprecation", "PendingDeprecation", "Future")]
    # Folders of the Hub: timm before 1.0.28 and transformers 5.0 read some otherwise, or not.
    session.run(
        *("pytest", *SIDE_BY_SIDE, *ignored, "--ignore=tests/diagnose/test_hub.py"),
        *(session.posargs or WITHOUT_PEERS),
        env=THREADS,
    )


@nox.session(python=["3.12", "3.13"])
def pythons(session):
    """The newest dependencies on each further Python that pyproject.toml names; `tests` has the one that runs nox."""
    session.install("-e", ".", *groups("test"))
    session.run("pytest", *SIDE_BY_SIDE, *(session.posargs or WITHOUT_PEERS), env=THREADS)


@nox.session
def audit(session):
    """Known vulnerabilities of the newest requirements and of the floors, from PyPI's advisories: needs its network.

    `--strict`: a package that could not be looked up (no network, or an index without advisories) is a failure.
    """
    session.install("pip-audit>=2.9")
    for resolution in ("highest", "lowest-direct"):
        found = Path(session.create_tmp()).resolve() / f"{resolution}.txt"
        compiled = ["uv", "pip", "compile", "-q", "--python-version", "3.11", "--resolution", resolution]
        session.run(*compiled, "-o", str(found), "pyproject.toml", external=True)
        session.run("pip-audit", "--strict", "--disable-pip", "--no-deps", "-r", str(found))


@nox.session
def docs(session):
    """Run the notebook in examples/ and build the documentation into site/; any warning is an error."""
    session.install("-e", ".", *groups("docs"))
    session.run("sphinx-build", "-W", "--keep-going", "-E", "-q", "-b", "html", "docs", "site")


@nox.session
def package(session):
    """The wheel and the sdist, each installed and used away from the checkout; the wheel is built from the sdist."""
    here = Path.cwd()
    folder = Path(session.create_tmp()).resolve()
    session.run("uv", "build", "-q", "--clear", "--out-dir", str(folder / "dist"), external=True)
    session.chdir(folder)
    for ending in ("*.whl", "*.tar.gz"):
        (archive,) = folder.glob(f"dist/{ending}")
        session.install("--reinstall-package", "lightning-ssl-geometry", str(archive))
        session.run("python", str(here / "tests" / "installed_package.py"))
        session.run("ssl-geometry", "--version")
