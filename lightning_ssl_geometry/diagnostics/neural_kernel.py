"""The neural kernel: how a gradient step on one sample moves the network's output for another (Calder & Lee 2025)."""

__all__ = ["NeuralKernel"]

import weakref
from functools import partial
from typing import ClassVar, Literal, get_args

import torch
from torch import Tensor, nn

from lightning_ssl_geometry.checks import at_least, one_of, positive
from lightning_ssl_geometry.cost import Cost
from lightning_ssl_geometry.deprecation import by_position
from lightning_ssl_geometry.diagnostics.accumulate import ComparedRows, Standing, evaluating
from lightning_ssl_geometry.diagnostics.undefined import undefined
from lightning_ssl_geometry.functional.neural_kernel.alignment import (
    class_blocks,
    kernel_cosine,
    kernel_target_alignment,
    normalized_kernel,
)
from lightning_ssl_geometry.functional.neural_kernel.kernel import neural_kernel_trace
from lightning_ssl_geometry.papers import CALDER_LEE, CORTES, FORT
from lightning_ssl_geometry.precision import float64_device, in_float64
from lightning_ssl_geometry.quantity import Chart, Picture, Quantity

_quantity = partial(Quantity, paper=CALDER_LEE, where="Eq. 12", invariances=("permutation",))
_cosine = partial(_quantity, bounds=(-1.0, 1.0))
_CLASSES = Chart("neural_kernel", "Neural kernel and classes", "cosine")

Output = Literal["h", "z"]


class NeuralKernel(ComparedRows):
    r"""The neural kernel: how a training step on one sample moves the outputs for other samples (Calder & Lee 2025).

    The kernel is :math:`K_{ij} = \frac{1}{d} \sum_k K^{kk}_{ij}` (Eq. 12 of Calder & Lee): the inner product of the
    weight gradients for samples i and j, averaged over the d outputs k. Results for n samples:

    - `within`: mean cosine K_ij / sqrt(K_ii K_jj), in [-1, 1], of two samples of the same class.
    - `between`: the same for two samples of different classes. If `within` is higher, a step on one sample also moves
      the other samples of its class (Thm. 4.5).
    - `blocks` (C, C): the mean cosine for every pair of C classes, in [-1, 1].
    - `alignment` in [0, 1]: cosine between the centred kernel and the kernel of the labels.
    - `spectrum` (n,): eigenvalues in descending order, divided by their sum.
    - `effective_rank` in [1, n]: exponential of the entropy of `spectrum`.
    - `drift` in [0, 1]: 1 minus the cosine between the present and the first kernel. NaN at the first `compute`.

    The first four results need labels in all batches. Cosines leave out samples with outputs that do not depend on the
    weights. All results are NaN if the kernel is not finite. If all labels are equal, `within`, `between` and
    `alignment` are NaN. If all samples move alike, `alignment` is NaN. The weights must not change between updates, and
    every `compute` needs the same samples. `reset` keeps the first kernel, but a checkpoint does not contain it.
    Another encoder deletes it. Cost: one forward and `outputs` backward passes over the samples, O(contrast_size^2 W)
    per output and layer of width W, and O(contrast_size^3).

    Args:
        output: "h", the output of the encoder, or "z", the output of the projector, which `update` then needs.
        outputs: Number of random orthonormal directions of the output, >= 1, the same at every `compute`. The kernel is
            then an unbiased estimate with an error of order 1 / sqrt(outputs). None: all directions (exact).
        contrast_size: Number of samples kept, >= 2. The spectrum depends on it.
        seed: Determines which samples are kept, and the random directions.
        memory: Limit of the memory for the kernel's computation, in bytes, > 0.
    """

    section = "dynamics"
    cost = Cost(update="n X + N X", compute="N^2 D + N F + N^3", memory="N^2 + N X")
    quantities: ClassVar[dict[str, Quantity]] = {
        "within": _cosine(
            title="Neural kernel within classes",
            text="Mean cosine between the gradients at two samples of one class: how far a training step on one "
            "sample moves the other along.",
            low="Near 0: each sample moves by itself, as points without a network do.",
            high="Near 1: a class moves as one.",
            chart=_CLASSES,
            label="within",
        ),
        "between": _cosine(
            title="Neural kernel between classes",
            text="Mean cosine between the gradients at two samples of different classes.",
            low="Near 0: classes move independently, as clusters with orthogonal centers do.",
            high="As high as within classes: the network does not know the classes.",
            where="Theorem 4.5",
            chart=_CLASSES,
            label="between",
        ),
        "alignment": _quantity(
            title="Alignment of the neural kernel with the labels",
            text="Cosine between the kernel and the kernel of the labels, both centred.",
            low="Near 0: training steps have nothing to do with the classes.",
            high="Near 1: training steps tell classes apart, and nothing else.",
            paper=CORTES,
            where="Definition 4",
            bounds=(0.0, 1.0),
            chart=_CLASSES,
            label="alignment",
        ),
        "effective_rank": _quantity(
            title="Effective rank of the neural kernel",
            text="The exponential of the entropy of the kernel's eigenvalues.",
            low="Near 1: a step on any sample moves all samples alike.",
            high="Up to the number of samples: each sample moves by itself, as without a network.",
            bounds=(1.0, None),
            cap="N",
            chart=Chart("neural_kernel_rank", "Effective rank of the neural kernel", "patterns"),
        ),
        "spectrum": _quantity(
            title="Spectrum of the neural kernel",
            text="Eigenvalues of the kernel, as shares of their sum.",
            low="Patterns that training hardly learns.",
            high="Patterns along which training moves samples fast.",
            unit="share of the sum",
            bounds=(0.0, 1.0),
            picture=Picture("spectrum"),
        ),
        "blocks": _cosine(
            title="Neural kernel by class",
            text="Mean cosine between the gradients at two samples, for each pair of classes.",
            low="Low off the diagonal: a training step on one class leaves the other in place.",
            high="High on the diagonal: a class moves as one.",
            where="Theorem 4.5",
            unit="cosine",
            xlabel="class",
            picture=Picture("matrix"),
        ),
        "drift": _quantity(
            title="Drift of the neural kernel",
            text="1 minus the cosine between the kernel now and when it was first looked at.",
            low="Near 0: the kernel stays as it was, as in infinitely wide networks.",
            high="Near 1: the network has learned another kernel.",
            paper=FORT,
            where="",
            unit="1 - cosine with the first",
            bounds=(0.0, 1.0),
            comparable=("width",),
        ),
    }

    def __init__(
        self,
        output: Output = "h",
        outputs: int | None = 8,
        contrast_size: int = 256,
        seed: int = 0,
        memory: int = 2**30,
    ) -> None:
        super().__init__(("image", "label"), contrast_size, seed)
        one_of(get_args(Output), output=output)
        if outputs is not None:
            at_least(1, outputs=outputs)
        positive(memory=memory)
        self.output, self.outputs, self.memory = output, outputs, memory
        self.encoder, self.projector = Standing(), Standing()
        self.has_label = False
        self._of: weakref.ref[nn.Module] | None = None  # the encoder of the earlier readouts

    @by_position("encoder", "projector", "label", "h_image")
    def update(
        self,
        image: Tensor,
        index: Tensor | None = None,
        *,
        encoder: nn.Module,
        projector: nn.Module | None = None,
        label: Tensor | None = None,
        h_image: Tensor | None = None,
    ) -> None:
        """Add images (N, ...), `index` (N,), `label` (N,) and the networks. `h_image` must equal encoder(image)."""
        if self.output == "z" and projector is None:
            raise ValueError('Expected `projector` for the output "z", but got None.')
        if self.output == "z" and h_image is not None and len(image):
            _check_encoder(encoder, image[:2], h_image[:2])
        if len(self.key) and self.has_label != (label is not None):
            raise ValueError("Expected `label` in every batch or in none, but got both.")
        self.has_label = label is not None
        self.encoder.hold(encoder)
        if self._of is None or self._of() is not encoder:
            self._of = weakref.ref(encoder)
            self.begin_anew()
        if self.output == "z" and projector is not None:
            self.projector.hold(projector)
        index = self.numbers.of(index, image)
        self.keep(index, image=image, sample=index, **({} if label is None else {"label": label}))

    def compute(self) -> dict[str, Tensor]:
        rows = self.rows()
        kernel = self._kernel(rows["image"])
        exact = in_float64(kernel.detach())
        found = _spectrum(exact) | (_of_classes(kernel, rows["label"]) if "label" in rows else {})
        if not exact.isfinite().all():
            undefined(self, "the kernel is not finite")
        elif "within" in found and found["within"].isnan():
            undefined(self, "`within` needs two samples of one class, and a sample of another class")
        found["drift"] = self._drift(exact.cpu(), rows["sample"]).to(exact.device)
        self.remember(kernel=exact, sample=rows["sample"])
        return found

    def _kernel(self, image: Tensor) -> Tensor:
        network = nn.Sequential(self.encoder.module(), nn.Flatten())
        if self.output == "z":
            network.append(self.projector.module())
        with evaluating(network):
            image = image.clone()  # autograd refuses tensors of inference mode
            with torch.no_grad():
                d = network(image[:1].clone()).shape[-1]
            return neural_kernel_trace(network, image, directions=self._directions(d), memory=self.memory)

    def _directions(self, d: int) -> Tensor | None:
        if self.outputs is None or self.outputs >= d:
            return None
        generator = torch.Generator().manual_seed(self.seed)
        basis = torch.linalg.qr(torch.randn(d, self.outputs, generator=generator, dtype=torch.float64)).Q
        return basis.T

    def _drift(self, kernel: Tensor, sample: Tensor) -> Tensor:
        then = self.earlier("first", sample)
        if then is None:
            return torch.full((), torch.nan, dtype=torch.float64)
        return (1 - kernel_cosine(kernel, then["kernel"])).clamp(min=0)  # rounding may give -1e-16


def _check_encoder(encoder: nn.Module, image: Tensor, h_image: Tensor) -> None:
    with evaluating(encoder), torch.no_grad():
        h = encoder(image.clone()).flatten(1)
    if not torch.allclose(h.to(h_image.dtype), h_image.flatten(1), rtol=0.05, atol=0.05 * float(h.abs().max())):
        raise ValueError(
            'Expected `h_image` to be what `encoder` makes of `image` for the output "z", but it is not. '
            'Observe the output "h".'
        )


def _spectrum(kernel: Tensor) -> dict[str, Tensor]:
    if not kernel.isfinite().all():
        return {"spectrum": kernel.new_full((len(kernel),), torch.nan), "effective_rank": kernel.new_tensor(torch.nan)}
    values = torch.linalg.eigvalsh(kernel).flip(0).clamp(min=0)  # rounding may give -1e-17
    share = values / values.sum()
    return {"spectrum": share, "effective_rank": torch.special.entr(share).sum().exp()}


def _of_classes(kernel: Tensor, label: Tensor) -> dict[str, Tensor]:
    nan = torch.full((), torch.nan, dtype=torch.float64, device=float64_device(kernel.device))
    alignment = kernel_target_alignment(kernel, label) if len(label.unique()) > 1 else nan
    if (moved := kernel.diagonal() > 0).sum() >= 2:
        kernel, label = kernel[moved][:, moved], label[moved]
    cosine = normalized_kernel(kernel)
    label = label.to(cosine.device)
    same = label[:, None] == label
    apart, pairs = ~same, same & ~torch.eye(len(label), dtype=torch.bool, device=label.device)
    several = bool(apart.any())
    return {
        "within": cosine[pairs].mean() if several else nan,
        "between": cosine[apart].mean(),
        "alignment": alignment,
        "blocks": class_blocks(cosine, label),
    }
