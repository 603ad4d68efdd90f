"""FitSpec: defaults, what is refused and how, and the way to JSON and back."""

import json

import numpy as np
import pytest
from numpy.testing import assert_allclose

from bigkpca.errors import SpecError
from bigkpca.numerics import kernels, landmarks
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
        "seed": 0,
        "block_rows": None,
    }


def test_every_field_has_a_description_for_the_command_line():
    assert [name for name, field in FitSpec.model_fields.items() if not field.description] == []


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
        ({"components": "many"}, "components='many': .*valid integer"),
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
        ({"kernel": "poly", "sigma": 2.0}, "the polynomial kernel has no length sigma"),
        ({"kernel": "cosine", "gamma": 2.0}, "the cosine kernel has no gamma"),
        ({"kernel": "linear", "gamma": 2.0}, "the linear kernel has no gamma"),
        ({"degree": 0}, "degree=0: .*greater than or equal to 1"),
        ({"degree": 2.5}, "degree=2.5: .*valid integer"),
        ({"coef0": "x"}, "coef0='x': .*valid number"),
        ({"method": "nystrem"}, "unknown method 'nystrem': did you mean 'nystroem'"),
        ({"size": 0}, "size=0: at least one landmark"),
        ({"size": 10.5}, "size=10.5: .*valid integer"),
        ({"landmarks": "kmean"}, "unknown landmark rule 'kmean': did you mean 'kmeans'"),
        ({"landmarks": 5}, "landmarks=5: give a name or a value of bigkpca.landmarks"),
        ({"landmarks": landmarks.KMeans}, "landmarks=.*: give a name or a value"),
        ({"center": "perhaps"}, "center='perhaps': .*valid boolean"),
        ({"dtype": "float16"}, "dtype='float16': .*'float32' or 'float64'"),
        ({"seed": -1}, "seed=-1: .*greater than or equal to 0"),
        ({"block_rows": 0}, "block_rows=0: .*greater than or equal to 1"),
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
        {"kernel": 2 * kernels.Gaussian(3.0) + kernels.Linear(), "landmarks": landmarks.KMeans(5, 20)},
        {"kernel": "cosine", "landmarks": "uniform", "seed": 12},
    ],
    ids=["defaults", "numbers", "polynomial", "values", "names"],
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


@pytest.mark.parametrize(
    ("options", "kernel"),
    [
        ({"sigma": 3.0}, kernels.Gaussian(3.0)),
        ({"gamma": 0.125}, kernels.Gaussian(2.0)),
        ({}, kernels.Gaussian(7.0)),
        ({"kernel": "laplacian"}, kernels.Laplacian(7.0)),
        ({"kernel": "laplacian", "gamma": 0.5}, kernels.Laplacian(2.0)),
        ({"kernel": "laplacian", "sigma": 4.0}, kernels.Laplacian(4.0)),
        ({"kernel": "polynomial"}, kernels.Polynomial(0.2, 3, 1.0)),
        ({"kernel": "poly", "gamma": 0.3, "degree": 2, "coef0": 0.0}, kernels.Polynomial(0.3, 2, 0.0)),
        ({"kernel": "sigmoid", "coef0": -1.0}, kernels.Sigmoid(0.2, -1.0)),
        ({"kernel": "linear"}, kernels.Linear()),
        ({"kernel": "cosine"}, kernels.Cosine()),
        ({"kernel": kernels.Gaussian(9.0)}, kernels.Gaussian(9.0)),
        ({"kernel": np.dot}, kernels.Function(np.dot)),
    ],
)
def test_the_kernel_of_a_spec_for_five_columns_and_median_seven(options, kernel):
    assert FitSpec.checked(**options).kernel_value(5, 7.0) == kernel


def test_gamma_and_sigma_of_the_gaussian_agree():
    assert_allclose(FitSpec.checked(gamma=0.02).kernel_value(5, None).gamma, 0.02)


def test_a_polynomial_kernel_that_would_be_indefinite_is_refused():
    with pytest.raises(SpecError, match="makes the polynomial kernel indefinite"):
        FitSpec.checked(kernel="poly", coef0=-1).kernel_value(5, None)


@pytest.mark.parametrize(
    ("options", "stationary", "needs_median"),
    [
        ({}, True, True),
        ({"sigma": 2.0}, True, False),
        ({"gamma": 2.0}, True, False),
        ({"kernel": "laplacian"}, True, True),
        ({"kernel": "linear"}, False, False),
        ({"kernel": "poly"}, False, False),
        ({"kernel": kernels.Gaussian(1.0)}, True, False),
        ({"kernel": kernels.Gaussian(1.0) + kernels.Linear()}, False, False),
        ({"kernel": np.dot}, False, False),
    ],
)
def test_what_the_kernel_asks_of_the_sample(options, stationary, needs_median):
    spec = FitSpec.checked(**options)
    assert (spec.stationary, spec.needs_median) == (stationary, needs_median)


def test_the_distance_is_that_of_the_kernel():
    assert FitSpec.checked().distance == "sqeuclidean"
    assert FitSpec.checked(kernel="laplacian").distance == "cityblock"


@pytest.mark.parametrize("kernel", ["linear", kernels.Gaussian(2.0)], ids=str)
def test_a_kernel_without_a_length_of_its_own_has_no_distance(kernel):
    with pytest.raises(SpecError, match="has no length that distances could give"):
        _ = FitSpec.checked(kernel=kernel).distance


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        ({}, landmarks.KMeans()),
        ({"kernel": "laplacian"}, landmarks.KMeans()),
        ({"kernel": "poly"}, landmarks.RPCholesky()),
        ({"kernel": np.dot}, landmarks.RPCholesky()),
        ({"kernel": "poly", "landmarks": "kmeans"}, landmarks.KMeans()),
        ({"landmarks": "uniform"}, landmarks.Uniform()),
        ({"landmarks": landmarks.KMeans(9, 3)}, landmarks.KMeans(9, 3)),
    ],
)
def test_landmarks_are_centres_where_the_kernel_is_radial(options, rule):
    assert FitSpec.checked(**options).landmark_rule() == rule


@pytest.mark.parametrize(
    ("options", "n", "count"),
    [
        ({}, 10**6, 1000),
        ({"components": 5}, 10**6, 500),
        ({"components": 80}, 10**6, 1600),
        ({"components": 200}, 10**6, 2000),
        ({"components": 3000}, 10**6, 3000),
        ({"components": 0.9}, 10**6, 1000),
        ({"components": None}, 10**6, 1000),
        ({}, 70, 70),
        ({"size": 64}, 10**6, 64),
        ({"size": 64}, 10, 10),
        ({"method": "exact", "size": 64}, 777, 777),
    ],
)
def test_the_number_of_landmarks(options, n, count):
    assert FitSpec.checked(**options).feature_count(n) == count


@pytest.mark.parametrize(
    ("data", "asked", "block"),
    [
        ("u1", None, "f4"),
        ("i2", None, "f4"),
        ("?", None, "f4"),
        ("f2", None, "f4"),
        ("f4", None, "f4"),
        ("i4", None, "f8"),
        ("i8", None, "f8"),
        ("f8", None, "f8"),
        ("g", None, "f8"),
        ("f8", "float32", "f4"),
        ("u1", "float64", "f8"),
    ],
)
def test_the_dtype_of_block_work(data, asked, block):
    assert FitSpec.checked(dtype=asked).block_dtype(np.dtype(data)) == np.dtype(block)


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
