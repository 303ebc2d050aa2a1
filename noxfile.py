"""Everything that has to hold before a change lands: `nox`."""

import nox

nox.options.default_venv_backend = "uv"
nox.options.sessions = ["lint", "tests", "escnn"]
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
def escnn(session):
    """The extra `escnn`, in an environment of its own: it holds numpy below 2."""
    session.install("-e", ".[escnn]", *groups("test"))
    session.run("python", "-c", "import escnn.nn, lightning_ssl_geometry")
    session.run("pytest", "tests/escnn", env={"OMP_WAIT_POLICY": "passive"})
    session.run("pytest", "tests/test_examples.py", "-k", "escnn", env={"OMP_WAIT_POLICY": "passive"})
