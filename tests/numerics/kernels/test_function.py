"""Kernels that are functions of the caller."""

import pytest

from bigkpca.errors import SpecError
from bigkpca.numerics import kernels
from bigkpca.numerics.kernels import Function
from tests.helpers.oracles import inverse_quadratic
from tests.numerics.kernels.cases import rows


def test_a_function_leaves_only_its_name_and_cannot_be_read_back():
    description = Function(inverse_quadratic).to_dict()
    assert description == {"name": "function"}
    with pytest.raises(SpecError, match="unknown kernel 'function'"):
        kernels.from_dict(description)


def test_a_function_that_returns_another_shape_is_named_with_both_shapes():
    X, Y = rows(1, 4, 3), rows(2, 2, 3)
    per_row = Function(lambda X, Y: X.sum(axis=1))
    with pytest.raises(SpecError, match=r"returned shape \(4,\) for 4 rows against 2; it must return \(4, 2\)"):
        per_row(X, Y)
