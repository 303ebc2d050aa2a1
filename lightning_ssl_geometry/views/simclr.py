"""The views of SimCLR, in three strengths.

Strengths: Cosentino, Sengupta, Avestimehr, Soltanolkotabi, Ortega, Willke & Tepper, Toward a Geometrical Understanding
of Self-supervised Contrastive Learning (2022), Table 2. Operations and their order: Chen, Kornblith, Norouzi & Hinton,
A Simple Framework for Contrastive Learning of Visual Representations (2020).
"""

__all__ = ["SimCLRViews"]

from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from lightning_ssl_geometry import checks
from lightning_ssl_geometry.checks import inside, integer, one_of
from lightning_ssl_geometry.random import counter_uniform
from lightning_ssl_geometry.views.base import ImageViews, Normalization
from lightning_ssl_geometry.views.render import LARGE, RenderSettings, ViewParameters, render_exact, render_fast
from lightning_ssl_geometry.views.sampling import (
    CROP_UNIFORMS,
    JITTER_UNIFORMS,
    sample_bernoulli,
    sample_color_jitter,
    sample_resized_crop,
    sample_uniform,
)
from lightning_ssl_geometry.views.threads import one_thread, threads_sleep
from lightning_ssl_geometry.views.validation import check_range, height_width


class _Settings(NamedTuple):
    crop_scale: tuple[float, float]
    flip: float
    jitter_strength: float
    jitter: float = 0.8
    grayscale: float = 0.2


_PRESETS = {
    "small": _Settings(crop_scale=(0.9, 1.0), flip=0.0, jitter_strength=0.05),
    "moderate": _Settings(crop_scale=(0.5, 1.0), flip=0.5, jitter_strength=0.25),
    "large": _Settings(crop_scale=(0.08, 1.0), flip=0.5, jitter_strength=0.5),
}
_MAX_JITTER = 2.5  # at this strength the hue turns by up to half a turn
# The first two hold on a CPU: benchmarks/README.md has the times.
_CHUNK_PIXELS = 1 << 19  # per channel
_CHUNK_PIXELS_SMALL = 112 * 32 * 32  # of small views: the planes of a chunk then stay in a second-level cache
_CHUNK_PIXELS_ACCELERATOR = 1 << 24  # 200 MB of float32 with three channels


class SimCLRViews(ImageViews):
    """Random views of images: crop and resize, flip, colour jitter, grayscale and blur, on the device of the images.

    A view depends only on the image and (seed, epoch, sample index, number of the view), not on the rest of the batch.
    The parameters are drawn on the CPU and are the same for every device. Half-precision images are computed in
    float32. Matrix products follow `torch.set_float32_matmul_precision`.

    Args:
        size: Height and width of the views in pixels: one number for both, or two. None: the size of the images.
        strength: Preset of Table 2 of Cosentino et al. 2022: "small", "moderate" or "large".
        num_views: V, the number of views of each image.
        blur: Probability of a Gaussian blur. The presets have no blur.
        color: "exact": the results of torchvision's operations. "fast": jitter and grayscale as one affine map per view
            (:mod:`lightning_ssl_geometry.views.linear_color`). Views of CIFAR-10 then differ by up to 2.3/255 on
            average.
        seed: Seed of the parameters.
        chunk_size: Largest number of views made at once. None: 2^24 pixels on an accelerator; on a CPU 2^19, or 112 x
            32 x 32 for views below 128 x 128 pixels.
        crop_scale: Smallest and largest share of the image's area in a crop, in (0, 1]. None: from the preset.
        crop_ratio: Smallest and largest width / height of a crop.
        flip: Probability of a flip, left to right. None: from the preset.
        jitter: Probability of a colour jitter. None: from the preset.
        jitter_strength: Strength s in [0, 2.5]. Brightness, contrast and saturation are multiplied by factors uniform
            in [1 - 0.8 s, 1 + 0.8 s] (cut at 0), and hues shift by up to 0.2 s turns. None: from the preset.
        grayscale: Probability of grayscale. None: from the preset.
        blur_sigma: Smallest and largest standard deviation of the blur, in pixels.
        blur_kernel: Side of the blur's kernel, odd. None: a tenth of the view's side, as in SimCLR, odd and at least 3.
        channels_last: Whether the views have the memory format channels last.
    """

    def __init__(
        self,
        size: int | tuple[int, int] | None = None,
        strength: Literal["small", "moderate", "large"] = "large",
        num_views: int = 2,
        blur: float = 0.0,
        color: Literal["exact", "fast"] = "exact",
        seed: int = 0,
        chunk_size: int | None = None,
        *,
        crop_scale: tuple[float, float] | None = None,
        crop_ratio: tuple[float, float] = (3 / 4, 4 / 3),
        flip: float | None = None,
        jitter: float | None = None,
        jitter_strength: float | None = None,
        grayscale: float | None = None,
        blur_sigma: tuple[float, float] = (0.1, 2.0),
        blur_kernel: int | None = None,
        channels_last: bool = False,
    ) -> None:
        super().__init__()
        one_of(tuple(_PRESETS), strength=strength)
        one_of(("exact", "fast"), color=color)
        checks.seed(seed=seed)
        integer(1, num_views=num_views, **({} if chunk_size is None else {"chunk_size": chunk_size}))
        given: dict[str, Any] = {"crop_scale": crop_scale, "flip": flip, "jitter": jitter, "grayscale": grayscale}
        given["jitter_strength"] = jitter_strength
        settings = _PRESETS[strength]._replace(**{name: value for name, value in given.items() if value is not None})
        self.crop_scale, self.flip, self.jitter_strength, self.jitter, self.grayscale = settings
        inside("[0, 1]", flip=self.flip, jitter=self.jitter, grayscale=self.grayscale, blur=blur)
        inside(f"[0, {_MAX_JITTER}]", jitter_strength=self.jitter_strength)
        check_range("(0, 1]", crop_scale=self.crop_scale)
        check_range("(0, inf)", crop_ratio=crop_ratio, blur_sigma=blur_sigma)
        if blur_kernel is not None and (blur_kernel < 1 or blur_kernel % 2 == 0):
            raise ValueError(f"Expected `blur_kernel` odd and >= 1, but got {blur_kernel}.")
        self.size = None if size is None else height_width("size", size)
        self.num_views, self.blur, self.color, self.seed, self.chunk_size = num_views, blur, color, seed, chunk_size
        self.crop_ratio, self.blur_sigma, self.blur_kernel = crop_ratio, blur_sigma, blur_kernel
        self.channels_last = channels_last

    def draw(self, index: Tensor, epoch: int, height: int, width: int) -> ViewParameters:
        """Return the parameters of V N views, on the CPU, sorted by view and then by sample.

        `index` (N,) int64 is the index of each sample in its data set. Images have `height` x `width` pixels.
        """
        view = torch.arange(self.num_views).unsqueeze(1)
        u = counter_uniform(self.seed, epoch, index.cpu(), view, size=5 + JITTER_UNIFORMS + CROP_UNIFORMS).flatten(0, 1)
        s = self.jitter_strength
        blend = (max(0.0, 1 - 0.8 * s), 1 + 0.8 * s)
        order, factor = sample_color_jitter(
            u[:, 5 : 5 + JITTER_UNIFORMS], brightness=blend, contrast=blend, saturation=blend, hue=(-0.2 * s, 0.2 * s)
        )
        ranges = {"scale": self.crop_scale, "ratio": self.crop_ratio}
        crop = sample_resized_crop(u[:, 5 + JITTER_UNIFORMS :], height, width, **ranges)
        return ViewParameters(
            source=torch.arange(len(index)).repeat(self.num_views),
            **dict(zip(("top", "left", "height", "width"), crop, strict=True)),
            flip=sample_bernoulli(u[:, 0], self.flip),
            jitter=sample_bernoulli(u[:, 1], self.jitter if s > 0 else 0.0),
            order=order,
            factor=factor,
            gray=sample_bernoulli(u[:, 2], self.grayscale),
            blur=sample_bernoulli(u[:, 3], self.blur),
            sigma=sample_uniform(u[:, 4], *self.blur_sigma),
        )

    def extra_repr(self) -> str:
        names = ("size", "num_views", "crop_scale", "flip", "jitter", "jitter_strength", "grayscale", "blur", "color")
        return ", ".join(f"{name}={getattr(self, name)!r}" for name in names)

    @property
    def _changes_colors(self) -> bool:
        return self.jitter > 0 or self.grayscale > 0

    def _views(self, image: Tensor, index: Tensor, epoch: int, normalize: Normalization | None) -> tuple[Tensor, ...]:
        height, width = image.shape[2:]
        size = self.size or (height, width)
        parameters = self.draw(index, epoch, height=height, width=width)
        out = self._empty(image, size)
        fast = self.color == "fast" and self._changes_colors
        settings = RenderSettings(self._kernel_size(size), normalize, self._chunk_size(image.device, size))
        alone = threads_sleep(image.device) and size[0] * size[1] < LARGE
        with torch.autocast(image.device.type, enabled=False), one_thread(alone):
            (render_fast if fast else render_exact)(image, parameters, out, settings=settings)
        return out.tensor_split(self.num_views)

    def _empty(self, image: Tensor, size: tuple[int, int]) -> Tensor:
        shape = (self.num_views * len(image), image.shape[1], *size)
        memory_format = torch.channels_last if self.channels_last else torch.contiguous_format
        dtype = image.dtype if image.is_floating_point() else torch.float32
        return torch.empty(shape, dtype=dtype, device=image.device, memory_format=memory_format)

    def _kernel_size(self, size: tuple[int, int]) -> tuple[int, int]:
        if self.blur_kernel is not None:
            return self.blur_kernel, self.blur_kernel
        height, width = (max(3, side // 10 // 2 * 2 + 1) for side in size)
        return height, width

    def _chunk_size(self, device: torch.device, size: tuple[int, int]) -> int:
        if self.chunk_size is not None:
            return self.chunk_size
        area = size[0] * size[1]
        pixels = _CHUNK_PIXELS_SMALL if area < LARGE else _CHUNK_PIXELS
        return max(1, (pixels if device.type == "cpu" else _CHUNK_PIXELS_ACCELERATOR) // area)
