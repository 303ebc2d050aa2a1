"""Pages and figures of runs whose augmentations are drawn by a policy."""

import re

import lightning as L
import numpy as np
import pytest
import torch
from lightning.pytorch.loggers import CSVLogger
from lightning_ssl_geometry.report.glossary import lookup
from pages import CHROMIUM, Page, seen_in_a_browser, write_csv, write_log
from torch import nn
from torch.utils.data import DataLoader

from lightning_ssl_geometry import plots
from lightning_ssl_geometry.callbacks import GeometryMonitor
from lightning_ssl_geometry.diagnostics import (
    EmbeddingSample,
    GaussianPotential,
    NonEmptyProbability,
    PairSimilarity,
    PolicyEntropy,
    PolicyMaps,
)
from lightning_ssl_geometry.methods import CRLTACModule
from lightning_ssl_geometry.plots import Caption, overlay, policy_maps, scatter
from lightning_ssl_geometry.report import (
    comparison_figures,
    figures,
    read_run,
    summary_table,
    write_comparison,
    write_report,
)
from lightning_ssl_geometry.report.headline import headline
from lightning_ssl_geometry.views import CropFamily

SIDE, GRID, SAMPLES = 84, 17, 8
ACCURACY = {
    "f, learned": 0.973,
    "f, top": 0.975,
    "f, oracle": 0.974,
    "f, uniform": 0.71,
    "head, learned": 0.955,
    "head, top": 0.955,
    "head, oracle": 0.951,
    "head, uniform": 0.62,
    "pixels": 0.899,
}


def write_npz(path, values, step=60):
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, values=np.asarray(values, dtype=np.float32), epoch=step // 10 - 1, step=step)


def maps(learned):
    """A square in one of nine places, and crops of which those over the square are probable."""
    image, probability = np.zeros((SAMPLES, SIDE, SIDE)), np.ones((SAMPLES, GRID, GRID))
    for place in range(SAMPLES):
        top, left = 28 * (place % 3) + 8, 28 * (place // 3) + 8
        image[place, top : top + 12, left : left + 12] = 2.5
        if learned:
            down, right = (4 * np.arange(GRID) + 10 - np.array([[top], [left]]) - 6) / 8
            probability[place] = np.exp(-(down[:, None] ** 2) - right**2)
    return image, probability / probability.sum((1, 2), keepdims=True)


def embeddings(learned, size):
    generator = np.random.default_rng(0)
    z = generator.normal(size=(200, size)) * (1 if learned else 0.1) + (0 if learned else generator.normal(size=size))
    return z / np.linalg.norm(z, axis=1, keepdims=True)


def write_channel(folder, learned=True, size=50):
    """A run as CRLTACModule, GeometryMonitor and ChannelEvaluation write it, with made-up numbers."""
    share = np.linspace(0, 1, 6) if learned else np.zeros(6)
    write_log(
        folder,
        train__loss=-0.1 * share,
        train__policy_loss=-0.05 * share,
        val__loss=-0.1 * share,
        val__non_empty_learned=0.242 + (0.998 - 0.242) * share,
        val__non_empty_uniform=np.full(6, 0.242),
        val__policy_entropy=np.log(289) - 2.5 * share,
        val__gaussian_potential_image=0.98 - 0.9 * share,
    )
    rows = [
        [epoch, 10 * (epoch + 1), *np.linspace(0, 1, 101) ** (1 / 9 + 2 * part)] for epoch, part in enumerate(share)
    ]
    write_csv(folder / "geometry/val/pair_similarity.csv", ["epoch", "step", *range(101)], rows)
    for name, values in zip(("image", "probability"), maps(learned), strict=True):
        write_npz(folder / f"geometry/val/policy_maps_{name}.npz", values)
    write_npz(folder / "geometry/val/embeddings_z.npz", embeddings(learned, size))
    write_npz(folder / "geometry/val/embeddings_label.npz", np.arange(200)[:, None] % 10)
    header = ["features", "labels_per_class", "accuracy", "accuracy_std", "split"]
    rows = [[f'"{name}"', "all", value, "", "test"] for name, value in ACCURACY.items()]
    write_csv(folder / "linear_evaluation.csv", header, rows)
    return folder


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return write_channel(tmp_path_factory.mktemp("runs") / "learned")


@pytest.fixture(scope="module")
def groups(run, tmp_path_factory):
    return {"learned": [run], "uniform": [write_channel(tmp_path_factory.mktemp("runs") / "uniform", learned=False)]}


def test_what_a_run_wrote_is_read(run):
    read = read_run(run)
    assert sorted(read.snapshots) == [
        "val/embeddings_label",
        "val/embeddings_z",
        "val/policy_maps_image",
        "val/policy_maps_probability",
    ]
    snapshot = read.snapshots["val/policy_maps_image"]
    assert (snapshot.values.shape, snapshot.epoch, snapshot.step) == ((SAMPLES, SIDE, SIDE), 5, 60)
    assert not [note for note in read.notes if "geometry" in note]


@pytest.mark.parametrize("content", [b"", b"PK\3\4", b"no archive at all"])
def test_a_file_that_cannot_be_read_is_a_note(tmp_path, content):
    run = write_channel(tmp_path)
    (run / "geometry/val/policy_maps_image.npz").write_bytes(content)
    np.savez(run / "geometry/val/other.npz", values=np.ones((2, 2)))
    np.savez(run / "geometry/val/text.npz", values=np.array([["a"]]), epoch=0, step=0)
    notes = " ".join(read_run(run).notes)
    for name in ("policy_maps_image", "other", "text"):
        assert f"geometry/val/{name}.npz could not be read" in notes
    assert "policy_maps" not in figures(read_run(run))
    assert "embeddings" in figures(read_run(run))


def test_the_page_shows_the_channel(run):
    page = Page(write_report(run).read_text("utf-8"))
    for text in (
        "Augmentation channel",
        "What the policy looks at",
        "Fig. 3",
        "Fig. 7",
        "Fig. 8",
        "0.998",
        "f, oracle",
    ):
        assert text in page.text.replace("\N{NO-BREAK SPACE}", " "), text
    pictures = [value for tag, each in page.attributes if tag == "image" for value in each.values() if "data:" in value]
    assert len(pictures) == 2 * SAMPLES + 1  # and the scale
    assert all(picture.startswith("data:image/png;base64,") for picture in pictures)
    assert "Nothing recorded in this run for: Ranks" in page.text
    assert not re.search(
        r"<(script|link|iframe)|https?://(?!arxiv\.org/abs/)", re.sub(r'xmlns="[^"]*"', "", page.source)
    )


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here")
def test_a_browser_shows_the_page(run, tmp_path):
    seen = seen_in_a_browser(Page(write_report(run).read_text("utf-8")), tmp_path)
    for width in ("390", "1440"):
        assert seen[width]["overflow"] <= 0
        assert seen[width]["cut"] == []
        assert seen[width]["figures"] == seen[width]["seen"] == len(figures(read_run(run)))


def test_figures_of_a_run(run, tmp_path):
    assert list(figures(read_run(run))) == [
        "loss",
        "linear_evaluation",
        "non_empty",
        "policy_entropy",
        "policy_loss",
        "policy_maps",
        "val_pair_similarity",
        "embeddings",
        "gaussian_potential_image",
    ]
    assert "embeddings_2d" in figures(read_run(write_channel(tmp_path, size=2)))


def test_groups_stand_beside_each_other(groups, tmp_path):
    drawn = comparison_figures(groups)
    assert {"non_empty", "policy_maps", "pair_similarity", "embeddings", "gaussian_potential_image"} <= drawn.keys()
    assert len([axes for axes in drawn["embeddings"].axes if axes.lines]) == 2
    assert len([axes for axes in drawn["policy_maps"].axes if axes.images]) == 2 * 2 * 4 + 1
    texts = [text.get_text() for axes in drawn["linear_evaluation"].axes for text in axes.texts]
    kinds = [text.removesuffix(", all labels") for text in texts if text.endswith(", all labels")]
    assert kinds == list(ACCURACY)[:-1]
    page = Page(write_comparison(groups, tmp_path / "page.html").read_text("utf-8"))
    assert "The first run of each group." in page.text
    for figure in drawn.values():
        figure.savefig(tmp_path / "figure.png")


def test_the_headline_and_the_table_say_what_was_learned(run):
    tiles = {tile.name: tile for tile in headline(read_run(run))}
    tile = tiles["Linear evaluation of the head, all labels"]
    assert (tile.value, tile.remark) == ("95.5%", "f 97.3%, uniform weights 62.0%, pixels 89.9%")
    tile = tiles["Probability of views that show something"]
    assert (tile.value, tile.remark) == ("0.998", "val, from 0.242, best 0.998, uniform 0.242")
    names = [str(cell) for cell in summary_table(run).columns[0].cells]
    assert [name.strip() for name in names if "f, " in name or "head, " in name] == list(ACCURACY)[:-1]


def test_the_glossary_knows_what_the_monitor_writes():
    for name in ("non_empty_learned", "non_empty_uniform", "policy_entropy", "policy_loss", "gaussian_potential_image"):
        assert lookup(f"val/{name}").paper == "crltac"
    assert lookup("val/policy_maps_image") is lookup("val/policy_maps_probability")
    assert lookup("val/gaussian_potential") is not lookup("val/gaussian_potential_image")


def test_maps_are_as_large_as_their_images_and_on_one_scale():
    image, probability = maps(learned=True)
    figure = policy_maps([("learned", image, probability), ("uniform", *maps(learned=False))])
    *tiles, scale = [axes for axes in figure.axes if axes.images]
    sizes = {tuple(np.round(axes.bbox.size, 6)) for axes in tiles}
    assert len(sizes) == 1
    assert len(set(next(iter(sizes)))) == 1
    heat = [axes.images[0] for axes in tiles if axes.images[0].get_array().shape == (GRID, GRID)]
    assert {picture.get_clim() for picture in heat} == {(0, probability.max())}
    assert f"{probability.max() * GRID**2:.3g} times uniform" in scale.texts[0].get_text()


def test_the_map_of_colours_is_even_to_the_eye():
    figure = policy_maps([("", *maps(learned=True))])
    rgb = figure.axes[1].images[0].get_cmap()(np.linspace(0, 1, 9))[:, :3]
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    lightness = 116 * np.cbrt(linear @ [0.2126, 0.7152, 0.0722]) - 16  # CIELAB, above 8
    np.testing.assert_allclose(np.diff(lightness)[1:], 11.75, atol=0.8)


def drawn(axes):
    """Lines that are seen: not those that carry the values for the page."""
    return [line for line in axes.lines if not (line.get_gid() or "").startswith('["tips"')]


def test_embeddings_of_several_runs_share_a_scale():
    figure = overlay([("learned", embeddings(True, 20)), ("uniform", embeddings(False, 20))], caption=Caption("a"))
    axes = [axes for axes in figure.axes if axes.lines]
    assert [len(drawn(each)) for each in axes] == [200, 200]
    assert axes[0].get_ylim() == axes[1].get_ylim()


def test_points_are_coloured_by_class_where_these_are_few():
    z = embeddings(True, 2)
    for classes, expected in ((10, 10), (11, 1)):
        (axes,) = scatter([("", z, np.arange(200) % classes)]).axes
        points = [line for line in drawn(axes) if line.get_marker() == "o"]
        assert len({line.get_color() for line in points}) == expected
        assert sum(len(line.get_xdata()) for line in points) == 200
        assert np.ptp(axes.get_xlim()) == pytest.approx(np.ptp(axes.get_ylim()))
    (axes,) = scatter([("", z, None)]).axes
    assert drawn(axes)[-1].get_color() == plots.COLORS["blue"]


def test_bad_input():
    image, probability = maps(learned=True)
    with pytest.raises(ValueError, match="`columns` >= 1, but got 0"):
        policy_maps([("", image, probability)], columns=0)
    with pytest.raises(ValueError, match="`runs` with a sample in each, but got none"):
        policy_maps([("", image[:0], probability[:0])])
    with pytest.raises(ValueError, match=r"\(n, H, W\) and probabilities .* but got \(8, 84, 84\) and \(7, 17, 17\)"):
        policy_maps([("", image, probability[:7])])
    with pytest.raises(ValueError, match="`runs` with finite values, but got some that are not"):
        policy_maps([("", image * np.nan, probability)])
    with pytest.raises(ValueError, match="`runs` with a sample in each, but got none"):
        overlay([])
    with pytest.raises(ValueError, match=r"\(n, P\) with P >= 2, all finite, but got \(3, 1\)"):
        overlay([("", np.ones((3, 1)))])
    with pytest.raises(ValueError, match=r"\(n, 2\) and labels \(n,\), but got \(3, 2\) and \(2,\)"):
        scatter([("", np.ones((3, 2)), np.arange(2))])
    with pytest.raises(ValueError, match=r"\(n, 2\) and labels \(n,\), but got \(3, 4\)"):
        scatter([("", np.ones((3, 4)), None)])


def test_a_fit_writes_what_the_page_shows(tmp_path):
    monitor = GeometryMonitor(
        {
            "non_empty": NonEmptyProbability(),
            "policy_entropy": PolicyEntropy(),
            "policy_maps": PolicyMaps(count=4),
            "pair_similarity": PairSimilarity(),
            "embeddings": EmbeddingSample(count=10),
            "gaussian_potential_image": GaussianPotential(),
        },
        rename={"gaussian_potential_image": {"z": "z_image"}},
        stages=("val", "probe"),
        probe_size=8,
    )
    model = CRLTACModule(
        nn.Sequential(nn.Flatten(), nn.Linear(4, 6)),
        nn.Linear(6, 3),
        CropFamily(image_size=6, size=2, stride=2),
        policy=nn.Sequential(nn.Flatten(), nn.Linear(36, 9)),
        draws=2,
    )
    image = torch.rand(16, 1, 6, 6)
    loader = DataLoader([{"image": x, "index": n, "label": n % 2} for n, x in enumerate(image)], 8, collate_fn=as_batch)
    trainer = L.Trainer(
        max_epochs=2,
        accelerator="cpu",
        logger=CSVLogger(tmp_path),
        callbacks=[monitor],
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        log_every_n_steps=1,
    )
    trainer.fit(model, loader, loader)
    run = read_run(trainer.log_dir)
    assert {"val/policy_maps_image", "probe/policy_maps_image", "val/embeddings_label"} <= run.snapshots.keys()
    assert run.snapshots["val/policy_maps_probability"].step == 4
    wanted = {"non_empty", "policy_entropy", "policy_maps", "embeddings", "gaussian_potential_image"}
    assert wanted <= figures(run).keys()


def as_batch(samples):
    batch = {name: torch.stack([torch.as_tensor(sample[name]) for sample in samples]) for name in samples[0]}
    return batch | {"views": (batch["image"],)}
