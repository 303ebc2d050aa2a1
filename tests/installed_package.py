"""Check an installed package; `nox -s package` runs this without the checkout and without pytest."""

import shlex
import subprocess
import tempfile
from importlib import metadata, resources
from pathlib import Path

import lightning_ssl_geometry

NAME = "lightning-ssl-geometry"


def check():
    package = Path(lightning_ssl_geometry.__file__).parent
    assert "site-packages" in package.parts, f"imported from {package}, not from what was installed"
    assert metadata.version(NAME) == lightning_ssl_geometry.__version__
    roots = {path.parts[0] for path in metadata.files(NAME)} - {".."}
    assert all(root == "lightning_ssl_geometry" or root.endswith(".dist-info") for root in roots), roots
    recipe = ("recipes/simclr/smoke.yaml", "recipes/recipe.py")
    for name in ("py.typed", "report/page.css", "report/page.html.j2", *recipe):
        assert resources.files("lightning_ssl_geometry").joinpath(name).is_file(), name
    assert not resources.files("lightning_ssl_geometry").joinpath("recipes/attach").is_dir()
    assert list(metadata.entry_points(group="console_scripts", name="ssl-geometry"))
    assert "escnn" in metadata.metadata(NAME).get_all("Provides-Extra")
    assert metadata.metadata(NAME)["License-Expression"] == "Apache-2.0"


def check_recipe():
    """Copy a recipe as a user does, and run the commands that are printed, for one batch."""
    with tempfile.TemporaryDirectory() as folder:
        shown = subprocess.check_output(["ssl-geometry", "init", "simclr"], cwd=folder, text=True)
        cd, fit = (shlex.split(line) for line in shown.splitlines()[-2:])
        assert cd == ["cd", "simclr"]
        assert not list(Path(folder).glob("simclr/figures"))
        subprocess.run([*fit, "--trainer.fast_dev_run", "true"], cwd=Path(folder, "simclr"), check=True)


if __name__ == "__main__":
    check()
    check_recipe()
