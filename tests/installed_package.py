"""Check an installed package; `nox -s package` runs this without the checkout and without pytest."""

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
    for name in ("py.typed", "report/page.css", "report/page.html.j2"):
        assert resources.files("lightning_ssl_geometry").joinpath(name).is_file(), name
    assert list(metadata.entry_points(group="console_scripts", name="ssl-geometry"))
    assert "escnn" in metadata.metadata(NAME).get_all("Provides-Extra")
    assert metadata.metadata(NAME)["License-Expression"] == "Apache-2.0"


if __name__ == "__main__":
    check()
