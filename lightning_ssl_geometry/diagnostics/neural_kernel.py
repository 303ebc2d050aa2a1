"""What the network adds to gradient descent: the neural kernel between samples (Calder & Lee 2025)."""

__all__ = ["NeuralKernel"]

import weakref
from typing import ClassVar, Literal, get_args

import torch
from torch import Tensor, nn

from lightning_ssl_geometry.checks import one_of
from lightning_ssl_geometry.diagnostics.accumulate import SampledRows, Standing, evaluating
from lightning_ssl_geometry.functional.neural_kernel.alignment import (
    class_blocks,
    kernel_cosine,
    kernel_target_alignment,
    normalized_kernel,
)
from lightning_ssl_geometry.functional.neural_kernel.kernel import neural_kernel_trace
from lightning_ssl_geometry.papers import CALDER_LEE, CORTES, FORT
from lightning_ssl_geometry.quantity import Chart, Picture, Quantity

_CLASSES = Chart("neural_kernel", "Neural kernel and classes", "cosine")

Output = Literal["h", "z"]


class NeuralKernel(SampledRows):
    r"""How a step of training on one sample moves the outputs for others: the kernel's blocks, spectrum and drift.

    Observes image (N, C, H, W) or (N, D), index and encoder; projector where `output` is "z"; label where there is one.
    The kernel is :math:`\frac{1}{d} \sum_k K^{kk}_{ij}` over `contrast_size` samples (Eq. 12), and what is read of it:

    - `within` and `between`, of samples of one class and of two, the mean cosine K_ij / sqrt(K_ii K_jj), from -1 to 1:
      `within` above `between` means that a step for one sample moves its class along with it, which is how the network
      steers to clusters (Thm. 4.5); both equal, that it does not know the classes. `blocks` (C, C) has it for every
      two classes.
    - `alignment` with the labels, centred, from 0 (nothing to do with the classes) to 1 (they are all it tells apart).
    - `spectrum` (n,), eigenvalues in descending order, divided by their sum, and `effective_rank`, the exponential of
      their entropy, from 1 (all samples move alike) to n (each by itself, as without a network).
    - `drift`, 1 minus the cosine with the kernel of the first readout, from 0 (training is that of a fixed kernel) to
      1; NaN at the first. It needs the same samples at every readout, which the stages "val", "test" and "probe" have.
      What was read first is kept in CPU memory and outlives `reset`, but neither a resumed run nor another encoder,
      which begin anew.

    A sample that no weight moves, K_ii = 0, has no cosine, and is left out of these. All are NaN where the kernel is
    not finite, `within`, `between` and `alignment` for labels that are all alike, `alignment` for samples that all
    move alike, and what is of labels is left out where there are none. With `outputs` below d, the kernel is an
    estimate from as many random orthonormal directions, the same at every readout: unbiased, with the error that
    :func:`lightning_ssl_geometry.functional.neural_kernel_trace` states; it falls as 1 / sqrt(outputs).
    The weights must stand still: stages "val", "test" and "probe". Modes and gradients stay as they are. Cost: one
    forward and `outputs` backward passes over `contrast_size` samples, O(contrast_size^2 W) per output and layer of
    width W, O(contrast_size^3) for the eigenvalues.

    Args:
        output: Of the encoder, "h", or of the projector behind it, "z".
        outputs: Random directions of the output; None, or as many as it has: exact.
        contrast_size: As in :class:`SampledRows`; part of the value of what is read of a spectrum.
        seed: As in :class:`SampledRows`; of the directions too.
        memory: Bytes for the work, as in :func:`lightning_ssl_geometry.functional.neural_kernel`.

    Raises:
        ValueError: If an argument is out of range; in `update`, if shapes do not fit, weights have changed, or a
            projector or some of the labels are missing; in `compute`, as the function, or if the samples are others
            than at the first readout, or too few.
    """

    section = "dynamics"
    quantities: ClassVar[dict[str, Quantity]] = {
        "within": Quantity(
            title="Neural kernel within classes",
            text="Mean cosine between the gradients at two samples of one class: how far a training step on one "
            "sample moves the other along.",
            low="Near 0: each sample moves by itself, as points without a network do.",
            high="Near 1: a class moves as one.",
            paper=CALDER_LEE,
            where="Eq. 12",
            bounds=(-1.0, 1.0),
            invariances=("permutation",),
            chart=_CLASSES,
            label="within",
        ),
        "between": Quantity(
            title="Neural kernel between classes",
            text="Mean cosine between the gradients at two samples of different classes.",
            low="Near 0: classes move independently, as clusters with orthogonal centers do.",
            high="As high as within classes: the network does not know the classes.",
            paper=CALDER_LEE,
            where="Theorem 4.5",
            bounds=(-1.0, 1.0),
            invariances=("permutation",),
            chart=_CLASSES,
            label="between",
        ),
        "alignment": Quantity(
            title="Alignment of the neural kernel with the labels",
            text="Cosine between the kernel and the kernel of the labels, both centred.",
            low="Near 0: training steps have nothing to do with the classes.",
            high="Near 1: training steps tell classes apart, and nothing else.",
            paper=CORTES,
            where="Definition 4",
            bounds=(0.0, 1.0),
            invariances=("permutation",),
            chart=_CLASSES,
            label="alignment",
        ),
        "effective_rank": Quantity(
            title="Effective rank of the neural kernel",
            text="The exponential of the entropy of the kernel's eigenvalues.",
            low="Near 1: a step on any sample moves all samples alike.",
            high="Up to the number of samples: each sample moves by itself, as without a network.",
            paper=CALDER_LEE,
            where="Eq. 12",
            bounds=(1.0, None),
            cap="N",
            invariances=("permutation",),
            chart=Chart("neural_kernel_rank", "Effective rank of the neural kernel", "patterns"),
        ),
        "spectrum": Quantity(
            title="Spectrum of the neural kernel",
            text="Eigenvalues of the kernel, as shares of their sum.",
            low="Patterns that training hardly learns.",
            high="Patterns along which training moves samples fast.",
            paper=CALDER_LEE,
            where="Eq. 12",
            unit="share of the sum",
            bounds=(0.0, 1.0),
            invariances=("permutation",),
            picture=Picture("spectrum"),
        ),
        "blocks": Quantity(
            title="Neural kernel by class",
            text="Mean cosine between the gradients at two samples, for each pair of classes.",
            low="Low off the diagonal: a training step on one class leaves the other in place.",
            high="High on the diagonal: a class moves as one.",
            paper=CALDER_LEE,
            where="Theorem 4.5",
            unit="cosine",
            bounds=(-1.0, 1.0),
            invariances=("permutation",),
            xlabel="class",
            picture=Picture("matrix"),
        ),
        "drift": Quantity(
            title="Drift of the neural kernel",
            text="1 minus the cosine between the kernel now and when it was first looked at.",
            low="Near 0: the kernel stays as it was, as in infinitely wide networks.",
            high="Near 1: the network has learned another kernel.",
            paper=FORT,
            unit="1 - cosine with the first",
            bounds=(0.0, 1.0),
            invariances=("permutation",),
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
        super().__init__(("image", "label", "sample"), contrast_size, seed)
        one_of(get_args(Output), output=output)
        if outputs is not None and outputs < 1:
            raise ValueError(f"Expected `outputs` >= 1, but got {outputs}.")
        if not memory > 0:
            raise ValueError(f"Expected `memory` > 0 bytes, but got {memory}.")
        self.output, self.outputs, self.memory = output, outputs, memory
        self.encoder, self.projector = Standing(), Standing()
        self.has_label = False
        self._of: weakref.ref[nn.Module] | None = None  # whose readouts these are
        self._kept: dict[str, dict[str, Tensor]] = {}  # "now", "first" -> columns; no state: reset keeps it

    def update(
        self,
        image: Tensor,
        index: Tensor,
        encoder: nn.Module,
        projector: nn.Module | None = None,
        label: Tensor | None = None,
        h_image: Tensor | None = None,
    ) -> None:
        """Offer samples: image (N, ...), index and label (N,), the encoder, the projector behind it, h_image (N, D)."""
        if self.output == "z" and projector is None:
            raise ValueError('Expected `projector` for the output "z", but got None.')
        if self.output == "z" and h_image is not None and len(image):
            _check_encoder(encoder, image[:2], h_image[:2])
        if len(self.key) and self.has_label != (label is not None):
            raise ValueError("Expected `label` in every batch or in none, but got both.")
        self.has_label = label is not None
        self.encoder.hold(encoder)
        if self._of is None or self._of() is not encoder:
            self._of, self._kept = weakref.ref(encoder), {}
        if self.output == "z" and projector is not None:
            self.projector.hold(projector)
        self.offer(index, image=image, sample=index, **({} if label is None else {"label": label}))

    def compute(self) -> dict[str, Tensor]:
        """Compute what is listed above."""
        rows = self.rows()
        kernel = self._kernel(rows["image"])
        now = {"kernel": kernel.detach().double().cpu(), "sample": rows["sample"].cpu()}
        found = _spectrum(kernel.double()) | (_of_classes(kernel, rows["label"]) if "label" in rows else {})
        found["drift"] = self._drift(now).to(kernel.device)
        self._kept["now"] = now
        return found

    def reset(self) -> None:
        """Forget the observed rows and modules, but for the kernel of the first readout."""
        super().reset()
        self.encoder, self.projector = Standing(), Standing()
        if "now" in self._kept:
            self._kept = {"first": self._kept.get("first", self._kept["now"])}

    def _kernel(self, image: Tensor) -> Tensor:
        network = nn.Sequential(self.encoder.module(), nn.Flatten())
        if self.output == "z":
            network.append(self.projector.module())
        with evaluating(network):
            image = image.clone()  # those of inference mode do not go through autograd
            with torch.no_grad():
                d = network(image[:1].clone()).shape[-1]
            return neural_kernel_trace(network, image, directions=self._directions(d), memory=self.memory)

    def _directions(self, d: int) -> Tensor | None:
        if self.outputs is None or self.outputs >= d:
            return None
        generator = torch.Generator().manual_seed(self.seed)
        basis = torch.linalg.qr(torch.randn(d, self.outputs, generator=generator, dtype=torch.float64)).Q
        return basis.T

    def _drift(self, now: dict[str, Tensor]) -> Tensor:
        if "first" not in self._kept:
            return torch.full((), torch.nan, dtype=torch.float64)
        then = self._kept["first"]
        if not torch.equal(then["sample"], now["sample"]):
            same = int(torch.isin(now["sample"], then["sample"]).sum())
            raise ValueError(
                f"Expected NeuralKernel to observe the same {len(then['sample'])} samples at every readout, but got "
                f"{len(now['sample'])}, of which {same} are the same. Observe this diagnostic in the stages 'val', "
                "'test' or 'probe'."
            )
        return (1 - kernel_cosine(now["kernel"], then["kernel"])).clamp(min=0)  # rounding may give -1e-16


def _check_encoder(encoder: nn.Module, image: Tensor, h_image: Tensor) -> None:
    with evaluating(encoder), torch.no_grad():
        h = encoder(image.clone()).flatten(1)
    if not torch.allclose(h.to(h_image.dtype), h_image.flatten(1), rtol=0.05, atol=0.05 * float(h.abs().max())):
        raise ValueError(
            'Expected `h_image` to be what `encoder` makes of `image` for the output "z", but it is not: what else is '
            'in it goes through the projector, too. Observe the output "h".'
        )


def _spectrum(kernel: Tensor) -> dict[str, Tensor]:
    if not kernel.isfinite().all():
        return {"spectrum": kernel.new_full((len(kernel),), torch.nan), "effective_rank": kernel.new_tensor(torch.nan)}
    values = torch.linalg.eigvalsh(kernel).flip(0).clamp(min=0)  # rounding may give -1e-17
    share = values / values.sum()
    return {"spectrum": share, "effective_rank": torch.special.entr(share).sum().exp()}


def _of_classes(kernel: Tensor, label: Tensor) -> dict[str, Tensor]:
    nan = torch.full((), torch.nan, dtype=torch.float64, device=kernel.device)
    alignment = kernel_target_alignment(kernel, label) if len(label.unique()) > 1 else nan
    if (moved := kernel.diagonal() > 0).sum() >= 2:
        kernel, label = kernel[moved][:, moved], label[moved]
    cosine = normalized_kernel(kernel)
    same = label[:, None] == label
    apart, pairs = ~same, same & ~torch.eye(len(label), dtype=torch.bool, device=label.device)
    several = bool(apart.any())
    return {
        "within": cosine[pairs].mean() if several else nan,
        "between": cosine[apart].mean(),
        "alignment": alignment,
        "blocks": class_blocks(cosine, label),
    }
