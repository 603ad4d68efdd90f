"""Every method and every pass gives the same bytes on any number of processes, and on a cluster started elsewhere.

`.ci/run` repeats what is marked `bits` for each processor type that BLAS and NumPy can be told to compute for.
"""

import hashlib

import numpy as np
import pytest

from bigkpca import kernels, methods
from bigkpca.data.opening import open_rows
from bigkpca.data.rows import ArrayRows
from bigkpca.evaluating import preimage_error
from bigkpca.execution.engine import Engine
from bigkpca.execution.projection import (
    block_denoised,
    block_preimages,
    reconstruct_rows,
    residual_rows,
    statistics_of_rows,
)
from bigkpca.fitting.merge import extend
from bigkpca.spec import FitSpec
from bigkpca.storage.models import model_digest
from tests.helpers.fits import fit as fitted
from tests.helpers.fits import scores as transformed
from tests.helpers.stores import as_zarr

pytestmark = pytest.mark.bits

OPTIONS = {"n_components": 5, "size": 40, "random_state": 3, "block_rows": 96}
FITS = {
    "nystroem": {"preimage": "ridge"},
    "nystroem, denoising": {"preimage": "denoising", "noise": 0.5, "standardize": True},
    "nystroem, mds": {"preimage": "mds", "landmarks": "uniform"},
    "nystroem, tolerance": {"size": "auto", "tol": 0.3},
    "thesis": {"method": methods.Nystroem("thesis", rank=20)},
    "calibrated": {"calibration_rows": 60},
    "columns": {"method": "columns"},
    "basic-patterns": {"landmarks": "basic-patterns"},
    "rff": {"method": "rff", "preimage": "ridge"},
    "rff, randomized": {"method": "rff", "solver": "randomized"},
    "rff-pca": {"method": "rff-pca", "standardize": True},
    "tensor sketch": {"method": "rff", "kernel": "polynomial", "degree": 2},
    "exact": {"method": "exact"},
    "refine": {"refine": 2, "residual_tol": 1e-6},
    "precomputed": {"method": "exact", "kernel": "precomputed"},
}


@pytest.fixture(scope="module")
def X():
    rng = np.random.default_rng(0)
    return np.concatenate([rng.normal(size=(260, 9)), rng.normal(size=(140, 9)) + 2]).astype(np.float32)


@pytest.fixture(scope="module")
def stored(X, tmp_path_factory):
    return open_rows(as_zarr(tmp_path_factory.mktemp("bits"), X, (32, 9)))


FULL = pytest.param("cluster_elsewhere", marks=pytest.mark.full)


@pytest.fixture(params=[FULL, pytest.param("three_processes", marks=pytest.mark.long)])
def place(request):
    """Two processes with two threads each, and three with one."""
    return request.getfixturevalue(request.param)


def digest(*values):
    return hashlib.sha256(b"".join(np.ascontiguousarray(value).tobytes() for value in values)).hexdigest()


def everything(fit, X, stored, engine):
    """A digest of what a fit and each pass over the rows makes."""
    rows = ArrayRows(kernels.Gaussian(4.0).gram(X).astype(np.float32)) if fit == "precomputed" else stored
    model = fitted(rows, engine, **OPTIONS | FITS[fit])
    scores = transformed(model, rows, engine)
    found = {"model": model_digest(model), "scores": digest(scores)}
    if fit == "precomputed":
        return found
    found["residuals"] = digest(residual_rows(rows, model, engine))
    if "calibration_rows" in FITS[fit]:
        found["statistics"] = digest(statistics_of_rows(rows, model, engine))
    if "preimage" in FITS[fit]:
        given = ArrayRows(scores)
        found["rows back"] = digest(reconstruct_rows(given, model, block_preimages, engine).rows)
        found["denoised"] = digest(reconstruct_rows(rows, model, block_denoised, engine).rows)
        found["error"] = digest(preimage_error(model, rows, None, engine))
    return found


@pytest.mark.parametrize("fit", ["nystroem", "rff-pca"])
def test_two_threads_give_the_same_bytes(fit, X, stored):
    one, other = (everything(fit, X, stored, Engine(threads=threads)) for threads in (1, 2))
    assert one == other


_references = {}


@pytest.mark.parametrize("fit", FITS)
@pytest.mark.filterwarnings("ignore::bigkpca.errors.NarrowKernelWarning")
def test_fits_and_passes_give_the_same_bytes(fit, X, stored, place):
    if fit not in _references:
        _references[fit] = everything(fit, X, stored, Engine(threads=1))
    assert everything(fit, X, stored, place) == _references[fit]


@pytest.mark.parametrize("given", ["exact", "precomputed"])
def test_matrices_that_are_not_held_give_the_same_bytes(given, X, stored, place, monkeypatch):
    monkeypatch.setattr("bigkpca.spec.resolved.EXACT_MOST_ROWS", 100)
    one, other = (everything(given, X, stored, engine) for engine in (Engine(threads=1), place))
    assert one == other


@pytest.mark.parametrize("calibration_rows", [0, 60])
def test_rows_that_are_added_give_the_same_bytes(calibration_rows, X, stored, place):
    options = {**OPTIONS, "sigma": 4.0, "calibration_rows": calibration_rows}
    spec, one = FitSpec.checked(**options), Engine(threads=1)
    model, more = fitted(stored, one, **options), ArrayRows(X[::-1].copy())
    found, expected = (model_digest(extend(model, more, spec, engine)) for engine in (place, one))
    assert found == expected
