"""What a process shares beside tensors: random states, settings of torch and environment variables."""

__all__ = ["shared", "surroundings_kept"]

import os
import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

from lightning_ssl_geometry.observe.undisturbed import random_state_kept


def shared() -> dict[str, str]:
    """Return {what: its state}, where two states are equal strings if nothing was drawn or set between them."""
    name, keys, *places = np.random.get_state(legacy=True)  # noqa: NPY002, the global state is meant
    return {
        "torch's random numbers": str(torch.get_rng_state().tolist()),
        "numpy's random numbers": f"{name} {np.asarray(keys).tolist()} {places}",
        "Python's random numbers": str(random.getstate()),
        "torch's default dtype": str(torch.get_default_dtype()),
        "torch's deterministic algorithms": str(torch.are_deterministic_algorithms_enabled()),
        "torch's number of threads": str(torch.get_num_threads()),
        "the environment variables": str(sorted(os.environ.items())),
    }


@contextmanager
def surroundings_kept() -> Iterator[None]:
    """Restore the random states, torch's settings and the environment variables after the block."""
    environment, dtype, threads = dict(os.environ), torch.get_default_dtype(), torch.get_num_threads()
    deterministic = torch.are_deterministic_algorithms_enabled()
    only_warns = torch.is_deterministic_algorithms_warn_only_enabled()
    try:
        with random_state_kept():
            yield
    finally:
        torch.set_default_dtype(dtype)
        torch.use_deterministic_algorithms(deterministic, warn_only=only_warns)
        if torch.get_num_threads() != threads:
            torch.set_num_threads(threads)
        if dict(os.environ) != environment:
            os.environ.clear()
            os.environ.update(environment)
