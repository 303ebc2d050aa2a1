"""Runs as they lie on disk, with made-up numbers, and pages as a parser and a browser see them."""

import json
import os
import re
import shutil
import signal
import subprocess
import time
from html.parser import HTMLParser
from pathlib import Path

import numpy as np

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update",
]  # fmt: skip
MEASURE = """
const report = {};
for (const frame of document.querySelectorAll('iframe')) {
  const page = frame.contentDocument, figures = [...page.querySelectorAll('svg.figure')];
  const cut = figures.flatMap(figure => [...figure.querySelectorAll('text')].filter(text => {
    const inner = text.getBoundingClientRect(), outer = figure.getBoundingClientRect();
    return inner.right > outer.right + 12 || inner.left < outer.left - 12;
  }).map(text => text.textContent));
  const box = page.querySelector('.zoom'), panel = box && box.closest('.panel');
  const overflow = page.documentElement.scrollWidth - frame.width, wide = panel && panel.parentNode.clientWidth;
  const seen = figures.filter(figure => figure.getBoundingClientRect().width > 300).length;
  if (box) box.click();
  report[frame.width] = {
    paper: getComputedStyle(page.body).backgroundColor, scripts: page.querySelectorAll('script').length,
    zoomed: !box || (box.tabIndex === 0 && panel.clientWidth === wide
                     && page.documentElement.scrollWidth <= frame.width
                     && panel.querySelector('.figure').clientWidth >= Math.min(640, wide)),
    overflow, figures: figures.length, cut, seen,
    script: String(frame.contentWindow.ran),
  };
}
document.body.dataset.report = JSON.stringify(report);
"""
GEOMETRY = {  # what the stage "probe" adds: a value at the start of training and one at its end
    "projector_rank": (64, 20),
    "bound_info_nce": (7.5, 5.0),
    "bound_upper": (9.4, 7.0),
    "bound_entropy_form": (7.5, 5.0),
    "bound_expectation": (0.9, 0.1),
    "bound_entropy": (7.6, 6.5),
    "bound_invariance": (-0.7, -0.9),
    "bound_repulsion": (0.98, 0.8),
    "augmentation_rank": (80, 110),
    "null_space_fraction": (0.5, 0.9),
    "null_space_isotropic": (0.5, 0.84),
    "unexplained_variance_full": (0.5, 0.2),
    "unexplained_variance_full_isotropic": (0.5, 0.5),
    "unexplained_variance_tau": (0.5, 0.3),
    "unexplained_variance_tau_isotropic": (0.5, 0.84),
    "local_unexplained_variance_full": (0.5, 0.25),
    "local_unexplained_variance_full_isotropic": (0.5, 0.5),
    "local_unexplained_variance_tau": (0.5, 0.28),
    "local_unexplained_variance_tau_isotropic": (0.5, 0.6),
    "hardest_negative_distance": (0.2, 0.8),
    "hardest_negative_pair": (0.2, 0.3),
    "label_agreement_fine": (0.1, 0.6),
    "label_agreement_fine_chance": (0.1, 0.1),
    "label_agreement_coarse": (0.2, 0.7),
    "label_agreement_coarse_chance": (0.2, 0.2),
    "jacobian_rank": (64, 40),
    "linear_regions_visited": (900, 1000),
    "linear_regions_fraction": (0.9, 1.0),
    "lie_r2": (0.2, 0.7),
    "lie_r2_shuffled": (-0.2, -0.1),
    "lie_null_space": (0.5, 0.9),
    "lie_null_space_isotropic": (0.5, 0.84),
}


def write_csv(path: Path, header, rows, end="\n"):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(",".join(map(str, row)) for row in [header, *rows]) + end)


def write_geometry(folder: Path, shift=0.0, epochs=2, pace=10, scalars=GEOMETRY, coarse=True):
    """What stage `probe` writes: before training (step 0) and at the end of epochs; `shift` tells runs apart."""
    names = [name for name in scalars if coarse or "coarse" not in name]
    rows = []
    for readout in range(epochs + 1):
        share = readout / epochs
        values = [scalars[name][0] * (1 - share) + scalars[name][1] * share + shift for name in names]
        rows.append([max(readout - 1, 0), max(readout * pace - 1, 0), *values])
    write_csv(folder / "metrics.csv", ["epoch", "step", *(f"probe/{name}" for name in names)], rows)

    def array(name, values):
        lines = [[max(r - 1, 0), r * pace, *values(r / epochs)] for r in range(epochs + 1)]
        header = ["epoch", "step", *range(len(lines[0]) - 2)]
        write_csv(folder / f"geometry/probe/{name}.csv", header, lines)

    index = np.arange(16)
    for name in ("log_spectrum_h", "log_spectrum_h_image", "log_spectrum_z"):
        array(name, lambda share: 2 - index * (0.1 + 0.2 * share) + shift)
    for name in ("projector_singular_values", "augmentation_singular_values", "jacobian_singular_values"):
        array(name, lambda share: np.exp(-index * (0.1 + share) + shift))
    array("hardest_negative_histogram", lambda share: np.eye(8)[int(1 + 4 * share)])
    angles = np.array([10.0, 45.0, 90.0, 180.0])
    array("rotation_angles", lambda share: angles)
    array("rotation_pixels", lambda share: angles)
    array("rotation_h", lambda share: angles * (0.8 - 0.5 * share) + shift)
    return folder


def write_log(folder: Path, **columns):
    """A metrics.csv of steps 9, 19, ... with these columns; `__` stands for the slash behind the stage."""
    names = [name.replace("__", "/") for name in columns]
    rows = [[epoch, 10 * epoch + 9, *values] for epoch, values in enumerate(zip(*columns.values(), strict=True))]
    write_csv(folder / "metrics.csv", ["epoch", "step", *names], rows)
    return folder


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

    def values(self, name):
        return [attributes[name] for _, attributes in self.attributes if name in attributes]


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
