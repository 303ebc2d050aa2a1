import pytest
import torch
from sklearn.neighbors import KNeighborsClassifier
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from lightning_ssl_geometry.functional.knn import knn_leave_one_out, knn_predict


def test_rows_shorter_than_torchs_bound_count_less():
    # `normalize` divides by 1e-12 at least: the first row has the cosine 1, or a half, with the query
    query, other = torch.tensor([[1.0, 0.0]]).double(), torch.tensor([0.9, 0.19**0.5]).double()
    for length, nearest in ((1.2e-12, 0), (0.5e-12, 1)):
        bank = torch.stack([length * query[0], other])
        assert knn_predict(query, bank, torch.tensor([0, 1]), 2, k=1).item() == nearest


def test_autocast_and_other_dtypes_change_nothing():
    h, label = torch.randn(64) + 0.02 * torch.randn(200, 64), torch.randint(4, (200,))
    expected = knn_predict(h, h, label, 4, 9), knn_leave_one_out(h, label, 4, 9)
    with torch.autocast("cpu", torch.bfloat16):
        found = knn_predict(h, h, label, 4, 9), knn_leave_one_out(h, label, 4, 9)
    assert torch.equal(found[0], expected[0])
    assert torch.equal(found[1], expected[1])
    assert torch.equal(knn_predict(h.half(), h, label, 4, 1), knn_predict(h.half().float(), h, label, 4, 1))


@pytest.mark.parametrize("chunk_size", [1, 7, 1000])
def test_it_agrees_with_scikit_learn(chunk_size):
    bank, h, label = torch.randn(200, 5), torch.randn(40, 5), torch.randint(4, (200,))
    judge = KNeighborsClassifier(9, metric="cosine", weights=lambda d: torch.exp((1 - torch.tensor(d)) / 0.07).numpy())
    expected = torch.from_numpy(judge.fit(bank, label).predict(h))
    assert torch.equal(knn_predict(h, bank, label, 4, 9, chunk_size=chunk_size), expected)


class Largest(TorchDispatchMode):
    """The largest piece of memory that any operation asks for, in numbers."""

    numbers = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        given = {x.untyped_storage().data_ptr() for x in tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)}
        for x in tree_leaves(result):
            if isinstance(x, torch.Tensor) and x.untyped_storage().data_ptr() not in given:
                self.numbers = max(self.numbers, x.untyped_storage().nbytes() // 4)
        return result


def test_twenty_rows_vote_unless_said():
    # ten equal rows of each class are a tie, which class 0 wins; the next row would decide for class 1
    bank = torch.cat([torch.tensor([[2.0, 0.0]]).repeat(20, 1), torch.tensor([[1.0, 0.01]])])
    label = torch.cat([torch.arange(20) % 2, torch.tensor([1])])
    assert [knn_predict(bank[:1], bank, label, 3, **k).item() for k in ({}, {"k": 20}, {"k": 21})] == [0, 0, 1]
    h, label = torch.cat([bank[:1], bank]), torch.cat([torch.tensor([2]), label])
    assert [knn_leave_one_out(h, label, 3, **k)[0].item() for k in ({}, {"k": 20}, {"k": 21})] == [0, 0, 1]


@pytest.mark.parametrize("queries", [64, 512])
@pytest.mark.parametrize("chunk_size", [4, 16])
def test_memory_is_of_a_chunk_and_not_of_all_queries_or_of_another_bank(queries, chunk_size):
    bank, h, label = torch.randn(300, 100), torch.randn(queries, 100), torch.randint(4, (300,))
    with Largest() as largest:
        knn_predict(h, bank, label, 4, chunk_size=chunk_size)
    assert largest.numbers == max(chunk_size * 300, 2 * queries)  # similarities; and the answer, in int64


def test_the_length_of_a_row_does_not_matter_and_none_is_divided_by_zero():
    bank, h, label = torch.randn(50, 3), torch.randn(20, 3), torch.randint(3, (50,))
    expected = knn_predict(h, bank, label, 3, 5)
    assert torch.equal(knn_predict(10 * h, bank * torch.rand(50, 1).add(0.1), label, 3, 5), expected)
    bank[7] = 0
    kept = torch.arange(50) != 7
    far = knn_predict(h, bank[kept], label[kept], 3, 5)
    assert torch.equal(knn_predict(h, bank, label, 3, 5), far)  # similarity 0, among 49 others: not of the nearest


def test_weights_do_not_overflow():
    assert knn_predict(torch.eye(2), torch.eye(2), torch.tensor([1, 0]), 2, 2, temperature=1e-4).tolist() == [1, 0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"bank": torch.ones(3, 4)}, r"`bank` of shape \(B, D\), D = 2, but got \(3, 4\)"),
        ({"label": torch.zeros(2).long()}, r"`label` of shape \(B,\), B = 3, but got \(2,\)"),
        ({"k": 4}, "`k` from 1 to 3, the size of the bank, but got 4"),
        ({"temperature": 0}, "`temperature` > 0, but got 0"),
        ({"chunk_size": 0}, "`chunk_size` >= 1, but got 0"),
    ],
)
def test_bad_input(arguments, message):
    one = torch.ones(3, 2)
    settings = {"bank": one, "label": torch.zeros(3).long(), "num_classes": 2, "k": 1, **arguments}
    with pytest.raises(ValueError, match=message):
        knn_predict(one, **settings)


@pytest.mark.parametrize(("chunk_size", "k"), [(1, 6), (7, 6), (1000, 6), (1000, 1), (1000, 29)])
def test_leaving_one_out_is_the_prediction_from_all_others(chunk_size, k):
    h, label = torch.randn(30, 5, dtype=torch.float64), torch.randint(4, (30,))
    others = [torch.arange(30) != n for n in range(30)]
    expected = torch.cat([knn_predict(h[n, None], h[rest], label[rest], 4, k) for n, rest in enumerate(others)])
    assert torch.equal(knn_leave_one_out(h, label, 4, k, chunk_size=chunk_size), expected)


@pytest.mark.parametrize("k", [0, 5])
def test_as_many_others_as_vote_are_needed(k):
    with pytest.raises(ValueError, match="Expected `k` from 1 to 4, the number of other rows, but got"):
        knn_leave_one_out(torch.randn(5, 2), torch.zeros(5, dtype=torch.int64), 1, k)
