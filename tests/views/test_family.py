"""Families of augmentations: crops are slices, sums over a family are double loops, and blank views count once.

"A colour preset" is a third family that knows nothing but the interface.
"""

import copy
import itertools

import pytest
import torch
from torch import nn

from lightning_ssl_geometry.views import AugmentationFamily, CropFamily, QuarterTurnFamily

CROPS = {
    "small": (13, 4, 3),
    "overlapping": (9, 5, 1),
    "apart": (16, 3, 6),
    "two a side": (8, 4, 4),
    "the paper's": (84, 20, 4),
}


class ColorPresets(AugmentationFamily):
    """Gains and offsets per channel."""

    def __init__(self, gain, offset):
        super().__init__()
        self.gain, self.offset = gain, offset  # (K, C)

    def __len__(self):
        return len(self.gain)

    def transform(self, image, sample, member):
        gain, offset = (value[member, :, None, None].to(image.dtype) for value in (self.gain, self.offset))
        return gain * image[sample] + offset

    def extremes(self, image):
        ends = [self.gain * x[:, None] + self.offset for x in (image.amin((2, 3)), image.amax((2, 3)))]
        return torch.minimum(*ends), torch.maximum(*ends)


def presets():
    return ColorPresets(torch.tensor([[1.0, 1.0], [-2.0, 0.5], [0.0, 0.0]]).double(), torch.eye(3)[:, :2].double())


FAMILIES = {"crops": lambda: CropFamily(13, 4, 3), "turns": QuarterTurnFamily, "colours": presets}


@pytest.fixture(params=FAMILIES.values(), ids=FAMILIES)
def family(request):
    return request.param()


def images(n=6, side=13, c=2, dtype=torch.float64):
    """Blank but for a blot, each its own; the last three are constant, two with the same value."""
    image = torch.zeros(n, c, side, side, dtype=dtype)
    for x in image[:-3]:
        top, left = torch.randint(side - 3, (2,)).tolist()
        x[:, top : top + 3, left : left + 3] = torch.rand(c, 3, 3)
    image[-2:] += 0.5
    return image


def all_pairs(n, k):
    return torch.cartesian_prod(torch.arange(n), torch.arange(k)).unbind(1)


def network(c=2, out=5):
    return nn.Sequential(nn.AdaptiveAvgPool2d(3), nn.Flatten(), nn.Linear(9 * c, out), nn.Tanh()).double().eval()


def double_loop(family, h, image, weight):
    """Sum over k of w[s, n, k] h(T_k x_n), a view at a time."""
    z = torch.zeros(*weight.shape[:2], h(family(image, *all_pairs(1, 1))).shape[1], dtype=weight.dtype)
    for n, k in itertools.product(range(len(image)), range(len(family))):
        z[:, n] += weight[:, n, k : k + 1] * h(family(image, torch.tensor([n]), torch.tensor([k])))
    return z


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.uint8, torch.int64, torch.bool])
@pytest.mark.parametrize("settings", CROPS.values(), ids=CROPS)
def test_crops_are_slices(settings, dtype):
    side, size, _ = settings
    crops = CropFamily(*settings)
    image = torch.randint(2 if dtype == torch.bool else 200, (5, 3, side, side)).to(dtype)
    sample, member = torch.randint(5, (64,)), torch.randint(len(crops), (64,))
    corners = crops.corner[member].tolist()
    slices = [image[i, :, r : r + size, c : c + size] for i, (r, c) in zip(sample.tolist(), corners, strict=True)]
    for given in (image, image.contiguous(memory_format=torch.channels_last), image[:, :1].expand(5, 3, -1, -1)):
        view = crops(given, sample, member)
        assert view.dtype == dtype
        assert view.is_contiguous()
        assert torch.equal(view[:, 0], torch.stack(slices)[:, 0])
    assert torch.equal(crops(image, sample, member), torch.stack(slices))


@pytest.mark.parametrize("settings", CROPS.values(), ids=CROPS)
def test_crops_are_those_of_unfold_in_the_grids_order(settings):
    side, size, stride = settings
    crops, image = CropFamily(*settings), torch.rand(2, 1, side, side)
    unfolded = image.unfold(2, size, stride).unfold(3, size, stride)
    assert crops.grid == unfolded.shape[2:4]
    assert len(crops) == len(crops.corner) == crops.grid[0] * crops.grid[1]
    assert torch.equal(crops(image, *all_pairs(2, len(crops))), unfolded.reshape(-1, 1, size, size))
    assert torch.equal(crops.corner.unflatten(0, crops.grid)[1, 1], torch.tensor([stride, stride]))


def test_the_defaults_are_the_papers():
    crops = CropFamily()
    assert (len(crops), crops.grid, crops.corner[-1].tolist()) == (289, (17, 17), [64, 64])
    assert (crops.image_size, crops.size, crops.stride) == (84, 20, 4)
    assert repr(crops) == "CropFamily(image_size=84, size=20, stride=4)"


def test_the_gradient_reaches_the_image(family):
    image = torch.rand(2, 2, 13, 13, dtype=torch.float64, requires_grad=True)
    sample, member = torch.tensor([0, 1, 1, 0, 1]), torch.tensor([2, 0, 1, 2, 1])  # with pairs that occur twice
    assert torch.autograd.gradcheck(lambda x: family(x, sample, member), image, fast_mode=True)
    assert torch.equal(family(image, sample, member), family(image.detach(), sample, member))
    with torch.no_grad():
        assert torch.equal(family(image, sample, member), family(image.detach(), sample, member))


def test_the_gradient_of_a_sum_over_crops_counts_the_crops_of_each_pixel():
    crops, image = CropFamily(13, 4, 3), torch.rand(2, 1, 13, 13, requires_grad=True)
    crops(image, *all_pairs(2, len(crops))).sum().backward()
    count = torch.zeros(13, 13)
    for r, c in crops.corner.tolist():
        count[r : r + 4, c : c + 4] += 1
    assert torch.equal(image.grad, count.expand(2, 1, -1, -1))


def test_turns_are_rot90():
    image = torch.rand(3, 2, 5, 5)
    views = QuarterTurnFamily()(image, *all_pairs(3, 4)).unflatten(0, (3, 4))
    for k in range(4):
        assert torch.equal(views[:, k], image.rot90(k, (2, 3)))


def test_extremes_are_those_of_the_views(family):
    image = torch.randn(4, 2, 13, 13, dtype=torch.float64)
    views = family(image, *all_pairs(4, len(family))).flatten(2).unflatten(0, (4, -1))
    lowest, highest = family.extremes(image)
    assert torch.equal(lowest, views.amin(3))
    assert torch.equal(highest, views.amax(3))


@pytest.mark.parametrize("dtype", [torch.float16, torch.uint8])
def test_extremes_of_crops_of_other_types(dtype):
    image = torch.randint(256, (3, 2, 13, 13)).to(dtype)
    crops = CropFamily(13, 4, 3)
    for ours, theirs in zip(crops.extremes(image), crops.extremes(image.double()), strict=True):
        assert torch.equal(ours.double(), theirs)


def test_empty_views_have_only_the_darkest_value(family):
    image = images() - torch.tensor([0.25, 0.75], dtype=torch.float64).view(2, 1, 1)  # another for each channel
    views = family(image, *all_pairs(6, len(family))).unflatten(0, (6, -1))
    expected = (views == image.amin((2, 3))[:, None, :, None, None]).flatten(2).all(2)
    assert torch.equal(family.empty(image), expected)


def test_empty_crops_are_those_without_the_blot():
    crops, image = CropFamily(), torch.zeros(2, 1, 84, 84)
    image[0, 0, 30, 50] = image[1, 0, 0, 0] = 1e-30
    hit = crops.overlap(torch.tensor([[30, 50, 31, 51], [0, 0, 1, 1]])) > 0
    assert torch.equal(crops.empty(image), ~hit)
    assert (~crops.empty(image)).sum(1).tolist() == [25, 1]


def test_distinct_views_cover_all_views_exactly(family):
    image = images()
    sample, member, inverse = family.distinct(image)
    assert inverse.unique().equal(torch.arange(len(sample)))
    assert torch.equal(family(image, sample[inverse.flatten()], member[inverse.flatten()]), everything(family, image))


def test_distinct_constants_appear_once_and_others_once_each(family):
    image = images()
    views = everything(family, image).flatten(2)
    constant = (views == views[:, :, :1]).flatten(1).all(1)
    values = {tuple(view[:, 0].tolist()) for view in views[constant]}
    sample, member, _ = family.distinct(image)
    assert len(sample) == len(values) + int((~constant).sum())
    assert len({*zip(sample.tolist(), member.tolist(), strict=True)}) == len(sample)


def everything(family, image):
    return family(image, *all_pairs(len(image), len(family)))


def test_constants_are_represented_by_their_first_view(family):
    image = images()
    views = everything(family, image).flatten(2)
    sample, member, inverse = family.distinct(image)
    place = (sample * len(family) + member)[inverse.flatten()]
    for i in (views == views[:, :, :1]).flatten(1).all(1).nonzero().flatten().tolist():
        assert place[i] == (views == views[i]).flatten(1).all(1).nonzero().min()


def test_constants_that_agree_in_one_channel_are_distinct():
    image = torch.tensor([[0.0, 1], [0, 2], [0, 1], [1, 0], [1, 2]])[:, :, None, None].expand(-1, -1, 13, 13)
    sample, member, inverse = CropFamily(13, 4, 3).distinct(image)
    assert (sample.tolist(), member.tolist()) == ([0, 1, 3, 4], [0] * 4)
    assert inverse.tolist() == [[i] * 16 for i in (0, 1, 0, 2, 3)]


def test_views_with_nan_are_not_taken_for_constant():
    image = torch.zeros(1, 1, 8, 8)
    image[0, 0, 1, 1] = torch.nan
    crops = CropFamily(8, 4, 4)
    assert not crops.empty(image).any()
    sample, member, inverse = crops.distinct(image)
    assert inverse.tolist() == [[1, 0, 0, 0]]
    assert crops(image, sample, member).isnan().any((1, 2, 3)).tolist() == [False, True]


@pytest.mark.parametrize("chunk_size", [1, 7, None])
def test_integrate_is_the_double_loop(family, chunk_size):
    image, h = images(), network()
    weight = torch.randn(3, 6, len(family), dtype=torch.float64)
    weight[0, :, 1:] = weight[:, 2] = weight[:, :, 2] = 0
    z = family.integrate(h, image, weight, chunk_size=chunk_size)
    torch.testing.assert_close(z, double_loop(family, h, image, weight))
    with torch.no_grad():
        assert torch.equal(family.integrate(h, image, weight, chunk_size=chunk_size), z)


def test_integrate_in_parts_is_the_whole(monkeypatch):
    crops, h, image = CropFamily(13, 4, 3), network(), images()
    weight = torch.rand(2, 6, 16, dtype=torch.float64)
    whole = crops.integrate(h, image, weight)
    for pairs in (1, 40):
        monkeypatch.setattr("lightning_ssl_geometry.views.family._PAIRS", pairs)
        torch.testing.assert_close(crops.integrate(h, image, weight), whole)


def test_integrate_is_linear_in_the_weights_and_exact_on_one_member(family):
    image, h = images(), network()
    k, n = len(family), len(image)
    one = torch.eye(k, dtype=torch.float64).unsqueeze(1).expand(k, n, k)  # (S = K, N, K)
    z = family.integrate(h, image, one)
    torch.testing.assert_close(z.transpose(0, 1).flatten(0, 1), h(everything(family, image)))
    weight = torch.rand(1, n, k, dtype=torch.float64)
    torch.testing.assert_close(family.integrate(h, image, weight)[0], torch.einsum("nk,knd->nd", weight[0], z))


def test_integrate_embeds_each_distinct_view_that_is_weighed_once():
    crops, image, seen = CropFamily(13, 4, 3), images(), []

    def h(view):
        seen.append(view)
        return view.flatten(1)

    weight = torch.ones(2, 6, 16, dtype=torch.float64)
    crops.integrate(h, image, weight, chunk_size=10)
    assert {len(view) for view in seen[:-1]} == {10}
    assert len(torch.cat(seen)) == len(crops.distinct(image)[0])
    seen.clear()
    weight[0], weight[1] = 0, torch.nn.functional.one_hot(torch.tensor([3, 5, 5, 0, 1, 15]), 16)
    crops.integrate(h, image, weight)
    blank = crops.empty(image)[torch.arange(3), torch.tensor([3, 5, 5])]
    constants = 2  # zeros of the fourth image, and 0.5 of the last two
    assert len(torch.cat(seen)) == constants + int((~blank).sum())


def test_integrate_nothing():
    crops, h = CropFamily(13, 4, 3), network()
    assert torch.equal(crops.integrate(h, images(), torch.zeros(2, 6, 16).double()), torch.zeros(2, 6, 5).double())
    assert crops.integrate(h, images()[:0], torch.zeros(2, 0, 16).double()).shape == (2, 0, 5)
    assert crops(images()[:0], *[torch.zeros(0, dtype=torch.int64)] * 2).shape == (0, 2, 4, 4)
    assert [value.shape for value in crops.distinct(images()[:0])] == [(0,), (0,), (0, 16)]


def test_integrate_has_the_gradients_of_the_double_loop(family):
    image, h = images(4), network()
    weight = torch.rand(2, 4, len(family), dtype=torch.float64, requires_grad=True)
    inputs = [weight, *h.parameters()]
    ours = torch.autograd.grad(family.integrate(h, image, weight).square().sum(), inputs)
    theirs = torch.autograd.grad(double_loop(family, h, image, weight).square().sum(), inputs)
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, other)


def test_integrate_has_the_images_gradient_of_the_double_loop(family):
    image, h = images().requires_grad_(), network()  # blank in several places, each with a gradient of its own
    weight = torch.rand(2, 6, len(family), dtype=torch.float64)
    weight[:, 1, 1:] = 0
    (ours,) = torch.autograd.grad(family.integrate(h, image, weight).square().sum(), image)
    (theirs,) = torch.autograd.grad(double_loop(family, h, image, weight).square().sum(), image)
    torch.testing.assert_close(ours, theirs)


def test_integrate_shares_blank_views_of_images_that_need_a_gradient_where_there_is_none():
    crops, image, count = CropFamily(13, 4, 3), images().requires_grad_(), []

    def h(view):
        count.append(len(view))
        return view.flatten(1)

    with torch.no_grad():
        crops.integrate(h, image, torch.ones(1, 6, 16, dtype=torch.float64))
    assert sum(count) == len(crops.distinct(image)[0])


def test_integrate_stays_in_double_precision():
    crops, image = CropFamily(13, 4, 3), images()
    weight = torch.rand(2, 6, 16, dtype=torch.float64)
    exact = torch.einsum("snk,nkd->snd", weight, everything(crops, image).flatten(1).unflatten(0, (6, 16)))
    for w, tolerance in ((weight, 1e-14), (weight.float(), 1e-6)):
        z = crops.integrate(lambda view: view.flatten(1), image, w)
        assert z.dtype == torch.float64
        torch.testing.assert_close(z, exact, atol=tolerance, rtol=tolerance)


def test_integrate_keeps_the_wider_type_under_autocast():
    crops, h, image = CropFamily(13, 4, 3), network().float(), images(dtype=torch.float32)
    weight = torch.full((1, 6, 16), 1 / 16)
    with torch.autocast("cpu", torch.bfloat16):
        z = crops.integrate(h, image, weight)
    assert z.dtype == torch.float32
    torch.testing.assert_close(z, crops.integrate(h, image, weight), atol=2e-2, rtol=0)


@pytest.mark.parametrize("settings", CROPS.values(), ids=CROPS)
def test_overlap_is_the_sum_of_the_boxs_pixels_in_each_crop(settings):
    side, size, _ = settings
    crops = CropFamily(*settings)
    ends = torch.randint(side + 1, (8, 2, 2)).sort(1).values
    box, mask = ends.flatten(1), torch.zeros(8, 1, side, side, dtype=torch.int64)
    for plane, (top, left, bottom, right) in zip(mask, box.tolist(), strict=True):
        plane[:, top:bottom, left:right] = 1
    expected = everything(crops, mask).sum((1, 2, 3)).unflatten(0, (8, -1))
    assert torch.equal(crops.overlap(box), expected)
    assert crops.overlap(torch.tensor([[0, 0, side, side]])).unique().tolist() == [size**2]


def test_nine_crops_lie_inside_of_a_cell_of_the_paper():
    crops = CropFamily()
    for a, b in itertools.product(range(3), repeat=2):
        inside = crops.overlap(28 * torch.tensor([[a, b, a + 1, b + 1]])) == 400
        assert crops.corner[inside[0]].tolist() == [
            [28 * a + i, 28 * b + j] for i, j in itertools.product((0, 4, 8), repeat=2)
        ]


def test_a_family_has_no_state_to_save_and_can_be_copied(family):
    assert not family.state_dict()
    image = images()
    assert torch.equal(everything(copy.deepcopy(family), image), everything(family, image))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_views_are_the_same_on_a_gpu(family):
    image, h, (sample, member) = images(), network(), all_pairs(6, len(family))
    weight = torch.rand(2, 6, len(family), dtype=torch.float64)
    z = family.integrate(h, image, weight)
    other, on_gpu = copy.deepcopy(family), image.cuda()
    if isinstance(other, ColorPresets):
        other.gain, other.offset = other.gain.cuda(), other.offset.cuda()
    for where in ("cpu", "cuda"):
        views = other(on_gpu, sample.to(where), member.to(where))
        assert torch.equal(views.cpu(), family(image, sample, member))
    torch.testing.assert_close(other.integrate(h.cuda(), on_gpu, weight.cuda()).cpu(), z)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_distinct_views_are_found_by_deterministic_algorithms_on_a_gpu():
    crops, image = CropFamily(13, 4, 3), images()
    try:
        torch.use_deterministic_algorithms(True)
        found = crops.distinct(image.cuda())
    finally:
        torch.use_deterministic_algorithms(False)
    for ours, theirs in zip(found, crops.distinct(image), strict=True):
        assert torch.equal(ours.cpu(), theirs)


def test_a_family_that_lacks_a_method_cannot_be_made():
    with pytest.raises(TypeError, match="abstract"):
        AugmentationFamily()


@pytest.mark.parametrize(
    ("sample", "member", "message"),
    [
        ([0, 1], [0], r"`member` of shape \(M,\), M = 2, but got \(1,\)"),
        ([0.0], [0], "`sample` of torch.int64, but got torch.float32"),
        ([0], [True], "`member` of torch.int64, but got torch.bool"),
        ([[0]], [[0]], r"`sample` of shape \(M,\), but got \(1, 1\)"),
        ([0, 6], [0, 0], r"`sample` in \[0, 6\), but got 6"),
        ([-1, 5], [0, 0], r"`sample` in \[0, 6\), but got -1"),
        ([0, 5], [0, 99], r"`member` in \[0, \d+\), but got 99"),
        ([0, 5], [-2, 1], r"`member` in \[0, \d+\), but got -2"),
    ],
)
def test_forward_names_the_argument(family, sample, member, message):
    with pytest.raises(ValueError, match=message):
        family(images(), torch.tensor(sample), torch.tensor(member))


SMALL, ONE, WEIGHT = CropFamily(13, 4, 3), [torch.zeros(1, dtype=torch.int64)] * 2, torch.ones(1, 6, 16).double()
OBLONG = ((1, 1, 13, 12), (1, 1, 12, 13), (1, 13, 13))
SQUARE = r"`image` of shape \(N, C, H, H\), H = "
ERRORS = [
    (lambda: CropFamily(size=90), r"`size` < 84 \(`image_size`\), for two crops at least, but got 90"),
    (lambda: CropFamily(size=84), r"`size` < 84 \(`image_size`\), for two crops at least, but got 84"),
    (lambda: CropFamily(size=0), "`size` to be an integer >= 1, but got 0"),
    (lambda: CropFamily(stride=0), "`stride` to be an integer >= 1, but got 0"),
    (lambda: CropFamily(stride=1.5), "`stride` to be an integer >= 1, but got 1.5"),
    (lambda: CropFamily(stride=65), "`stride` <= 64, for two crops at least, but got 65"),
    (lambda: CropFamily(image_size=-1), "`image_size` to be an integer >= 1, but got -1"),
    (lambda: SMALL(images()[0], *ONE), r"`image` of shape \(N, C, H, W\), but got \(2, 13, 13\)"),
    *[
        (lambda call=call, shape=shape: call(torch.zeros(shape)), rf"{SQUARE}13.* but got \(1, 1")
        for call in (SMALL.extremes, SMALL.distinct, SMALL.empty)
        for shape in OBLONG
    ],
    *[
        (lambda shape=shape: QuarterTurnFamily().extremes(torch.zeros(shape)), rf"{SQUARE}\d+.* but got \(1, 1")
        for shape in OBLONG
    ],
    (lambda: SMALL(torch.zeros(1, 1, 28, 28), *ONE), rf"{SQUARE}13.* but got \(1, 1, 28, 28\)"),
    (lambda: QuarterTurnFamily()(torch.zeros(1, 1, 13, 12), *ONE), rf"{SQUARE}12.* but got \(1, 1, 13, 12\)"),
    *[
        (
            lambda w=w: SMALL.integrate(network(), images(), w),
            r"`weight` of shape \(S, N, K\), N = 6, K = 16, but got \(",
        )
        for w in (WEIGHT[0], WEIGHT[:, :5], WEIGHT[..., :9])
    ],
    (lambda: SMALL.integrate(network(), images(), WEIGHT, 0), "`chunk_size` to be an integer >= 1, but got 0"),
    *[
        (lambda f=f: SMALL.integrate(f, images(), WEIGHT), r"`network` to return shape \(\d+, D\), but got \(")
        for f in (nn.Identity(), lambda x: x.mean((0, 2, 3))[None])
    ],
    *[
        (lambda box=box: SMALL.overlap(box), r"`box` of shape \(N, 4\), integer, but got \(")
        for box in (torch.zeros(4).long(), torch.zeros(2, 3).long(), torch.zeros(2, 4))
    ],
]


@pytest.mark.parametrize(("call", "message"), ERRORS)
def test_the_argument_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
