"""A diagnostic has one value of its samples: in one batch or many, in any order, on one process or two, after a reset.

Asked of all in `diagnostics.__all__` that observe no images, with each switch, and with a sample of 20. Nothing has to
be registered here for a new one. Those of images stream in their own files, on smaller clouds. With small settings on
one process, `check_diagnostic` asks it of all, but only at the first readout.
"""

import inspect

import pytest
import torch
from clouds import Drawn
from observations import at_once, concrete, metric_of, observed, of_rank, permuted, variants

N = 60
REMEMBER = {"CKADrift"}  # it is compared with its first readout, which a reset keeps


def cases():
    for name, kind in concrete().items():
        if not inspect.signature(kind.update).parameters.keys() & {"image", "feature_extractor"}:
            smaller = [{"contrast_size": 20}] if "contrast_size" in inspect.signature(kind).parameters else []
            yield from ((name, settings) for settings in (*variants(kind), *smaller))


CASES = list(cases())
SWITCHED = [case for case in CASES if case[1] or case[0] in REMEMBER]  # check_diagnostic has the others
of_each = pytest.mark.parametrize(("name", "settings"), CASES, ids=str)


def feed(metric, seed, chunks):
    given = observed(Drawn(seed=seed, views=3).points().double())
    given |= {"encoder": ENCODER, "projector": PROJECTOR}
    for rows in chunks:
        part = permuted(given, rows)
        metric.update(**{key: part[key] for key in inspect.signature(metric.update).parameters})
    return metric.compute()


ENCODER, PROJECTOR = (observed(Drawn().points().double())[key] for key in ("encoder", "projector"))


def read(name, settings, chunks):
    """The results at the second readout, after a reset: the first is of other points."""
    metric = metric_of(concrete()[name], **settings)
    feed(metric, 1, chunks)
    metric.reset()
    return feed(metric, 0, chunks)


def close(found, expected):
    torch.testing.assert_close(found, expected, equal_nan=False)


@pytest.mark.parametrize(("name", "settings"), SWITCHED, ids=str)
def test_it_does_not_depend_on_batches_or_order(name, settings):
    once = read(name, settings, at_once(N))
    close(read(name, settings, torch.arange(N).split(7)), once)
    close(read(name, settings, torch.randperm(N).split(11)), once)


@pytest.mark.parametrize(("name", "settings"), [case for case in CASES if "contrast_size" in case[1]], ids=str)
def test_a_repeated_sample_counts_once(name, settings):
    close(read(name, settings, [*at_once(N), torch.arange(9)]), read(name, settings, at_once(N)))


def rank_result(rank, name, settings):
    return read(name, settings, of_rank(rank, N, 10))


@of_each
def test_it_is_the_same_on_two_processes(name, settings, two_processes):
    once = read(name, settings, at_once(N))
    for found in two_processes(rank_result, name, settings):
        close(found, once)


@pytest.mark.parametrize(("name", "settings"), [case for case in CASES if case[0] not in REMEMBER], ids=str)
@pytest.mark.filterwarnings("ignore:The ``compute`` method")
def test_reset_forgets(name, settings):
    metric = metric_of(concrete()[name], **settings)
    alone = feed(metric, 0, at_once(N))
    metric.reset()
    with pytest.raises(ValueError, match="but got none"):
        metric.compute()
    close(read(name, settings, at_once(N)), alone)


@pytest.mark.parametrize("name", concrete())
@pytest.mark.filterwarnings("ignore:The ``compute`` method")
def test_nothing_observed_is_an_error(name):
    with pytest.raises(ValueError, match=r"observed.*, but got none"):
        metric_of(concrete()[name]).compute()
