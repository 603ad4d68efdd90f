"""The expected time of a fit: the formula against a plain one, how it grows, and where it is not known."""

from dataclasses import replace
from itertools import product

import dask.array as da
import numpy as np
import pytest
from threadpoolctl import threadpool_info

from bigkpca.data.opening import open_rows
from bigkpca.execution.duration import COEFFICIENTS, Speed, measured_speed, not_timed, timed
from bigkpca.execution.planning import plan_resolved
from bigkpca.numerics import kernels, methods, preimages
from bigkpca.spec import FitSpec, resolve
from tests.execution.test_planning import rows

SPEED = Speed(single=5e10, double=2.5e10, entries=2e9)
WAYS = {
    "k-means": {"landmarks": "kmeans"},
    "uniform": {"landmarks": "uniform"},
    "columns": {"method": "columns"},
    "random features": {"method": "rff"},
    "linear pre-images of random features": {"method": "rff", "preimage": "linear"},
    "float64": {"dtype": "float64"},
    "standardize": {"standardize": True},
    "a given sigma": {"sigma": 3.0},
}


def seconds(options, n, d, threads, driver):
    given = rows(n, d)
    fit = resolve(FitSpec.checked(**options), given)
    return timed(plan_resolved(given, fit, threads), fit, SPEED, threads, driver).expected_seconds


def naive(way, n, d, D, threads, driver):
    """The same formula, written out for data in float32 and 50 components."""
    landmarks, iterations = (
        "random features" not in way,
        6 if way in ("k-means", "float64", "standardize", "a given sigma") else 0,
    )
    product = SPEED.double if way == "float64" else SPEED.single
    words = 2 if way == "float64" else 1
    passes = 2 if way == "standardize" else 1
    block = min(n, min(65536, max(4096, 2 ** int(np.log2(n // 16)))))
    b = max(block, n / threads)
    m = min(n, max(D if landmarks else 0, min(20_000, 16_000_000 // d)))
    u = min(n, 2048, 4_000_000 // d) if landmarks else 0
    q = D if landmarks else D // 2
    decoded = m if "linear" in way else 0
    pairs = 0 if way == "a given sigma" else min(100_000, m * (m - 1) // 2)
    by_lapack = 0 if landmarks and D >= 2048 else D**3
    again = {"columns": D**3}.get(way, 0 if landmarks else D**3 / 8)
    times = {
        "reading": (passes * b * d * 4 + m * d * 4 / threads) / SPEED.entries,
        "features": words * (passes * b * d + b * D + decoded * D) / SPEED.entries,
        "products": (b * D * D / 2 + (b * D * D / 16 if landmarks else 0) + b * d * q + decoded * d * q) / product,
        "sample": (m * d + pairs * d / driver) / SPEED.entries,
        "k-means": iterations * min(m, max(20_000, D)) * D / driver / SPEED.entries,
        "error": (u * u * d / 2 + u * D * d + u * D * D) / driver / product,
        "span": D**3 / driver / SPEED.double if landmarks else 0,
        "eigenproblem": (by_lapack + again) / SPEED.double,
        "constant": 1,
    }
    assert times.keys() == COEFFICIENTS.keys()
    return sum(COEFFICIENTS[name] * times[name] for name in times)


def test_the_time_is_that_of_the_plain_formula():
    shapes = [(200_000, 50, 1000, 2, 2), (70_000, 784, 3000, 3, 1), (5000, 300, 4098, 1, 4), (6000, 9, 500, 16, 1)]
    for way, (n, d, D, threads, driver) in product(WAYS, shapes):
        found = seconds(WAYS[way] | {"size": D}, n, d, threads, driver)
        assert found == pytest.approx(naive(way, n, d, D, threads, driver), rel=1e-12), (way, n)
    own = {"landmarks": np.arange(40.0).reshape(20, 2)}  # which take the time of as many uniform ones
    assert seconds(own, 9000, 2, 2, 2) == pytest.approx(seconds(WAYS["uniform"] | {"size": 20}, 9000, 2, 2, 2))


def why_not(given, **options):
    return not_timed(given, resolve(FitSpec.checked(**options), given))


def test_no_number_is_given_where_the_time_is_not_known():
    for options, reason in [
        ({"method": "exact"}, "number of products depends on the data"),
        ({"refine": 1}, "number of products depends on the data"),
        ({"tol": 0.1}, "the size depends on the data"),
        ({"landmarks": "leverage"}, "not measured for landmarks by leverage"),
        ({"method": "rff-pca"}, "not measured for method rff-pca"),
        ({"method": methods.RandomFeatures("phase")}, "not measured for method rff with options"),
        ({"kernel": "laplacian"}, "not measured for this kernel"),
        ({"kernel": kernels.Gaussian(1.0) + kernels.Laplacian(1.0)}, "not measured for this kernel"),
        ({"method": "rff", "solver": "randomized"}, "not measured for the randomized solver"),
        ({"components": 0.9}, "number of components depends on the data"),
        ({"preimage": preimages.Ridge()}, "not measured for trained pre-images"),
    ]:
        assert reason in (why_not(rows(200_000), **options) or ""), options
    assert "not measured for method exact" in why_not(rows(500), method="exact")
    assert why_not(rows(300, 300), kernel="precomputed", method="exact", center=False)
    lazy = open_rows(da.zeros((1000, 5), chunks=(100, 5)))
    assert "Dask" in why_not(lazy)
    assert "object store" in why_not(replace(rows(200_000), where="s3://lab/rows.zarr"))
    assert {way: why_not(rows(200_000), **options) for way, options in WAYS.items()} == dict.fromkeys(WAYS)
    assert why_not(rows(200_000, 2), landmarks=np.arange(40.0).reshape(20, 2)) is None


def test_the_probe_measures_one_thread_and_leaves_blas_as_it_was():
    before = threadpool_info()
    found = measured_speed()
    assert min(found.single, found.double, found.entries) > 0
    assert threadpool_info() == before
