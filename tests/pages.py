"""Write runs with made-up numbers to disk, and read pages with a parser and a browser."""

import csv
import io
import json
import os
import re
import shutil
import signal
import subprocess
import time
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import numpy as np

from lightning_ssl_geometry import plots
from lightning_ssl_geometry.manifest import Declared, read_manifest, written
from lightning_ssl_geometry.observe.feed import result_name, space_of
from lightning_ssl_geometry.quantity import Quantity
from lightning_ssl_geometry.recording.quantities_file import meaning
from lightning_ssl_geometry.report import comparison_figures, figures, read_run, write_comparison, write_report

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update",
]  # fmt: skip
MEASURE = """
const report = {};
for (const frame of document.querySelectorAll('iframe')) {
  const page = frame.contentDocument, figures = [...page.querySelectorAll('.canvas:not(.every) svg.figure')];
  const cut = figures.flatMap(figure => [...figure.querySelectorAll('text')].filter(text => {
    const inner = text.getBoundingClientRect(), outer = figure.getBoundingClientRect();
    return inner.right > outer.right + 12 || inner.left < outer.left - 12;
  }).map(text => text.textContent));
  const box = page.querySelector('.zoom'), panel = box && box.closest('.panel');
  const overflow = page.documentElement.scrollWidth - frame.width;
  const seen = figures.filter(figure => figure.getBoundingClientRect().width > 300).length;
  if (box) box.click();
  const wide = panel && panel.parentNode.clientWidth;
  report[frame.width] = {
    paper: getComputedStyle(page.body).backgroundColor, scripts: page.querySelectorAll('script').length,
    zoomed: !box || (box.tabIndex === 0 && panel.clientWidth === wide
                     && page.documentElement.scrollWidth <= frame.width
                     && panel.querySelector('.figure').clientWidth >= Math.min(500, wide)),
    overflow, figures: figures.length, cut, seen,
    script: String(frame.contentWindow.ran),
  };
}
document.body.dataset.report = JSON.stringify(report);
"""


def plain(html):
    """The words of HTML without its tags."""
    return " ".join(unescape(re.sub(r"<[^>]*>", "", html)).split())


def titles(html):
    """The titles of the figures, in their order."""
    return [plain(each) for each in re.findall(r'<div class="head"><h3>(.*?)</h3>', html)]


def write_csv(path: Path, header, rows, end="\n"):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(",".join(map(str, row)) for row in [header, *rows]) + end)


def write_rows(folder: Path, columns, *rows):
    """A metrics.csv of rows (epoch, step, values of these columns)."""
    write_csv(folder / "metrics.csv", ["epoch", "step", *columns], rows)
    return folder


def write_log(folder: Path, **columns):
    """A metrics.csv of steps 9, 19, ... with these columns; `__` stands for the slash behind the stage."""
    names = [name.replace("__", "/") for name in columns]
    rows = [[epoch, 10 * epoch + 9, *values] for epoch, values in enumerate(zip(*columns.values(), strict=True))]
    return write_rows(folder, names, *rows)


def write_array(folder: Path, name, *readouts):
    """An array's file, with a readout at the end of each epoch of ten steps."""
    rows = [[epoch, 10 * (epoch + 1), *values] for epoch, values in enumerate(readouts)]
    write_csv(folder / f"geometry/{name}.csv", ["epoch", "step", *range(len(readouts[0]))], rows)
    return folder


def write_snapshot(folder: Path, name, values, step=20):
    """The file of an array with several axes."""
    path = folder / f"geometry/{name}.npz"
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, values=np.asarray(values, dtype=np.float32), epoch=max(step // 10 - 1, 0), step=step)
    return folder


def declare(folder: Path, **entries):
    """What logged names mean, beside what the run has declared before; `__` stands for a slash."""
    path = folder / "geometry/quantities.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    before = read_manifest(path.read_text())[0] if path.exists() else {}
    path.write_text(written(before | {name.replace("__", "/"): entry for name, entry in entries.items()}))
    return folder


def entry(title, *, of="Toy", section="ranks", key="", part="", space="", renamed=False, width=None, **fields):
    """What a class declares of a result: a quantity with these fields, which says what low and high mean."""
    quantity = Quantity(**{"title": title, "low": f"Low {title}.", "high": f"High {title}."} | fields)
    about = {"diagnostic": of, "section": section, "key": key, "part": part, "space": space}
    return Declared(quantity=quantity, renamed=renamed, width=width, **about)


def write_results(folder: Path, results, stage="val", readouts=3, rename=None, shift=0.0):
    """What a monitor writes of results {name: (metric, {key: value})}; earlier readouts are a tenth smaller each."""
    scalars, manifest = {}, {}
    for name, (metric, found) in results.items():
        space = space_of(metric, (rename or {}).get(name, {}))
        for key, value in found.items():
            logged, value = f"{stage}/{result_name(name, key)}", np.asarray(value, dtype=np.float64)
            rows = [value * (1 - 0.1 * ago) for ago in range(readouts)[::-1]]
            if not value.ndim:
                scalars[logged] = [row + shift for row in rows]
            elif value.ndim == 1:
                write_array(folder, logged, *rows)
            else:
                write_snapshot(folder, logged, value, 10 * readouts)
            if said := meaning(metric, key, space, 6):
                manifest[logged] = said
    write_log(folder, **scalars)
    return declare(folder, **manifest)


def write_info(folder: Path, **info):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "run.json").write_text(json.dumps(info))
    return folder


def page_of(path: Path):
    return Page(path.read_text("utf-8"))


def report(folder: Path):
    """The page of a run."""
    return page_of(write_report(folder))


def comparison(folder: Path, **groups):
    """The page of groups of runs."""
    return page_of(write_comparison(groups, folder / "page.html"))


def figures_of(folder: Path):
    """A run's figures, by name."""
    return figures(read_run(folder))


def drawn(folder: Path):
    """The axes of a run's figures, by name."""
    return {name: figure.axes[0] for name, figure in figures_of(folder).items()}


def compared(**groups):
    """The axes of the figures of groups of runs, by name."""
    return {name: figure.axes[0] for name, figure in comparison_figures(groups).items()}


def texts(axes):
    """All that is written in axes, labels at lines first."""
    return [text.get_text() for text in axes.texts]


def sentences(axes):
    """The same in one line."""
    return " ".join(texts(axes)).replace("\n", " ")


def lines(axes, color="blue"):
    """Lines of a colour over the axes, without those of the key, which are 24 pixels of 72 an inch long."""
    drawn = [each for each in axes.lines if each.get_color() == plots.COLORS[color]]
    drawn = [each for each in drawn if each.get_linestyle() != "None"]
    return [each for each in drawn if list(each.get_xdata()) != [0, 24 / 72]]


class Page(HTMLParser):
    """The page's text, tags and attributes; it fails on tags that do not match."""

    def __init__(self, text):
        super().__init__()
        self.source, self.text, self.tags, self.attributes, self.open = text, "", [], [], []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.handle_startendtag(tag, attrs)
        if tag not in ("meta", "br", "input"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open[-1:] != ["style"]:
            self.text += data

    def runs_nothing(self):
        """Assert that it asks for nothing, that ids are unique and figures have its colours; return its figures."""
        assert not {"script", "link", "img", "iframe", "object", "base"} & set(self.tags)
        assert self.values("src") == self.values("xlink:href") == []
        assert "@import" not in self.source
        assert set(re.findall(r"url\((.)", self.source)) <= {"#"}
        assert self.values("content")[0] == "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
        ids = self.values("id")
        assert len(set(ids)) == len(ids)
        uses = {attributes["href"][1:] for tag, attributes in self.attributes if tag == "use"}
        assert uses | set(re.findall(r"url\(#([^)]+)\)", self.source)) <= set(ids)
        found = re.findall(r'<svg class="figure".*?</svg>', self.source, re.DOTALL)
        assert len(found) >= self.count() > 0  # an enlarged figure may have a second scale
        together = "".join(found)
        assert not re.search("#[0-9a-f]{6}|font-family|<style", together)
        assert set(re.findall(r"var\(--([\w-]+)\)", together)) <= set(re.findall(r"--([\w-]+):", self.source))
        return found

    def values(self, name):
        return [attributes[name] for _, attributes in self.attributes if name in attributes]

    def count(self):
        """How many figures it has."""
        return self.tags.count("figure")

    def downloads(self):
        """The tables that it offers, by name."""
        links = [attributes for tag, attributes in self.attributes if tag == "a" and "download" in attributes]
        assert len({link["download"] for link in links}) == len(links)
        assert {link["href"].partition(",")[0] for link in links} == {"data:text/csv;charset=utf-8"}
        return {link["download"]: list(csv.reader(io.StringIO(saved(link["href"])))) for link in links}


def saved(address):
    """The text of a link that saves a table."""
    return unquote(address.partition(",")[2], errors="strict")


def seen_in_a_browser(page, folder, dark=False):
    """Show the page at the width of a phone and of a desktop: what a person would complain of, by width.

    The page has the colours that the person prefers, no script but the one that is put in here and does not run, and
    its first figure fills the page once its box is checked.
    """
    inner = page.source.replace("</body>", "<script>window.ran = 1</script></body>")
    inner = inner.replace("&", "&amp;").replace('"', "&quot;")
    frames = "".join(f'<iframe width="{width}" height="900" srcdoc="{inner}"></iframe>' for width in (390, 1440))
    wrapper = folder / "wrapper.html"
    wrapper.write_text(f"<!doctype html><body>{frames}<script>onload = () => {{{MEASURE}}}</script></body>", "utf-8")
    flags = [*FLAGS, f"--user-data-dir={folder / 'profile'}", f"--blink-settings=preferredColorScheme={int(not dark)}"]
    flags += ["--hide-scrollbars", "--virtual-time-budget=4000", "--enable-logging=stderr", "--dump-dom"]
    done = subprocess.run([CHROMIUM, *flags, wrapper.as_uri()], capture_output=True, text=True, timeout=120)
    said = re.search(r'data-report="([^"]*)"', done.stdout)
    assert said, done.stderr[-2000:]
    complaints = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    assert all("Content Security Policy" in line for line in complaints), complaints
    assert complaints  # the page's own policy refused the script that was put in here
    found = json.loads(said[1].replace("&quot;", '"'))
    for each in found.values():
        assert each.pop("paper") == ("rgb(20, 23, 27)" if dark else "rgb(255, 255, 255)")
        assert each.pop("scripts") == 1
        assert each.pop("zoomed")
    return found


def saved_from_a_browser(page, folder, names):
    """Click the links that save these files, as a person would, and read what the browser wrote."""
    out, profile = folder / "out", folder / "profile"
    (profile / "Default").mkdir(parents=True)
    wanted = {"download": {"default_directory": str(out)}}
    wanted |= {"profile": {"default_content_setting_values": {"automatic_downloads": 1}}}  # several, one after another
    (profile / "Default/Preferences").write_text(json.dumps(wanted))
    inner = page.source.replace("&", "&amp;").replace('"', "&quot;")
    click = "document.querySelector('iframe').contentDocument.querySelector(`[download='${name}']`).click()"
    code = f"{json.dumps(names)}.forEach((name, place) => setTimeout(() => {click}, 500 * place))"
    wrapper = folder / "wrapper.html"
    wrapper.write_text(f'<!doctype html><iframe srcdoc="{inner}"></iframe><script>onload = () => {{{code}}}</script>')
    browser = subprocess.Popen(
        [CHROMIUM, *FLAGS, f"--user-data-dir={profile}", wrapper.as_uri()],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    try:
        for _ in range(600):
            if all((out / name).is_file() for name in names):
                break
            time.sleep(0.1)
    finally:
        os.killpg(browser.pid, signal.SIGTERM)
        browser.wait(30)
    return {name: (out / name).read_text("utf-8") for name in names}
