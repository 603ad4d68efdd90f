"""FitSpec: defaults, what is refused and how, and the way to JSON and back."""

import json
from itertools import combinations

import numpy as np
import pytest

from bigkpca.errors import SpecError
from bigkpca.numerics import kernels, landmarks, methods
from bigkpca.spec import FitSpec
from bigkpca.spec.checks import unused
from tests.data.cases import case

TYPED = [
    ("n_components", "50", 50),
    ("n_components", "0.9", 0.9),
    ("n_components", 50.0, 50),
    ("sigma", "median", "median"),
    ("sigma", 3, 3.0),
    ("sigma", "3 median", "3 median"),
    ("sigma", "2.5", 2.5),
    ("size", "1000", 1000),
    ("center", "false", False),
    ("kernel", "RBF", "gaussian"),
    ("method", "nystrom", "nystroem"),
    ("method", "Nyström", "nystroem"),
    ("landmarks", "K-Means", "kmeans"),
    ("landmarks", "basic_patterns", "basic-patterns"),
]


def test_options_are_read_as_people_type_them():
    for option, typed, value in TYPED:
        found = getattr(FitSpec.checked(**{option: typed}), option)
        assert (found, type(found)) == (value, type(value)), (option, typed)


WRONG_BY_THEMSELVES = [
    ({"sigm": 3}, "unknown option 'sigm': did you mean 'sigma'?"),
    ({"n_components": 0}, "n_components=0: Input should be greater than or equal to 1, or "),
    ({"n_components": 1.5}, "n_components=1.5: .*fractional part, or Input should be less than 1$"),
    ({"n_components": 1.0}, r"n_components=1\.0: pass 1 for one component, or a share of the variance .*0\.999"),
    ({"kernel": "gausian"}, "unknown kernel 'gausian': did you mean 'gaussian'"),
    ({"kernel": kernels.Gaussian}, "Gaussian"),  # a class, which is no function of rows
    ({"kernel": "matern:nu=-1"}, "nu"),
    *(
        ({"sigma": wrong}, f"sigma={wrong!r}: give a positive number, 'median', or a multiple of it, e.g. '3 median'$")
        for wrong in ("abc", "3median", "x median", "-1 median", "0 median", "nan median", "inf median", None, -1, 0.0)
    ),
    ({"noise": float("nan")}, "noise=nan: Input should be a finite number$"),
    ({"method": "nystrem"}, "unknown method 'nystrem': did you mean 'nystroem'"),
    ({"method": 3}, "method=3: pass a name, or a value from bigkpca.methods"),
    ({"method": methods.Nystroem}, "method=.*Nystroem.*: pass a name, or a value from bigkpca.methods"),
    ({"size": 10.5}, "size=10.5: .* fractional part, or Input should be 'auto'$"),
    ({"landmarks": landmarks.KMeans}, "landmarks=.*: pass a name, a value"),
    ({"landmarks": []}, "pass at least one row"),
    ({"solver": "fast"}, "solver='fast': Input should be 'auto', 'dense' or 'randomized'"),
    ({"preimage": "ridge:rigde=1"}, "unknown option of preimage 'ridge' 'rigde': did you mean 'ridge'"),
    ({"preimage": "ridge:ridge=much"}, "preimage='ridge:ridge=much': ridge cannot be 'much'"),
    *(
        ({"column_weights": wrong}, f"the weight of {name} is {value}: give a finite number, 0 or more")
        for wrong, name, value in [
            ({"delay": -1}, "'delay'", "-1"),
            ({"delay": float("nan")}, "'delay'", "nan"),
            ({"delay": "2"}, "'delay'", "'2'"),
            ({"delay": True}, "'delay'", "True"),
            ([True, False], "column 0", "True"),
            ({"delay": [1, 2]}, "'delay'", r"\[1, 2\]"),
            ([1, -0.5], "column 1", "-0.5"),
        ]
    ),
    ({"column_weights": {1: 2}}, r"must be a mapping from names such as .* not \{1: 2\}"),
    ({"column_weights": "delay"}, r"must be a mapping .* such as \{'distance': 2.5\}, or an array .* not 'delay'"),
    ({"column_weights": [[1, 2]]}, r"must be a mapping from names such as .* not \[\[1, 2\]\]"),
]
WRONG_TOGETHER = [
    ({"sigma": 1.0, "gamma": 1.0}, "both sigma and gamma are set: keep only one"),
    ({"kernel": kernels.Linear(), "sigma": 1.0}, "sigma and gamma work only with the name of a kernel"),
    ({"kernel": "linear", "sigma": 2.0}, "the linear kernel has no length sigma"),
    ({"kernel": "cosine", "gamma": 2.0}, "the cosine kernel has no gamma"),
    ({"kernel": "matern:sigma=1", "sigma": 2.0}, "sigma=2.0 and kernel='matern:sigma=1.0' both set the length"),
    ({"kernel": "polynomial", "coef0": -1.0}, "coef0=-1.0: a negative constant makes the polynomial kernel indefinite"),
    ({"method": "rff", "size": 11}, "size=11: sines and cosines come in pairs"),
    ({"preimage": "denoising"}, "pre-images by 'denoising' need the standard deviation"),
    ({"size": 10, "tol": 0.1}, "tol=0.1 lets the size grow, but size=10 fixes it: leave tol out"),
    ({"n_directions": 4}, "n_directions=4 works only with method='rff-pca', not with 'nystroem'"),
    ({"solver": "randomized"}, "solver='randomized' works only with random features, not with method='nystroem'"),
    ({"method": "rff", "landmarks": "kmeans"}, "'rff' draws random features and has no landmarks"),
    ({"method": "rff", "kernel": "poly", "degree": 1}, "a tensor sketch needs a polynomial kernel of degree 2"),
    ({"method": methods.RandomFeatures("iid"), "kernel": "poly"}, "a tensor sketch, which has no form; omit form"),
    ({"method": "rff", "kernel": "cosine"}, "the cosine kernel has no spectral density"),
    ({"method": "rff-pca", "kernel": kernels.Laplacian(2.0)}, "needs the gaussian kernel, not 'laplacian'"),
    ({"method": methods.Nystroem("thesis"), "landmarks": "rpcholesky"}, "takes only uniform .*, not 'rpcholesky'"),
    ({"method": "columns", "landmarks": np.eye(3)}, "takes only uniform landmarks, not 'rows'"),
    ({"method": "exact", "landmarks": "uniform"}, "method='exact' uses every row as a landmark: leave landmarks out"),
    ({"landmarks": np.eye(3), "size": 4}, "size=4, but 3 landmarks were passed: leave size out"),
]


WRONG_PARTS = [
    (methods.Nystroem, {"form": "orthogonalised"}, "unknown form of Nystroem 'orthogonalised': did you mean 'orth"),
    (methods.Nystroem, {"rank": 3}, "rank must be positive, and only form='thesis' has it"),
    (methods.Nystroem, {"form": "thesis", "rank": 0}, "rank must be positive, and only form='thesis' has it"),
    (methods.RandomFeatures, {"form": "phases"}, "unknown form of RandomFeatures 'phases': did you mean 'phase'"),
    (methods.PrincipalFeatures, {"form": "pairs"}, "unknown form of PrincipalFeatures 'pairs'"),
    (methods.PrincipalFeatures, {"correction": "pointwize"}, "unknown correction .* did you mean 'pointwise'"),
    (landmarks.RPCholesky, {"tol": -0.1}, r"tol must be in \[0, 1\)"),
]


def test_what_is_wrong_by_itself_or_together_is_refused_by_name():
    of_specs = [(FitSpec.checked, *wrong) for wrong in WRONG_BY_THEMSELVES + WRONG_TOGETHER]
    for make, options, message in of_specs + WRONG_PARTS:
        with case((make, options)), pytest.raises(SpecError, match=message):
            make(**options)


SPECS = [
    {},
    {"n_components": None, "sigma": 2.5, "size": 100, "dtype": "float32", "center": False, "block_rows": 9},
    {"n_components": 0.9, "kernel": "poly", "gamma": 0.1, "degree": 2, "coef0": 0.5, "method": "exact"},
    {"kernel": 2 * kernels.Gaussian(3.0) + kernels.Linear(), "landmarks": landmarks.KMeans(5)},
    {"kernel": "cosine", "landmarks": "uniform", "random_state": 12},
    {"kernel": "matern:nu=2.5"},
    {"method": methods.Nystroem("thesis", rank=5), "landmarks": "uniform"},
    {"landmarks": landmarks.RPCholesky(0.1)},
    {"method": methods.RandomFeatures("phase"), "size": 31, "solver": "randomized"},
    {"method": methods.PrincipalFeatures("alpha", "iid"), "n_directions": 3, "standardize": True},
    {"method": methods.ColumnSampling(), "landmarks": landmarks.Uniform()},
    {"landmarks": landmarks.BasicPatterns(threshold=0.25, centred=False)},
]


def test_a_spec_goes_through_json_and_back():
    own = np.array([[7.25, 2.0], [3.0, -4.0]])
    for options in [*SPECS, {"landmarks": np.array([7, 3, 5])}, {"landmarks": own}]:
        spec = FitSpec.checked(**options)
        written = json.dumps(spec.to_dict())
        back = FitSpec.from_dict(json.loads(written), own if options.get("landmarks") is own else np.empty((0, 0)))
        assert (back, back.to_dict()) == (spec, spec.to_dict()), options
    assert "7.25" not in written  # a digest stands for landmarks of the caller


def test_specs_with_landmarks_of_the_caller_are_equal_where_the_landmarks_are():
    own, numbers = np.array([[1.5, 2.0], [3.0, -4.0]]), np.array([7, 3])
    for kind in (  # lists and arrays of any dtype are the same request
        (own, own.copy(), own.tolist()),
        (numbers, [7, 3], (7, 3), numbers.astype(np.uint8)),
        ([[1, 2]], np.array([[1.0, 2.0]]), np.array([[1, 2]], np.uint8)),
    ):
        first, *others = [FitSpec.checked(landmarks=given) for given in kind]
        for other in others:
            assert (other, other.to_dict(), hash(other.landmarks)) == (first, first.to_dict(), hash(first.landmarks))
    different = [own, own[::-1], own[:1], own + 1, numbers, numbers[::-1], numbers + 1, "uniform"]
    specs = [FitSpec.checked(landmarks=each) for each in different]
    assert all(one != other for one, other in combinations(specs, 2))
    assert len({json.dumps(spec.to_dict()) for spec in specs}) == len(specs)


def test_options_that_a_fit_would_ignore():
    for given in ({}, {"degree": 2, "kernel": "poly"}, {"residual_tol": 0.1, "refine": "2"}):
        assert list(unused(given, given.get("kernel", "gaussian"), "nystroem")) == []
    found = unused({"degree": 2, "coef0": 1.0, "residual_tol": 0.1, "refine": 0}, "rbf", "nystroem")
    assert {clash.option: clash.message for clash in found} == {
        "degree": "works only with the polynomial kernel, not with gaussian: leave it out",
        "coef0": "works only with the polynomial and sigmoid kernel, not with gaussian: leave it out",
        "residual_tol": "works only with method exact or with refine: add one of them, or leave it out",
    }
    assert [clash.option for clash in unused({"size": 9, "residual_tol": 0.1}, "rbf", "EXACT")] == ["size"]
    assert list(unused({"residual_tol": 0.1}, "rbf", "nystroem", varied=True)) == []
