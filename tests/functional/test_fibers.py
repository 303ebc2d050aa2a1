"""Fibers: base spaces that move as the group says, their distances and bundles."""

import itertools

import pytest
import torch

from lightning_ssl_geometry.functional.groups import fibers
from lightning_ssl_geometry.functional.groups.action import quarter_turn
from lightning_ssl_geometry.functional.groups.fibers import (
    FiberGroup,
    Near,
    base_spaces,
    check_group,
    feature_map,
    fiber_bundle,
    nearby_bases,
    topographic_distance,
)

ROTATION = FiberGroup((4,), (True,))
SCALE = FiberGroup((6,), (False,))
GRID = FiberGroup((8, 8), (False, False))


def z(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def test_the_axes_of_a_feature_map():
    x = z(2, 3, 6 * 4, 5, 7)
    every, group = feature_map(x, ["translation", "rotation", "scale"], (6, 4))
    assert torch.equal(every, x.flatten(2))
    assert group == FiberGroup((6, 4, 5, 7), (False, True, False, False))
    scale, group = feature_map(x, "scale", (6, 4))
    torch.testing.assert_close(scale, x.mean((-2, -1)).unflatten(2, (6, 4)).mean(3))
    assert group == FiberGroup((6,), (False,))
    both, group = feature_map(x, ["scale", "rotation"], (6, 4))
    torch.testing.assert_close(both, x.mean((-2, -1)))
    assert group == FiberGroup((6, 4), (False, True))
    space, group = feature_map(x, "translation", circular=True)
    torch.testing.assert_close(space, x.mean(2).flatten(2))
    assert group == FiberGroup((5, 7), (True, True))
    plain, _ = feature_map(x[:, :, 0], "translation")
    assert torch.equal(plain, x[:, :, 0].flatten(2))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((z(2, 3), "rotation"), r"Expected `z` with a group axis, of shape \(N, C, \|G\|, H, W\), but got \(2, 3\)"),
        ((z(2, 3, 1, 5, 5), "rotation"), "Expected `z` with a group axis of more than one rotation"),
        ((z(2, 3, 5, 5), "scale"), "Expected `z` with a group axis of more than one scale"),
        ((z(2, 3, 4, 5, 5), "scale", (2, 3)), r"Expected `group_shape` .* with a product of 4.*got \(2, 3\)"),
        ((z(2, 3, 4, 5, 5), ["scale", "rotation"]), "Expected `group_shape` .* got None"),
        ((z(2, 3, 4, 5, 5), "colour"), "Expected `group` to be one or several of .* but got 'colour'"),
        ((z(2, 3, 4, 5, 5), []), "Expected `group` to be one or several of"),
        ((z(2, 3, 4, 5, 5), ["scale", "scale"]), "Expected `group` to be one or several of"),
    ],
)
def test_a_feature_map_without_the_axis_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        feature_map(*arguments)


SCALES = (1.0, 1.4, 2.0)


def scaled_maps(background, size=129):
    """Maps (1, 1, 3, size, size) of an image, and of the image made smaller by 1.4 and by 2, at the smallest scale.

    The map at scale s is a function F_s of the place. Gamma says that the smaller image has F_s(s p) at the place p.
    """
    axis = (torch.arange(size, dtype=torch.float64) - (size - 1) / 2) / (size / 2)
    y, x = torch.meshgrid(axis, axis, indexing="ij")

    def function(s, y, x):
        bump = torch.exp(-((y - 0.1) ** 2 + 2 * (x + 0.05) ** 2) * (3 + s) * 8)
        return background + (1 + s) * bump * (1 + torch.sin(4 * s * x))

    of_image = torch.stack([function(s, y, x) for s in SCALES])[None, None]
    smaller = [torch.stack([function(s, s * y, s * x)] * 3)[None, None] for s in SCALES]
    return of_image, smaller


@pytest.mark.parametrize(("pooling", "background"), [("area", 0.0), ("window", 0.0), ("window", 2.0)])
def test_two_means_over_the_map_commute_with_changes_of_scale(pooling, background):
    of_image, smaller = scaled_maps(background)
    whole, group = feature_map(of_image, "scale", pooling=pooling, scales=SCALES)
    assert group == SCALE._replace(shape=(3,))
    first = [feature_map(x, "scale", pooling=pooling, scales=SCALES)[0][0, 0, 0] for x in smaller]
    torch.testing.assert_close(torch.stack(first), whole[0, 0], rtol=2e-3, atol=0)


def test_the_mean_over_the_whole_map_does_not():
    of_image, smaller = scaled_maps(0.0)
    whole, _ = feature_map(of_image, "scale")
    first = torch.stack([feature_map(x, "scale")[0][0, 0, 0] for x in smaller])
    torch.testing.assert_close(whole[0, 0] / first, torch.tensor(SCALES).double() ** 2, rtol=2e-3, atol=0)


def test_a_window_is_the_mean_of_the_pixels_in_it_and_of_shares_of_those_at_its_edge():
    x = z(1, 1, 2, 4, 6)
    found, _ = feature_map(x, "scale", pooling="window", scales=(1.0, 2.0))
    inner = (x[..., 1:3, 2:4].sum((-2, -1)) + x[..., 1:3, 1].sum(-1) / 2 + x[..., 1:3, 4].sum(-1) / 2) / (2 * 3)
    torch.testing.assert_close(found[..., 0], inner[..., 0])
    torch.testing.assert_close(found[..., 1], x[:, :, 1].mean((-2, -1)))


@pytest.mark.parametrize(
    ("group", "pooling", "scales", "message"),
    [
        ("rotation", "area", (1.0,), "Expected `pooling` = 'mean' for a group without scales or with translations"),
        (["scale", "translation"], "window", SCALES, "Expected `pooling` = 'mean' for a group without scales or with"),
        ("scale", "sum", SCALES, "Expected `pooling` to be one of .'mean', 'area', 'window'., but got 'sum'"),
        ("scale", "area", None, "Expected 3 `scales` for `pooling` = 'area', but got None"),
        ("scale", "area", (1.0, 1.0, 2.0), r"Expected `scales` > 0, at least 1, ascending, but got \(1.0, 1.0, 2.0\)"),
        ("scale", "area", (1.0, 2.0), r"Expected 3 `scales` for `pooling` = 'area', but got \(1.0, 2.0\)"),
    ],
)
def test_a_mean_that_does_not_fit_the_group_is_refused(group, pooling, scales, message):
    with pytest.raises(ValueError, match=message):
        feature_map(z(1, 2, 3, 5, 5), group, pooling=pooling, scales=scales)


def test_the_means_are_as_accurate_in_half_precision_as_it_allows():
    x = z(2, 3, 3, 30, 30).abs().float()
    for pooling in ("area", "window"):
        exact, _ = feature_map(x, "scale", pooling=pooling, scales=SCALES)
        half, _ = feature_map(x.bfloat16(), "scale", pooling=pooling, scales=SCALES)
        assert half.dtype == torch.bfloat16
        torch.testing.assert_close(half.float(), exact, rtol=8e-3, atol=0)


@pytest.mark.parametrize("shape", [(3,), (-3, -1), (3, 1, 1), "31", (3.0, 1.0), (2, 2), (0, 0)])
def test_a_group_shape_that_does_not_fit_is_refused(shape):
    with pytest.raises(ValueError, match=r"Expected `group_shape` \(scales, orientations\) with a product of 3"):
        feature_map(z(1, 2, 3, 5, 5), "scale", shape)


@pytest.mark.parametrize("group", [None, 3, (), [3], "turns"])
def test_an_unknown_group_is_refused(group):
    with pytest.raises(ValueError, match="Expected `group` to be one or several of"):
        feature_map(z(1, 2, 3, 5, 5), group)


@pytest.mark.parametrize("pairs", [1 << 22, 100])
@pytest.mark.parametrize(("limits", "wrap"), [((0, 2), False), ((1, None), False), ((1, 5), True), ((4, 9), False)])
def test_a_near_base_is_drawn_as_the_table_says(limits, wrap, pairs, monkeypatch):
    monkeypatch.setattr(fibers, "_PAIRS", pairs)  # in parts of one row, too
    group = FiberGroup((5, 6), (wrap, wrap))
    bases, given = base_spaces(group, 2), {"min_distance": limits[0], "wrap": wrap}
    order, count = nearby_bases(bases, group, limits[1], **given)
    first = torch.arange(400) % len(bases)
    u = torch.rand(400, generator=torch.Generator().manual_seed(0))
    near = Near(*limits, wrap)
    found = near.draw(bases, first, u, group=group)
    assert torch.equal(found, order[first, (u * count[first]).long()])
    assert torch.equal(near.counts(bases, group), count)


def test_drawing_a_near_base_of_a_large_map_needs_no_table_of_all_pairs():
    group = FiberGroup((96, 96), (False, False))
    bases = base_spaces(group)
    with torch.profiler.profile(profile_memory=True) as seen:
        Near(least=1).draw(bases, torch.arange(0, len(bases), 90), torch.rand(103), group=group)
    most = max(abs(event.self_cpu_memory_usage) for event in seen.key_averages())
    assert most < 9216**2  # bytes; a table of indices would have 8 times as many


def test_groups_have_an_order_of_their_own():
    assert check_group(["translation", "scale"]) == ("scale", "translation")


@pytest.mark.parametrize("size", range(1, 6))
def test_a_base_space_of_scales_slides_to_the_border(size):
    expected = [list(range(start, start + size)) for start in range(6 - size + 1)]
    assert base_spaces(SCALE, size).tolist() == expected


def test_without_a_size_each_element_is_a_base_space():
    for group in (SCALE, ROTATION):
        assert base_spaces(group).tolist() == [[element] for element in range(group.order)]


@pytest.mark.parametrize("size", range(1, 5))
def test_a_base_space_of_orientations_goes_round(size):
    assert base_spaces(ROTATION, size).tolist() == [[(r + i) % 4 for i in range(size)] for r in range(4)]


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 7, 12, 30, 49, 55, 56])
def test_a_base_space_on_a_grid_is_a_patch_that_moves_as_a_whole(size):
    bases = base_spaces(GRID, size)
    assert bases.shape[1] == size
    assert len(bases) > 1
    rows, columns = bases // 8, bases % 8
    assert torch.equal(rows - rows[:, :1], (rows - rows[:, :1])[:1].expand_as(rows))
    assert torch.equal(columns - columns[:, :1], (columns - columns[:, :1])[:1].expand_as(columns))
    height, width = int(rows[0].max() - rows[0].min()) + 1, int(columns[0].max() - columns[0].min()) + 1
    assert len(bases) == (8 - height + 1) * (8 - width + 1)
    assert height * width - size < max(height, width)  # no smaller box would do
    assert len({tuple(row) for row in bases.tolist()}) == len(bases)


def test_a_product_moves_along_each_axis():
    bases = base_spaces(FiberGroup((3, 4), (False, True)), 2).tolist()
    assert bases == [[4 * s + r, 4 * s + (r + 1) % 4] for s in range(3) for r in range(4)]
    whole = base_spaces(FiberGroup((3, 4), (False, True)), 12)
    assert len(whole) == 4  # only round the orientations
    assert all(sorted(row) == list(range(12)) for row in whole.tolist())


@pytest.mark.parametrize(
    ("group", "size", "message"),
    [
        (SCALE, 7, r"Expected `base_size` in \[1, 6\], but got 7"),
        (SCALE, 0, r"Expected `base_size` in \[1, 6\], but got 0"),
        (SCALE, 6, "Expected `base_size` of at most 5, but got 6"),
        (FiberGroup((1, 3), (True, False)), 3, "at most 2, but got 3"),
        (FiberGroup((3, 5), (False, False)), 13, "at most 12, but got 13"),
        (GRID, 57, "at most 56, but got 57"),
        (GRID, 64, "at most 56, but got 64"),
    ],
)
def test_a_base_space_that_cannot_move_is_refused(group, size, message):
    with pytest.raises(ValueError, match=message):
        base_spaces(group, size)


def test_of_boxes_of_one_size_the_most_cubic_is_taken():
    assert base_spaces(GRID, 4)[0].tolist() == [0, 1, 8, 9]


def test_one_of_two_scales_can_be_moved_to_the_other():
    assert base_spaces(FiberGroup((2,), (False,))).tolist() == [[0], [1]]


def test_distances_by_steps_and_the_shorter_way_round():
    group = FiberGroup((3, 4), (False, True))
    for a, b in itertools.product(range(12), repeat=2):
        steps = abs(a // 4 - b // 4), abs(a % 4 - b % 4)
        found = topographic_distance(torch.tensor(a), torch.tensor(b), group)
        assert found.item() == steps[0] ** 2 + steps[1] ** 2
        found = topographic_distance(torch.tensor(a), torch.tensor(b), group, wrap=True)
        assert found.item() == steps[0] ** 2 + min(steps[1], 4 - steps[1]) ** 2


@pytest.mark.parametrize("wrap", [False, True])
@pytest.mark.parametrize("limit", [1, 2, 4.5, None])
def test_neighbours_are_those_within_the_limit(limit, wrap):
    group = FiberGroup((3, 4), (False, True))
    bases = base_spaces(group, 2)
    order, count = nearby_bases(bases, group, limit, wrap=wrap)
    for i, row in enumerate(bases[:, 0]):
        distance = topographic_distance(row, bases[:, 0], group, wrap=wrap)
        within = {j for j, d in enumerate(distance.tolist()) if limit is None or d <= limit}
        assert set(order[i, : count[i]].tolist()) == within
        assert i in within


@pytest.mark.parametrize("chunk", [1, 5, 10**6])
@pytest.mark.parametrize("limits", [(0, 2), (1, 1), (1, 4.5), (4, None), (2, 5)])
def test_neighbours_between_two_limits_in_chunks(monkeypatch, limits, chunk):
    monkeypatch.setattr("lightning_ssl_geometry.functional.groups.fibers._PAIRS", chunk)
    group = FiberGroup((5, 4), (False, True))
    least, most = limits
    bases = base_spaces(group, 1)
    order, count = nearby_bases(bases, group, most, min_distance=least)
    assert order.shape == (len(bases), int(count.max()))
    for i, row in enumerate(bases[:, 0]):
        distance = topographic_distance(row, bases[:, 0], group)
        within = [j for j, d in enumerate(distance.tolist()) if least <= d and (most is None or d <= most)]
        assert order[i, : count[i]].tolist() == within
        assert order[i].min() >= 0


def test_a_base_space_without_a_second_one_is_refused():
    group = FiberGroup((5,), (False,))
    with pytest.raises(ValueError, match=r"`min_distance` with a second base space .* but 1 of 5 have none at squared"):
        nearby_bases(base_spaces(group, 1), group, min_distance=9)


def test_memory_does_not_grow_with_the_square_of_a_large_map():
    group = FiberGroup((64, 64), (False, False))
    order, _ = nearby_bases(base_spaces(group, 1), group, 2)
    assert order.shape == (64 * 64, 9)
    assert order.untyped_storage().nbytes() == 8 * order.numel()


@pytest.mark.parametrize("limit", [0, 0.5, -1])
def test_a_limit_that_leaves_no_pair_is_refused(limit):
    with pytest.raises(ValueError, match=f"Expected `max_distance` >= 1.*got {limit}"):
        nearby_bases(base_spaces(SCALE), SCALE, limit)


def test_bundles_are_fibers_one_after_the_other():
    x = z(3, 2, 5)
    elements = torch.tensor([[0, 4], [3, 1], [2, 2]])
    expected = torch.stack([torch.cat([x[n, :, g] for g in elements[n]]) for n in range(3)])
    assert torch.equal(fiber_bundle(x, elements), expected)
    torch.autograd.gradcheck(lambda y: fiber_bundle(y, elements), x.requires_grad_())
    with pytest.raises(ValueError, match=r"Expected `z` of shape \(N, C, \|G\|\) and `elements`"):
        fiber_bundle(x, elements[:2])


def test_the_operator_of_the_group_moves_fibers():
    """Gamma_g[z(g_0)] = z(g^-1 g_0): a turned image's bundle is the bundle of the base space turned back."""
    x = z(2, 3, 4, 5, 5)
    turned = quarter_turn(x.roll(1, 2).transpose(1, 2).flatten(0, 2)[:, None], 1).view(2, 4, 3, 5, 5).transpose(1, 2)
    maps, group = feature_map(x, "rotation")
    moved, _ = feature_map(turned, "rotation")
    bases = base_spaces(group, 2)
    for r in range(4):
        a = fiber_bundle(moved, bases[[r, r]])
        b = fiber_bundle(maps, bases[[(r - 1) % 4] * 2])
        torch.testing.assert_close(a, b)


def test_a_smallest_distance_that_leaves_no_pair_is_named():
    group = FiberGroup((4,), (True,))
    with pytest.raises(ValueError, match="`min_distance` with a second base space for each first one, but 4 of 4"):
        nearby_bases(base_spaces(group), group, min_distance=100.0)
    with pytest.raises(ValueError, match="`min_distance` >= 0 and finite, but got nan"):
        nearby_bases(base_spaces(group), group, min_distance=float("nan"))
