"""What functions of two views refuse."""

import pytest
import torch

WRONG_VIEWS = {
    "1-d": (torch.ones(4), torch.ones(4), r"`z1` of shape \(N, P\), but got \(4,\)"),
    "3-d": (torch.ones(2, 4, 3), torch.ones(2, 4, 3), r"`z1` of shape \(N, P\), but got \(2, 4, 3\)"),
    "N": (torch.ones(4, 3), torch.ones(5, 3), r"`z2` of shape \(N, P\), N = 4, P = 3, but got \(5, 3\)"),
    "P": (torch.ones(4, 3), torch.ones(4, 2), r"`z2` of shape \(N, P\), N = 4, P = 3, but got \(4, 2\)"),
    "int": (torch.ones(4, 3).int(), torch.ones(4, 3), "`z1` of a float dtype, but got torch.int32"),
    "bool": (torch.ones(4, 3), torch.ones(4, 3).bool(), "`z2` of a float dtype, but got torch.bool"),
}


@pytest.fixture(params=WRONG_VIEWS.values(), ids=WRONG_VIEWS)
def wrong_views(request):
    """z1, z2 and the message that names what is wrong with them."""
    return request.param
