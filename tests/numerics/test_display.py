"""Values that hold arrays say what they are in a few lines, whatever they hold."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bigkpca
from bigkpca import KernelPCA, landmarks
from bigkpca.data.rows import ArrayRows
from bigkpca.numerics.certificate import Certificate
from bigkpca.numerics.display import at_least, at_most, share_at_least, share_at_most

X = np.random.default_rng(0).normal(size=(300, 8))


@given(st.floats(-1e300, 1e300, allow_subnormal=False), st.integers(1, 9))
def test_bounds_are_rounded_to_the_safe_side(value, digits):
    assert at_least(value, digits) <= value <= at_most(value, digits)
    for shown in (at_least(value, digits), at_most(value, digits)):
        assert float(f"{shown:.{digits}g}") == shown  # printing it rounds no further
        assert abs(shown - value) <= 10.0 ** (1 - digits) * abs(value) * 1.001


def test_shares_are_rounded_to_the_safe_side():
    assert [share_at_least(share, 1) for share in (0.99999, 0.4466, 0.5)] == ["99.9%", "44.6%", "50.0%"]
    assert [share_at_most(share, 1) for share in (0.00001, 0.2312, 0.5)] == ["0.1%", "23.2%", "50.0%"]
    assert share_at_most(0.00031) == "0.04%"
    assert share_at_least(0.3 - 1e-17, 1) == share_at_most(0.1 + 0.2, 1) == "30.0%"  # the last digit of a float


def fitted(**options):
    return KernelPCA(**{"n_components": 20, "size": 40, "random_state": 0, **options}).fit(X).model_


@pytest.mark.parametrize(
    "options",
    [
        {"method": bigkpca.methods.Nystroem("thesis"), "landmarks": "uniform", "refine": 1},
        {"method": "rff-pca", "preimage": "mds"},
        {"method": "rff", "kernel": "polynomial", "preimage": "ridge", "solver": "randomized"},
        {"kernel": lambda A, B: (1 + A @ B.T) ** 2},
    ],
    ids=["thesis", "rff-pca", "tensor sketch", "function"],
)
def test_a_model_and_its_parts_are_described_in_a_few_lines(options):
    model = fitted(**options)
    for value in (model, model.certificate, model.features, model.solution, model.sums, model.drawn, model.decoder):
        assert len(repr(value)) < 1500
        assert len(repr(value).splitlines()) <= 15
        assert "array([[" not in repr(value)


def test_a_model_shows_its_facts_and_no_bound_is_nearer_in_print():
    model = fitted()
    shown = repr(model)
    assert shown.startswith("Model of 20 components\n  method     nystroem\n")
    for fact in ("landmarks  40", "rows       300", "columns    8", "pre-image  fixed-point", "... 17 more"):
        assert fact in shown
    assert f"{model.solution.eigenvalues[0]:.5g}" in shown
    found = model.certificate
    assert f"unexplained  {share_at_most(found.unexplained)} of the variance at most (proven)" in repr(found)
    columns = found.summary().columns
    for name, bounds, side in (("proven at least", found.lower, 1), ("at most, 95%", found.upper, -1)):
        printed = np.array([float(f"{value:.5g}") for value in columns[name]])
        np.testing.assert_array_equal(printed, columns[name])  # no further digit is lost in print
        assert (side * printed <= side * bounds).all()
        assert (printed != bounds).all()


def test_other_values_show_their_shapes_or_that_they_are_empty():
    assert repr(Certificate.of(2)).startswith("Certificate\n  trust  2 doubtful\n")
    assert "values=<float64 (300, 8)>" in repr(ArrayRows(X))
    assert repr(landmarks.RowNumbers(np.array([4, 2]))) == "RowNumbers(numbers=array([4, 2]))"
    assert "\n  rows                 300 × 8\n" in repr(bigkpca.plan(X, n_components=2, size=40))
    lengths = bigkpca.sigma(X)
    assert repr(lengths).splitlines()[1:] == [
        f"  {name:<13}  {each.sigma:.6g} ± {each.standard_error:.2g}" for name, each in lengths.items()
    ]
    assert [name for name in dir(bigkpca) if not name.startswith("__")] == sorted(bigkpca.__all__)
