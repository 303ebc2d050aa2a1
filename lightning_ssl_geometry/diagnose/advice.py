"""Say in sentences which model to take, and how far to trust this."""

__all__ = ["advice"]

from collections import Counter
from math import sqrt
from typing import TYPE_CHECKING

from lightning_ssl_geometry.diagnose.scores import NOT_COMPARABLE
from lightning_ssl_geometry.spelling import some

if TYPE_CHECKING:
    from lightning_ssl_geometry.diagnose.choosing import Choice


def advice(found: "Choice", by: str | None) -> list[str]:
    """Return sentences on the model that the classifier and a score pick: see :meth:`Choice.advice`."""
    said = _by_classifier(found)
    title = by or next((score.title for score in found.scores), None)
    if title is None:
        hint = any(why.startswith(NOT_COMPARABLE) for why in found.left_out.values())
        return [*said, "No score has comparable values for all of these models.", *([_HINT] if hint else [])]
    highest = max((each.tau for each in found.agreements.values() if each.tau == each.tau), default=None)
    if by is None and highest is not None and highest <= 0:
        return [*said, f"No score agrees with it: the highest tau is {highest:z.2f}. So none of their picks is named."]
    star = next(score.incomparable for score in found.scores if score.title == title)
    though = ", although its values cannot be compared between these models" if star else ""
    said.append(f"By {title}: {some(found.picks(title), ' or ')}{though}.")
    return [*said, *_trust(found, title)]


_HINT = (
    "Choose among models of one method, temperature and width, or take scores that cannot be compared, too, by "
    "`incomparable`."
)


def _by_classifier(found: "Choice") -> list[str]:
    if found.accuracy is None:
        return []
    most = max(found.accuracy.values())
    error = sqrt(most * (1 - most) / found.samples)
    best = [name for name, value in found.accuracy.items() if value == most]
    near = [name for name, value in found.accuracy.items() if most - error <= value < most]
    close = f", and {some(near, ' and ')} within this error of it" if near else ""
    return [
        f"By the linear classifier: {some(best, ' or ')} (accuracy {100 * most:.1f}%, standard error "
        f"{100 * error:.1f}{close})."
    ]


def _trust(found: "Choice", title: str) -> list[str]:
    if found.agreements and not any(held.orders for held in found.agreements.values()):
        return ["But no score has been shown to order these models: no interval of tau lies above 0."]
    if title in found.agreements:
        if found.agreements[title].orders:
            return []
        return ["But this score has not been shown to order these models: its tau may be 0 or less."]
    if found.accuracy is not None:
        lost = max(found.accuracy.values()) - found.accuracy[found.best(title)]
        return [
            f"The classifier knows labels, and the score does not: this choice costs {100 * lost:.1f} points of "
            "accuracy. With few models, this says nothing about the score on other ones."
        ]
    votes = Counter(name for score in found.scores for name in found.picks(score.title))
    (name, count), of = votes.most_common(1)[0], len(found.scores)
    return [f"{name} is picked by {count} of {of} scores, more than any other." if _alone(votes) else
            "The scores do not agree on one model.", "Nothing says how far to trust this."]  # fmt: skip


def _alone(votes: Counter[str]) -> bool:
    first, *rest = (count for _, count in votes.most_common(2))
    return not rest or first > rest[0]
