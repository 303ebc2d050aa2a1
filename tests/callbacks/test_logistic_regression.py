import pytest
import torch
from sklearn import linear_model
from sklearn.datasets import load_digits
from torch.nn.functional import normalize

from lightning_ssl_geometry.callbacks.logistic_regression import LogisticRegression, Rows, logistic_regression


def synthetic(n, d, classes, dtype=torch.float64):
    label = torch.arange(n) % classes
    return Rows((0.3 * torch.randn(classes, d, dtype=dtype)[label] + torch.randn(n, d, dtype=dtype)), label)


def digits():
    x, label = load_digits(return_X_y=True)
    order = torch.randperm(len(x))
    return Rows(torch.tensor(x, dtype=torch.float32)[order], torch.tensor(label)[order])


def halves(rows):
    n = len(rows.label) // 2
    return Rows(*(part[:n] for part in rows)), Rows(*(part[n:] for part in rows))


def probabilities(x, weight, bias):
    z = x @ weight.T + bias
    return (torch.cat([torch.zeros_like(z), z], 1) if z.shape[1] == 1 else z).softmax(1)


@pytest.mark.parametrize("standardize", [False, True])
@pytest.mark.parametrize("rows", [digits, lambda: synthetic(5000, 50, 10)], ids=["digits", "synthetic"])
def test_both_solvers_score_the_same(rows, standardize):
    train, test = halves(rows())
    solvers = ("full-batch", "sklearn")
    ours, theirs = (LogisticRegression(name, standardize, max_iter=2000, tol=1e-5)(train, test) for name in solvers)
    assert ours.accuracy == pytest.approx(theirs.accuracy, abs=0.002)
    assert 0.3 < ours.accuracy < 1


@pytest.mark.parametrize("signal", [0.05, 0.1, 0.2])
def test_both_solvers_score_the_same_at_the_defaults_on_a_sphere(signal):
    label = torch.arange(8000) % 10
    x = signal * torch.randn(10, 50)[label] + torch.randn(8000, 50) / 3 + 0.3 * torch.randn(50)
    train, test = halves(Rows(normalize(x, dim=1), label))
    ours, theirs = (LogisticRegression(name, standardize=False)(train, test) for name in ("full-batch", "sklearn"))
    assert ours.accuracy == pytest.approx(theirs.accuracy, abs=0.002)
    assert 0.3 < ours.accuracy < 0.99


@pytest.mark.parametrize("classes", [2, 3, 10])
@pytest.mark.parametrize("regularization", [0.01, 1.0])
def test_it_is_scikit_learns_regression(classes, regularization):
    x, label = synthetic(300, 6, classes)
    weight, bias, _ = logistic_regression(x, label, regularization, max_iter=1000, tol=1e-8)
    theirs = linear_model.LogisticRegression(C=regularization, max_iter=1000, tol=1e-8).fit(x.numpy(), label.numpy())
    torch.testing.assert_close(weight, torch.from_numpy(theirs.coef_), atol=1e-5, rtol=0)
    torch.testing.assert_close(
        probabilities(x, weight, bias), torch.from_numpy(theirs.predict_proba(x.numpy())), atol=1e-5, rtol=0
    )


def test_the_gradient_of_the_stated_objective_is_zero():
    x, label = synthetic(200, 5, 4)
    weight, bias, _ = logistic_regression(x, label, regularization=0.5, max_iter=1000, tol=1e-9)
    residual = torch.eye(4, dtype=x.dtype)[label] - probabilities(x, weight, bias)
    torch.testing.assert_close(weight, 0.5 * residual.T @ x, atol=1e-5, rtol=0)  # W / C = sum_n (y_n - p_n) x_n^T
    torch.testing.assert_close(residual.sum(0), torch.zeros(4, dtype=x.dtype), atol=1e-5, rtol=0)


def test_rows_may_come_in_any_order_and_twice_for_half_the_strength():
    x, label = synthetic(120, 5, 3)
    weight, bias, _ = logistic_regression(x, label, max_iter=1000, tol=1e-9)
    order = torch.randperm(120).repeat(2)
    again, bias_again, _ = logistic_regression(x[order], label[order], regularization=0.5, max_iter=1000, tol=1e-9)
    torch.testing.assert_close(again, weight, atol=1e-5, rtol=0)
    torch.testing.assert_close(bias_again, bias, atol=1e-5, rtol=0)


def test_single_precision_is_close_to_double():
    x, label = synthetic(500, 8, 5)
    double, _, _ = logistic_regression(x, label, max_iter=500, tol=1e-7)
    single, _, _ = logistic_regression(x.float(), label, max_iter=500, tol=1e-7)
    assert single.dtype == torch.float64
    torch.testing.assert_close(single, double, atol=1e-4, rtol=0)


@pytest.mark.parametrize("solver", ["sklearn", "full-batch"])
def test_standardized_features_may_have_any_scale_and_offset(solver):
    train, test = halves(synthetic(500, 5, 3))
    scale, offset = torch.logspace(-3, 3, 5).double(), torch.linspace(-9, 9, 5).double()
    classifier = LogisticRegression(solver)
    assert classifier(*(Rows(rows.features * scale + offset, rows.label) for rows in (train, test))) == classifier(
        train, test
    )
    plain = LogisticRegression(solver, standardize=False)
    assert plain(*(Rows(rows.features * 1e-3, rows.label) for rows in (train, test))) != plain(train, test)


@pytest.mark.parametrize("solver", ["sklearn", "full-batch"])
def test_labels_are_names(solver):
    train, test = halves(synthetic(300, 4, 3))
    names = torch.tensor([17, -4, 5])
    assert LogisticRegression(solver)(
        *(Rows(rows.features, names[rows.label]) for rows in (train, test))
    ) == LogisticRegression(solver)(train, test)


@pytest.mark.parametrize("solver", ["sklearn", "full-batch"])
def test_it_stops_after_max_iter(solver):
    train, test = halves(synthetic(300, 20, 3))
    assert LogisticRegression(solver, max_iter=2)(train, test).iterations == 2
    assert 2 < LogisticRegression(solver, max_iter=100)(train, test).iterations < 100


def test_it_works_in_inference_mode():
    with torch.inference_mode():
        train, test = halves(synthetic(300, 4, 3))
        found = [LogisticRegression(solver)(train, test).accuracy for solver in ("full-batch", "sklearn")]
    assert found[0] == pytest.approx(found[1], abs=0.02)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"solver": "newton"}, r"`solver` to be one of \('sklearn', 'full-batch'\), but got 'newton'"),
        ({"regularization": 0.0}, r"`regularization` > 0, but got 0\.0"),
        ({"max_iter": 0}, "`max_iter` >= 1, but got 0"),
        ({"tol": 0.0}, r"`tol` > 0, but got 0\.0"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        LogisticRegression(**arguments)


@pytest.mark.parametrize(
    ("x", "label", "message"),
    [
        (torch.ones(4), torch.arange(4), r"`x` \(N, D\) of a float dtype and `label` \(N,\), but got \(4,\)"),
        (torch.ones(4, 2).long(), torch.arange(4), r"of a float dtype .*, but got \(4, 2\) of torch.int64"),
        (torch.ones(4, 2), torch.arange(3), r"`label` \(N,\), but got \(4, 2\) of torch.float32 and \(3,\)"),
        (torch.ones(4, 2), torch.zeros(4).long(), "`label` of at least 2 classes, but got 1"),
    ],
)
def test_bad_rows(x, label, message):
    with pytest.raises(ValueError, match=message):
        logistic_regression(x, label)


def test_one_class_is_refused():
    rows = Rows(torch.randn(5, 2), torch.zeros(5).long())
    with pytest.raises(ValueError, match="`train` with labels of at least 2 classes, but got 1"):
        LogisticRegression()(rows, rows)
