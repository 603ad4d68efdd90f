"""A fitted model: plain values that project rows."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from bigkpca.numerics import solvers
from bigkpca.numerics.certificate import Certificate
from bigkpca.numerics.expansion import residuals
from bigkpca.numerics.features import KernelRows
from bigkpca.numerics.kernels import Gaussian
from bigkpca.numerics.model import Model
from bigkpca.numerics.moments import Rounding, shifted_sums
from tests.numerics.fits import span_of

OFFSET = np.array([10.0, -3.0, 0.5])
X = np.random.default_rng(0).normal(size=(50, 3)) + OFFSET
TILES = [X[:20], X[20:23], X[23:]]


def fitted(dtype=np.float64, **provenance):
    features = KernelRows(Gaussian(1.2), OFFSET, (X[:9] - OFFSET).astype(dtype))
    ((V, diagonal),) = features.tiles([X], len(X))
    sums = shifted_sums([(V, diagonal)], np.full(9, 0.4), Rounding.unknown(9))
    solution = solvers.nystroem(
        span_of(features.gram(), sums.moments, 1e-12, positive=True), 4, center=True, tolerance=1e-12
    )
    return Model(features, solution, certificate=Certificate.of(4), sums=sums, provenance=provenance)


@pytest.mark.parametrize(("dtype", "atol"), [(np.float64, 1e-12), (np.float32, 1e-4)])
def test_projections_of_tiles_follow_the_formula(dtype, atol):
    model = fitted(dtype)
    assert (model.columns, model.components, model.features.size) == (3, 4, 9)
    tiles = list(model.project(TILES, 27))
    assert [len(tile) for tile in tiles] == [20, 3, 27]
    assert all(tile.dtype == dtype for tile in tiles)
    assert not np.shares_memory(tiles[0], tiles[1])  # they are the caller's to keep
    V = Gaussian(1.2)(X - OFFSET, model.features.landmarks.astype(float))
    expected = (V - model.solution.mean) @ model.solution.components
    assert_allclose(np.concatenate(tiles), expected, atol=atol)


def test_scores_and_residuals_of_one_reading_are_those_of_two():
    model = fitted(np.float32, spec={"method": "nystroem"})
    given = model.expansion()
    pairs = list(map(model.scoring(27, given), TILES))
    for (scores, left), own, (V, diagonal) in zip(
        pairs, model.project(TILES, 27), model.features.tiles(TILES, 27), strict=True
    ):
        assert_array_equal(scores, own)
        assert_array_equal(left, residuals(given, model.solution, V, diagonal))
    assert not np.shares_memory(pairs[0][0], pairs[1][0])


def test_variables_are_columns_by_name_and_the_columns_of_a_category_are_one():
    assert fitted().variables == {}
    names = ["a=b", "kind=u", "kind=v"]
    model = fitted(column_names=names, one_hot=[["kind", 1, 3]])
    assert model.variables == {"a=b": slice(0, 1), "kind": slice(1, 3)}
    # The name of a column means nothing: without the record, a user chose it.
    assert fitted(column_names=names).variables == {name: slice(j, j + 1) for j, name in enumerate(names)}
    again = fitted(column_names=["a", "a", "b"]).variables
    assert again == {"a": slice(0, 1), "column 1 ('a')": slice(1, 2), "b": slice(2, 3)}
