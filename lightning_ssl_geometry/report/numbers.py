"""Format numbers and times."""

__all__ = ["deviation", "duration", "moment", "number", "percent", "points", "signed", "with_error"]

import math
from datetime import datetime

_MINUS, _TIMES = "\N{MINUS SIGN}", "\N{MULTIPLICATION SIGN}"
_SUPERSCRIPT = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")


def number(value: float) -> str:
    """Format a number with three significant digits. Integers up to a million are written in full.

    >>> [number(x) for x in (4.1234, 0.0845, -0.5, 1234.5, 50, 1e-9, float("nan"))]
    ['4.12', '0.0845', '−0.500', '1,234', '50', '1.00×10⁻⁹', 'NaN']
    """
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "∞" if value > 0 else f"{_MINUS}∞"
    size = abs(value)
    if value == int(value) and size < 1e6:
        text = f"{int(value):,}"
    elif 1e-3 <= size < 1e6:
        text = f"{value:,.{max(0, 2 - math.floor(math.log10(size)))}f}"
    else:
        mantissa, exponent = f"{value:.2e}".split("e")
        text = f"{mantissa}{_TIMES}10{str(int(exponent)).translate(_SUPERSCRIPT)}"
    return text.replace("-", _MINUS)


def percent(value: float) -> str:
    """Format a fraction in percent with one decimal: 0.93456 as "93.5%"."""
    if not abs(value) < 1e6:
        return f"{number(100 * value)}%" if math.isfinite(value) else number(value)
    return f"{100 * value:.1f}%".replace("-", _MINUS)


def deviation(mean: float, std: float, is_percent: bool = False) -> str:
    """Format a standard deviation with the decimals of its mean, or with three digits if these decimals do not show it.

    >>> deviation(4.28, 0.0237), deviation(121.0, 0.577), deviation(0.333, 0.0041, is_percent=True)
    ('0.02', '0.577', '0.4')
    """
    if is_percent:
        return f"{100 * std:.1f}"
    _, _, decimals = number(mean).partition(".")
    if _TIMES in decimals or round(std, len(decimals)) == 0:
        return number(std)
    return f"{std:,.{len(decimals)}f}" if decimals else number(std)


def with_error(mean: float, std: float, is_percent: bool = False) -> str:
    """Format a mean and its standard deviation with the decimals that two digits of the deviation need.

    >>> with_error(4.77538, 0.00107), with_error(35.71, 0.999), with_error(0.879, 0.0402, is_percent=True)
    ('4.7754 ± 0.0011', '35.7 ± 1.0', '87.9% ± 4.0')
    """
    if is_percent:
        return f"{percent(mean)} ± {100 * std:.1f}"
    if not (math.isfinite(std) and std > 1e-6 and 1e-6 <= abs(mean) < 1e6):
        return f"{number(mean)} ± {number(std)}"
    decimals = max(0, 1 - math.floor(math.log10(float(f"{std:.1e}"))))  # of the rounded one: 0.00999 is 0.010
    return f"{mean:,.{decimals}f} ± {std:,.{decimals}f}".replace("-", _MINUS)


def points(value: float) -> str:
    """Format a difference of fractions in percentage points: 0.0384 as "+3.8"."""
    return f"{100 * value:+.1f}".replace("-", _MINUS)


def signed(value: float) -> str:
    """Format a number with its sign and three significant digits: 0.0384 as "+0.0384".

    >>> signed(0.0384), signed(-12.34), signed(0.0)
    ('+0.0384', '−12.3', '0')
    """
    return f"+{number(value)}" if value > 0 else number(value)


def moment(text: object) -> str:
    """Format an ISO date to the minute. Any other text is returned unchanged.

    >>> moment("2026-01-02T03:04:05.678+00:00"), moment("yesterday")
    ('2026-01-02 03:04 UTC', 'yesterday')
    """
    parsed = _parsed(text)
    return str(text) if parsed is None else parsed.strftime("%Y-%m-%d %H:%M %Z").strip()


def seconds_between(started: object, ended: object) -> float | None:
    """Return the time between two ISO dates. Return None if one of them is not a date.

    >>> seconds_between("2026-01-02T03:04:05", "2026-01-02T03:05:00"), seconds_between("2026-01-02T03:04:05", None)
    (55.0, None)
    """
    start, end = _parsed(started), _parsed(ended)
    if start is None or end is None or (start.tzinfo is None) != (end.tzinfo is None) or end < start:
        return None
    return (end - start).total_seconds()


def duration(seconds: float) -> str:
    """Format a time in seconds.

    >>> duration(3955), duration(12.3)
    ('1 h 5 min', '12 s')
    """
    seconds = round(seconds)
    if seconds < 60:
        return f"{seconds} s"
    minutes, seconds = divmod(seconds, 60)
    if minutes < 60:
        return f"{minutes} min {seconds} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min"


def _parsed(text: object) -> datetime | None:
    try:
        return datetime.fromisoformat(text) if isinstance(text, str) else None
    except ValueError:
        return None
