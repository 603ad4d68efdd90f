"""What every pre-image has in common: units, precision, names, options, and what is refused; and where the answer is
known: principal component analysis, the landmarks themselves, random features."""

import json
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from bigkpca.errors import SpecError
from bigkpca.numerics import preimages
from bigkpca.numerics.kernels import Linear, Polynomial
from bigkpca.numerics.methods import ColumnSampling, Exact, Nystroem, RandomFeatures
from bigkpca.numerics.preimages import Denoising, Distances, FixedPoint, Ridge, check_width, reconstructing
from tests.numerics.preimages.models import GAUSSIAN, RANDOM, WAYS, back, decoder, fitted, random_fitted, rows

NONE = np.empty((0, 3))  # sampled rows


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_rows_come_back_in_the_units_of_the_data(way):
    scale, offset = np.array([100.0, 1.0, 0.01]), np.array([1e4, -5.0, 0.3])
    plain, X = fitted(r=8), rows(6, seed=4)
    model = fitted(r=8, X=rows() * scale + offset, offset=offset, scale=scale)
    for start in (None, X):
        expected = back(way, plain, plain.scores(X), start).rows
        there = None if start is None else start * scale + offset
        got = back(way, model, model.scores(X * scale + offset), there, rows() * scale + offset)
        if way.name != "denoising":  # whose noise is in the units of the data
            assert_allclose((got.rows - offset) / scale, expected, atol=1e-5)
    assert back(way, plain, np.empty((0, 8))).rows.shape == (0, 3)


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_single_precision_models_give_single_precision_rows(way):
    X, Q = rows(), rows(6, seed=4)
    model, exact = fitted(X=X.astype(np.float32), dtype=np.float32), fitted()
    Y = model.scores(Q.astype(np.float32))
    assert_allclose(np.abs(Y), np.abs(exact.scores(Q)), atol=1e-4)
    exact = replace(exact, solution=model.solution)  # the same signs
    for start in (None, Q):
        got = back(way, model, Y, None if start is None else start.astype(np.float32), X.astype(np.float32))
        assert got.rows.dtype == np.float32
        assert_allclose(got.rows, back(way, exact, Y, start).rows, atol=5e-3)


NUMBERS = Ridge(np.float32(0.5), np.int64(9)), Distances(neighbours=np.int64(6)), FixedPoint(False, iterations=2)


@pytest.mark.parametrize("way", [*WAYS, *NUMBERS], ids=str)
def test_a_way_and_its_decoder_go_through_json_and_back(way):
    assert preimages.from_dict(json.loads(json.dumps(preimages.to_dict(way)))) == way
    for method in (Nystroem(), ColumnSampling(), Exact()):
        model = fitted(method=method)
        made, Y = decoder(way, model), model.scores(rows(6, seed=4))
        parameters = json.loads(json.dumps(made.parameters()))
        again = preimages.decoder_class(parameters.pop("name"))(**parameters, **made.arrays())
        found, expected = (reconstructing(each, model.features, model.solution, 6)(Y, None) for each in (again, made))
        assert_array_equal(found.rows, expected.rows)
        if way == FixedPoint():  # which keeps no second copy of the components
            assert ("map" in made.arrays()) == (method == ColumnSampling())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: FixedPoint(anchor=-0.1), "the anchor must be a nonnegative number"),
        (lambda: FixedPoint(mean_term=False, anchor=0.1), "has no anchor; omit one of them"),
        (lambda: FixedPoint(iterations=0), "at least one iteration and a positive tol"),
        (lambda: Distances(neighbours=1), "at least 2 neighbours are needed, and at least as many rows"),
        (lambda: Distances(neighbours=9, rows=8), "at least 2 neighbours are needed, and at least as many rows"),
        (lambda: Ridge(ridge=-1), "ridge must be a nonnegative number, and size and rows at least 2"),
        (lambda: Denoising(noise=0), "noise must be a positive standard deviation in the units of the data"),
        (lambda: Denoising(size=1), "ridge must be a nonnegative number, and size and rows at least 2"),
        (lambda: FixedPoint().check(Polynomial(1.0), RandomFeatures()), "no fixed point: use 'ridge' or 'denoising'"),
        (lambda: FixedPoint().check(GAUSSIAN, RandomFeatures("phase")), "with form='phase', use 'mds', 'ridge' or 'd"),
        (lambda: Denoising().check(GAUSSIAN, Nystroem()), "need the standard deviation of the noise: specify noise="),
        (lambda: FixedPoint().decoder(random_fitted("phase"), rows()), "with form='phase'"),
        (lambda: Distances().decoder(fitted(), NONE), "pre-images by 'mds' need sampled rows of the data"),
        (lambda: Ridge().decoder(fitted(), NONE), "pre-images by 'ridge' need sampled rows of the data"),
        (lambda: FixedPoint().decoder(random_fitted("pairs"), NONE), "need sampled rows .* fit it again"),
        (lambda: check_width((5, 3), 4, "s.zarr"), r"s.zarr: scores of shape \(5, 3\), but the model has 4 components"),
        (lambda: check_width((5,), 3, "s.zarr"), r"scores of shape \(5,\)"),
    ],
)
def test_options_models_and_scores_that_will_not_do_are_refused(make, message):
    with pytest.raises(SpecError, match=message):
        make()


# Where the answer is known.

X = rows(80, 5) * [5, 3, 2, 1, 0.5] + [3, -2, 9, 0, 1]
Q = X[:9] + 0.3


def pca(r, center=True):
    """The reconstruction of Q from r principal components of X."""
    mean = X.mean(axis=0) if center else np.zeros(X.shape[1])
    V = np.linalg.svd(X - mean, full_matrices=False)[2][:r].T
    return mean + (Q - mean) @ V @ V.T


@pytest.mark.parametrize(
    ("method", "r", "center"),
    [
        (Exact(), 2, True),
        (Exact(), 2, False),
        (Nystroem(), 3, True),
        (ColumnSampling(), 5, True),  # whose scores are others, but of all components span the same
    ],
    ids=str,
)
def test_the_linear_kernel_gives_pca_back_with_its_mean(method, r, center):
    model = fitted(Linear(), r, method, X=X, size=40, center=center)
    for start in (None, Q):
        got = back(FixedPoint(), model, model.scores(Q), start, X).rows
        assert_allclose(got, pca(r, center), atol=1e-8)


def test_all_components_give_the_landmarks_back():
    model = fitted(r=None, size=12)
    S = model.features.landmarks
    for way in (FixedPoint(), Ridge(ridge=0.0, size=60), Distances(neighbours=8)):
        assert_allclose(back(way, model, model.scores(S)).rows, S, atol=0.2 if way.name == "mds" else 5e-3)


@pytest.mark.parametrize("kind", RANDOM)
def test_random_features_have_pre_images_too(kind):
    X = rows(400)
    model = random_fitted(kind, r=12, X=X)
    lacking = {"phase": ["fixed-point"], "sketch": ["fixed-point", "mds"], "principal-alpha": ["mds"]}
    lost = 1 / 3 if kind.startswith("principal") else 0  # one of three columns' worth lies off the axes
    for way in WAYS:
        if way.name in lacking.get(kind, []):
            with pytest.raises(SpecError, match=r"use .*'ridge' or 'denoising'"):
                way.check(model.features.kernel, model.method)
            continue
        got = back(way, model, model.scores(X[:50]), None, X)
        assert ((got.rows - X[:50]) ** 2).mean() < (lost + 0.15) * X.var()
        assert not got.far.any()


def test_one_factor_for_all_rows_leaves_what_is_off_the_axes_to_the_linear_map():
    X = rows(400)
    model = random_fitted("principal-alpha", r=12, X=X)
    Y, axes = model.scores(X[:5]), model.features.axes
    got, made = back(FixedPoint(), model, Y, X[:5] + 9.0, X).rows, decoder(FixedPoint(), model, X)
    linear = made.mean_row + (Y - made.mean_score) @ made.weights
    off = np.eye(3) - axes @ axes.T
    assert_allclose(got @ off, linear @ off, atol=1e-10)
