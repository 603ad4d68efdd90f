"""What does not go together in a FitSpec, all at once, and options that a fit would ignore."""

from bigkpca.spec import FitSpec
from bigkpca.spec.checks import clashes, unused


def test_all_clashes_are_found_with_the_fields_that_they_are_about():
    of_kernel = ("kernel", "sigma", "gamma", "degree", "coef0")
    for options, fields in (
        (
            {"sigma": 2.0, "gamma": 0.1, "solver": "randomized", "size": 10, "tol": 0.1, "kernel": "polynomial"},
            [("sigma", "gamma"), ("kernel", "sigma"), ("solver", "method"), ("tol", "size")],
        ),
        # What a method says is left out where no kernel can be made, which is told once.
        ({"kernel": "polynomial", "coef0": -1.0, "preimage": "denoising"}, [("kernel", "coef0")]),
        ({"kernel": "polynomial", "degree": 20_000, "preimage": "ridge", "method": "rff"}, [of_kernel]),
    ):
        found = list(clashes(FitSpec().model_copy(update=options)))
        assert [clash.fields for clash in found] == fields
    assert found[0].message == "Polynomial: degree=20000 is above 10000: values under- or overflow"


def test_the_method_and_the_preimage_are_both_asked():
    options = {"method": "rff", "size": 11, "preimage": "denoising", "sigma": 2.0, "gamma": 0.1}
    _, method, preimage = (clash.message for clash in clashes(FitSpec().model_copy(update=options)))
    assert method.startswith("size=11: sines and cosines come in pairs")
    assert preimage.startswith("pre-images by 'denoising' need the standard deviation")


def test_options_that_a_fit_would_ignore():
    for given in ({}, {"degree": 2, "kernel": "poly"}, {"residual_tol": 0.1, "refine": "2"}):
        assert list(unused(given, given.get("kernel", "gaussian"), "nystroem")) == []
    found = unused({"degree": 2, "coef0": 1.0, "residual_tol": 0.1, "refine": 0}, "rbf", "nystroem")
    assert {clash.fields[0]: clash.message for clash in found} == {
        "degree": "works only with the polynomial kernel, not with gaussian: leave it out",
        "coef0": "works only with the polynomial and sigmoid kernel, not with gaussian: leave it out",
        "residual_tol": "works only with method exact or with refine: add one of them, or leave it out",
    }
    assert [clash.fields for clash in unused({"size": 9, "residual_tol": 0.1}, "rbf", "EXACT")] == [("size", "method")]
    assert list(unused({"residual_tol": 0.1}, "rbf", "nystroem", varied=True)) == []
