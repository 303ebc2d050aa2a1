"""The symbols and the stages in the names on a page, with their meaning."""

__all__ = ["words"]

from lightning_ssl_geometry.report.figures import View
from lightning_ssl_geometry.report.members import split, stage_order

_SYMBOLS = dict(
    h="the representation of a view: the output of the backbone",
    z="the embedding of a view: the output of the projector, which the loss sees",
) | {"V, N, D": "numbers of views of a sample, of samples, and of dimensions of h or z"}
_STAGES = {
    "train": "batches of the training since the last readout, while the weights change. A monitor may observe only "
    "every n-th batch (its setting every_n_steps).",
    "val": "the validation set, seen by fixed weights",
    "probe": "the same samples at each readout, seen by fixed weights",
    "test": "the test set, seen by fixed weights",
}


def words(view: View) -> list[tuple[str, str]]:
    """Return the symbols and the stages of the page's logs, as pairs of a word and its meaning.

    The symbols are left out if no log describes a tensor. The page of a diagnosis has no stages.
    """
    names = {name for run in view.runs for held in (run.scalars, run.arrays, run.snapshots) for name in held}
    stages = {split(name)[0] for name in names} & _STAGES.keys()
    observed = any(each.space for run in view.runs for each in run.declared.values())
    said = list(_SYMBOLS.items()) if observed else []
    return [*said, *((stage, _STAGES[stage]) for stage in sorted(stages, key=stage_order) if not view.once)]
