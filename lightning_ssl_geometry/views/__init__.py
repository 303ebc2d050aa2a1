"""Random views of a batch of images, vectors or signals, made on their device. Wrong arguments raise a ValueError."""

__all__ = [
    "ArrayViews",
    "AugmentationFamily",
    "CropFamily",
    "GroupViews",
    "ImageViews",
    "NormalizedViews",
    "QuarterTurnFamily",
    "SignalViews",
    "SimCLRViews",
    "VectorViews",
    "ViewParameters",
    "adjust_brightness",
    "adjust_contrast",
    "adjust_hue",
    "adjust_saturation",
    "batch_entries",
    "color_jitter",
    "gaussian_blur",
    "grayscale",
    "horizontal_flip",
    "image_range",
    "learn",
    "resized_crop",
    "sample_bernoulli",
    "sample_color_jitter",
    "sample_normal",
    "sample_resized_crop",
    "sample_uniform",
]

from lightning_ssl_geometry.views.arrays import ArrayViews, learn
from lightning_ssl_geometry.views.base import ImageViews, batch_entries, image_range
from lightning_ssl_geometry.views.color import (
    adjust_brightness,
    adjust_contrast,
    adjust_hue,
    adjust_saturation,
    color_jitter,
    grayscale,
)
from lightning_ssl_geometry.views.family import AugmentationFamily, CropFamily, QuarterTurnFamily
from lightning_ssl_geometry.views.geometric import gaussian_blur, horizontal_flip, resized_crop
from lightning_ssl_geometry.views.group import GroupViews
from lightning_ssl_geometry.views.normalized import NormalizedViews
from lightning_ssl_geometry.views.render import ViewParameters
from lightning_ssl_geometry.views.sampling import (
    sample_bernoulli,
    sample_color_jitter,
    sample_normal,
    sample_resized_crop,
    sample_uniform,
)
from lightning_ssl_geometry.views.signal import SignalViews
from lightning_ssl_geometry.views.simclr import SimCLRViews
from lightning_ssl_geometry.views.vector import VectorViews
