"""The contracts on the cost of a diagnostic: what its class declares is what is measured."""

__all__ = ["cost", "memory"]

from collections.abc import Mapping, Sequence

from lightning_ssl_geometry.cost import Cost, terms
from lightning_ssl_geometry.diagnostics import Diagnostic
from lightning_ssl_geometry.testing.case import Case
from lightning_ssl_geometry.testing.growth import Growth, degree

_CHANGED = {"n", "N", "D"}  # letters of a Cost whose sizes are changed
_Counts = Mapping[str, Sequence[int]]


def memory(case: Case) -> str | None:
    """Ask that the bytes of the state grow as the class declares."""
    if not isinstance(case.metric, Diagnostic):
        return "the Metric is no Diagnostic"
    declared = _declared(case.metric)
    _compare(case.growth, case.growth.memory, said=f"memory={declared.memory!r}", least=False)
    return None


def cost(case: Case) -> str | None:
    """Ask that the work of `update` and of `compute` grows as the class declares."""
    if not isinstance(case.metric, Diagnostic):
        return "the Metric is no Diagnostic"
    declared, growth = _declared(case.metric), case.growth
    _compare(growth, growth.update, said=f"update={declared.update!r}", least=bool(declared.uncounted))
    _compare(growth, growth.compute, said=f"compute={declared.compute!r}", least=bool(declared.uncounted))
    return None


def _declared(metric: Diagnostic) -> Cost:
    cost = metric.cost
    assert isinstance(cost, Cost), f"`cost` is {cost!r}, but a diagnostic declares a Cost."
    return cost


def _compare(growth: Growth, counts: _Counts, *, said: str, least: bool) -> None:
    """Raise an AssertionError unless `counts` grow as declared, or, with `least`, not faster than declared."""
    declared = terms(said.partition("=")[2].strip("'"))
    for letters, found in counts.items():
        if "D" in letters and any("F" in term for term in declared):
            continue  # it is not known how the work of a network grows with the width
        degrees = {sum(term.get(letter, 0) for letter in letters): term for term in declared}
        highest, power = max(degrees), degree(found)
        wrong = (
            power is None or power > highest or (power < highest and not (least or _hides(declared, letters, power)))
        )
        assert not wrong, (
            f"{said} is declared, which grows with the power {highest} of {_together(letters)}, but "
            f"{_measured(power)}: {_listed(growth, letters, found)}."
        )


def _power(term: Mapping[str, int], letters: str) -> int:
    return sum(term.get(letter, 0) for letter in letters)


def _hides(declared: Sequence[Mapping[str, int]], letters: str, power: int | None) -> bool:
    """Return whether a term of unknown size, such as n F, may be so large that it hides terms with higher powers."""
    return any(term.keys() - _CHANGED and _power(term, letters) == power for term in declared)


def _together(letters: str) -> str:
    return letters if len(letters) == 1 else f"{', '.join(letters)} together"


def _measured(power: int | None) -> str:
    return "no polynomial of degree 5 or less was measured" if power is None else f"the power {power} was measured"


def _listed(growth: Growth, letters: str, found: Sequence[int]) -> str:
    sizes = [" ".join(f"{letter}={step[letter]}" for letter in letters) for step in growth.sizes[letters]]
    return ", ".join(f"{count:,} at {size}" for count, size in zip(found, sizes, strict=True))
