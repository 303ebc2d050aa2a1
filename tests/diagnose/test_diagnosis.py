import copy
import json
import shutil

import numpy as np
import pandas as pd
import pytest
import torch
from diagnose.hosts import TheirData, Theirs
from pages import page_of
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from lightning_ssl_geometry.callbacks import GeometryMonitor
from lightning_ssl_geometry.data import DigitsDataModule
from lightning_ssl_geometry.diagnose import DiagnosedModel, compare, diagnose, folder_of_images
from lightning_ssl_geometry.diagnose.comparison import layer_similarity, similarity
from lightning_ssl_geometry.diagnose.diagnosis import _cuts
from lightning_ssl_geometry.diagnostics import EffectiveRank
from lightning_ssl_geometry.functional import alignment, cka_by_chance, cka_matrix, effective_rank, linear_cka
from lightning_ssl_geometry.methods import SimCLRModule
from lightning_ssl_geometry.nn import MLPProjector, SmallCNN
from lightning_ssl_geometry.report.numbers import number
from lightning_ssl_geometry.views import NormalizedViews, SimCLRViews


def look(model, folder, data=None, **arguments):
    data = data or DigitsDataModule(batch_size=128, channels=3)
    return diagnose(model, data, folder, **({"accelerator": "cpu", "progress": False} | arguments))


def scalars(folder):
    return pd.read_csv(folder / "metrics.csv").iloc[-1]


def simclr(projector=None):
    torch.manual_seed(0)
    return SimCLRModule(SmallCNN(3, 4), projector or nn.Linear(32, 8, bias=False))


def subject(projector="head", **arguments):
    torch.manual_seed(0)
    return DiagnosedModel(Theirs(), backbone="trunk", projector=projector, **arguments)


def test_a_module_of_ours_keeps_its_weights_and_its_numbers(tmp_path):
    model = simclr()
    before = copy.deepcopy(model.state_dict())
    folder = look(model, tmp_path, name="ours")
    assert folder == tmp_path / "ours" / "version_0"
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    data = DigitsDataModule(batch_size=359, channels=3)
    data.setup()
    (batch,) = (data.on_after_batch_transfer(batch, 0) for batch in data.test_dataloader())
    with torch.no_grad():
        found = model.eval().observe(batch)
    values = scalars(folder)
    assert values["test/effective_rank_h"] == pytest.approx(effective_rank(found["h"].flatten(0, 1)).item(), rel=1e-4)
    assert values["test/alignment"] == pytest.approx(alignment(*found["z"]).item(), rel=1e-4)
    assert values["test/loss"] == pytest.approx(found["loss"].item(), abs=2)  # of batches of 128, not 359
    assert {"test/unexplained_variance_full", "test/label_agreement_fine", "test/lidar"} <= set(values.index)
    record = json.loads((folder / "run.json").read_text())
    assert record["kind"] == "diagnosis"
    assert (record["model"], record["data"], record["samples"]) == ("ours", "DigitsDataModule", 359)
    assert "<svg" in (folder / "report.html").read_text()


def test_anybodys_network_layer_by_layer(tmp_path):
    folder = look(subject(), tmp_path, name="theirs")
    assert pd.read_csv(folder / "layers.csv")["layer"].tolist() == ["h", "hidden_1", "z"]
    values = scalars(folder)
    assert {"test/projector_rank_0", "test/projector_rank_2", "test/effective_rank_z"} <= set(values.index)
    assert "test/unexplained_variance_full" not in values.index  # its projector is not linear
    assert np.isfinite(values.to_numpy(dtype=float)).all()


def test_without_a_projector_h_stands_for_z(tmp_path):
    folder = look(subject(projector=None), tmp_path)
    values = scalars(folder)
    assert pd.read_csv(folder / "layers.csv")["layer"].tolist() == ["h"]
    assert {"test/alignment", "test/label_agreement_fine"} <= set(values.index)
    assert "test/bound_info_nce" not in values.index
    assert not [name for name in values.index if name.endswith("_z") or "projector" in name]


def write_images(folder, n=24, classes=2):
    for i in range(n):
        place = folder / (f"class {i % classes}" if classes else "")
        place.mkdir(parents=True, exist_ok=True)
        pixels = np.random.default_rng(i).integers(256, size=(10, 10, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(place / f"{i}.png")


@pytest.mark.parametrize("classes", [0, 2])
def test_a_folder_of_images_with_labels_or_without(tmp_path, classes):
    write_images(tmp_path / "images", classes=classes)
    data = folder_of_images(tmp_path / "images", 8, batch_size=8, cache=tmp_path / "cache")
    folder = look(subject(), tmp_path / "out", data)
    values = scalars(folder)
    assert "test/effective_rank_h" in values.index
    assert ("test/label_agreement_fine" in values.index) == bool(classes)
    assert ("label" in np.load(folder / "representations.npz").files) == bool(classes)
    assert json.loads((folder / "run.json").read_text())["samples"] == 24
    assert not list((tmp_path / "images").rglob("*.pt"))  # nothing is left in the folder of the user


def test_anybodys_data(tmp_path):
    views = NormalizedViews([0.5] * 3, [0.25] * 3, SimCLRViews(strength="small"))
    model = subject(batch_keys={"image": 0, "label": 1}, augment=views)
    values = scalars(look(model, tmp_path, TheirData()))
    assert {"test/alignment", "test/neural_collapse_within_class"} <= set(values.index)


def test_the_models_own_normalization(tmp_path):
    seen = []

    class Remember(nn.Module):
        def forward(self, x):
            seen.append(x)
            return x.flatten(1)[:, :5]

    data = DigitsDataModule(batch_size=400, channels=3)
    look(Remember(), tmp_path, data, normalization=([0.1, 0.2, 0.3], [2.0, 2.0, 2.0]))
    plain = torch.cat([batch["image"] for batch in DigitsDataModule(channels=3).test_dataloader()]) / 255
    mean = torch.tensor([0.1, 0.2, 0.3])[:, None, None]
    torch.testing.assert_close(seen[1], (plain - mean) / 2)


def test_linear_evaluation_of_the_projectors_layers(tmp_path):
    folder = look(simclr(MLPProjector(32, 16, 8, depth=2)), tmp_path, linear_evaluation=True)
    table = pd.read_csv(folder / "linear_evaluation.csv")
    assert table["features"].tolist() == ["pixels", "trained", "projector.2", "projector"]
    assert table["feature_dim"].tolist() == [64, 32, 16, 8]
    assert table["accuracy"].between(0.2, 1).all()


@pytest.mark.parametrize(
    ("projector", "cuts"),
    [
        (MLPProjector(4, 4, 4, depth=3), ["projector.2", "projector.5"]),
        (nn.Linear(4, 4), []),
        (nn.ModuleDict({"layers": nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))}), ["projector.layers.1"]),
        (nn.ModuleDict({"a": nn.Linear(4, 4), "b": nn.Linear(4, 4)}), []),  # in what order, nobody knows
    ],
)
def test_the_places_where_a_projector_can_be_cut(projector, cuts):
    assert _cuts(projector) == cuts


def test_the_data_and_the_model_are_left_as_they_were(tmp_path):
    data, model = DigitsDataModule(batch_size=128, channels=3), subject()
    first = scalars(look(model, tmp_path, data))
    before, mean = copy.deepcopy(model.state_dict()), data.mean.clone()
    for precision in ("bf16-true", "64-true"):
        look(model, tmp_path, data, normalization=([0.1] * 3, [2.0] * 3), precision=precision)
    assert torch.equal(data.mean, mean)
    for name, value in model.state_dict().items():
        assert value.dtype == before[name].dtype
        assert torch.equal(value, before[name])
    assert first.equals(scalars(look(model, tmp_path, data)))


@pytest.mark.parametrize("precision", ["bf16-mixed", "bf16-true"])
def test_half_precision(tmp_path, precision):
    values = scalars(look(simclr(MLPProjector(32, 16, 8)), tmp_path, precision=precision))
    exact = scalars(look(simclr(MLPProjector(32, 16, 8)), tmp_path))
    for name in ("test/effective_rank_h", "test/bound_info_nce"):
        assert values[name] == pytest.approx(exact[name], rel=0.05)


def test_callbacks_of_ones_own(tmp_path):
    folder = look(simclr(), tmp_path, callbacks=[GeometryMonitor({"rank": EffectiveRank()}, stages=["test"])])
    assert "test/rank" in scalars(folder).index
    assert not (folder / "layers.csv").exists()


def test_comparison_of_models_of_different_widths(tmp_path):
    torch.manual_seed(1)
    wide = DiagnosedModel(Theirs(width=9), backbone="trunk", projector="head")
    folders = {name: look(model, tmp_path, name=name) for name, model in {"narrow": subject(), "wide": wide}.items()}
    values = similarity(folders)
    held = [np.load(folder / "representations.npz") for folder in folders.values()]
    h = [torch.from_numpy(each["h"][each["index"].argsort()]) for each in held]
    assert [each.shape[1] for each in h] == [6, 9]
    assert values[0, 1] == values[1, 0] == pytest.approx(linear_cka(*h, unbiased=True).item())
    np.testing.assert_allclose(np.diag(values), 1)
    layers = layer_similarity(folders, "narrow", "wide")
    assert layers.values.shape == (3, 3)
    assert layers.values[0, 0] == pytest.approx(values[0, 1])
    within = [each[name][each["index"].argsort()] for each in held[:1] for name in layers.rows]
    itself = layer_similarity({"a": folders["narrow"], "b": folders["narrow"]}, "a", "b").values
    np.testing.assert_allclose(
        itself, cka_matrix([torch.from_numpy(each) for each in within], unbiased=True), rtol=1e-10
    )
    page = page_of(compare(folders, tmp_path / "comparison.html"))
    assert "CKA between the layers of narrow and wide" in page.text
    assert f"By chance, the value is 0 ± {number(cka_by_chance(len(h[0])))}: mean and standard deviation" in page.text
    assert page.text.count("Near 0, or below: no more in common than by chance.") == 1
    (cells,) = [table for name, table in page.downloads().items() if "between_layers" in name]
    assert cells[0] == ["layer of narrow", "layer of wide", "unbiased linear CKA"]
    found = {(row, column): float(value) for row, column, value in cells[1:]}
    assert list(found) == [(row, column) for row in layers.rows for column in layers.columns]
    np.testing.assert_allclose(list(found.values()), layers.values.ravel(), rtol=1e-5)
    (said,) = [label for label in page.values("aria-label") if label.startswith("CKA between the layers of narrow")]
    assert "h is most similar to " in said


def test_bad_input(tmp_path):
    with pytest.raises(ValueError, match=r"images in \[0, 1\] for `augment`, but got values from -2 to 2"):
        look(subject(batch_keys={"image": 0}, augment=SimCLRViews()), tmp_path, TheirData())
    labelled = subject(batch_keys={"image": 0, "label": 1}, augment=nn.Identity())
    with pytest.raises(ValueError, match="an ImageDataModule beside `linear_evaluation`, but got TheirData"):
        look(labelled, tmp_path, TheirData(), linear_evaluation=True)
    write_images(tmp_path / "flat", classes=0)
    flat = folder_of_images(tmp_path / "flat", 8, 8, tmp_path)
    with pytest.raises(ValueError, match="images with labels for `linear_evaluation`, but they have none"):
        look(subject(), tmp_path, flat, linear_evaluation=True)
    with pytest.raises(ValueError, match="an ImageDataModule beside `normalization`, but got TheirData"):
        look(subject(), tmp_path, TheirData(), normalization=([0.5], [0.5]))
    for moments in [([0.5], [0.5]), ([0.5] * 3, [0.5, 0.5, 0.0])]:
        with pytest.raises(ValueError, match="`normalization` of 3 channels, with std > 0, but got"):
            look(subject(), tmp_path, normalization=moments)

    class Empty(TheirData):
        def test_dataloader(self):
            return DataLoader(TensorDataset(torch.ones(0, 3, 8, 8)))

    for model in (subject(), subject(batch_keys={"image": 0, "label": 1})):
        with pytest.raises(ValueError, match="a test set in Empty, but it is empty"):
            look(model, tmp_path, Empty())
    write_images(tmp_path / "all")
    data = folder_of_images(tmp_path / "all", 8, batch_size=8, cache=tmp_path)
    with pytest.raises(ValueError, match="images in the split 'train', but it has none"):
        look(subject(), tmp_path, data, linear_evaluation=True)


def test_comparisons_that_say_nothing(tmp_path):
    first = look(subject(), tmp_path, name="a")
    with pytest.raises(ValueError, match="at least 2 models to compare, but got 1"):
        compare({"a": first}, tmp_path / "c.html")
    with pytest.raises(FileNotFoundError, match=r"a diagnosis of 'b' in .*, but it has no representations.npz"):
        compare({"a": first, "b": tmp_path}, tmp_path / "c.html")
    with pytest.raises(ValueError, match="`layer` 'hidden_3' in the diagnosis of 'a', but it has h, hidden_1, z"):
        similarity({"a": first, "b": first}, layer="hidden_3")
    with np.load(first / "representations.npz") as held:
        few = {name: values[:3] for name, values in held.items()}
    shutil.copytree(first, tmp_path / "few")
    np.savez(tmp_path / "few/representations.npz", **few)
    with pytest.raises(ValueError, match="at least 4 samples, which CKA between models needs, but got 3"):
        compare({"a": tmp_path / "few", "b": tmp_path / "few"}, tmp_path / "c.html")
    fewer = look(subject(), tmp_path, DigitsDataModule(channels=3, test_fraction=0.1), name="b")
    with pytest.raises(ValueError, match="of the same samples, but of 359 of 'a' and 180 of 'b' only"):
        compare({"a": first, "b": fewer}, tmp_path / "c.html")
    write_images(tmp_path / "images")
    other = look(subject(), tmp_path, folder_of_images(tmp_path / "images", 8, 8, tmp_path), name="c")
    with pytest.raises(
        ValueError, match=r"of the same data, but .* 'a' is of Digits.*; 'c' is of ImageFolderDataModule"
    ):
        compare({"a": first, "c": other}, tmp_path / "c.html")
    larger = look(subject(), tmp_path, folder_of_images(tmp_path / "images", 10, 8, tmp_path / "10"), name="d")
    with pytest.raises(ValueError, match=r"of the same data, but .* 'c' is of .*3 x 8 x 8.*; 'd' is of .*3 x 10 x 10"):
        compare({"c": other, "d": larger}, tmp_path / "c.html")
