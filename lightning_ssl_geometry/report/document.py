"""What is around each page: one HTML file that needs nothing else."""

__all__ = ["document", "write_page"]

from importlib.resources import files
from pathlib import Path

from lightning_ssl_geometry.files import replacing
from lightning_ssl_geometry.report.html import Html, element

# The browser itself then refuses scripts and any request, whatever a run's names and values may hold; pictures come
# with the page.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def document(title: str, content: Html) -> Html:
    """Put an article on a page of its own, with its style and without leave to ask for anything."""
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", title),
        element("style", Html(files("lightning_ssl_geometry.report").joinpath("page.css").read_text("utf-8"))),
    )
    body = element("body", element("main", content))
    return Html("<!doctype html>\n" + element("html", head, body, lang="en") + "\n")


def write_page(path: Path, page: Html) -> Path:
    """Write beside the target and rename: a reader sees the old page or the new one. Folders on the way are made.

    Raises:
        ValueError: If `path` is a folder.
    """
    if path.is_dir():
        raise ValueError(f"Expected `output` to be a file, but {path} is a folder.")
    with replacing(path) as file:
        file.write(page.encode("utf-8", errors="replace"))
    return path
