import pytest
import torch
from torch import nn

from lightning_ssl_geometry.views import NormalizedViews, SimCLRViews

MEAN, STD = [0.2, 0.4, 0.6], [0.3, 0.2, 0.1]


def normalized(image):
    mean, std = torch.tensor(MEAN), torch.tensor(STD)
    return (image - mean[:, None, None]) / std[:, None, None]


def images(n=6):
    return torch.rand(n, 3, 16, 16, generator=torch.Generator().manual_seed(0))


def test_they_are_the_normalised_views_of_the_plain_images():
    index = torch.tensor([5, 2, 9, 0, 1, 3])
    found = NormalizedViews(MEAN, STD, SimCLRViews(seed=3))(normalized(images()), index, epoch=2)
    for view, expected in zip(found, SimCLRViews(seed=3)(images(), index, epoch=2), strict=True):
        torch.testing.assert_close(view, normalized(expected), rtol=1e-4, atol=1e-4)


def test_a_sample_has_the_same_views_in_any_batch_and_order():
    views, x = NormalizedViews(MEAN, STD), normalized(images())
    order = torch.tensor([3, 0, 5])
    for whole, part in zip(views(x, torch.arange(6)), views(x[order], order), strict=True):
        assert torch.equal(whole[order], part)


def test_views_that_do_nothing_give_the_image_back():
    nothing = SimCLRViews(crop_scale=(1.0, 1.0), crop_ratio=(1.0, 1.0), flip=0.0, jitter=0.0, grayscale=0.0)
    for view in NormalizedViews(MEAN, STD, nothing)(normalized(images()), torch.arange(6)):
        torch.testing.assert_close(view, normalized(images()), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_the_dtype_of_the_image_is_kept_and_its_rounding_is_no_error(dtype):
    extremes = torch.stack([torch.zeros(3, 8, 8), torch.ones(3, 8, 8)])
    for view in NormalizedViews(MEAN, STD)(normalized(extremes).to(dtype), torch.arange(2)):
        assert view.dtype == dtype
        assert torch.isfinite(view).all()


def test_the_views_are_a_collaborator():
    class Same(nn.Module):
        def forward(self, image, index, epoch, mean, std):
            return ((image - mean[:, None, None]) / std[:, None, None],) * 3

    found = NormalizedViews(MEAN, STD, Same())(normalized(images()), torch.arange(6))
    assert len(found) == 3
    torch.testing.assert_close(found[2], normalized(images()), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("mean", "std", "message"),
    [
        ([0.5], [0.5, 0.5], "`mean` and `std` of one length >= 1, but got 1 and 2"),
        ([], [], "`mean` and `std` of one length >= 1, but got 0 and 0"),
        ([0.5], [0.0], r"`std` > 0 for each channel, but got \[0.0\]"),
        ([0.5, 0.5], [0.5, float("nan")], r"`std` > 0 for each channel, but got \[0.5, nan\]"),
        ([float("nan")], [0.5], r"finite `mean`, but got \[nan\]"),
        (0.5, 0.5, "`mean` to be a list, but got 0.5"),
    ],
)
def test_bad_arguments(mean, std, message):
    with pytest.raises(ValueError, match=message):
        NormalizedViews(mean, std)


def test_moments_may_be_tensors_and_views_are_a_module():
    assert NormalizedViews(torch.tensor([0.5]), torch.tensor([0.25])).std == (0.25,)
    with pytest.raises(ValueError, match="Expected `views` to be a module, but got <class"):
        NormalizedViews([0.5], [0.5], SimCLRViews)


@pytest.mark.parametrize(
    ("image", "message"),
    [
        (torch.zeros(2, 1, 8, 8), r"`image` of shape \(N, C, H, W\), C = 3, but got \(2, 1, 8, 8\)"),
        (torch.zeros(2, 3, 8), r"`image` of shape \(N, C, H, W\), C = 3, but got \(2, 3, 8\)"),
        (255 * images(), r"after undoing `mean` \(0.2, 0.4, 0.6\) and .*, but got values from 0.206 to 76.6"),
        (torch.full((2, 3, 8, 8), float("nan")), "but got values from nan to nan"),
        (torch.full((2, 3, 8, 8), -1.9), "but got values from -0.37 to"),
    ],
)
def test_images_that_were_not_normalised_so(image, message):
    with pytest.raises(ValueError, match=message):
        NormalizedViews(MEAN, STD)(image, torch.arange(len(image)))
