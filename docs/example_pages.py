"""Make six pages to look at: lightly's SimCLR, BYOL with its teacher, DINO, a classifier, our SimCLR, a comparison.

    python docs/example_pages.py FOLDER                # all six, some minutes on 2 cores
    python docs/example_pages.py FOLDER byol dino      # some of them
    python docs/example_pages.py FOLDER --pictures     # also pictures of each page, by Chromium

Each page's path is printed. Its pictures are beside it: report-WIDTH-light.png and report-WIDTH-dark.png at widths of
1440 and 390 pixels, and report.pdf. The hosts are those of `examples/attach`, on scikit-learn's digits.
"""

__all__ = ["PAGES", "main", "pictures"]

import argparse
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "examples" / "attach")]

import lightning as L  # noqa: E402
import torch  # noqa: E402
from PIL import Image, ImageChops  # noqa: E402
from sklearn.datasets import load_digits  # noqa: E402
from torch.utils.data import DataLoader, Dataset, TensorDataset  # noqa: E402

from lightning_ssl_geometry.callbacks import RunReport  # noqa: E402
from lightning_ssl_geometry.loggers import ResumableCSVLogger  # noqa: E402
from lightning_ssl_geometry.report import write_comparison, write_report  # noqa: E402

_SEEDS = (0, 1, 2)
_WIDTHS, _HEIGHT, _COLUMNS = (1440, 390), 15_000, 3  # pixels; Chromium takes no pictures above 16,384
_FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]


class ColorDigits(Dataset[Any]):
    """Digits as colour images of 32 pixels, changed by the `transform` that lightly sets, with their class."""

    def __init__(self, first: int, last: int) -> None:
        self.transform: Callable[[Image.Image], Any] = lambda image: image
        images, labels = load_digits(return_X_y=True)
        gray = (images.reshape(-1, 8, 8) * 15.9).astype("uint8")[first:last]
        self.images = [Image.fromarray(each).resize((32, 32)).convert("RGB") for each in gray]
        self.labels = labels[first:last].tolist()

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, place: int) -> tuple[Any, int]:
        return self.transform(self.images[place]), self.labels[place]


def lightly(folder: Path) -> Path:
    """SimCLR of lightly's documentation with a ResNet-18, for 5 epochs."""
    from lightly.data import LightlyDataset
    from lightly.transforms import SimCLRTransform
    from lightly_simclr import CALLBACKS, Host

    transform = SimCLRTransform(input_size=32, gaussian_blur=0.0, hf_prob=0.0)
    parts = [LightlyDataset.from_torch_dataset(ColorDigits(*ends), transform) for ends in ((0, 1200), (1200, 1797))]
    train, val = (DataLoader(part, batch_size=100, shuffle=part is parts[0]) for part in parts)
    return _trained(Host(), CALLBACKS, (train, val), epochs=5, folder=folder)


def byol(folder: Path) -> Path:
    """BYOL with lightly's heads: a monitor of the student and one of the teacher, for 20 epochs."""
    from byol import CALLBACKS, LOADER, VALIDATION, Host

    return _trained(Host(), CALLBACKS, (LOADER, VALIDATION), epochs=20, folder=folder)


def dino(folder: Path) -> Path:
    """DINO with lightly's head, six crops and two monitors, for 10 epochs."""
    from dino import CALLBACKS, LOADER, VALIDATION, Host

    return _trained(Host(), CALLBACKS, (LOADER, VALIDATION), epochs=10, folder=folder)


def classifier(folder: Path) -> Path:
    """A classifier that sees one view of each image, for 20 epochs."""
    from one_image import CALLBACKS, Host

    images, labels = (torch.tensor(array) for array in load_digits(return_X_y=True))
    images = (images.float().view(-1, 1, 8, 8) / 16 - 0.3) / 0.4
    parts = [TensorDataset(images[rows], labels[rows]) for rows in (slice(1200), slice(1200, None))]
    train, val = (DataLoader(part, batch_size=60, shuffle=part is parts[0]) for part in parts)
    return _trained(Host(), CALLBACKS, (train, val), epochs=20, folder=folder)


def ours(folder: Path) -> Path:
    """SimCLR of this package by `examples/simclr/laptop.yaml`."""
    return write_report(_fitted(folder, name="simclr"))


def comparison(folder: Path) -> Path:
    """SimCLR, BYOL and VICReg of `examples/simclr`, with three seeds each, for 20 epochs."""
    groups = {
        name: [
            _fitted(folder, *also, f"--seed_everything={seed}", "--trainer.max_epochs=20", name=f"{name}_{seed}")
            for seed in _SEEDS
        ]
        for name, also in {"SimCLR": (), "BYOL": ("byol",), "VICReg": ("vicreg",)}.items()
    }
    return write_comparison(groups, folder / "comparison.html", title="Three methods on digits")


PAGES: dict[str, Callable[[Path], Path]] = {
    each.__name__: each for each in (lightly, byol, dino, classifier, ours, comparison)
}


def _trained(host: L.LightningModule, callbacks: Any, loaders: tuple[Any, Any], *, epochs: int, folder: Path) -> Path:
    logger = ResumableCSVLogger(folder.parent, name=folder.name)
    report = RunReport()
    trainer = L.Trainer(
        max_epochs=epochs, logger=logger, callbacks=[*callbacks, report], log_every_n_steps=1, accelerator="cpu"
    )
    trainer.fit(host, *loaders)
    return Path(logger.log_dir) / "report.html"


def _fitted(folder: Path, *also: str, name: str) -> Path:
    recipes = [f"--config={ROOT / 'examples' / 'simclr' / each}.yaml" for each in ("laptop", *also) if "--" not in each]
    settings = [each for each in also if "--" in each]
    settings += [f"--trainer.logger.init_args.save_dir={folder}", f"--trainer.logger.init_args.name={name}"]
    start = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from lightning_ssl_geometry.cli import main; main()"
    subprocess.run([sys.executable, "-c", start, "fit", *recipes, *settings], check=True)
    return folder / name / "version_0"


def pictures(page: Path) -> None:
    """Write a PNG of a page for each width and color scheme, and a PDF, beside it."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        raise FileNotFoundError("Expected Chromium for the pictures, but found neither `chromium` nor `google-chrome`.")
    pdf = [f"--print-to-pdf={page.with_suffix('.pdf')}", "--no-pdf-header-footer", page.as_uri()]
    subprocess.run([browser, *_FLAGS, *pdf], check=True, stderr=subprocess.DEVNULL)
    for width in _WIDTHS:
        frame = page.with_suffix(".frame.html")  # a column for each part of a long page
        column = f'<div style="width:{width}px;height:{_HEIGHT}px;float:left;overflow:hidden">'
        inner = f"width:{width}px;height:{_COLUMNS * _HEIGHT}px;border:0;margin-top:-"
        parts = [
            f'{column}<iframe src="{page.name}" style="{inner}{part * _HEIGHT}px"></iframe></div>'
            for part in range(_COLUMNS)
        ]
        frame.write_text(f'<body style="margin:0;width:{_COLUMNS * width}px">{"".join(parts)}')
        for scheme, number in {"dark": 0, "light": 1}.items():
            target = page.with_name(f"{page.stem}-{width}-{scheme}.png")
            size = f"--window-size={_COLUMNS * width},{_HEIGHT}"
            chosen = f"--blink-settings=preferredColorScheme={number}"
            shot = [size, chosen, f"--screenshot={target}", frame.as_uri()]
            subprocess.run([browser, *_FLAGS, *shot], check=True, stderr=subprocess.DEVNULL)
            _stack(target, width)
        frame.unlink()


def _stack(picture: Path, width: int) -> None:
    """Put the columns of a picture below each other, and cut off the empty rows below the page."""
    with Image.open(picture) as opened:
        columns = opened.convert("RGB")
    whole = Image.new("RGB", (width, _COLUMNS * columns.height))
    for part in range(_COLUMNS):
        whole.paste(columns.crop((part * width, 0, (part + 1) * width, columns.height)), (0, part * columns.height))
    empty = Image.new("RGB", whole.size, whole.getpixel((2, whole.height - 2)))
    _, _, _, bottom = ImageChops.difference(whole, empty).getbbox() or (0, 0, *whole.size)
    whole.crop((0, 0, width, min(bottom + 40, whole.height))).save(picture)


def main(arguments: list[str] | None = None) -> None:
    """Make the pages that the command line names."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", help=f"of {', '.join(PAGES)}; all if none is named")
    parser.add_argument("--pictures", action="store_true", help="pictures of the pages, by Chromium")
    asked = parser.parse_args(arguments)
    if unknown := set(asked.names) - PAGES.keys():
        parser.error(f"Expected names of {', '.join(PAGES)}, but got {', '.join(sorted(unknown))}.")
    for name in asked.names or PAGES:
        L.seed_everything(0, workers=True)
        work = asked.folder.resolve() / name
        if work.exists():
            parser.error(f"Expected a folder without {name!r}, since nothing is replaced, but got {asked.folder}.")
        page = PAGES[name](work)
        print(f"{page}: {page.stat().st_size / 1e3:.0f} kB")
        if asked.pictures:
            pictures(page)


if __name__ == "__main__":
    main()
