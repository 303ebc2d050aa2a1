import pytest
import torch
from sklearn.neighbors import KNeighborsClassifier

from lightning_ssl_geometry.functional.knn import knn_predict


@pytest.mark.parametrize("chunk_size", [1, 7, 1000])
def test_it_agrees_with_scikit_learn(chunk_size):
    bank, h, label = torch.randn(200, 5), torch.randn(40, 5), torch.randint(4, (200,))
    judge = KNeighborsClassifier(9, metric="cosine", weights=lambda d: torch.exp((1 - torch.tensor(d)) / 0.07).numpy())
    expected = torch.from_numpy(judge.fit(bank, label).predict(h))
    assert torch.equal(knn_predict(h, bank, label, 4, 9, chunk_size=chunk_size), expected)


def test_weights_do_not_overflow():
    assert knn_predict(torch.eye(2), torch.eye(2), torch.tensor([1, 0]), 2, 2, temperature=1e-4).tolist() == [1, 0]


def test_bad_input():
    one = torch.ones(3, 2)
    with pytest.raises(ValueError, match=r"`bank` \(B, D\), but got \(3, 2\) and \(3, 4\)"):
        knn_predict(one, torch.ones(3, 4), torch.zeros(3).long(), 2)
    with pytest.raises(ValueError, match=r"`label` of shape \(3,\), but got \(2,\)"):
        knn_predict(one, one, torch.zeros(2).long(), 2)
    with pytest.raises(ValueError, match="`k` from 1 to 3, the size of the bank, but got 4"):
        knn_predict(one, one, torch.zeros(3).long(), 2, 4)
    with pytest.raises(ValueError, match="`temperature` > 0, but got 0"):
        knn_predict(one, one, torch.zeros(3).long(), 2, 1, temperature=0)
