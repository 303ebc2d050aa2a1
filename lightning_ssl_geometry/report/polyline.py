"""Fewer points of a line of straight strokes."""

__all__ = ["corners"]

import math
from collections.abc import Sequence


def corners(points: Sequence[Sequence[float]], near: float) -> list[int]:
    """Return the places of the points that a line needs, so that no other point is farther from it than `near`.

    From a corner, the points that follow leave a cone of directions in which a stroke passes all of them. The first
    point outside this cone, or nearer to the corner than an earlier one, makes its predecessor the next corner.

    >>> corners([(0, 0), (1, 0.1), (2, 0), (2, 5)], 0.2)
    [0, 2, 3]
    """
    kept, at = [0], 1
    while at < len(points):
        x0, y0 = points[kept[-1]]
        low, high, far, first = -math.inf, math.inf, near, 0.0
        for place in range(at, len(points)):
            across, up = points[place][0] - x0, points[place][1] - y0
            away = math.hypot(across, up)
            if away <= near and far == near:
                continue
            angle = math.atan2(up, across)
            if far == near:
                first = angle
            turn = math.remainder(angle - first, math.tau)
            if place > at and (away < far or not low <= turn <= high):
                break
            room = math.asin(near / away)
            low, high, far = max(low, turn - room), min(high, turn + room), away
        else:
            place = len(points)
        kept.append(place - 1)
        at = place
    return kept
