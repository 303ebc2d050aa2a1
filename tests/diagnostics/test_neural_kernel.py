import copy

import pytest
import torch
from torch import nn

from lightning_ssl_geometry.diagnostics import NeuralKernel
from lightning_ssl_geometry.functional import (
    class_blocks,
    kernel_cosine,
    kernel_target_alignment,
    neural_kernel_trace,
    normalized_kernel,
)
from lightning_ssl_geometry.nn import MLPBackbone, SmallCNN

N = 24
SCALARS = {"within", "between", "alignment", "effective_rank", "drift"}


def data(n=N):
    generator = torch.Generator().manual_seed(1)
    label = torch.arange(n) % 3
    image = torch.randn(n, 5, generator=generator, dtype=torch.float64) + 2 * nn.functional.one_hot(label, 5)
    return {"image": image, "index": torch.arange(n) * 7, "label": label}


def encoder(seed=0):
    torch.manual_seed(seed)
    return MLPBackbone(5, [20], 6).double()


def read(metric, network, batches=None, **modules):
    for batch in batches or [data()]:
        metric.update(**batch, encoder=network, **modules)
    return metric.compute()


def split(given, sizes):
    parts = {name: value.split(sizes) for name, value in given.items()}
    return [{name: value[place] for name, value in parts.items()} for place in range(len(sizes))]


def test_it_reads_the_kernel():
    given, f = data(), encoder()
    found = read(NeuralKernel(outputs=None), f)
    order = found.pop("spectrum")
    kernel = neural_kernel_trace(f, given["image"])
    values = torch.linalg.eigvalsh(kernel).flip(0)
    torch.testing.assert_close(order, values / values.sum())
    assert found["effective_rank"].item() == pytest.approx((-(order * order.log()).sum()).exp().item())
    torch.testing.assert_close(found["alignment"], kernel_target_alignment(kernel, given["label"]))
    cosine, same = normalized_kernel(kernel), given["label"][:, None] == given["label"]
    torch.testing.assert_close(found["between"], cosine[~same].mean())
    torch.testing.assert_close(found["within"], cosine[same & ~torch.eye(N, dtype=bool)].mean())
    assert found["within"] > found["between"]  # the samples are clustered
    blocks = class_blocks(cosine, given["label"])
    torch.testing.assert_close(found["blocks"].sort(0)[0].sort(1)[0], blocks.sort(0)[0].sort(1)[0])
    assert found["drift"].isnan()
    assert {name for name, value in found.items() if not value.ndim} == SCALARS


def test_it_is_the_same_however_samples_arrive():
    f, given = encoder(), data()
    order = torch.randperm(N)
    shuffled = {name: value[order] for name, value in given.items()}
    for size in (N, 10):
        whole = read(NeuralKernel(contrast_size=size, outputs=4), f)
        parts = read(NeuralKernel(contrast_size=size, outputs=4), f, [*split(shuffled, [5, 12, 7]), given])  # and twice
        assert whole.keys() == parts.keys()
        assert len(whole["spectrum"]) == size
        for name in whole:
            torch.testing.assert_close(whole[name], parts[name], equal_nan=True)


def test_the_drift_is_from_the_first_readout():
    f, metric = encoder(), NeuralKernel(outputs=None)
    first = neural_kernel_trace(f, data()["image"])
    read(metric, f)
    for _ in range(2):
        metric.reset()
        with torch.no_grad():
            f[0].weight += 0.5 * torch.randn_like(f[0].weight)
        now = neural_kernel_trace(f, data()["image"])
        assert read(metric, f)["drift"].item() == pytest.approx(1 - kernel_cosine(now, first).item())
    metric.reset()
    with torch.no_grad():
        f[-1].weight *= 1e3
        f[-1].weight /= 1e3
    assert read(copy.deepcopy(metric), f)["drift"] > 0.01


def test_a_network_that_stays_does_not_drift():
    f, metric = encoder(), NeuralKernel()
    read(metric, f)
    metric.reset()
    assert abs(read(metric, f)["drift"].item()) < 1e-12


def test_other_samples_than_first():
    f, metric = encoder(), NeuralKernel()
    read(metric, f)
    metric.reset()
    other = {**data(), "index": torch.arange(N) * 7 + 7}
    with pytest.raises(
        ValueError, match=f"same {N} samples at every readout, but got {N}, of which {N - 1} are the same"
    ):
        read(metric, f, [other])


def test_directions_estimate_the_trace():
    f = encoder()
    exact = read(NeuralKernel(outputs=None), f)
    for enough in (6, 16):
        found = read(NeuralKernel(outputs=enough), f)
        assert all(torch.equal(found[name], exact[name]) for name in exact if name != "drift")
    few = read(NeuralKernel(outputs=3), f)
    assert few["within"] != exact["within"]
    assert few["within"].item() == pytest.approx(exact["within"].item(), abs=0.1)
    assert read(NeuralKernel(outputs=3), f)["within"] == few["within"]
    assert read(NeuralKernel(outputs=3, seed=1), f)["within"] != few["within"]


def test_of_the_projector():
    f, projector, given = encoder(), nn.Linear(6, 3).double(), data()
    found = read(NeuralKernel("z"), f, projector=projector)
    kernel = neural_kernel_trace(nn.Sequential(f, projector), given["image"])
    torch.testing.assert_close(found["alignment"], kernel_target_alignment(kernel, given["label"]))
    without = read(NeuralKernel("h"), f, projector=projector)
    torch.testing.assert_close(without["alignment"], read(NeuralKernel("h"), f)["alignment"])
    with pytest.raises(ValueError, match='Expected `projector` for the output "z", but got None'):
        read(NeuralKernel("z"), f)


def test_without_labels():
    given = data()
    del given["label"]
    metric = NeuralKernel()
    assert read(metric, encoder(), [given]).keys() == {"spectrum", "effective_rank", "drift"}
    with pytest.raises(ValueError, match="Expected `label` in every batch or in none, but got both"):
        metric.update(**data(), encoder=metric.encoder.module())


def test_images_and_maps_and_training_mode():
    cnn = SmallCNN(3, 8)
    cnn.train()
    before = {name: value.clone() for name, value in cnn.state_dict().items()}
    given = {**data(), "image": torch.randn(N, 3, 8, 8)}
    with torch.inference_mode():
        found = read(NeuralKernel(), cnn, [{name: value.clone() for name, value in given.items()}])
        assert all(value.isfinite().all() for name, value in found.items() if name != "drift")
    assert all(module.training for module in cnn.modules())
    assert all(torch.equal(value, before[name]) for name, value in cnn.state_dict().items())
    assert all(parameter.grad is None for parameter in cnn.parameters())
    maps = nn.Conv2d(3, 2, 8)  # (N, 2, 1, 1)
    assert read(NeuralKernel(), maps, [given])["effective_rank"] > 1


def test_labels_that_are_alike_and_weights_that_are_not_finite():
    f = encoder()
    alike = read(NeuralKernel(), f, [{**data(), "label": torch.zeros(N, dtype=torch.long)}])
    assert all(alike[name].isnan() for name in ("within", "between", "alignment"))
    assert alike["effective_rank"] > 1
    with torch.no_grad():
        f[0].weight[0] = torch.nan
    broken = read(NeuralKernel(), f)
    assert all(value.isnan().all() for value in broken.values())


def test_weights_must_stand_still():
    f, metric = encoder(), NeuralKernel()
    metric.update(**data(), encoder=f)
    with torch.no_grad():
        f[0].weight += 1
    with pytest.raises(ValueError, match="that stands still while it is observed, but its weights changed"):
        metric.update(**data(), encoder=f)
    with pytest.raises(ValueError, match="that stands still while it is observed, but its weights changed"):
        metric.compute()


def test_arguments_out_of_range():
    with pytest.raises(ValueError, match=r"Expected `output` to be one of \('h', 'z'\), but got 'x'"):
        NeuralKernel("x")
    with pytest.raises(ValueError, match="Expected `outputs` >= 1, but got 0"):
        NeuralKernel(outputs=0)
    with pytest.raises(ValueError, match="Expected `contrast_size` >= 2, but got 1"):
        NeuralKernel(contrast_size=1)
    for memory in (0, float("nan")):
        with pytest.raises(ValueError, match="Expected `memory` > 0, but got"):
            NeuralKernel(memory=memory)
    with pytest.raises(ValueError, match="observed at least 2 samples, but got none"):
        NeuralKernel().rows()


class Whole(nn.Module):
    """Like the methods of this package: a module that is its own encoder and holds the projector."""

    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.ReLU())
        self.projector = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.PReLU(), nn.Linear(3, 2))

    def forward(self, x):
        return self.backbone(x)


def test_a_projector_inside_of_the_encoder_stays_as_it_is():
    torch.manual_seed(0)
    whole, x = Whole().eval(), torch.randn(12, 5)
    before = [id(own) for own in (*whole.parameters(), *whole.buffers())]
    metrics = [NeuralKernel("z"), NeuralKernel("z", outputs=1)]
    for metric in metrics:
        metric.update(x, torch.arange(12), encoder=whole, projector=whole.projector, h_image=whole(x).detach())
    found = [metric.compute() for metric in metrics]  # the second would find other weights than it held
    assert [id(own) for own in (*whole.parameters(), *whole.buffers())] == before
    assert all(type(p) is nn.Parameter for p in whole.parameters())
    assert found[0]["effective_rank"] >= 1


def test_an_h_that_is_more_than_the_encoders_is_refused_for_z():
    whole, x = Whole().eval(), torch.randn(12, 5)
    with pytest.raises(ValueError, match="Expected `h_image` to be what `encoder` makes of `image` for the output"):
        NeuralKernel("z").update(
            x, torch.arange(12), encoder=whole, projector=whole.projector, h_image=whole(x).detach() + 5
        )


def test_another_encoder_begins_anew():
    metric, x = NeuralKernel(), torch.randn(8, 5)
    for encoder in (nn.Linear(5, 2), nn.Linear(5, 2)):
        metric.update(x, torch.arange(8), encoder=encoder)
        assert metric.compute()["drift"].isnan()
        metric.reset()
        metric.update(x, torch.arange(8), encoder=encoder)
        assert metric.compute()["drift"] == pytest.approx(0, abs=1e-12)
        metric.reset()


def test_a_sample_that_nothing_moves_is_left_out():
    x = torch.eye(6)[:, :5]  # the last row is 0
    metric = NeuralKernel()
    metric.update(x, torch.arange(6), encoder=nn.Linear(5, 2, bias=False), label=torch.tensor([0, 1, 0, 1, 0, 1]))
    found = metric.compute()
    assert [found[name].item() for name in ("within", "between")] == [0, 0]
    assert found["blocks"].isfinite().all()
