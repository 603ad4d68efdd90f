"""Refined and exact fits of many rows: eigenpairs from products with the Gram matrix, against the dense method."""

import re

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import bigkpca
from bigkpca import KernelPCA, kernels, methods
from bigkpca.data.numpy_rows import ArrayRows
from bigkpca.errors import SpecError
from bigkpca.execution import gram
from bigkpca.execution.engine import Engine
from bigkpca.execution.planning import plan_fit
from bigkpca.numerics.sketch import OVERSAMPLING
from bigkpca.spec import FitSpec, resolve
from bigkpca.storage.models import load_model, save_model
from tests.execution.sources import KERNELS, some_rows, sources
from tests.helpers import oracles
from tests.helpers.commands import run
from tests.helpers.disks import tree_bytes
from tests.helpers.fits import fit, scores
from tests.helpers.progress import Recorder

R = 6
OPTIONS = {"components": R, "size": 60, "seed": 3}


@pytest.fixture
def no_gram(monkeypatch):
    """The exact method holds no more than 100 rows' Gram matrix."""
    for module in ("spec.resolved", "evaluating.error"):
        monkeypatch.setattr(f"bigkpca.{module}.EXACT_MOST_ROWS", 100)
    monkeypatch.setattr(gram, "_STRIP_ROWS", 64)


def fitted(X, engine=None, progress=None, **options):
    return fit(X, engine, progress, **OPTIONS | options)


def truth(model, X, center=True):
    """(Gram matrix, centred if asked, of the kernel that the model chose; the eigenvectors it found, of length one)."""
    K = model.features.kernel.gram(X)
    U = model.solution.components * np.sqrt(model.solution.eigenvalues) if "products" in model.provenance else None
    U = scores(model, X) if U is None else U
    return (oracles.centred(K) if center else K), U / np.linalg.norm(U, axis=0)


CASES = {
    "gaussian": {},
    "not centred": {"center": False},
    "standardized": {"standardize": True},
    "polynomial": {"kernel": "polynomial"},
    "laplacian": {"kernel": "laplacian"},
    "product": {"kernel": KERNELS[2]},
    "function": {"kernel": KERNELS[3]},
}


@pytest.mark.parametrize("case", CASES)
def test_eigenpairs_are_those_of_the_dense_method(case, no_gram, monkeypatch):
    X, new = some_rows(330) * [3, 1, 2, 1, 0.5] + 4, some_rows(40, seed=9) + 4
    found = fitted(X, method="exact", residual_tol=1e-7, **CASES[case])
    for module in ("spec.resolved", "evaluating.error"):
        monkeypatch.setattr(f"bigkpca.{module}.EXACT_MOST_ROWS", 8192)
    dense = fitted(X, method="exact", **CASES[case])
    assert "products" not in dense.provenance
    assert found.provenance["products"] >= 1
    assert_allclose(found.solution.eigenvalues, dense.solution.eigenvalues, rtol=1e-11)
    assert_allclose(found.solution.total_variance, dense.solution.total_variance, rtol=1e-11)
    assert_allclose(found.solution.mean, dense.solution.mean, rtol=1e-10, atol=1e-13)
    largest = np.sqrt(dense.solution.eigenvalues[0])
    assert_allclose(scores(found, X), scores(dense, X), atol=1e-5 * largest)  # signs as well
    assert_allclose(scores(found, new), scores(dense, new), atol=1e-5 * largest)
    assert found.moments is None


@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize("tol", [0.3, 1e-2, 1e-4])
def test_residuals_are_the_true_ones_and_eigenvalues_lower_bounds(tol, center, no_gram):
    X = some_rows(400)
    model = fitted(X, method="exact", residual_tol=tol, center=center)
    K, U = truth(model, X, center)
    values, certificate = model.solution.eigenvalues, model.certificate
    left = np.linalg.norm(K @ U - U * values, axis=0) / values
    assert certificate.residuals is not None
    assert (certificate.residuals >= left).all()  # widened by rounding
    assert_allclose(certificate.residuals, left, rtol=1e-6, atol=1e-12)
    assert certificate.residuals.max() <= tol + 1e-12
    true = np.linalg.eigvalsh(K)[::-1][:R]
    assert (values <= true * (1 + 1e-12)).all()
    assert_allclose(certificate.eigenvalue_lower, values, rtol=1e-10)
    assert (certificate.eigenvalue_lower < values).all()
    assert_allclose(values, np.einsum("ij,ij->j", U, K @ U), rtol=1e-10)
    assert_allclose(model.solution.total_variance, np.trace(K), rtol=1e-12)
    for value, residual in zip(values, certificate.residuals, strict=True):  # what a residual proves
        assert np.abs(np.linalg.eigvalsh(K) - value).min() <= residual * value * (1 + 1e-9)


def test_single_precision_reaches_the_default_tolerance(no_gram):
    X = some_rows(400)
    double = fitted(X, method="exact", residual_tol=1e-6)
    single = fitted(X.astype(np.float32), method="exact", residual_tol=1e-4)
    assert single.features.dtype == np.float32
    assert_allclose(single.solution.eigenvalues, double.solution.eigenvalues, rtol=1e-5)


@pytest.mark.parametrize("method", ["nystroem", "columns", "rff", "rff-pca"])
def test_refining_raises_the_accuracy_of_every_method(method, no_gram):
    X = some_rows(400)
    rule = {"landmarks": "uniform"} if method == "nystroem" else {}
    options = {"method": method, "size": 40, "sigma": 2.0, **rule}
    K = oracles.centred(kernels.Gaussian(2.0).gram(X))
    true, vectors = oracles.gram_kpca(K, R, center=False)
    vectors /= np.linalg.norm(vectors, axis=0)
    errors = []
    for refine in (0, 1, 2):
        model = fitted(X, refine=refine, residual_tol=1e-9, **options)
        _, U = truth(model, X, True)
        sines = np.sqrt(np.maximum(1 - np.linalg.norm(vectors.T @ U, axis=0) ** 2, 0))
        errors.append((np.abs(1 - model.solution.eigenvalues / true).max(), sines.max()))
        assert model.provenance.get("products", 0) == refine
    assert errors[2] < errors[1] < errors[0]
    assert errors[2][1] < errors[1][1] < errors[0][1]
    assert errors[1][0] < errors[0][0] / 2


def test_refining_stops_at_the_tolerance_and_after_its_products(no_gram):
    X, products = some_rows(400), []
    for refine, tol in ((1, 1e-9), (3, 1e-9), (8, 1e-3), (8, 0.5)):
        model = fitted(X, refine=refine, residual_tol=tol, size=20, landmarks="uniform")
        products.append(model.provenance["products"])
        assert model.certificate.residuals is not None
        assert products[-1] == refine or model.certificate.residuals.max() <= tol
    assert products[:2] == [1, 3]
    assert products[3] <= products[2] < 8


def test_notes_tell_the_residual_of_every_product(no_gram):
    notes = Recorder()
    model = fitted(some_rows(300), progress=notes, refine=3, residual_tol=1e-9)
    said = [re.fullmatch(r"product (\d+): largest relative residual (.+)", note) for note in notes.notes]  # type: ignore[attr-defined]
    told = [(int(match[1]), float(match[2])) for match in said if match]
    assert [number for number, _ in told] == [1, 2, 3]
    assert told[0][1] > told[1][1] > told[2][1]
    assert model.certificate.residuals is not None
    assert_allclose(told[2][1], model.certificate.residuals.max(), rtol=0.06)


@pytest.mark.parametrize("components", [None, 0.9])
def test_a_number_of_components_is_needed(components, no_gram):
    assert fitted(some_rows(100), method="exact", components=components).features.size == 100
    with pytest.raises(SpecError, match="above 100 rows needs a number of components"):
        fitted(some_rows(101), method="exact", components=components)
    with pytest.raises(SpecError, match="needs a number of components"):
        plan_fit(ArrayRows(some_rows(101)), FitSpec.checked(method="exact", components=components), 1)
    with pytest.raises(SpecError, match="refine=2 needs a number of components"):
        FitSpec.checked(refine=2, components=components)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "exact", "refine": 1}, "stops at residual_tol: leave refine out"),
        ({"method": methods.Exact(), "refine": 1}, "leave refine out"),
        ({"refine": -1}, "refine=-1"),
        ({"residual_tol": 0.0}, "residual_tol=0.0"),
        ({"residual_tol": -1.0}, "residual_tol=-1.0"),
    ],
    ids=str,
)
def test_options_that_make_no_sense_are_refused(options, message):
    with pytest.raises(SpecError, match=message):
        FitSpec.checked(**options)


def test_the_spec_says_when_products_are_needed():
    spec = FitSpec.checked(method="exact", components=7)
    fits = [resolve(spec, ArrayRows(np.zeros((n, 2)))) for n in (10, 8192, 8193)]
    assert [fit.matrix_free for fit in fits] == [False, False, True]
    start = fits[-1].start().spec
    assert (start.method, start.components, start.refine, start.seed) == ("nystroem", 7 + OVERSAMPLING, 0, spec.seed)
    refined = FitSpec.checked(method="rff", components=7, refine=2)
    fit = resolve(refined, ArrayRows(np.zeros((10, 2))))
    assert fit.matrix_free
    assert (fit.start().spec.method, fit.start().spec.refine) == ("rff", 0)
    assert FitSpec.from_dict(refined.to_dict(), np.empty((0, 0))) == refined


@pytest.mark.parametrize("options", [{"method": "exact"}, {"refine": 2, "standardize": True, "dtype": "float32"}])
def test_models_are_saved_and_loaded(options, no_gram, tmp_path):
    X = some_rows(220)
    model = fitted(X, **options)
    save_model(model, str(tmp_path / "model.zarr"))
    loaded = load_model(str(tmp_path / "model.zarr"))
    assert_array_equal(scores(loaded, X), scores(model, X))
    assert_array_equal(loaded.certificate.residuals, model.certificate.residuals)
    assert loaded.provenance["products"] == model.provenance["products"]
    assert FitSpec.of(loaded) == FitSpec.checked(**OPTIONS | options)
    assert loaded.certificate.trust == model.certificate.trust


def saved_bytes(path, engine, out, **options):
    save_model(fitted(path, engine, **options), str(out))
    return tree_bytes(out)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("options", [{"method": "exact"}, {"refine": 2, "standardize": True}], ids=str)
@pytest.mark.bits
def test_models_are_the_same_bytes_everywhere(engine, options, dtype, no_gram, tmp_path):
    path = sources(some_rows(300).astype(dtype), tmp_path, chunk=64)["path"]
    one = saved_bytes(path, Engine(threads=1), tmp_path / "one", **options)
    assert saved_bytes(path, engine, tmp_path / "other", **options) == one


@pytest.mark.bits
def test_models_are_the_same_bytes_for_chunks_that_are_no_part_of_a_strip(two_processes, no_gram, tmp_path):
    path = sources(some_rows(300), tmp_path, chunk=30)["path"]
    one = saved_bytes(path, Engine(threads=1), tmp_path / "one", method="exact")
    assert saved_bytes(path, two_processes, tmp_path / "other", method="exact") == one


@pytest.mark.parametrize(
    "options",
    [
        {"kernel": "linear", "dtype": "float32", "residual_tol": 1e-12, "components": 10},  # of rank 5
        {"components": 170, "refine": 3, "size": 200, "residual_tol": 1e-9, "sigma": 20.0},
    ],
    ids=["low rank", "below rounding"],
)
def test_components_beyond_the_rank_are_left_out(options, no_gram):
    model = fitted(some_rows(300), **({"method": "exact"} | options if "refine" not in options else options))
    assert (model.solution.eigenvalues > 0).all()
    assert np.isfinite(model.solution.components).all()


def test_a_start_of_few_landmarks_does_not_limit_the_components(no_gram):
    model = fitted(some_rows(300), method="exact", components=30, size=8, residual_tol=0.1)
    assert model.components == 30


def test_the_estimator_takes_both_options(no_gram):
    X = some_rows(250)
    model = KernelPCA(R, size=40, refine=5, residual_tol=1e-4, random_state=0).fit(X)
    assert model.certificate_.residuals is not None
    assert model.certificate_.residuals.max() <= 1e-4
    assert model.get_params()["refine"] == 5
    assert model.transform(X).shape == (250, R)
    exact = KernelPCA(R, method="exact", residual_tol=1e-4, random_state=0).fit(X)
    assert_allclose(exact.eigenvalues_, model.eigenvalues_, rtol=1e-6)
    assert_allclose(exact.transform(X), exact.fit_transform(X), atol=1e-12)
    assert not hasattr(exact, "partial_fit")
    assert not hasattr(model, "partial_fit")


def test_commands_take_both_options_and_print_residuals(no_gram, tmp_path):
    np.save(tmp_path / "rows.npy", some_rows(250))

    def typed_fit(*options):
        return run("fit", tmp_path / "rows.npy", tmp_path / "m.zarr", "--components", R, "--overwrite", *options)

    for typed in (("--refine", 4, "--residual-tol", 1e-3, "--size", 40), ("--method", "exact")):
        shown = typed_fit(*typed)
        assert shown.exit_code == 0, shown.output
        assert re.search(r"largest relative residual: \S+ \(proven", shown.stdout)
        assert "solid" in shown.stdout
        assert "product 1: largest relative residual" in shown.stderr
    assert bigkpca.load(tmp_path / "m.zarr").features.size == 250
    assert typed_fit("--method", "exact", "--refine", 1).exit_code == 2
