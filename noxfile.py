"""Everything that has to hold before a change lands: `nox`."""

from pathlib import Path

import nox

nox.options.default_venv_backend = "uv"
nox.options.sessions = ["lint", "tests", "escnn", "hosts", "docs", "package"]
nox.needs_version = ">=2025.2"

PYPROJECT = nox.project.load_toml("pyproject.toml")


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
    # OpenMP's threads sleep, not spin, while they wait: two processes on few cores are many times faster so.
    session.run("pytest", *session.posargs, env={"OMP_WAIT_POLICY": "passive"})


@nox.session
def faults(session):
    """Kills at random points and full disks: what is lost, and what is torn. Counts and times: tests/README.md."""
    session.install("-e", ".", *groups("test"))
    threads = {"OMP_WAIT_POLICY": "passive", "OMP_NUM_THREADS": "1"}
    session.run("pytest", "tests/faults", *session.posargs, env=threads)


@nox.session
def escnn(session):
    """The extra `escnn`, in an environment of its own: it holds numpy below 2."""
    session.install("-e", ".[escnn]", *groups("test"))
    session.run("python", "-c", "import escnn.nn, lightning_ssl_geometry")
    session.run("pytest", "tests/escnn", env={"OMP_WAIT_POLICY": "passive"})
    session.run("pytest", "tests/test_examples.py", "-k", "escnn", env={"OMP_WAIT_POLICY": "passive"})


@nox.session
def hosts(session):
    """A host that adds callbacks to every Trainer once it is installed: stable-pretraining, in its own environment."""
    session.install("-e", ".", *groups("test"), "stable-pretraining>=0.1.8")
    session.run("pytest", "tests/attach/test_stable_pretraining.py", env={"OMP_WAIT_POLICY": "passive"})


@nox.session
def docs(session):
    """The site, into site/: no warning is let through."""
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
        if ending == "*.whl":
            smoke = str(here / "examples" / "simclr" / "smoke.yaml")
            session.run("ssl-geometry", "fit", "--config", smoke, "--trainer.fast_dev_run", "true")
