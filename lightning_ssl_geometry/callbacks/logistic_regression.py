r"""LogisticRegression: a multinomial logistic regression that scores fixed features x_n by the labels y_n.

.. math:: \min_{W, b} \; \sum_n -\log \operatorname{softmax}(W x_n + b)_{y_n} + \frac1{2 C} \|W\|_F^2
"""

__all__ = ["LogisticRegression", "Rows", "Score", "Solver", "logistic_regression"]

import warnings
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from lightning_ssl_geometry.checks import at_least, one_of, positive
from lightning_ssl_geometry.precision import float64_device, in_float64

Solver = Literal["sklearn", "full-batch"]


class Rows(NamedTuple):
    """Features (N, D) and their labels (N,)."""

    features: Tensor
    label: Tensor


class Score(NamedTuple):
    """Accuracy in [0, 1], and the number of iterations of the fit."""

    accuracy: float
    iterations: int


class LogisticRegression:
    """Fits a logistic regression on some samples, and returns its accuracy on others.

    Args:
        solver: "sklearn": scikit-learn's L-BFGS, on the CPU. "full-batch": :func:`logistic_regression`, on the
            features' device.
        standardize: Shift and scale each feature to mean 0 and deviation 1 on the fitted samples.
        regularization: scikit-learn's C, the inverse strength of the L2 penalty, > 0.
        max_iter: Largest number of L-BFGS iterations, >= 1.
        tol: The fit stops when no entry of the mean objective's gradient exceeds `tol` in absolute value, > 0.
    """

    def __init__(
        self,
        solver: Solver = "sklearn",
        standardize: bool = True,
        regularization: float = 1.0,
        max_iter: int = 100,
        tol: float = 1e-4,
    ) -> None:
        one_of(get_args(Solver), solver=solver)
        at_least(1, max_iter=max_iter)
        positive(regularization=regularization, tol=tol)
        self.solver = solver
        self.standardize = standardize
        self.regularization = regularization
        self.max_iter = max_iter
        self.tol = tol

    def __call__(self, train: Rows, test: Rows) -> Score:
        """Fit on `train` and score on `test`. Raises a ValueError if `train` has fewer than 2 classes."""
        if (count := len(train.label.unique())) < 2:
            raise ValueError(f"Expected `train` with labels of at least 2 classes, but got {count}.")
        if self.standardize:
            train, test = _standardized(train, test)
        return self._sklearn(train, test) if self.solver == "sklearn" else self._full_batch(train, test)

    def _sklearn(self, train: Rows, test: Rows) -> Score:
        from sklearn import linear_model
        from sklearn.exceptions import ConvergenceWarning

        model = linear_model.LogisticRegression(C=self.regularization, max_iter=self.max_iter, tol=self.tol)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # the number of iterations is returned
            model.fit(*(rows.numpy(force=True) for rows in train))
        score = model.score(*(rows.numpy(force=True) for rows in test))
        return Score(float(score), int(model.n_iter_.max()))

    def _full_batch(self, train: Rows, test: Rows) -> Score:
        classes, label = train.label.unique(return_inverse=True)
        weight, bias, iterations = logistic_regression(
            train.features, label, self.regularization, max_iter=self.max_iter, tol=self.tol
        )
        predicted = classes[_logits(test.features, weight, bias).argmax(1).to(classes.device)]
        return Score(float(in_float64(predicted == test.label).mean()), iterations)


@torch.inference_mode(False)
def logistic_regression(
    x: Tensor, label: Tensor, regularization: float = 1.0, max_iter: int = 100, tol: float = 1e-4
) -> tuple[Tensor, Tensor, int]:
    r"""Fit a multinomial logistic regression by L-BFGS on all rows at once, on their device.

    The objective is the sum of the cross entropies plus :math:`\|W\|_F^2 / (2 C)`. Returns W (classes, D), b (classes,)
    and the number of iterations. For two classes, W and b have one row, which gives the logit of the second class, as
    in scikit-learn.

    Args:
        x: Features, (N, D), of a float dtype.
        label: (N,) int64, from 0 to the number of classes - 1, at least 2 classes.
        regularization: C, the inverse strength of the penalty on W, > 0. There is no penalty on b.
        max_iter: Largest number of iterations.
        tol: The fit stops when no entry of the gradient of the objective / N exceeds `tol` in absolute value.

    Raises:
        ValueError: If a shape or dtype does not fit, or there are fewer than 2 classes.

    >>> x, label = torch.tensor([[-1.0], [1.0]]), torch.tensor([0, 1])
    >>> weight, bias, _ = logistic_regression(x, label, tol=1e-9)
    >>> round(weight.item(), 4), round(bias.item(), 4)  # w = 2 sigmoid(-w)
    (0.6748, 0.0)
    """
    if x.ndim != 2 or not x.is_floating_point() or label.shape != x.shape[:1]:
        raise ValueError(
            f"Expected `x` (N, D) of a float dtype and `label` (N,), but got {tuple(x.shape)} of {x.dtype} and "
            f"{tuple(label.shape)}."
        )
    if (classes := int(label.max()) + 1) < 2:
        raise ValueError(f"Expected `label` of at least 2 classes, but got {classes}.")
    # autograd cannot save what was made in inference mode
    x, label = (value.clone() if value.is_inference() else value for value in (x, label))
    home = float64_device(x.device)
    free = classes if classes > 2 else 1
    weight = torch.zeros(free, x.shape[1], dtype=torch.float64, device=home, requires_grad=True)
    bias = torch.zeros(free, dtype=torch.float64, device=home, requires_grad=True)
    optimizer = torch.optim.LBFGS(
        [weight, bias],
        max_iter=max_iter,
        max_eval=50 * max_iter,
        tolerance_grad=tol,
        tolerance_change=64 * torch.finfo(torch.float64).eps,  # as scikit-learn's
        history_size=10,
        line_search_fn="strong_wolfe",
    )

    def objective() -> Tensor:
        optimizer.zero_grad()
        penalty = weight.square().sum() / (2 * regularization * len(x))
        loss = cross_entropy(_logits(x, weight, bias), label.to(home)) + penalty
        loss.backward()
        return loss

    optimizer.step(objective)
    return weight.detach(), bias.detach(), int(optimizer.state_dict()["state"][0]["n_iter"])


def _logits(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    z = in_float64(x @ weight.to(x).T) + bias  # (N, classes), or (N, 1) for two
    return z if z.shape[1] > 1 else torch.cat([torch.zeros_like(z), z], dim=1)


def _standardized(train: Rows, test: Rows) -> tuple[Rows, Rows]:
    from sklearn.preprocessing import StandardScaler

    scaler = StandardScaler().fit(train.features.numpy(force=True))
    device = train.features.device
    made = (
        Rows(torch.from_numpy(scaler.transform(rows.features.numpy(force=True))).to(device), rows.label)
        for rows in (train, test)
    )
    return next(made), next(made)
