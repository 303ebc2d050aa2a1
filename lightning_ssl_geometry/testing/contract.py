"""Run contracts one after the other, with expected failures that need a reason."""

__all__ = ["Contract", "kept", "of_all"]

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from lightning_ssl_geometry.spelling import did_you_mean
from lightning_ssl_geometry.testing.surroundings import surroundings_kept

Contract = Callable[[Any], str | None]
"""Takes a case and raises an AssertionError if the contract is broken. It returns why it does not apply, or None."""


def of_all(*functions: Contract) -> dict[str, Contract]:
    """Return {name: contract} of functions, in their order."""
    return {function.__name__: function for function in functions}


def kept(
    contracts: Mapping[str, Contract],
    case: Any,
    expected_failures: Mapping[str, str] | None,
    *,
    only: Iterable[str] | None,
) -> dict[str, str]:
    """Ask all contracts of a case. See `check_diagnostic` for the arguments, the result and the errors."""
    chosen, expected = _asked(contracts, expected_failures, only)
    if not __debug__:
        raise RuntimeError("Expected Python with assertions, which the contracts are made of, but got `python -O`.")
    try:
        with surroundings_kept():
            case.begin()
    except Exception as error:
        raise AssertionError(f"{case.name} fails before any contract is checked. {_said(error)}") from error
    found: dict[str, str] = {}
    broken: list[str] = []
    for name in chosen:
        try:
            with surroundings_kept():
                case.renew()
                skipped = contracts[name](case)
        except Exception as error:
            if name in expected:
                found[name] = f"fails as expected: {expected[name]}"
            else:
                broken.append(f"{name}: {_said(error)}")
        else:
            found[name] = f"left out: {skipped}" if skipped else "kept"
            if name in expected and not skipped:
                broken.append(f"{name}: it is kept now. Remove it from `expected_failures` ({expected[name]}).")
    if broken:
        raise AssertionError(f"{case.name} breaks {len(broken)} of {len(chosen)} contracts.\n" + "\n".join(broken))
    return found


def _asked(
    contracts: Mapping[str, Contract], expected_failures: Mapping[str, str] | None, only: Iterable[str] | None
) -> tuple[list[str], dict[str, str]]:
    """Return the names of the chosen contracts, and the expected failures with their reasons."""
    if not isinstance(expected_failures, Mapping | None):
        raise ValueError(
            "Expected `expected_failures` to be a dict from names of contracts to reasons, but got "
            f"{expected_failures!r}."
        )
    chosen = list(contracts if only is None else only) if isinstance(only, Iterable | None) else []
    if isinstance(only, str) or not chosen or not all(isinstance(name, str) for name in chosen):
        raise ValueError(f"Expected `only` to be a list of names of contracts, or None for all, but got {only!r}.")
    expected = dict(expected_failures or {})
    for argument, names in (("expected_failures", expected), ("only", chosen)):
        for name in names:
            if name not in contracts:
                raise ValueError(
                    f"Expected `{argument}` with names of contracts, but got {name!r}.{did_you_mean(name, contracts)}"
                )
    for name, reason in expected.items():
        if not (isinstance(reason, str) and reason.strip()):
            raise ValueError(f"Expected `expected_failures` with a reason for {name!r}, but got {reason!r}.")
    return chosen, expected


def _said(error: Exception) -> str:
    text = str(error).strip()
    if isinstance(error, AssertionError) and text:
        return text
    return f"It raises {type(error).__name__}" + (f": {text}" if text else " without a message.")
