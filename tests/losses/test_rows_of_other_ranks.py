"""What a rank does with the rows of another, with the collective operation replaced; test_losses.py has two ranks."""

import pytest
import torch
from torch import nn
from torch.nn.functional import normalize

from lightning_ssl_geometry.functional import info_nce
from lightning_ssl_geometry.losses import BYOLLoss, InfoNCELoss, byol, gather
from lightning_ssl_geometry.losses import info_nce as losses_info_nce
from lightning_ssl_geometry.losses.gather import gather_views


class MeanTemperature(nn.Module):
    """A temperature for each dimension, from the views."""

    def forward(self, z1, z2):
        return (z1 + z2).mean(0)


@pytest.fixture
def another_rank(monkeypatch):
    """Let there be a second rank with the views that are passed."""

    def with_views(z1, z2):
        other = torch.cat((z1, z2), dim=1)
        monkeypatch.setattr(gather, "world_size", lambda: 2)
        monkeypatch.setattr(gather, "gather_and_place", lambda own: (torch.cat((own, other)), slice(0, len(own))))

    return with_views


@pytest.mark.parametrize("n", [0, 1, 3])
def test_each_view_gets_the_rows_of_its_own_view(another_rank, n):
    (a1, a2), (b1, b2) = ([torch.rand(rows, 4) for _ in range(2)] for rows in (n, 2))
    another_rank(b1, b2)
    z1, z2 = gather_views(a1, a2)
    assert torch.equal(z1, torch.cat((a1, b1)))
    assert torch.equal(z2, torch.cat((a2, b2)))


def test_one_rank_gets_its_own_views_back():
    z1, z2 = torch.rand(2, 3), torch.rand(2, 3)
    assert gather_views(z1, z2)[0] is z1
    assert gather_views(z1, z2)[1] is z2


@pytest.mark.parametrize("temperature", [0.5, MeanTemperature()], ids=["number", "rule"])
@pytest.mark.parametrize("form", ["NT_XENT", "COSENTINO", "KELLER"])
def test_info_nce_is_the_sum_of_what_the_ranks_contrast_with_all(another_rank, monkeypatch, form, temperature):
    own, other = ([torch.rand(rows, 4) for _ in range(2)] for rows in (3, 2))
    another_rank(*other)
    z1, z2 = (torch.cat(pair) for pair in zip(own, other, strict=True))
    tau = temperature if temperature == 0.5 else temperature(normalize(z1), normalize(z2))
    terms = {"NT_XENT": 4, "COSENTINO": 2, "KELLER": 2}[form]  # of the two samples of the other rank
    of_other = terms * info_nce(z1, z2, tau, form, anchors=slice(3, 5))
    monkeypatch.setattr(losses_info_nce, "all_reduce_sum", lambda found: found + of_other)
    torch.testing.assert_close(InfoNCELoss(temperature, form=form)(*own), info_nce(z1, z2, tau, form))
    torch.testing.assert_close(InfoNCELoss(temperature, form=form, gather=False)(*own), info_nce(*own, tau, form))


def test_byols_loss_on_a_rank_without_rows_is_that_of_the_others(monkeypatch):
    views = [torch.rand(3, 4) for _ in range(4)]
    alone = BYOLLoss()(*views)
    monkeypatch.setattr(byol, "world_size", lambda: 2)
    monkeypatch.setattr(byol, "all_reduce_sum", lambda own: own + torch.tensor([3 * alone, 3.0]))
    torch.testing.assert_close(BYOLLoss()(*(z[:0] for z in views)), alone)
