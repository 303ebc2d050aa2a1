import pytest
import torch

from lightning_ssl_geometry.functional import chance_agreement, label_agreement, normalized_distance


def test_unit_distance_is_a_function_of_the_angle():
    angle = torch.linspace(0, torch.pi, 7, dtype=torch.float64)
    a = torch.stack([torch.ones(7), torch.zeros(7)], 1).double() * torch.arange(1, 8)[:, None]
    b = torch.stack([angle.cos(), angle.sin()], 1) * 0.3
    torch.testing.assert_close(normalized_distance(a, b), 2 * (angle / 2).sin())


def test_mean_distance_does_not_change_with_the_scale():
    a, b = torch.randn(2, 30, 5, dtype=torch.float64)
    found = normalized_distance(a, b, scale="mean")
    torch.testing.assert_close(found, (a - b).norm(dim=1) / a.norm(dim=1).mean())
    torch.testing.assert_close(normalized_distance(7 * a, 7 * b, scale="mean"), found)
    assert not torch.allclose(normalized_distance(7 * a, b, scale="mean"), found)


def test_distances_do_not_change_with_a_rotation():
    a, b = torch.randn(2, 30, 5, dtype=torch.float64)
    q = torch.linalg.qr(torch.randn(5, 5, dtype=torch.float64)).Q
    for scale in ("unit", "mean"):
        torch.testing.assert_close(
            normalized_distance(a @ q, b @ q, scale=scale), normalized_distance(a, b, scale=scale)
        )


def test_agreement_by_hand():
    label = torch.tensor([0, 0, 1, 1, 2])
    assert label_agreement(label, torch.tensor([1, 2, 3, 4, 0])).item() == pytest.approx(2 / 5)
    assert chance_agreement(label).item() == pytest.approx(4 / 20)  # ordered pairs: 2 + 2 of 20
    assert chance_agreement(torch.zeros(3, dtype=torch.int64)) == 1
    assert chance_agreement(torch.arange(3)) == 0
    assert chance_agreement(torch.zeros(2, dtype=torch.int64)) == 1  # two samples are one pair


def test_chance_is_what_random_neighbours_agree():
    label = torch.randint(7, (2000,))
    other = torch.randint(1, 2000, (200, 2000))
    neighbor = (torch.arange(2000) + other) % 2000  # uniform over the others
    found = torch.stack([label_agreement(label, row) for row in neighbor]).mean()
    assert found.item() == pytest.approx(chance_agreement(label).item(), abs=2e-3)


OK = torch.ones(3, 2)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: normalized_distance(OK, OK.T), r"`b` of shape \(N, D\), N = 3, D = 2, but got \(2, 3\)"),
        (
            lambda: normalized_distance(OK, torch.zeros(3, 2)),
            "each row of `b` to have a direction, but got 3 rows of zeros",
        ),
        (lambda: normalized_distance(torch.zeros(3, 2), OK, scale="mean"), "`a` with a row other than 0"),
        (lambda: normalized_distance(OK, OK, scale="max"), r"`scale` to be one of \('unit', 'mean'\), but got 'max'"),
        (
            lambda: label_agreement(torch.ones(3), torch.arange(3)),
            r"`label` of N >= 1 integers, but got torch\.float32",
        ),
        (lambda: chance_agreement(torch.arange(1)), "`label` of N >= 2 integers"),
        (
            lambda: label_agreement(torch.arange(3), torch.tensor([0, 1, 3])),
            "but got values from 0 to 3",
        ),
        (
            lambda: label_agreement(torch.arange(3), torch.tensor([0, 1, -1])),
            "but got values from -1 to 1",
        ),
        (
            lambda: label_agreement(torch.arange(3), torch.arange(2)),
            r"but got shape \(2,\)",
        ),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()
