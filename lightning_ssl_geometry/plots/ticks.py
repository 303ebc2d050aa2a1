"""Round ticks with short labels."""

__all__ = ["set_ticks"]

from typing import TYPE_CHECKING, Literal

import numpy as np

from lightning_ssl_geometry.plots.style import Floats

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SUPERSCRIPT = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")


def set_ticks(axes: "Axes", which: Literal["x", "y"], log: bool, most: int = 6) -> str:
    """Set round ticks within the limits of the axis `which`. Return the offset or power of ten that the labels omit.

    `most` is the largest number of ticks of an axis that is not logarithmic.
    """
    from matplotlib.ticker import LogLocator, MaxNLocator

    low, high = sorted(map(float, axes.get_xlim() if which == "x" else axes.get_ylim()))
    decades = log and high >= 10 * low
    subs = (1.0,) if high >= 1e3 * low else (1.0, 2.0, 5.0)
    whole = which == "x" and low.is_integer() and high.is_integer()  # epochs, steps and indices
    linear = MaxNLocator(nbins=most - 1, steps=[1, 2, 5, 10] if whole else [1, 2, 2.5, 5, 10], integer=whole)
    locator = LogLocator(subs=subs, numticks=6) if decades else linear
    ticks = np.array([tick for tick in locator.tick_values(low, high) if low <= tick <= high])
    labels, left_out = ([_decade(tick) for tick in ticks], "") if decades else _tick_labels(ticks)
    put = axes.set_xticks if which == "x" else axes.set_yticks
    axes.minorticks_off()
    put(ticks, labels)
    return left_out


def _tick_labels(ticks: Floats) -> tuple[list[str], str]:
    size = float(np.abs(ticks).max(initial=0))
    power = int(np.floor(np.log10(size))) if size >= 1e6 or 0 < size < 1e-3 else 0
    scaled = ticks / 10.0**power
    step = np.diff(scaled).min() if len(ticks) > 1 else 1.0
    digits = next((d for d in range(9) if abs(step * 10**d - round(step * 10**d)) < 1e-3 * step * 10**d), 9)
    labels = [f"{tick:,.{digits}f}".replace("-", "\N{MINUS SIGN}") for tick in scaled]
    if len(ticks) and ticks[0] and max(map(len, labels)) > 7:
        labels, left_out = _tick_labels(ticks - ticks[0])
        return labels, f" above {ticks[0]:.12g}{left_out}"
    return labels, f" (\N{MULTIPLICATION SIGN}{_power(power)})" if power else ""


def _decade(tick: float) -> str:
    lead, exponent = f"{tick:.0e}".split("e")
    if -3 <= int(exponent) < 4:
        return f"{tick:g}"
    return ("" if lead == "1" else f"{lead}\N{MULTIPLICATION SIGN}") + _power(int(exponent))


def _power(exponent: int) -> str:
    return f"10{str(exponent).translate(_SUPERSCRIPT)}"
