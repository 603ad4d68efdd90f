"""FitSpec: defaults, what is refused and how, and the way to JSON and back."""

import json

import numpy as np
import pytest

from bigkpca import KernelPCA
from bigkpca.data.numpy_rows import ArrayRows
from bigkpca.errors import SpecError
from bigkpca.execution.engine import Engine
from bigkpca.execution.progress import Silent
from bigkpca.fitting.fit import fit_rows
from bigkpca.numerics import kernels, landmarks, methods, preimages
from bigkpca.spec import FitSpec


def test_defaults():
    assert FitSpec.checked().to_dict() == {
        "components": 50,
        "kernel": "gaussian",
        "sigma": "median",
        "gamma": None,
        "degree": 3,
        "coef0": 1.0,
        "method": "nystroem",
        "size": "auto",
        "landmarks": "auto",
        "n_directions": "auto",
        "center": True,
        "standardize": False,
        "dtype": None,
        "solver": "auto",
        "refine": 0,
        "residual_tol": 0.01,
        "tol": None,
        "preimage": "fixed-point",
        "noise": None,
        "seed": 0,
        "block_rows": None,
    }


def test_every_field_has_a_description_for_the_command_line():
    assert [name for name, field in FitSpec.model_fields.items() if not field.description] == []


def test_help_lists_every_kernel_landmark_rule_and_preimage():
    lists = {"kernel": kernels.KERNELS, "landmarks": landmarks.RULES, "preimage": preimages.PREIMAGES}
    for field, names in lists.items():
        assert [name for name in names if name not in str(FitSpec.model_fields[field].description)] == []


@pytest.mark.parametrize(
    ("option", "typed", "value"),
    [
        ("components", "50", 50),
        ("components", "0.9", 0.9),
        ("components", 50.0, 50),
        ("components", None, None),
        ("sigma", "median", "median"),
        ("sigma", "10.2", 10.2),
        ("sigma", 3, 3.0),
        ("gamma", "0.5", 0.5),
        ("size", "1000", 1000),
        ("size", "auto", "auto"),
        ("seed", "7", 7),
        ("block_rows", "4096", 4096),
        ("center", "false", False),
        ("dtype", "float64", "float64"),
        ("kernel", "RBF", "gaussian"),
        ("kernel", "poly", "polynomial"),
        ("method", "nystrom", "nystroem"),
        ("method", "Nystroem", "nystroem"),
        ("method", "Nyström", "nystroem"),
        ("method", "EXACT", "exact"),
        ("landmarks", "k-means", "kmeans"),
        ("landmarks", "Uniform", "uniform"),
    ],
)
def test_options_are_read_as_people_type_them(option, typed, value):
    found = getattr(FitSpec.checked(**{option: typed}), option)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sigm": 3}, "unknown option 'sigm': did you mean 'sigma'?"),
        ({"components": 0}, "components=0: at least one component"),
        ({"components": -3}, "components=-3: at least one component"),
        ({"components": 1.5}, "components=1.5: a share of the variance lies between 0 and 1"),
        ({"components": -0.5}, "components=-0.5: a share of the variance lies between 0 and 1"),
        ({"components": "many"}, "components='many': give a number or 'auto'$"),
        ({"kernel": "gausian"}, "unknown kernel 'gausian': did you mean 'gaussian'"),
        ({"kernel": 3}, "unknown kernel '3'"),
        ({"sigma": -1}, "-1.0: it must be a positive number"),
        ({"sigma": 0.0}, "0.0: it must be a positive number"),
        ({"sigma": "nan"}, "nan: it must be a positive number"),
        ({"sigma": "wide"}, "sigma='wide'"),
        ({"gamma": -2.0}, "-2.0: it must be a positive number"),
        ({"gamma": float("inf")}, "inf: it must be a positive number"),
        ({"sigma": 1.0, "gamma": 1.0}, "both sigma and gamma are given: give one"),
        ({"kernel": kernels.Linear(), "sigma": 1.0}, "sigma and gamma belong to kernel names"),
        ({"kernel": kernels.Gaussian(2.0), "gamma": 1.0}, "sigma and gamma belong to kernel names"),
        ({"kernel": "linear", "sigma": 2.0}, "the linear kernel has no length sigma"),
        ({"kernel": "matern:sigma=1", "sigma": 2.0}, "sigma=2.0 and kernel='matern:sigma=1.0' both give the length"),
        ({"kernel": "rbf:sigma=1", "gamma": 2.0}, "gamma=2.0 and kernel='gaussian:sigma=1.0' both give the length"),
        ({"kernel": "poly:gamma=1", "gamma": 2.0}, "gamma=2.0 and kernel='polynomial:gamma=1.0' both give the length"),
        ({"kernel": "matern:nu=-1"}, "nu"),
        ({"kernel": "poly", "sigma": 2.0}, "the polynomial kernel has no length sigma"),
        ({"kernel": "cosine", "gamma": 2.0}, "the cosine kernel has no gamma"),
        ({"kernel": "linear", "gamma": 2.0}, "the linear kernel has no gamma"),
        ({"degree": 0}, "degree=0: give a number of at least 1$"),
        ({"degree": 2.5}, "degree=2.5: give a whole number$"),
        ({"sigma": "abc"}, "sigma='abc': give a number or 'median'$"),
        ({"tol": 2}, "tol=2: give a number below 1$"),
        ({"noise": float("nan")}, "noise=nan: give a finite number$"),
        ({"center": "perhaps"}, "center='perhaps': give true or false$"),
        ({"coef0": "x"}, "coef0='x': give a number$"),
        ({"method": "nystrem"}, "unknown method 'nystrem': did you mean 'nystroem'"),
        ({"size": 0}, "size=0: at least one landmark"),
        ({"size": 10.5}, "size=10.5: give a whole number or 'auto'$"),
        ({"landmarks": "kmean"}, "unknown landmark rule 'kmean': did you mean 'kmeans'"),
        ({"landmarks": 5}, "landmarks=5: give a name or a value of bigkpca.landmarks"),
        ({"landmarks": landmarks.KMeans}, "landmarks=.*: give a name or a value"),
        ({"dtype": "float16"}, "dtype='float16': .*'float32' or 'float64'"),
        ({"seed": -1}, "seed=-1: give a number of at least 0$"),
        ({"block_rows": 0}, "block_rows=0: give a number of at least 1$"),
        ({"method": "rffpca"}, "unknown method 'rffpca': did you mean 'rff-pca'"),
        ({"method": 3}, "method=3: give a name or a value of bigkpca.methods"),
        ({"method": methods.Nystroem}, "method=.*Nystroem.*: give a name or a value of bigkpca.methods"),
        ({"n_directions": 4}, "n_directions=4 belongs to method='rff-pca', not to 'nystroem'"),
        ({"n_directions": 4, "method": "rff"}, "n_directions=4 belongs to method='rff-pca', not to 'rff'"),
        ({"n_directions": 0, "method": "rff-pca"}, "n_directions=0: at least one principal axis"),
        ({"solver": "fast"}, "solver='fast': .*'auto', 'dense' or 'randomized'"),
        ({"solver": "randomized"}, "solver='randomized' is for random features, not for method='nystroem'"),
        (
            {"solver": "randomized", "method": "columns"},
            "for random features, not for method='columns'",
        ),
        (
            {"solver": "randomized", "method": "exact"},
            "for random features, not for method='exact'",
        ),
        ({"method": "rff", "size": 7}, "size=7: sines and cosines come in pairs"),
        ({"method": "rff", "landmarks": "kmeans"}, "'rff' draws random features and has no landmarks"),
        ({"method": "rff-pca", "landmarks": [1, 2]}, "'rff-pca' draws random features and has no landmarks"),
        ({"method": "rff", "kernel": "poly", "degree": 1}, "a tensor sketch is for polynomial kernels of degree 2"),
        ({"method": methods.RandomFeatures("iid"), "kernel": "poly"}, "a tensor sketch, which has no form; leave form"),
        ({"method": "rff", "kernel": "cosine"}, "the cosine kernel has no spectral density"),
        ({"method": "rff-pca", "kernel": kernels.Laplacian(2.0)}, "needs the gaussian kernel, not 'laplacian'"),
        ({"method": "columns", "landmarks": "kmeans"}, "takes uniform landmarks only, not 'kmeans'"),
        ({"method": methods.Nystroem("thesis"), "landmarks": "kmeans"}, "takes uniform landmarks only, not 'kmeans'"),
        ({"method": "columns", "landmarks": [1, 2]}, "takes uniform landmarks only, not 'row-numbers'"),
        ({"method": "columns", "landmarks": np.eye(3)}, "takes uniform landmarks only, not 'rows'"),
        (
            {"method": "exact", "landmarks": [1, 2]},
            "method='exact' takes every row for a landmark: leave landmarks out",
        ),
        ({"method": "exact", "landmarks": np.eye(3)}, "method='exact' takes every row for a landmark"),
        ({"method": "exact", "landmarks": "uniform"}, "method='exact' takes every row for a landmark"),
        ({"landmarks": np.eye(3), "size": 4}, "size=4, but 3 landmarks are given: leave size out"),
        ({"landmarks": [-3]}, "landmark -3: row numbers are counted from 0"),
        ({"landmarks": [0.5]}, "row numbers for landmarks must be integers, not float64"),
        ({"landmarks": []}, "give at least one row"),
        ({"landmarks": [[1.0, 2.0], [1.0, 2.0]], "size": 1}, "size=1, but 2 landmarks are given: leave size out"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(options, message):
    with pytest.raises(SpecError, match=message):
        FitSpec.checked(**options)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"components": None, "sigma": 2.5, "size": 100, "dtype": "float32", "center": False, "block_rows": 9},
        {"components": 0.9, "kernel": "poly", "gamma": 0.1, "degree": 2, "coef0": 0.5, "method": "exact"},
        {"kernel": 2 * kernels.Gaussian(3.0) + kernels.Linear(), "landmarks": landmarks.KMeans(5)},
        {"kernel": "cosine", "landmarks": "uniform", "seed": 12},
        {"method": methods.Nystroem("thesis", rank=5), "landmarks": "uniform"},
        {"landmarks": landmarks.RPCholesky(0.1, "all", 0.3)},
        {"method": methods.RandomFeatures("phase"), "size": 31, "solver": "randomized"},
        {"method": methods.PrincipalFeatures("alpha", "qmc"), "n_directions": 3, "standardize": True},
        {"method": methods.ColumnSampling(), "landmarks": landmarks.Uniform()},
        {"landmarks": landmarks.BasicPatterns(threshold=0.25, centred=False)},
    ],
    ids=[
        "defaults",
        "numbers",
        "polynomial",
        "values",
        "names",
        "thesis",
        "all",
        "phase",
        "rff-pca",
        "columns",
        "patterns",
    ],
)
def test_a_spec_goes_through_json_and_back(options):
    spec = FitSpec.checked(**options)
    back = FitSpec.from_dict(json.loads(json.dumps(spec.to_dict())), np.empty((0, 0)))
    assert back == spec
    assert back.to_dict() == spec.to_dict()


def test_equal_requests_are_equal_specs():
    assert FitSpec.checked(kernel="rbf", method="nystrom") == FitSpec.checked(kernel="gaussian", sigma="median")
    assert FitSpec.checked(sigma=2).to_dict() == FitSpec.checked(sigma="2.0").to_dict()


def test_a_spec_is_a_value():
    with pytest.raises(ValueError, match="frozen"):
        FitSpec.checked().seed = 3


@pytest.mark.parametrize("value", [float("inf"), "inf", float("nan")])
def test_infinite_components_are_a_spec_error(value):
    with pytest.raises(SpecError, match="share of the variance"):
        FitSpec.checked(components=value)


def test_a_kernel_class_is_not_a_function():
    with pytest.raises(SpecError, match="Gaussian"):
        FitSpec.checked(kernel=kernels.Gaussian)


def test_an_error_of_sigma_names_sigma():
    with pytest.raises(SpecError, match="sigma=-1"):
        FitSpec.checked(sigma=-1)


def test_landmarks_of_the_caller_go_through_json_and_back():
    by_number = FitSpec.checked(landmarks=np.array([7, 3, 5]))
    back = FitSpec.from_dict(json.loads(json.dumps(by_number.to_dict())), np.empty((0, 0)))
    assert back.landmarks.numbers.tolist() == [7, 3, 5]
    assert back.to_dict() == by_number.to_dict()
    own = np.array([[1.5, 2.0], [3.0, -4.0]])
    by_rows = FitSpec.checked(landmarks=own)
    back = FitSpec.from_dict(json.loads(json.dumps(by_rows.to_dict())), own)
    assert back.to_dict() == by_rows.to_dict()
    assert "1.5" not in json.dumps(by_rows.to_dict())  # a digest stands for them
    assert by_rows.to_dict() != FitSpec.checked(landmarks=own + 1).to_dict()


def test_specs_with_landmarks_of_the_caller_are_equal_where_the_landmarks_are():
    own, numbers = np.array([[1.5, 2.0], [3.0, -4.0]]), np.array([7, 3])
    rows = FitSpec.checked(landmarks=own)
    assert rows == FitSpec.checked(landmarks=own.copy()) == FitSpec.checked(landmarks=own.tolist())
    assert hash(rows.landmarks) == hash(FitSpec.checked(landmarks=own.copy()).landmarks)
    assert FitSpec.checked(landmarks=numbers) == FitSpec.checked(landmarks=[7, 3])
    others = [own[::-1], own[:1], own + 1, numbers, numbers[::-1], numbers + 1, "uniform"]
    for i, one in enumerate(others):
        assert FitSpec.checked(landmarks=one) != rows
        for other in others[:i]:
            assert FitSpec.checked(landmarks=one) != FitSpec.checked(landmarks=other)


@pytest.mark.parametrize("dtype", [np.uint8, np.float32, np.float64])
def test_the_spec_of_a_model_is_the_one_it_was_fitted_with(dtype, digits):
    X = digits[:200].astype(dtype)
    for given in (X[5:45], X[5:45] + 0.3, np.arange(5, 45), "kmeans"):
        spec = FitSpec.checked(components=3, landmarks=given)
        model = fit_rows(ArrayRows(X), spec, Engine(threads=1), Silent())
        again = FitSpec.of(model)
        assert again.to_dict() == model.provenance["spec"] == spec.to_dict()
        if not isinstance(given, str):
            assert again == spec


def test_lists_and_arrays_of_landmarks_are_the_same_request():
    numbers = [FitSpec.checked(landmarks=own).to_dict() for own in ([1, 2], (1, 2), np.array([1, 2], np.uint8))]
    rows = [
        FitSpec.checked(landmarks=own).to_dict()
        for own in ([[1, 2]], np.array([[1.0, 2.0]]), np.array([[1, 2]], np.uint8))
    ]
    assert numbers[0] == numbers[1] == numbers[2]
    assert rows[0] == rows[1] == rows[2]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"form": "orthogonalised"}, "unknown form of Nystroem 'orthogonalised': did you mean 'orthogonal'"),
        ({"rank": 3}, "rank is a positive number, for form='thesis' alone"),
        ({"form": "thesis", "rank": 0}, "rank is a positive number, for form='thesis' alone"),
    ],
)
def test_options_of_nystroem_that_do_not_fit(values, message):
    with pytest.raises(SpecError, match=message):
        methods.Nystroem(**values)


def test_options_of_random_features_that_do_not_fit():
    with pytest.raises(SpecError, match="unknown form of RandomFeatures 'phases': did you mean 'phase'"):
        methods.RandomFeatures("phases")
    with pytest.raises(SpecError, match="unknown form of PrincipalFeatures 'pairs'"):
        methods.PrincipalFeatures(form="pairs")
    with pytest.raises(
        SpecError, match="unknown correction of PrincipalFeatures 'pointwize': did you mean 'pointwise'"
    ):
        methods.PrincipalFeatures("pointwize")


@pytest.mark.parametrize(
    ("rule", "values", "message"),
    [
        (landmarks.RPCholesky, {"tol": 1.0}, r"tol lies in \[0, 1\)"),
        (landmarks.RPCholesky, {"tol": -0.1}, r"tol lies in \[0, 1\)"),
        (landmarks.RPCholesky, {"least_accepted": 0.0}, r"least_accepted in \(0, 1\)"),
        (landmarks.RPCholesky, {"over": "everything"}, "over is 'sample' or 'all'"),
        (landmarks.BasicPatterns, {"threshold": -1.0}, "the threshold is a cosine"),
        (landmarks.BasicPatterns, {"threshold": 1.5}, "the threshold is a cosine"),
    ],
)
def test_options_of_landmark_rules_that_do_not_fit(rule, values, message):
    with pytest.raises(SpecError, match=message):
        rule(**values)


def test_what_options_of_a_kernel_leave_open_comes_from_the_options_of_the_fit():
    spec = FitSpec.checked(kernel="matern:nu=2.5")
    assert (spec.needs_median, spec.distance, spec.stationary) == (True, "sqeuclidean", True)
    assert spec.kernel_value(3, 1.5) == kernels.Matern(1.5, nu=2.5)
    assert FitSpec.checked(kernel="matern:nu=2.5", sigma=4).kernel_value(3, None) == kernels.Matern(4.0, nu=2.5)
    assert FitSpec.from_dict(spec.to_dict(), None) == spec
    wide = FitSpec.checked(kernel="rational-quadratic:sigma=2")
    assert not wide.needs_median
    assert wide.kernel_value(3, None) == kernels.RationalQuadratic(2.0)
    with pytest.raises(SpecError, match=r"the kernel rational-quadratic:sigma=2\.0 has no length sigma to choose"):
        _ = wide.distance
    polynomial = FitSpec.checked(kernel="poly:degree=2", coef0=0.5)
    assert polynomial.kernel_value(4, None) == kernels.Polynomial(0.25, degree=2, coef0=0.5)


def test_a_fit_chooses_the_length_that_options_of_its_kernel_leave_open():
    X = np.random.default_rng(0).normal(size=(80, 3))
    kpca, bare = (KernelPCA(2, kernel=kernel, random_state=0).fit(X) for kernel in ("matern:nu=2.5", "matern"))
    assert kpca.kernel_ == kernels.Matern(bare.kernel_.sigma, nu=2.5)
