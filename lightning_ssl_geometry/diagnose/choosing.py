"""Which of several models is best, without labels or with a few: scores, and how far to trust each of them."""

__all__ = ["Choice", "choose", "refuse_early"]

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from lightning_ssl_geometry.checks import inside, integer, named, pathlike, switch
from lightning_ssl_geometry.diagnose.advice import advice
from lightning_ssl_geometry.diagnose.comparison import (
    diagnosis_in,
    labels_of,
    refuse_few_samples,
    refuse_too_few,
    same_samples,
    samples_of,
    settings_of,
)
from lightning_ssl_geometry.diagnose.scores import NOT_COMPARABLE, Score, scores
from lightning_ssl_geometry.report.choosing import choice_panels
from lightning_ssl_geometry.report.figures import View
from lightning_ssl_geometry.report.frame import pandas_for
from lightning_ssl_geometry.report.groups import read_groups
from lightning_ssl_geometry.report.panel import Panel
from lightning_ssl_geometry.report.ranking import Agreement, Group, agreement
from lightning_ssl_geometry.spelling import near, one_of_these, some

if TYPE_CHECKING:
    from pandas import DataFrame
    from rich.table import Table

_FOLDS, _DRAWS = 5, 10
_MEASURED = ("tau [95%]", "regret, points [95%]")
_WORD = 12  # letters of a column, so that names of scores are not broken within words
_FEW = 4  # settings; with fewer, a rank correlation says nothing


@dataclass(frozen=True)
class Choice:
    """What :func:`choose` found.

    Attributes:
        scores: The scores, best agreement with the accuracy first, or in the order of the diagnosis without labels.
        accuracy: Model -> accuracy of a linear classifier on h, or None without labels.
        agreements: Title of a score -> agreement with the accuracy; empty without labels.
        samples: Number of samples that the classifier was scored on; 0 without labels.
        within: Knob -> title of a score -> agreement among models that differ in this knob alone (and in the seed).
        left_out: Title of a score -> why it was left out.
        remarks: Sentences on what limits the answer.
    """

    scores: tuple[Score, ...]
    accuracy: Mapping[str, float] | None
    samples: int
    agreements: Mapping[str, Agreement]
    within: Mapping[str, Mapping[str, Agreement]]
    left_out: Mapping[str, str]
    remarks: tuple[str, ...]

    def best(self, by: str | None = None) -> str:
        """Return the name of the model that a score picks, the first one if several have the best value.

        :meth:`picks` returns all of them.

        Args:
            by: Title of the score. None: the first of `scores`.

        Raises:
            ValueError: If there is no such score, or it was left out.
        """
        return self.picks(by)[0]

    def picks(self, by: str | None = None) -> list[str]:
        """Return the names of all models that have the best value of a score: see :meth:`best`."""
        titles = [score.title for score in self.scores]
        if by is not None:
            _refuse_unknown(by, titles, self.left_out)
        if not titles:
            few = "; ".join(f"{title}: {why}" for title, why in list(self.left_out.items())[:3])
            raise ValueError(f"Expected a score for these models, but all are left out ({few}).{_hint(few)}")
        goodness = self.scores[0 if by is None else titles.index(by)].goodness
        best = max(goodness.values())
        return [name for name in goodness if goodness[name] == best]

    def models(self) -> "DataFrame":
        """Return the values of the scores, and the accuracy, with one row for each model.

        Raises:
            ModuleNotFoundError: If pandas is not installed.
        """
        found: DataFrame = pandas_for("models").DataFrame(self.model_rows())
        return found.set_index("model")

    def to_frame(self) -> "DataFrame":
        """Return one row for each score, over all models and within each knob: what it picks, and its agreement.

        Raises:
            ModuleNotFoundError: If pandas is not installed.
        """
        found: DataFrame = pandas_for("to_frame").DataFrame(self.score_rows())
        return found

    def model_rows(self) -> list[dict[str, Any]]:
        """Return the rows of :meth:`models`."""
        names = list(self.scores[0].values if self.scores else self.accuracy or ())
        found = []
        for name in names:
            accuracy = {} if self.accuracy is None else {"accuracy": self.accuracy[name]}
            found.append({"model": name} | accuracy | {score.title: score.values[name] for score in self.scores})
        return found

    def score_rows(self) -> list[dict[str, Any]]:
        """Return the rows of :meth:`to_frame`."""
        rows: list[dict[str, Any]] = []
        for knob, found in ({"": self.agreements} | dict(self.within)).items():
            for score in self.scores:
                held = found.get(score.title)
                row: dict[str, Any] = {"knob": knob, "score": score.title, "good": score.good}
                row["best"] = " or ".join(self.picks(score.title))
                if held is not None:
                    (low, high), (least, most) = held.tau_interval, held.regret_interval
                    row |= {"tau": held.tau, "tau_low": low, "tau_high": high, "regret": held.regret}
                    row |= {"regret_low": least, "regret_high": most, "regret_by_chance": held.by_chance}
                    row |= {"pairs": held.pairs}
                if held is not None or not knob:
                    rows.append(row | {"incomparable": score.incomparable})
        return rows

    def panels(self) -> list[Panel]:
        """Draw the agreements, the places of the models and the accuracies, for `choosing` of :func:`compare`."""
        return choice_panels(
            {score.title: score.goodness for score in self.scores},
            self.accuracy,
            self.samples,
            agreements=self.agreements,
            within=self.within,
            incomparable={score.title for score in self.scores if score.incomparable},
        )

    def tables(self) -> "list[Table]":
        """Make tables for the terminal.

        The first has the pick of each score and, if there are labels, its tau and its regret. The second, if runs
        differ in one setting alone, has the score with the highest tau for each setting.
        """
        return [self.table(), *([self._table_of_knobs()] if self.within else [])]

    def table(self) -> "Table":
        """Make the first of these tables."""
        from rich.markup import escape
        from rich.table import Table

        remarks = list(self.remarks)
        if first := next(iter(self.agreements.values()), None):
            remarks.append(
                f"A model that is drawn at random costs {100 * first.by_chance:.1f} points, and a random order tau 0."
            )
        made = Table(title="Scores without labels", caption=escape("\n".join(remarks)) or None, caption_justify="left")
        made.add_column("score", overflow="fold", min_width=_WORD)
        for heading in ("good", "picks"):
            made.add_column(heading, overflow="fold")
        for heading in _MEASURED if self.agreements else ():
            made.add_column(heading, no_wrap=True)
        for score in self.scores:
            row = [score.title, score.good, some(self.picks(score.title), " or ", most=1)]
            made.add_row(*map(escape, row), *_measured(self.agreements.get(score.title)))
        return made

    def _table_of_knobs(self) -> "Table":
        from rich.markup import escape
        from rich.table import Table

        made = Table(
            title="Among runs that differ in one setting alone", caption_justify="left",
            caption="Of several scores, the one with the highest tau. The page has all of them.",
        )  # fmt: skip
        for heading in ("setting", "pairs", "score"):
            made.add_column(heading, overflow="fold")
        for heading in _MEASURED:
            made.add_column(heading, no_wrap=True)
        for knob, found in self.within.items():
            title, held = max(found.items(), key=lambda item: np.nan_to_num(item[1].tau, nan=-2.0))
            made.add_row(escape(knob), str(held.pairs), escape(title), *_measured(held))
        return made

    def advice(self, by: str | None = None) -> list[str]:
        """Return sentences on which model to take by the linear classifier and by a score, and how far to trust them.

        Args:
            by: Title of a score. None: the first of `scores`, unless no tau is above 0.
        """
        return advice(self, by)


def choose(
    diagnoses: Mapping[str, str | Path],
    *,
    labels: int | None = None,
    settings: Mapping[str, Mapping[str, Any]] | None = None,
    layer: str = "h",
    incomparable: bool = False,
    resamples: int = 1000,
    seed: int = 0,
) -> Choice:
    """Order models by each label-free diagnostic, and measure how far the orders agree with a linear classifier.

    A score is a scalar of the diagnoses of which a paper, or its own description, says which values are good, and into
    which no labels go. A score is left out, with the reason, if a model lacks it, if it cannot be compared between
    these models (for example because their widths differ), or if the number of samples limits it.

    Agreement is measured from four models on; runs that differ in the seed alone count as one. A model whose outputs
    are not finite is left out, and a remark says so.

    If the samples have labels, the accuracy of a linear classifier on h is the truth: logistic regression on
    standardised features, fitted and scored on different samples, which are the same for all models. Kendall's tau and
    the regret of choosing by a score have 95% intervals by bootstrap over models and samples. Models with the same
    settings but for the seed are drawn together, because they resemble each other.

    Args:
        diagnoses: Name of a model -> folder of its diagnosis, of the same samples. Of a folder with several versions,
            the newest is taken.
        labels: Number of labels per class that the classifiers are fitted on, in 10 random draws; the other samples are
            for scoring. None: all labels, in 5 folds.
        settings: Name of a model -> its settings, such as {"temperature": 0.1, "seed": 0}. Agreement is also measured
            among models that differ in one setting alone. "seed" and "seed_everything" may differ, too. None: those
            of the training runs, which `ssl-geometry diagnose` and `ssl-geometry choose` save with a diagnosis.
        layer: Name of the layer whose outputs the classifiers see.
        incomparable: Whether to take scores that cannot be compared between these models, too. A remark names them.
            Their agreement with the accuracy says what it costs to compare them all the same.
        resamples: Number of resamples of the bootstrap.
        seed: Of the draws and of the bootstrap.

    Raises:
        FileNotFoundError: If a folder is no diagnosis.
        ValueError: If there are fewer than two diagnoses, their data or samples differ, an argument is out of range,
            `labels` is given and the samples have none, a class has too few samples, `settings` names an unknown model,
            fewer than two models have finite outputs, or the numbers of a diagnosis are broken.
    """
    if not isinstance(diagnoses, Mapping):
        got = type(diagnoses).__name__
        raise ValueError(f"Expected `diagnoses` to be a dict of names and folders, but got a {got}.")
    pathlike(**{f"diagnoses[{name!r}]": folder for name, folder in diagnoses.items()})
    refuse_too_few(diagnoses)
    integer(1, resamples=resamples)
    switch(incomparable=incomparable)
    if labels is not None:
        integer(1, labels=labels)
    integer(0, seed=seed)
    inside("[0, 4294967295]", seed=seed)  # scikit-learn's
    named(Mapping, settings=settings or {})
    for name in settings or {}:
        if name not in diagnoses:
            raise ValueError(f"Expected `settings` of {', '.join(diagnoses)}, but got {name!r}.")
    diagnoses = {name: diagnosis_in(Path(folder)) or folder for name, folder in diagnoses.items()}
    outputs = same_samples(diagnoses, layer)
    names = [name for name, held in outputs.items() if bool(held.isfinite().all())]
    remarks = [f"Left out: {name}: its outputs of {layer} are not finite." for name in outputs if name not in names]
    if len(names) < 2:
        broken = ", ".join(name for name in outputs if name not in names)
        raise ValueError(
            f"Expected at least 2 models with finite outputs of `layer` {layer!r}, but got {len(names)} of "
            f"{len(outputs)}: those of {broken} are not finite."
        )
    found, left_out, said = _scores(names, diagnoses, incomparable=incomparable)
    remarks += said
    label = next((each for name in names if (each := labels_of(Path(diagnoses[name]))) is not None), None)
    if label is None:
        _refuse_labels(labels)
        remarks.append("The samples have no labels: nothing says how far to trust a score on these models.")
        return Choice(
            tuple(found), None, samples=0, agreements={}, within={}, left_out=left_out, remarks=tuple(remarks)
        )
    splits = _splits(label, labels, seed)
    correct = np.stack([_correct(outputs[name].flatten(1).numpy(), label, splits) for name in names])
    if settings is None:
        settings = {name: held for name in names if (held := settings_of(Path(diagnoses[name]))) is not None}
    known = _without_seeds(names, settings)
    same = _same_outputs({name: outputs[name] for name in names})
    agreements, within, said = _agreements(found, known, correct, same=same, resamples=resamples, seed=seed)
    said += [f"{' and '.join(each)} have the same outputs, and count as one." for each in same]
    said += _unknown([name for name in names if name not in settings], names) if agreements else []
    if agreements:
        found.sort(key=lambda each: -np.nan_to_num(agreements[each.title].tau, nan=-2.0))
    return Choice(
        tuple(found),
        dict(zip(names, correct.mean(1).tolist(), strict=True)),
        len(label),
        agreements=agreements,
        within=within,
        left_out=left_out,
        remarks=(*remarks, *said),
    )


def _scores(
    names: Sequence[str], diagnoses: Mapping[str, str | Path], *, incomparable: bool
) -> tuple[list[Score], dict[str, str], list[str]]:
    """Return the scores of models, those that were left out with the reason, and remarks on them."""
    view, remarks = View(tuple(read_groups({name: [diagnoses[name]] for name in names}))), list[str]()
    _refuse_damaged(view)
    found, left_out = scores(view, incomparable=incomparable)
    if taken := [score.title for score in found if score.incomparable]:
        remarks.append(f"Taken, although they cannot be compared between these models: {', '.join(taken)}.")
    if any(run.info.get("method") is None for run in view.runs):
        remarks.append("How some models were trained is not known. Some scores only compare models of one method.")
    return found, left_out, remarks


def _refuse_damaged(view: View) -> None:
    for group, run in view.grouped:
        if not run.scalars or not run.declared:
            lacking = "geometry/quantities.json" if run.scalars else "metrics.csv"
            raise ValueError(
                f"Expected the numbers of {group.name!r} in {run.folder}, but {lacking} is missing or broken. Diagnose "
                "this model again."
            )


def _agreements(
    found: Sequence[Score],
    known: Mapping[str, Mapping[str, str] | None],
    correct: NDArray[np.float64],
    *,
    same: Sequence[Sequence[str]],
    resamples: int,
    seed: int,
) -> tuple[dict[str, Agreement], dict[str, dict[str, Agreement]], list[str]]:
    """Return the agreements over all models and within each knob, and a remark if there are too few settings.

    `known` has the settings of each model, `correct` (models, samples) how often each sample was classified correctly,
    and `same` the names of models that have the same outputs.
    """
    cluster = _clusters(known, same)
    by_title = {each.title: np.array([each.goodness[name] for name in known]) for each in found}
    measured = partial(agreement, correct=correct, cluster=cluster, resamples=resamples, seed=seed)

    def enough(models: NDArray[np.int64]) -> bool:
        return len(set(cluster[models].tolist())) >= _FEW

    within = {
        knob: {title: measured(values, groups=groups) for title, values in by_title.items()}
        for knob, groups in _groups_by_knob(list(known.values())).items()
        if enough(np.concatenate([group.models for group in groups]))
    }
    if enough(np.arange(len(known))):
        return {title: measured(values) for title, values in by_title.items()}, within, []
    count = len(set(cluster.tolist()))
    what = "models" if count == len(known) else "settings"
    return {}, within, [f"{count} {what} are too few for a rank correlation: at least {_FEW} are needed."]


def _same_outputs(outputs: Mapping[str, Tensor]) -> list[list[str]]:
    """Return the names of models with the same outputs, as lists of two or more."""
    found: dict[str, list[str]] = {}
    for name, held in outputs.items():
        found.setdefault(hashlib.sha256(held.numpy().tobytes()).hexdigest(), []).append(name)
    return [names for names in found.values() if len(names) > 1]


def _unknown(models: Sequence[str], names: Sequence[str]) -> list[str]:
    """Return a sentence on models whose settings are not known, if there are any among `names`."""
    if not models:
        return []
    whose = "these models" if len(models) == len(names) else some(models, " and ")
    return [f"The settings of {whose} are not known: models that differ in the seed alone count as different ones."]


def _measured(held: Agreement | None) -> list[str]:
    """Return the cells under `_MEASURED`."""
    if held is None:
        return []
    tau, regret = held.tau_interval, [100 * end for end in held.regret_interval]
    return [
        f"{held.tau:z.2f} [{tau[0]:z.2f}, {tau[1]:z.2f}]",
        f"{100 * held.regret:z.1f} [{regret[0]:z.1f}, {regret[1]:z.1f}]",
    ]


def refuse_early(folder: Path, *, labels: int | None, by: str | None) -> None:
    """Raise the ValueError that :func:`choose` and :meth:`Choice.best` would raise, if one diagnosis already shows it.

    Args:
        folder: The first of the diagnoses.
        labels: Argument of :func:`choose`.
        by: Argument of :meth:`Choice.best`.
    """
    refuse_few_samples(samples_of(folder))
    if by is not None:
        found, left_out = scores(View(tuple(read_groups({"": [folder]}))))
        _refuse_unknown(by, [*(score.title for score in found), *left_out], {})
    label = labels_of(folder)
    if label is None:
        _refuse_labels(labels)
    else:
        _splits(label, labels, seed=0)


def _refuse_labels(labels: int | None) -> None:
    if labels is not None:
        raise ValueError(f"Expected `labels` None for samples without labels, but got {labels}.")


def _refuse_unknown(by: str, titles: Sequence[str], left_out: Mapping[str, str]) -> None:
    if by in left_out:
        reason = left_out[by]
        raise ValueError(f"Expected `by` to name a score, but {by!r} was left out: {reason}.{_hint(reason)}")
    if by not in titles:
        raise ValueError(f"Expected `by` to name a score, but got {by!r}.{one_of_these(near(by, titles) or titles)}")


def _hint(reason: str) -> str:
    return " `incomparable` takes scores that cannot be compared, too." if NOT_COMPARABLE in reason else ""


def _splits(
    label: NDArray[np.int64], labels: int | None, seed: int
) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Return pairs of samples to fit on and samples to score, the same for all models."""
    from sklearn.model_selection import StratifiedKFold

    classes, counts = np.unique(label, return_counts=True)
    if classes[0] < 0:
        raise ValueError(
            f"Expected labels >= 0, but {int((label < 0).sum())} of {len(label)} are below. Leave out the samples "
            "without a label."
        )
    if len(classes) < 2:
        raise ValueError(f"Expected labels of at least 2 classes, but all are {classes[0]}.")
    least = int(counts.min())
    if labels is None:
        if least < _FOLDS:
            raise ValueError(f"Expected at least {_FOLDS} samples of each class, but got {least} of one.")
        folds = StratifiedKFold(_FOLDS, shuffle=True, random_state=seed)
        return list(folds.split(np.zeros((len(label), 1)), label))
    if least <= labels:
        raise ValueError(f"Expected `labels` below {least}, the samples of the smallest class, but got {labels}.")
    generator, every, found = np.random.default_rng(seed), np.arange(len(label)), []
    for _ in range(_DRAWS):
        fitted = np.concatenate([
            generator.choice(np.flatnonzero(label == each), labels, replace=False) for each in classes
        ])  # fmt: skip
        found.append((fitted, np.setdiff1d(every, fitted)))
    return found


def _correct(
    h: NDArray[np.float32], label: NDArray[np.int64], splits: Sequence[tuple[NDArray[np.int64], NDArray[np.int64]]]
) -> NDArray[np.float64]:
    """Return how often each sample was classified correctly, (n,), among the splits that score it."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    right, scored = np.zeros(len(label)), np.zeros(len(label))
    for fitted, tested in splits:
        made = make_pipeline(StandardScaler(), LogisticRegression(max_iter=500))
        made.fit(h[fitted], label[fitted])
        right[tested] += made.predict(h[tested]) == label[tested]
        scored[tested] += 1
    return right / np.maximum(scored, 1)


def _without_seeds(names: Sequence[str], settings: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, str] | None]:
    return {
        name: {str(key): _spelt(value) for key, value in settings[name].items() if not _is_seed(str(key))}
        if name in settings
        else None
        for name in names
    }


def _spelt(value: object) -> str:
    return repr(float(value) if isinstance(value, int) and not isinstance(value, bool) else value)  # 1 is 1.0


def _clusters(known: Mapping[str, Mapping[str, str] | None], same: Sequence[Sequence[str]]) -> NDArray[np.int64]:
    """Number the models so that those with the same settings, or the same outputs, have the same number."""
    keys = [place if each is None else tuple(sorted(each.items())) for place, each in enumerate(known.values())]
    numbers = {key: number for number, key in enumerate(dict.fromkeys(keys))}
    cluster, places = np.array([numbers[key] for key in keys]), {name: place for place, name in enumerate(known)}
    for first, *others in same:
        for other in others:
            cluster[cluster == cluster[places[other]]] = cluster[places[first]]
    return cluster


def _groups_by_knob(given: Sequence[Mapping[str, str] | None]) -> dict[str, list[Group]]:
    """Return, for each setting, the groups of models that differ in it alone. Seeds may differ, too."""
    known = [each or {} for each in given]
    found: dict[str, list[Group]] = {}
    for knob in sorted({key for each in known for key in each}):
        alike: dict[tuple[tuple[str, str], ...], list[int]] = {}
        for place, each in enumerate(known):
            if knob not in each:
                continue  # also a model whose settings are not known
            alike.setdefault(tuple(sorted(item for item in each.items() if item[0] != knob)), []).append(place)
        for places in alike.values():
            values = [known[place].get(knob, "") for place in places]
            if len(kinds := sorted(set(values))) > 1:
                numbers = np.array([kinds.index(value) for value in values])
                found.setdefault(knob, []).append(Group(np.array(places), numbers))
    return found


def _is_seed(key: str) -> bool:
    return key.rpartition(".")[2] in ("seed", "seed_everything")
