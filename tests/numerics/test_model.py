"""A fitted model: plain values that project rows."""

import pickle
import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from bigkpca.numerics import solvers
from bigkpca.numerics.features import KernelRows
from bigkpca.numerics.kernels import Gaussian
from bigkpca.numerics.model import Model
from bigkpca.numerics.moments import shifted_sums
from bigkpca.numerics.span import span_of

OFFSET = np.array([10.0, -3.0, 0.5])


def rows(n=50):
    return np.random.default_rng(0).normal(size=(n, 3)) + OFFSET


def fitted(dtype=np.float64, provenance=None):
    X = rows()
    features = KernelRows(Gaussian(1.2), OFFSET, (X[:9] - OFFSET).astype(dtype))
    ((V, diagonal),) = features.tiles([X], len(X))
    sums = shifted_sums([(V, diagonal)], np.full(9, 0.4))
    solution = solvers.nystroem(span_of(features.gram(), sums.moments, 1e-12), 4, center=True, tolerance=1e-12)
    return Model(features, solution, sums, provenance=provenance or {})


@pytest.mark.parametrize(("dtype", "atol"), [(np.float64, 1e-12), (np.float32, 1e-4)])
def test_projections_of_tiles_follow_the_formula(dtype, atol):
    X, model = rows(), fitted(dtype)
    tiles = list(model.project([X[:20], X[20:23], X[23:]], 27))
    assert [len(tile) for tile in tiles] == [20, 3, 27]
    assert all(tile.dtype == dtype for tile in tiles)
    assert not np.shares_memory(tiles[0], tiles[1])  # they are the caller's to keep
    V = Gaussian(1.2)(X - OFFSET, model.features.landmarks.astype(float))
    expected = (V - model.solution.mean) @ model.solution.components
    assert_allclose(np.concatenate(tiles), expected, atol=atol)


def test_scores_and_residuals_of_one_reading_are_those_of_two():
    model, tiles = fitted(np.float32, {"spec": {"method": "nystroem"}}), [rows()[:20], rows()[20:23], rows()[23:]]
    given = model.expansion()
    pairs = list(model.scores_and_residuals(tiles, 27, given))
    for (Y, left), scores, residual in zip(
        pairs, model.project(tiles, 27), model.residuals(tiles, 27, given), strict=True
    ):
        assert_array_equal(Y, scores)
        assert_array_equal(left, residual)
    assert not np.shares_memory(pairs[0][0], pairs[1][0])


def test_a_model_knows_its_widths_and_the_block_rows_of_its_fit():
    model = fitted()
    assert (model.columns, model.components, model.features.size) == (3, 4, 9)
    assert model.block_rows is None
    assert fitted(provenance={"spec": {"block_rows": None}}).block_rows is None
    assert fitted(provenance={"spec": {"block_rows": 512}}).block_rows == 512


def test_a_model_pickles_to_little_more_than_its_arrays_and_projects_the_same_bits():
    X, model = rows(), fitted(provenance={"spec": {"seed": 1}})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        stored = pickle.dumps(model)
    arrays = (
        model.features.landmarks,
        model.features.offset,
        model.solution.mean,
        model.solution.components,
        model.solution.eigenvalues,
        model.moments.mean,
        model.moments.scatter,
    )
    assert len(stored) < sum(array.nbytes for array in arrays) + 2500
    back = pickle.loads(stored)
    assert back.provenance == {"spec": {"seed": 1}}
    assert back.features.kernel == model.features.kernel
    assert_array_equal(next(back.project([X], 50)), next(model.project([X], 50)))
