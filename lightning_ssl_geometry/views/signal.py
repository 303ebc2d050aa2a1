"""Views of signals, such as recordings of sensors.

Jitter and scaling: Um et al., Data Augmentation of Wearable Sensor Data for Parkinson's Disease Monitoring using
Convolutional Neural Networks (2017). Crop and resize: window slicing of Le Guennec, Malinowski & Tavenard, Data
Augmentation for Time Series Classification using Convolutional Neural Networks (2016). Time masking: Park et al.,
SpecAugment (2019).
"""

__all__ = ["SignalViews"]

from collections.abc import Callable

import torch
from torch import Tensor

from lightning_ssl_geometry.checks import inside, integer
from lightning_ssl_geometry.precision import in_float64
from lightning_ssl_geometry.random import counter_uniform
from lightning_ssl_geometry.views.arrays import ArrayViews
from lightning_ssl_geometry.views.sampling import sample_normal, sample_uniform
from lightning_ssl_geometry.views.validation import check_range

_CROP, _SHIFT, _SCALING, _JITTER, _MASK = range(5)  # streams of random numbers


class SignalViews(ArrayViews):
    """Random views of signals: crop and resize in time, shift, scaling, jitter and time masking, in this order.

    The samples are standardised first, so `jitter` is in units of the training set's standard deviation of each
    channel. A shift and a mask fill with the training set's mean. Crops, shifts and masks are the same for all channels
    of a sample. The random numbers of one operation do not depend on the other operations.

    Args:
        crop_scale: Smallest and largest share of the T time steps in a crop, in (0, 1]. The share is uniform. The crop
            is resized to T time steps by linear interpolation. (1, 1): no crop.
        max_shift: Largest shift in time in either direction, as a share of T, in [0, 1]. Shifts are uniform.
        scaling: Standard deviation of the factor by which each channel is multiplied, >= 0. Its mean is 1.
        jitter: Standard deviation of Gaussian noise, >= 0, for every value.
        mask_spans: Number of masked spans of time, >= 0. Spans can overlap.
        mask_length: Largest length of a masked span, as a share of T, in [0, 1]. Lengths are uniform.
        num_views: V, the number of views of each sample.
        seed: Seed of the random numbers.

    Raises:
        ValueError: If an argument is out of range.
    """

    axes = "N, C, T"

    def __init__(
        self,
        crop_scale: tuple[float, float] = (0.5, 1.0),
        max_shift: float = 0.0,
        scaling: float = 0.1,
        jitter: float = 0.05,
        mask_spans: int = 1,
        mask_length: float = 0.1,
        *,
        num_views: int = 2,
        seed: int = 0,
    ) -> None:
        super().__init__(num_views, seed)
        check_range("(0, 1]", crop_scale=crop_scale)
        inside("[0, 1]", max_shift=max_shift, mask_length=mask_length)
        inside("[0, inf)", scaling=scaling, jitter=jitter)
        integer(0, mask_spans=mask_spans)
        self.crop_scale, self.max_shift, self.scaling, self.jitter = crop_scale, max_shift, scaling, jitter
        self.mask_spans, self.mask_length = mask_spans, mask_length

    def extra_repr(self) -> str:
        names = ("crop_scale", "max_shift", "scaling", "jitter", "mask_spans", "mask_length", "num_views", "seed")
        return ", ".join(f"{name}={getattr(self, name)!r}" for name in names)

    def _view(self, x: Tensor, standardize: Callable[[Tensor], Tensor], *, key: Tensor, view: int) -> Tensor:
        x, key = standardize(x), key.to(x.device, non_blocking=True)
        x = self._shifted(self._cropped(x, key), key)
        if self.scaling:
            x = x * (1 + self.scaling * sample_normal(counter_uniform(key, _SCALING, size=x.shape[1])))[..., None]
        if self.jitter:
            noise = sample_normal(counter_uniform(key, _JITTER, size=x.shape[1] * x.shape[2]))
            x = x + self.jitter * noise.view_as(x)
        return self._masked(x, key)

    def _cropped(self, x: Tensor, key: Tensor) -> Tensor:
        steps = x.shape[2]
        u = in_float64(counter_uniform(key, _CROP, size=2))
        length = (steps * sample_uniform(u[:, :1], *self.crop_scale)).round().clamp_(min=1)
        start = (u[:, 1:] * (steps - length + 1)).floor()
        time = start + (length - 1) * torch.arange(steps, device=u.device) / max(1, steps - 1)  # (N, T)
        before = time.floor()
        between = (time - before).to(x.dtype).to(x.device)[:, None]
        left, right = (
            x.gather(2, at.long().clamp_(max=steps - 1).to(x.device)[:, None].expand_as(x))
            for at in (before, before + 1)
        )
        return left + between * (right - left)

    def _shifted(self, x: Tensor, key: Tensor) -> Tensor:
        steps = x.shape[2]
        reach = round(self.max_shift * steps)
        if not reach:
            return x
        u = in_float64(counter_uniform(key, _SHIFT, size=1))
        shift = (u * (2 * reach + 1)).floor().long() - reach
        source = torch.arange(steps, device=x.device) - shift.to(x.device)  # (N, T)
        outside = (source < 0) | (source >= steps)
        moved = x.gather(2, source.clamp(0, steps - 1)[:, None].expand_as(x))
        return moved.masked_fill(outside[:, None], 0)

    def _masked(self, x: Tensor, key: Tensor) -> Tensor:
        steps = x.shape[2]
        longest = round(self.mask_length * steps)
        if not (longest and self.mask_spans):
            return x
        u = in_float64(counter_uniform(key, _MASK, size=2 * self.mask_spans)).view(len(x), self.mask_spans, 2, 1)
        length = (u[:, :, 0] * (longest + 1)).floor()
        start = (u[:, :, 1] * (steps - length + 1)).floor()
        time = torch.arange(steps, device=u.device)
        masked = ((time >= start) & (time < start + length)).any(1)  # (N, T)
        return x.masked_fill(masked.to(x.device)[:, None], 0)
