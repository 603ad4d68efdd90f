"""What does not go together in a FitSpec, all at once, and options that a fit would ignore."""

import pytest

from bigkpca.spec import FitSpec
from bigkpca.spec.combinations import clashes, unused


def spec_of(**values):
    """A spec whose fields are right one by one, and may not go together."""
    return FitSpec().model_copy(update=values)


def test_all_clashes_are_found_with_the_fields_that_they_are_about():
    spec = spec_of(sigma=2.0, gamma=0.1, solver="randomized", size=10, tol=0.1, kernel="polynomial")
    assert [clash.fields for clash in clashes(spec)] == [
        ("sigma", "gamma"),
        ("kernel", "sigma"),
        ("solver", "method"),
        ("tol", "size"),
    ]


def test_what_a_method_says_is_left_out_where_no_kernel_can_be_made():
    spec = spec_of(kernel="polynomial", coef0=-1.0, preimage="denoising")
    assert [clash.fields for clash in clashes(spec)] == [("kernel", "coef0")]


def test_a_kernel_that_cannot_be_made_is_told_once():
    (clash,) = clashes(spec_of(kernel="polynomial", degree=20_000, preimage="ridge", method="rff"))
    assert clash.fields == ("kernel", "sigma", "gamma", "degree", "coef0")
    assert clash.message == "Polynomial: degree=20000 is above 10000: values under- or overflow"


def test_the_method_and_the_preimage_are_both_asked():
    spec = spec_of(method="rff", size=11, preimage="denoising", sigma=2.0, gamma=0.1)
    messages = [clash.message for clash in clashes(spec)]
    assert len(messages) == 3
    assert messages[1].startswith("size=11: sines and cosines come in pairs")
    assert messages[2].startswith("pre-images by 'denoising' need the standard deviation")


@pytest.mark.parametrize("given", [{}, {"degree": 2, "kernel": "poly"}, {"residual_tol": 0.1, "refine": "2"}])
def test_options_that_a_fit_uses(given):
    assert list(unused(given, given.get("kernel", "gaussian"), "nystroem")) == []


def test_options_that_a_fit_would_ignore():
    found = unused({"degree": 2, "coef0": 1.0, "residual_tol": 0.1, "refine": 0}, "rbf", "nystroem")
    assert {clash.fields[0]: clash.message for clash in found} == {
        "degree": "is for the polynomial kernel, not for gaussian: leave it out",
        "coef0": "is for the polynomial and sigmoid kernel, not for gaussian: leave it out",
        "residual_tol": "belongs to method exact and to refine: add one of them, or leave it out",
    }
    assert [clash.fields for clash in unused({"size": 9, "residual_tol": 0.1}, "rbf", "EXACT")] == [("size", "method")]
    assert list(unused({"residual_tol": 0.1}, "rbf", "nystroem", varied=True)) == []
