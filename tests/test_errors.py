"""Exit codes and the checks that more than one module needs."""

from itertools import product

import numpy as np
import pytest

from bigkpca import errors
from bigkpca.errors import DataError, SpecError, check_finite, unknown_name


def test_exit_codes_are_those_of_the_manual_and_every_error_has_the_same_root():
    names = ["BigKPCA", "Spec", "Data", "MemoryLimit", "Locked", "Incomplete", "Corruption"]
    assert [getattr(errors, f"{name}Error").exit_code for name in names] == [1, 2, 3, 4, 5, 6, 7]
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, Exception)]
    raised = [kind for kind in kinds if not issubclass(kind, Warning)]
    assert all(issubclass(kind, errors.BigKPCAError) for kind in raised)
    assert issubclass(SpecError, ValueError)
    assert issubclass(DataError, ValueError)


def test_the_first_value_that_is_not_finite_is_named_by_row_and_column():
    for dtype, value in product((np.float32, np.float64), (np.nan, np.inf, -np.inf)):
        X = np.ones((5, 4), dtype)
        X[3, 2] = value
        word = "NaN" if np.isnan(value) else "infinity"
        message = rf"rows\.npy: row 103, column 2 is {word} \(both counted from 0\); remove or impute"
        with pytest.raises(DataError, match=message):
            check_finite(X, 100, "rows.npy")
    X = np.ones((4, 3))  # whose sum cancels
    X[1, 2], X[2, 0] = np.inf, -np.inf
    with pytest.raises(DataError, match="row 1, column 2 is infinity"):
        check_finite(X, 0, "x")


def test_finite_values_pass_however_large():
    for X in (
        np.full((3, 2), np.finfo(np.float64).max),  # the sum overflows, the values are fine
        np.full((3, 2), np.finfo(np.float32).max, np.float32),
        np.full((300, 300), 60_000, np.float16),
        np.full((2, 2), 2**62),
        np.ones((2, 2), bool),
        np.empty((0, 3)),
    ):
        check_finite(X, 0, "x")


def test_an_unknown_name_comes_with_the_nearest_known_one_or_with_the_list_only():
    error = unknown_name("colour", "Grene", ["red", "green", "blue"])
    assert isinstance(error, SpecError)
    assert str(error) == "unknown colour 'Grene': did you mean 'green'? known are blue, green, red"
    assert str(unknown_name("colour", "qqqqq", ["red", "blue"])) == "unknown colour 'qqqqq': known are blue, red"
