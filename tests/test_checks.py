"""One wording for each kind of check."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch

from lightning_ssl_geometry import checks

_WRONG = [
    (lambda: checks.at_least(1, size=0), "Expected `size` >= 1, but got 0."),
    (lambda: checks.at_least(0, size=math.nan), "Expected `size` >= 0, but got nan."),
    (lambda: checks.integer(2, views=1), "Expected `views` to be an integer >= 2, but got 1."),
    (lambda: checks.integer(1, views=2.0), "Expected `views` to be an integer >= 1, but got 2.0."),
    (lambda: checks.integer(1, views=True), "Expected `views` to be an integer >= 1, but got True."),
    (lambda: checks.positive(tau=0.0), "Expected `tau` > 0, but got 0.0."),
    (lambda: checks.inside("[0, 1)", share=1.0), "Expected `share` in [0, 1), but got 1.0."),
    (lambda: checks.inside("(0, 1]", share=0.0), "Expected `share` in (0, 1], but got 0.0."),
    (lambda: checks.inside("[0, 1]", share=math.nan), "Expected `share` in [0, 1], but got nan."),
    (lambda: checks.inside("(0, inf)", tau=0.0), "Expected `tau` > 0 and finite, but got 0.0."),
    (lambda: checks.inside("[0, inf)", tau=math.inf), "Expected `tau` >= 0 and finite, but got inf."),
    (lambda: checks.ascending(2, scales=2.0), "Expected `scales` to be a list, but got 2.0."),
    (lambda: checks.ascending(2, scales=(1, 1)), "Expected `scales` > 0, at least 2, ascending, but got (1, 1)."),
    (lambda: checks.ascending(2, scales=[1.0]), "Expected `scales` > 0, at least 2, ascending, but got [1.0]."),
    (lambda: checks.ascending(1, scales=[0.0]), "Expected `scales` > 0, at least 1, ascending, but got [0.0]."),
    (lambda: checks.ascending(1, s=[1.0, math.nan]), "Expected `s` > 0, at least 1, ascending, but got [1.0, nan]."),
    (lambda: checks.ascending(1, s=[1.0, math.inf]), "Expected `s` > 0, at least 1, ascending, but got [1.0, inf]."),
    (lambda: checks.ascending(1, s=["a"]), "Expected `s` > 0, at least 1, ascending, but got ['a']."),
    (lambda: checks.one_of(("a", "b"), mode="c"), "Expected `mode` to be one of ('a', 'b'), but got 'c'."),
    (lambda: checks.named(int, k=[1]), "Expected `k` to be a dict of names and ints, but got a list."),
    (lambda: checks.named(int, k={"a": int}), "Expected `k` to hold ints, but 'a' is the class int: say int()."),
    (lambda: checks.named(int, k={"a": str}), "Expected `k` to hold ints, but 'a' is the class str."),
    (lambda: checks.named(int, k={"a": "1"}), "Expected `k` to hold ints, but 'a' is of type str."),
    (lambda: checks.shaped("N, D", h=torch.ones(2)), "Expected `h` of shape (N, D), but got (2,)."),
    (
        lambda: checks.shaped("N, D", h=torch.ones(2, 3), z=torch.ones(2, 4)),
        "Expected `z` of shape (N, D), N = 2, D = 3, but got (2, 4).",
    ),
    (
        lambda: checks.shaped("N,", {"N": 3}, label=torch.ones(2)),
        "Expected `label` of shape (N,), N = 3, but got (2,).",
    ),
    (lambda: checks.shaped("D, D", x=torch.ones(2, 3)), "Expected `x` of shape (D, D), but got (2, 3)."),
    (
        lambda: checks.shaped("D, D", {"D": 8}, x=torch.ones(8, 3)),
        "Expected `x` of shape (D, D), D = 8, but got (8, 3).",
    ),
    (lambda: checks.shaped("N, 2", x=torch.ones(5, 3)), "Expected `x` of shape (N, 2), but got (5, 3)."),
    (lambda: checks.rows(2, h=torch.ones(1, 3)), "Expected `h` of at least 2 rows, but got 1."),
    (lambda: checks.integers(label=torch.ones(2)), "Expected `label` of an integer dtype, but got torch.float32."),
    (lambda: checks.integers(label=torch.ones(2) > 0), "Expected `label` of an integer dtype, but got torch.bool."),
    (lambda: checks.floating(h=torch.ones(2).long()), "Expected `h` of a float dtype, but got torch.int64."),
    (
        lambda: checks.finite(h=torch.tensor([1.0, math.nan])),
        "Expected finite `h`, but got 1 of 2 values that are not.",
    ),
    (lambda: checks.at_least(1, size="2"), "Expected `size` >= 1, but got '2', which is no number."),
    (lambda: checks.positive(tau=None), "Expected `tau` > 0, but got None."),
    (lambda: checks.inside("[0, 1)", share=[0.5]), "Expected `share` in [0, 1), but got [0.5]."),
    (lambda: checks.pathlike(root=5), "Expected `root` to be a path, but got 5."),
    (lambda: checks.listed(names={"a": 1}), "Expected `names` to be a list, but got {'a': 1}."),
    (
        lambda: checks.dense(h=torch.eye(2).to_sparse()),
        "Expected `h` to be a dense tensor, but got one of layout torch.sparse_coo. Use `h.to_dense()`.",
    ),
    (
        lambda: checks.seed(seed=2**63),
        "Expected `seed` to be an integer between -2**63 and 2**63 - 1, but got 9223372036854775808.",
    ),
    (
        lambda: checks.scalars(scalars={"loss": None}),
        "Expected `scalars` to hold real numbers, but 'loss' is None. Leave it out.",
    ),
    (lambda: checks.switch(gather="false"), "Expected `gather` to be True or False, but got 'false'."),
]


@pytest.mark.parametrize(("check", "message"), _WRONG, ids=[message for _, message in _WRONG])
def test_each_kind_has_one_wording(check, message):
    with pytest.raises(ValueError) as caught:
        check()
    assert str(caught.value) == message


def test_what_fits_passes():
    checks.at_least(1, size=1)
    checks.integer(1, views=1, size=np.int64(1))
    checks.seed(seed=-(2**63), other=np.int64(2**63 - 1))
    checks.listed(names=np.array(["a", "b"]), others=("a",))
    checks.pathlike(root="data", cache=Path("cache"))
    checks.dense(h=torch.ones(2, 3).T)
    checks.scalars(scalars={"loss": torch.tensor([0.5]), "rank": np.float32(1), "nan": math.nan, "more": True})
    checks.inside("[0, 1]", low=0.0, high=1)
    checks.inside("(0, inf)", tau=5)
    checks.shaped("V, N, 2", {"N": 3}, z=torch.ones(2, 3, 2))
    checks.shaped("D, D", x=torch.ones(2, 2))
    checks.rows(2, h=torch.ones(2))
    checks.named(int, k={"a": 1})
    checks.integers(label=torch.ones(2, dtype=torch.uint8))
    checks.finite(none=torch.ones(0))
