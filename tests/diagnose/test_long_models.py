"""A transformer with its blocks named by a pattern: what it writes, and that memory does not grow with the images."""

import weakref

import numpy as np
import pandas as pd
import pytest
import torch
from timm.models.vision_transformer import VisionTransformer
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.data import Dataset

from lightning_ssl_geometry.callbacks import LayerGeometry
from lightning_ssl_geometry.diagnose import DiagnosedModel, diagnose
from lightning_ssl_geometry.diagnostics import EffectiveRank, IntrinsicDimension
from lightning_ssl_geometry.functional import effective_rank, linear_cka, log_singular_values
from lightning_ssl_geometry.report import read_run

import lightning as L  # isort: skip

DEPTH, WIDTH, BATCH = 4, 32, 64
LAYERS = [*(f"blocks.{place}" for place in range(DEPTH)), "h"]


class Noise(Dataset):
    """Images that exist only while they are read."""

    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        first = torch.randn(3, 16, 16, generator=generator)
        second = first + 0.1 * torch.randn(3, 16, 16, generator=generator)
        return {"views": [first, second], "image": first, "index": index}


class NoiseData(L.LightningDataModule):
    def __init__(self, n):
        super().__init__()
        self.n = n

    def test_dataloader(self):
        return torch.utils.data.DataLoader(Noise(self.n), BATCH)


def vit():
    torch.manual_seed(0)
    return VisionTransformer(img_size=16, patch_size=2, embed_dim=WIDTH, depth=DEPTH, num_heads=2, num_classes=0)


def look(n, folder, network=None, **arguments):
    model = DiagnosedModel(network or vit(), layers="blocks.*", token="mean")
    return diagnose(model, NoiseData(n), folder, name="vit", accelerator="cpu", progress=False, **arguments)


def test_each_block_has_its_row_its_spectrum_and_its_cka(tmp_path):
    network = vit()
    folder = look(100, tmp_path, network)
    table = pd.read_csv(folder / "layers.csv", index_col="layer")
    assert table.index.tolist() == LAYERS
    assert table["width"].tolist() == [WIDTH] * len(LAYERS)
    samples = [Noise(100)[index] for index in range(100)]
    views = torch.stack([view for place in (0, 1) for view in (each["views"][place] for each in samples)])
    with torch.no_grad():
        tokens = network.eval().norm_pre(network._pos_embed(network.patch_embed(views)))
        second = network.blocks[:2](tokens).mean(1)
    assert table.loc["blocks.1", "effective_rank"] == pytest.approx(effective_rank(second).item(), rel=1e-4)
    with np.load(folder / "geometry/test/layer_log_spectrum.npz") as held:
        assert held["values"].shape == (len(LAYERS), WIDTH)
        np.testing.assert_allclose(held["values"][1, :8], log_singular_values(second)[:8], rtol=1e-3)
    with np.load(folder / "representations.npz") as held:
        place = {int(index): row for row, index in enumerate(held["index"])}
        rows = torch.from_numpy(held["blocks.1"])[[place[index] for index in range(100)]]
        torch.testing.assert_close(rows, second[:100], rtol=1e-4, atol=1e-5)
        similarity = linear_cka(*(torch.from_numpy(held[name]) for name in ("blocks.1", "h")))
    with np.load(folder / "geometry/test/layer_cka.npz") as held:
        assert held["values"][1, DEPTH] == pytest.approx(similarity.item(), rel=1e-5)
    page = (folder / "report.html").read_text()
    assert "Spectrum by layer" in page
    assert read_run(folder).declared["test/layer_log_spectrum"].quantity.picture.kind == "spectra"


class Living(TorchDispatchMode):
    """Counts the bytes of all tensors that exist, and remembers the most."""

    def __init__(self):
        super().__init__()
        self.bytes = self.peak = 0
        self.known = weakref.WeakSet()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        torch.utils._pytree.tree_map_only(torch.Tensor, self.count, result)
        return result

    def count(self, tensor):
        storage = tensor.untyped_storage()
        if storage not in self.known:
            size = storage.nbytes()
            self.known.add(storage)
            self.bytes += size
            self.peak = max(self.peak, self.bytes)
            weakref.finalize(storage, self.free, size)

    def free(self, size):
        self.bytes -= size


def test_the_peak_of_memory_does_not_depend_on_the_number_of_images(tmp_path):
    kept = {"rank": EffectiveRank(), "dimension": IntrinsicDimension(contrast_size=BATCH)}

    def peak(n):
        with Living() as living:
            look(n, tmp_path, callbacks=[LayerGeometry(kept, stage="test", sample_size=BATCH)])
        return living.peak

    few, many = peak(3 * BATCH), peak(12 * BATCH)
    vectors = 4 * WIDTH * BATCH  # bytes of a layer's outputs for a batch of images
    assert few > 2 * 65 * vectors  # the measurement sees the tokens of two views
    assert many < few + len(LAYERS) * vectors  # one more batch kept would be seen
