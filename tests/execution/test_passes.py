"""Rows read by their numbers."""

import numpy as np

from bigkpca.data.rows import ArrayRows
from bigkpca.execution.passes import read_sets


def test_sets_of_rows_come_in_their_own_order(engine):
    X = np.arange(3.0 * 20_000).reshape(-1, 3)  # five blocks
    rng = np.random.default_rng(0)
    none, one, mixed = np.empty(0, np.intp), np.array([19_999]), rng.choice(20_000, 300, replace=False)
    ascending = np.sort(rng.choice(20_000, 500, replace=False))  # some are in the other set, too
    sets = (ascending, none, mixed, one)
    for numbers, found in zip(sets, read_sets(ArrayRows(X), engine, *sets), strict=True):
        assert np.array_equal(found, X[numbers])
