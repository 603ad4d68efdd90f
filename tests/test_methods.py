"""Every method and every landmark rule end to end: the same bits everywhere, on disk too, equal where theory says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import oracles
import pytest
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.preprocessing import StandardScaler

from bigkpca import KernelPCA, arrays, kernels, landmarks, methods
from bigkpca.data.memory import ArrayRows
from bigkpca.errors import DataError, IndefiniteKernelWarning, NarrowKernelWarning, SpecError
from bigkpca.execution.engine import Engine
from bigkpca.execution.progress import Silent
from bigkpca.execution.projection import score_rows
from bigkpca.execution.reductions import moments_of
from bigkpca.fitting.fit import fit_rows
from bigkpca.fitting.partial_fit import extend
from bigkpca.fitting.solve import Checks, solve
from bigkpca.numerics.methods import METHODS
from bigkpca.numerics.model import Model
from bigkpca.numerics.sketch import OVERSAMPLING
from bigkpca.spec import FitSpec, resolve
from bigkpca.storage.models import load_model, model_digest, save_model

OPTIONS: dict[str, Any] = {"components": 6, "size": 60, "seed": 3}
OWN_ROWS = np.random.default_rng(5).integers(0, 17, (40, 64)) + 0.5
# What a fit may be asked for besides OPTIONS, by name.
CASES: dict[str, dict[str, Any]] = {
    "nystroem": {"method": "nystroem"},
    "thesis": {"method": methods.Nystroem("thesis", rank=20)},
    "columns": {"method": "columns"},
    "exact": {"method": "exact"},
    **{f"rff {form}": {"method": methods.RandomFeatures(form)} for form in ("orthogonal", "iid", "qmc", "phase")},
    **{
        f"rff-pca {correction}": {"method": methods.PrincipalFeatures(correction)}
        for correction in ("pointwise", "alpha", "sampled-alpha", "none")
    },
    "rff-pca phase": {"method": methods.PrincipalFeatures(form="phase"), "n_directions": 12},
    "rff-pca qmc": {"method": methods.PrincipalFeatures(form="qmc")},
    "tensor sketch": {"method": "rff", "kernel": "polynomial", "degree": 2},
    **{rule: {"landmarks": rule} for rule in landmarks.RULES},
    "basic-patterns threshold": {"landmarks": landmarks.BasicPatterns(threshold=0.5)},
    "rpcholesky all": {"landmarks": landmarks.RPCholesky(over="all")},
    "rpcholesky all polynomial": {"landmarks": landmarks.RPCholesky(tol=0.05, over="all"), "kernel": "polynomial"},
    "own rows": {"landmarks": OWN_ROWS, "size": "auto"},
    "row numbers": {"landmarks": [11, 253, 7, *range(100, 140)], "size": "auto"},
    "standardize": {"standardize": True},
    "standardize rff-pca": {"standardize": True, "method": "rff-pca"},
    "randomized rff": {"method": "rff", "solver": "randomized"},
    "randomized rff-pca": {"method": "rff-pca", "solver": "randomized"},
}
every_case = pytest.mark.parametrize("case", CASES)
# The float64 digits of `X`, one fit for each method with its default options.
every_method = pytest.mark.parametrize("method", METHODS)


@pytest.fixture(scope="module")
def X(digits: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return digits[:600].astype(np.float64)


@pytest.fixture(scope="module")
def few(X: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return X[:300]


def fitted(X: np.ndarray[Any, Any], engine: Engine | None = None, **options: Any) -> Model:
    return fit_rows(ArrayRows(X), FitSpec.checked(**OPTIONS | options), engine or Engine(threads=1), Silent())


def scores(model: Model, X: np.ndarray[Any, Any], engine: Engine | None = None) -> np.ndarray[Any, Any]:
    return score_rows(ArrayRows(X), model, engine or Engine(threads=1), Silent())


@pytest.fixture(scope="module")
def exact(X: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The five leading eigenvalues of the centred Gram matrix, for sigma = 25."""
    return fitted(X, method="exact", sigma=25.0, components=5).solution.eigenvalues


def errors(found: np.ndarray[Any, Any], exact: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return np.abs(found / exact - 1)


# -- the same bits -------------------------------------------------------------------------------------------

_references: dict[Any, tuple[str, bytes]] = {}


def bits(X: np.ndarray[Any, Any], engine: Engine, **options: Any) -> tuple[str, bytes]:
    model = fitted(X, engine, **options)
    return model_digest(model), scores(model, X, engine).tobytes()


@every_case
@pytest.mark.parametrize("engine", ["threads", pytest.param("processes", marks=pytest.mark.cluster)], indirect=True)
@pytest.mark.bits
def test_models_and_scores_are_the_same_bytes_everywhere(
    engine: Engine, case: str, digits: np.ndarray[Any, Any]
) -> None:
    options = CASES[case] | {"block_rows": 100}
    if case not in _references:
        _references[case] = bits(digits[:300], Engine(threads=1), **options)
    assert bits(digits[:300], engine, **options) == _references[case]


@every_case
def test_blocks_of_the_default_size_give_the_same_bytes_too(case: str, digits: np.ndarray[Any, Any]) -> None:
    one, two = (bits(digits[:300], Engine(threads=threads), **CASES[case]) for threads in (1, 2))
    assert one == two


@every_case
def test_other_seeds_give_other_models_where_anything_is_random(case: str, few: np.ndarray[Any, Any]) -> None:
    one, other = (fitted(few, **CASES[case] | {"seed": seed, "kernel": kernels.Gaussian(30.0)}) for seed in (1, 2))
    same = np.allclose(one.solution.eigenvalues, other.solution.eigenvalues, rtol=1e-9)
    assert same == (case in ("exact", "own rows", "row numbers"))


@pytest.mark.parametrize("case", [name for name in CASES if "all" not in name])  # draws from all rows go by blocks
def test_blocks_change_nothing_but_rounding(case: str, few: np.ndarray[Any, Any]) -> None:
    one, many = (fitted(few, **CASES[case], block_rows=rows) for rows in (None, 110))
    np.testing.assert_allclose(many.solution.eigenvalues, one.solution.eigenvalues, rtol=1e-9)
    np.testing.assert_allclose(scores(many, few), scores(one, few), atol=1e-6 * np.abs(scores(one, few)).max())


# -- on disk -------------------------------------------------------------------------------------------------


@every_case
def test_a_saved_model_comes_back_the_same_and_so_do_its_parameters(
    case: str, digits: np.ndarray[Any, Any], tmp_path: Path
) -> None:
    # Rows of the caller's come back from the offset to the bit in float64 alone.
    X = digits[:300].astype(np.float64) if case == "own rows" else digits[:300]
    model = fitted(X, **CASES[case])
    expected = scores(model, X).tobytes()
    written = save_model(model, str(tmp_path / "model.zarr"))
    loaded = load_model(str(tmp_path / "model.zarr"))
    assert written == model_digest(loaded) == model_digest(model)
    assert scores(loaded, X).tobytes() == expected
    kpca = KernelPCA.load(tmp_path / "model.zarr")
    assert kpca.transform(X).tobytes() == expected
    again = clone(kpca).fit(X).model_
    assert scores(again, X).tobytes() == expected
    if case != "own rows":
        assert model_digest(again) == written


@pytest.mark.parametrize("case", [*METHODS, "tensor sketch", "standardize rff-pca", "randomized rff", "row numbers"])
def test_fit_transform_is_fit_then_transform(case: str, few: np.ndarray[Any, Any]) -> None:
    options = {"size": 60, **CASES.get(case, {"method": case})}
    kpca = KernelPCA(6, random_state=3, **options)
    assert kpca.fit_transform(few).tobytes() == clone(kpca).fit(few).transform(few).tobytes()


def test_landmarks_of_the_caller_are_the_landmarks(few: np.ndarray[Any, Any]) -> None:
    numbers = [200, 3, 44, 7]
    np.testing.assert_allclose(KernelPCA(2, landmarks=OWN_ROWS).fit(few).landmarks_, OWN_ROWS, atol=1e-12)
    np.testing.assert_allclose(KernelPCA(2, landmarks=numbers).fit(few).landmarks_, few[numbers], atol=1e-12)
    assert KernelPCA(2, method="rff", size=10).fit(few).landmarks_ is None


def test_rows_and_their_numbers_give_the_same_model(few: np.ndarray[Any, Any]) -> None:
    numbers = np.arange(5, 300, 12)
    by_rows, by_numbers = (fitted(few, landmarks=own, size="auto") for own in (few[numbers], numbers))
    np.testing.assert_array_equal(scores(by_rows, few), scores(by_numbers, few))


# -- equal where theory says so ------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["nystroem", "columns", methods.Nystroem("thesis")], ids=str)
@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize("kernel", ["gaussian", "polynomial"])
def test_with_every_row_a_landmark_methods_are_exact(
    method: Any, center: bool, kernel: str, X: np.ndarray[Any, Any]
) -> None:
    X = X[:200]
    full = fitted(X, method=method, kernel=kernel, center=center, size=200, landmarks="uniform", components=10)
    exact = fitted(X, method="exact", kernel=kernel, center=center, components=10)
    np.testing.assert_allclose(full.solution.eigenvalues, exact.solution.eigenvalues, rtol=1e-6)
    theirs = scores(exact, X)
    ours = oracles.with_signs_of(scores(full, X), theirs)
    np.testing.assert_allclose(ours, theirs, atol=1e-6 * np.abs(theirs).max())


@pytest.mark.parametrize("center", [True, False])
def test_the_nystroem_of_the_thesis_extends_eigenvectors_of_the_landmarks(
    center: bool, X: np.ndarray[Any, Any]
) -> None:
    model = fitted(X, method=methods.Nystroem("thesis", rank=4), center=center)
    expected, _ = oracles.gram_kpca(model.features.gram(), 4, center)  # type: ignore[attr-defined]
    np.testing.assert_allclose(model.solution.eigenvalues, len(X) / 60 * expected, rtol=1e-9)


@pytest.mark.parametrize("landmarks", ["rpcholesky", "uniform", "leverage", "basic-patterns", "kmeans"])
def test_the_linear_kernel_is_pca_whatever_the_landmarks(landmarks: str) -> None:
    X = 3 + np.random.default_rng(0).normal(size=(300, 8)) * np.arange(1, 9)
    ours = KernelPCA(5, kernel="linear", landmarks=landmarks, size=20, random_state=1).fit(X)
    theirs = PCA(5).fit(X)
    expected = theirs.transform(X)
    np.testing.assert_allclose(oracles.with_signs_of(ours.transform(X), expected), expected, atol=1e-8)
    np.testing.assert_allclose(ours.eigenvalues_, theirs.explained_variance_ * (len(X) - 1), rtol=1e-9)


def mean_gram(X: np.ndarray[Any, Any], seeds: int, **options: Any) -> tuple[Any, Any]:
    """(mean, standard error of the mean) of ZZ' over seeds, entry by entry."""
    grams = []
    for seed in range(seeds):
        Z = np.asarray(arrays.feature_map(fitted(X, seed=seed, **options), X).compute(scheduler="synchronous"))
        grams.append(Z @ Z.T)
    return np.mean(grams, axis=0), np.std(grams, axis=0) / np.sqrt(seeds)


@pytest.mark.parametrize(
    ("method", "form"), [("rff", "orthogonal"), *(("rff-pca", form) for form in ("orthogonal", "iid", "qmc", "phase"))]
)
def test_gram_matrices_of_random_features_have_the_kernel_as_their_mean(method: str, form: Any) -> None:
    X = np.random.default_rng(0).normal(size=(20, 4)) * [3, 2, 1, 0.5]
    options: dict[str, Any] = {"sigma": 2.5, "size": 64, "components": 2}
    if method == "rff-pca":  # on all axes there is nothing to correct for
        options |= {"method": methods.PrincipalFeatures(form=form), "n_directions": 4}
    else:
        options |= {"method": methods.RandomFeatures(form)}
    mean, error = mean_gram(X, 25, **options)
    K = oracles.matrix(lambda x, y: oracles.gaussian(x, y, 2.5), X, X)
    assert (np.abs(mean - K) < 5 * error + 1e-9).all()
    assert error.max() < 0.04


def test_tensor_sketches_have_the_polynomial_kernel_as_their_mean() -> None:
    X = np.random.default_rng(0).normal(size=(12, 4))
    options = {"method": "rff", "kernel": "polynomial", "gamma": 0.3, "degree": 2, "coef0": 0.5}
    mean, error = mean_gram(X, 25, **options, size=128, components=2)
    K = oracles.matrix(lambda x, y: oracles.polynomial(x, y, 0.3, 2, 0.5), X, X)
    assert (np.abs(mean - K) < 5 * error + 1e-9).all()
    assert error.max() < 0.1 * K.max()


def test_rff_pca_on_all_axes_is_as_good_as_rff(X: np.ndarray[Any, Any]) -> None:
    exact = fitted(X, method="exact", sigma=25.0).solution.eigenvalues
    rff, principal = (
        np.mean([errors(fitted(X, sigma=25.0, size=512, seed=s, **more).solution.eigenvalues, exact) for s in range(5)])
        for more in ({"method": "rff"}, {"method": "rff-pca", "n_directions": 64})
    )
    assert principal < 1.5 * rff
    assert rff < 0.1


@every_method
def test_training_scores_are_centred_and_have_the_eigenvalues_as_squares(
    method: str, few: np.ndarray[Any, Any]
) -> None:
    model = fitted(few, method=method)
    training = scores(model, few)
    np.testing.assert_allclose(training.mean(axis=0), 0, atol=1e-10 * np.abs(training).max())
    squares = (training**2).sum(axis=0)
    if method == "rff-pca":  # its eigenvalues have mean(1 - a²) besides
        added = model.solution.eigenvalues - squares
        np.testing.assert_allclose(added, added[0], rtol=1e-6)
        assert 0 < added[0] < 1
    else:
        np.testing.assert_allclose(squares, model.solution.eigenvalues, rtol=1e-6)


@every_method
def test_new_rows_are_centred_by_the_training_mean(method: str, X: np.ndarray[Any, Any]) -> None:
    # A new row scores as it would among the training rows, and not about the mean of the new rows.
    model = fitted(X[:300], method=method)
    np.testing.assert_allclose(scores(model, X[:5]), scores(model, X[:300])[:5], rtol=1e-9, atol=1e-9)
    assert np.abs(scores(model, X[300:]).mean(axis=0)).max() > 1e-3


@pytest.mark.parametrize(
    ("method", "margin"),
    [
        ("nystroem", 0.01),
        ("columns", 0.05),
        ("rff", 0.1),
        ("rff-pca", 0.09),
        (methods.RandomFeatures("iid"), 0.12),
        (methods.RandomFeatures("qmc"), 0.11),
        (methods.RandomFeatures("phase"), 0.13),
    ],
    ids=str,
)
def test_leading_eigenvalues_stay_within_a_margin_over_ten_seeds(
    method: Any, margin: float, X: np.ndarray[Any, Any], exact: np.ndarray[Any, Any]
) -> None:
    found = [fitted(X, method=method, sigma=25.0, components=5, size=200, seed=s) for s in range(10)]
    mean = np.mean([errors(model.solution.eigenvalues, exact) for model in found])
    assert mean < margin


@pytest.mark.parametrize(
    ("rule", "margin"),
    [
        ("kmeans", 0.02),
        ("uniform", 0.09),
        ("rpcholesky", 0.09),
        ("leverage", 0.09),
        ("basic-patterns", 0.14),
        (landmarks.RPCholesky(over="all"), 0.09),
    ],
    ids=str,
)
def test_leading_eigenvalues_of_every_rule_stay_within_a_margin_over_ten_seeds(
    rule: Any, margin: float, X: np.ndarray[Any, Any], exact: np.ndarray[Any, Any]
) -> None:
    found = [fitted(X, landmarks=rule, sigma=25.0, components=5, size=100, seed=s) for s in range(10)]
    below = np.array([1 - model.solution.eigenvalues / exact for model in found])
    assert below.min() > -1e-9  # Nyström's are lower bounds
    assert below.mean() < margin


# -- standardised columns ------------------------------------------------------------------------------------

STANDARDIZED = {"nystroem": {"landmarks": "uniform"}, "columns": {}, "rff": {}, "rff-pca": {}, "exact": {}}


@pytest.mark.parametrize("method", STANDARDIZED)
def test_standardize_is_fitting_what_a_scaler_gives(method: str, few: np.ndarray[Any, Any]) -> None:
    options = {"method": method, **STANDARDIZED[method]}
    Y = StandardScaler().fit_transform(few)
    ours, theirs = fitted(few, standardize=True, **options), fitted(Y, **options)
    np.testing.assert_allclose(ours.solution.eigenvalues, theirs.solution.eigenvalues, rtol=1e-9)
    assert ours.features.kernel == pytest.approx(theirs.features.kernel) or np.isclose(
        ours.features.kernel.sigma,  # type: ignore[attr-defined]
        theirs.features.kernel.sigma,  # type: ignore[attr-defined]
        rtol=1e-12,
    )
    expected = scores(theirs, Y)
    np.testing.assert_allclose(oracles.with_signs_of(scores(ours, few), expected), expected, atol=1e-7)


@pytest.mark.parametrize("method", ["nystroem", "rff", "rff-pca"])
@pytest.mark.parametrize(
    ("unit", "shift", "dtype"), [(1e6, 0.0, np.float64), (1e-6, 0.0, np.float64), (1.0, 2.0**20, np.float32)]
)
def test_units_and_origins_do_not_matter_to_standardised_columns(
    method: str, unit: float, shift: float, dtype: Any, few: np.ndarray[Any, Any]
) -> None:
    options = {"method": method, "standardize": True, "landmarks": "uniform" if method == "nystroem" else "auto"}
    moved = (few * unit + shift).astype(dtype)
    ours, plain = fitted(moved, **options), fitted(few, **options)
    tolerance = 1e-3 if dtype == np.float32 else 1e-9
    np.testing.assert_allclose(ours.solution.eigenvalues, plain.solution.eigenvalues, rtol=tolerance)
    expected = scores(plain, few)
    ours_scores = oracles.with_signs_of(scores(ours, moved), expected)
    np.testing.assert_allclose(ours_scores, expected, atol=10 * tolerance)


@pytest.mark.parametrize("block_rows", [None, 7])
def test_constant_columns_keep_scale_one(block_rows: int | None) -> None:
    X = np.random.default_rng(0).normal(size=(100, 5))
    X[:, 1], X[:, 3], X[:, 4] = 1 / 3, 1e9 + 1 / 3, 0.0
    model = fitted(X, standardize=True, size=30, components=3, block_rows=block_rows)
    scale = model.features.scale
    assert scale is not None
    np.testing.assert_array_equal(scale[[1, 3, 4]], 1)
    np.testing.assert_allclose(scale[[0, 2]], X[:, [0, 2]].std(axis=0), rtol=1e-12)
    assert np.isfinite(scores(model, X)).all()


# -- eigensolver by sketch -----------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["rff", "rff-pca", "tensor sketch"])
@pytest.mark.parametrize("center", [True, False])
def test_the_randomized_solver_agrees_with_the_dense_one(method: str, center: bool, few: np.ndarray[Any, Any]) -> None:
    options: dict[str, Any] = {"method": method, "size": 400, "center": center}
    if method == "tensor sketch":
        options |= {"method": "rff", "kernel": "polynomial"}
    dense, sketched = (fitted(few, **options, solver=solver) for solver in ("dense", "randomized"))
    below = 1 - sketched.solution.eigenvalues / dense.solution.eigenvalues
    assert below.min() > -1e-9
    assert below.max() < 1e-4
    np.testing.assert_allclose(sketched.solution.mean, dense.solution.mean, atol=1e-9 * dense.solution.eigenvalues[0])
    np.testing.assert_allclose(
        sketched.solution.explained_variance_ratio, dense.solution.explained_variance_ratio, rtol=1e-4
    )
    expected = scores(dense, few)
    ours = oracles.with_signs_of(scores(sketched, few), expected)
    np.testing.assert_allclose(ours[:, :3], expected[:, :3], atol=1e-3 * np.abs(expected).max())


def test_a_sketch_at_full_width_is_the_dense_solution(X: np.ndarray[Any, Any]) -> None:
    options = {"method": "rff", "size": 4 * (6 + OVERSAMPLING)}
    dense, sketched = (fitted(X, **options, solver=solver) for solver in ("dense", "randomized"))
    np.testing.assert_allclose(sketched.solution.eigenvalues, dense.solution.eigenvalues, rtol=1e-10)
    assert sketched.moments is None


def test_more_components_than_features_are_lowered_by_the_randomized_solver(X: np.ndarray[Any, Any]) -> None:
    assert fitted(X, method="rff", size=20, components=50, solver="randomized").components <= 20


# -- more rows -----------------------------------------------------------------------------------------------

not_uniform = pytest.mark.filterwarnings("ignore::bigkpca.errors.UniformLandmarksWarning")


@not_uniform
@pytest.mark.parametrize("case", [name for name in CASES if name != "exact" and "randomized" not in name])
def test_adding_rows_is_fitting_all_with_the_same_features(case: str, X: np.ndarray[Any, Any]) -> None:
    options = OPTIONS | CASES[case]
    if "numbers" in case:
        options = options | {"landmarks": np.arange(0, 300, 7)}
    spec, rows = FitSpec.checked(**options), ArrayRows(X)
    half = fitted(X[:300], **options)
    grown = extend(half, ArrayRows(X[300:]), spec, Engine(threads=1), Silent())
    moments, _ = moments_of(rows, half.features, half.moments.mean, None, Engine(threads=1), Silent())  # type: ignore[union-attr]
    checks = Checks(X, half.moments.mean, X[:0], len(X), X)  # type: ignore[union-attr]
    whole, _, _ = solve(moments, half.features, resolve(spec, rows), checks)
    np.testing.assert_allclose(grown.solution.eigenvalues, whole.eigenvalues, rtol=1e-9)
    np.testing.assert_allclose(grown.solution.total_variance, whole.total_variance, rtol=1e-9)
    expected = scores(Model(half.features, whole, moments), X)
    ours = scores(grown, X)
    np.testing.assert_allclose(
        oracles.with_signs_of(ours, expected), expected, rtol=1e-6, atol=1e-6 * np.abs(expected).max()
    )


@not_uniform
@pytest.mark.parametrize(
    "case", ["nystroem", "thesis", "columns", "rff orthogonal", "rff phase", "rff-pca pointwise", "tensor sketch"]
)
def test_signs_follow_those_of_the_model_before_rows_were_added(case: str, X: np.ndarray[Any, Any]) -> None:
    options = OPTIONS | CASES[case]
    half = fitted(X[:300], **options)
    more = ArrayRows(X[300:])
    grown = extend(half, more, FitSpec.checked(**options), Engine(threads=1), Silent())
    before, after = (scores(model, X) for model in (half, grown))
    agreement = (after * before).sum(axis=0) / (np.linalg.norm(after, axis=0) * np.linalg.norm(before, axis=0))
    followed = agreement[np.abs(agreement) > 0.5]  # a component that turned into another one has no sign to follow
    assert len(followed) >= 3
    assert (followed > 0).all()


def test_signs_of_a_tensor_sketch_follow_through_partial_fit(digits: np.ndarray[Any, Any]) -> None:
    X = digits[:600]
    kpca = KernelPCA(6, method="rff", kernel="polynomial", degree=2, size=60, random_state=3).partial_fit(X[:300])
    before = kpca.transform(X)
    after = kpca.partial_fit(X[300:]).transform(X)
    assert ((before * after).sum(axis=0) > 0).all()


@not_uniform
@pytest.mark.parametrize("method", ["columns", "rff", "rff-pca", "nystroem"])
def test_partial_fit_on_halves_counts_all_rows(method: str, X: np.ndarray[Any, Any]) -> None:
    kpca = KernelPCA(3, method=method, size=40, random_state=0).partial_fit(X[:300])
    first = kpca.transform(X)
    kpca.partial_fit(X[300:])
    assert kpca.model_.moments.count == 600
    again = kpca.transform(X)
    assert (first[:, 0] * again[:, 0]).sum() > 0
    np.testing.assert_allclose(again.mean(axis=0), 0, atol=1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_random_features_of_halves_are_those_of_all_rows(seed: int, X: np.ndarray[Any, Any]) -> None:
    # Frequencies depend on the seed alone, and sine and cosine pairs do not care where the rows were shifted to.
    options: dict[str, Any] = {"method": "rff", "sigma": 25.0, "size": 100, "random_state": seed}
    halves = KernelPCA(5, **options).partial_fit(X[:300]).partial_fit(X[300:])
    whole = KernelPCA(5, **options).fit(X)
    np.testing.assert_allclose(halves.eigenvalues_, whole.eigenvalues_, rtol=1e-9)
    expected = whole.transform(X)
    np.testing.assert_allclose(oracles.with_signs_of(halves.transform(X), expected), expected, atol=1e-6)


@pytest.mark.parametrize("options", [{"method": "exact"}, {"method": "rff", "solver": "randomized"}], ids=str)
def test_models_without_moments_take_no_more_rows(options: dict[str, Any], X: np.ndarray[Any, Any]) -> None:
    kpca = KernelPCA(3, **options).fit(X[:100])
    before = model_digest(kpca.model_)
    assert not hasattr(kpca, "partial_fit")
    assert not hasattr(KernelPCA(3, **options), "partial_fit")
    with pytest.raises(AttributeError) as caught:
        kpca.partial_fit(X[100:])
    assert "or of the randomized solver cannot take more rows" in str(caught.value.__cause__)
    assert model_digest(kpca.model_) == before


# -- what the rules promise ----------------------------------------------------------------------------------


def test_rpcholesky_stops_at_its_tolerance_with_fewer_landmarks(X: np.ndarray[Any, Any]) -> None:
    for over in ("sample", "all"):
        loose, tight = (
            fitted(X, sigma=60.0, size=300, landmarks=landmarks.RPCholesky(tol=tol, over=over)) for tol in (0.1, 0.02)
        )
        assert loose.features.size < tight.features.size < 300
        assert loose.solution.unexplained < 0.11  # type: ignore[operator]
        assert tight.solution.unexplained < 0.022  # type: ignore[operator]


def test_landmarks_of_rules_other_than_kmeans_are_rows(X: np.ndarray[Any, Any]) -> None:
    known = {row.tobytes() for row in X}
    for rule in ("uniform", "rpcholesky", "leverage", "basic-patterns", landmarks.RPCholesky(over="all")):
        found = KernelPCA(3, landmarks=rule, size=50, random_state=0).fit(X).landmarks_
        assert found is not None
        assert len(found) == len(np.unique(found, axis=0)) == 50
        assert all(row.tobytes() in known for row in np.round(found))


# -- refused -------------------------------------------------------------------------------------------------


def function(A: Any, B: Any) -> Any:
    return kernels.Gaussian(20.0)(A, B)


NO_SPECTRUM = (
    r"the {} kernel has no spectral density .*method='nystroem' works with every kernel, 'columns' and 'exact'"
)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"landmarks": np.arange(15.0).reshape(5, 3)}, "landmarks have 3 columns, the array has 64"),
        ({"landmarks": np.empty((0, 64))}, r"landmarks of shape \(0, 64\): give rows like those of the data"),
        ({"landmarks": np.zeros((2, 3, 4))}, r"landmarks of shape \(2, 3, 4\): give rows like those of the data"),
        ({"landmarks": [1, 600]}, "landmark 600 is not a row of the array, whose 600 rows are counted from 0"),
        ({"landmarks": np.array([2**63], np.uint64)}, "landmark 9223372036854775808 is not a row of the array, whose"),
        ({"landmarks": [1, -2]}, "landmark -2: row numbers are counted from 0"),
        ({"landmarks": [1.0, 2.0]}, "row numbers for landmarks must be integers, not float64"),
        ({"landmarks": []}, r"landmarks of shape \(0,\): give at least one row"),
        ({"landmarks": [[1.0], [2.0, 3.0]]}, r"landmarks: rows of different lengths; give a table \(l, d\)"),
        ({"landmarks": [1, 2, 3], "size": 5}, "size=5, but 3 landmarks are given: leave size out"),
        ({"kernel": function, "landmarks": "kmeans"}, "landmarks='kmeans' takes averages of rows.*'uniform'"),
        ({"size": 0}, "size=0: at least one landmark or random feature is needed"),
        ({"method": "rff", "size": 0}, "size=0: at least one landmark or random feature is needed"),
        ({"method": "rff", "size": 61}, "size=61: sines and cosines come in pairs.*must be even"),
        ({"method": "rff-pca", "size": 61}, "size=61: sines and cosines come in pairs.*must be even"),
        ({"method": methods.PrincipalFeatures(form="qmc"), "size": 61}, "size=61: sines and cosines come in pairs"),
        ({"method": "rff-pca", "n_directions": 65}, "n_directions=65, but the array has only 64 columns"),
        ({"method": "rff", "kernel": "poly", "degree": 1}, "a tensor sketch is for polynomial kernels of degree 2"),
        (
            {"method": "rff", "kernel": "poly", "coef0": -1.0},
            "negative constant makes the polynomial kernel indefinite",
        ),
        ({"method": "rff", "landmarks": "uniform"}, "'rff' draws random features and has no landmarks: leave landm"),
        ({"method": "rff", "landmarks": OWN_ROWS}, "'rff' draws random features and has no landmarks: leave landmarks"),
        (
            {"method": "columns", "landmarks": "kmeans"},
            r"^ColumnSampling\(\) takes uniform landmarks only, not 'kmeans'",
        ),
        (
            {"method": methods.Nystroem("thesis", rank=5), "landmarks": "leverage"},
            r"^Nystroem\(form='thesis', rank=5\) takes uniform landmarks only, not 'leverage'.*use method='nystroem'",
        ),
        ({"method": "columns", "landmarks": [1, 2]}, r"^ColumnSampling\(\) takes uniform landmarks only, not 'row-nu"),
        *[
            ({"method": "exact", "landmarks": given}, "^method='exact' takes every row for a landmark: leave landmar")
            for given in ("uniform", "kmeans", landmarks.Uniform(), [1, 2, 3], OWN_ROWS)
        ],
        *[({"method": "rff", "kernel": name}, NO_SPECTRUM.format(name)) for name in ("linear", "cosine", "sigmoid")],
        ({"method": "rff", "kernel": function}, NO_SPECTRUM.format("function")),
        ({"method": "rff", "kernel": 1 * kernels.Gaussian(1.0) + kernels.Linear()}, NO_SPECTRUM.format("sum")),
        ({"method": "rff-pca", "kernel": "laplacian"}, "'rff-pca' needs the gaussian kernel, not 'laplacian'"),
        ({"solver": "randomized"}, "solver='randomized' is for random features: method='nystroem'"),
        (
            {"solver": "randomized", "method": "rff", "n_components": None},
            "the randomized solver, used above 8192 random features or when asked for, needs a number of components, "
            "not None: give one",
        ),
        ({"method": "rfff"}, "unknown method 'rfff': did you mean 'rff'"),
    ],
)
def test_what_does_not_fit_is_refused(options: dict[str, Any], message: str, X: np.ndarray[Any, Any]) -> None:
    with pytest.raises(SpecError, match=f"(?s){message}"):
        KernelPCA(**{"n_components": 5, **options}).fit(X)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (np.full((1, 64), np.nan), "array of landmarks: row 0, column 0 is NaN"),
        (np.full((1, 64), -np.inf), "array of landmarks: row 0, column 0 is infinity"),
        (np.array([["a"] * 64]), "array of landmarks holds <U1 values: rows must be real numbers"),
    ],
    ids=["NaN", "infinity", "text"],
)
def test_landmarks_that_are_not_numbers_are_an_error_of_the_data(
    given: np.ndarray[Any, Any], message: str, X: np.ndarray[Any, Any]
) -> None:
    with pytest.raises(DataError, match=message):
        FitSpec.checked(landmarks=given)
    with pytest.raises(DataError, match=message):
        KernelPCA(5, landmarks=given).fit(X)


@pytest.mark.parametrize("method", [methods.RandomFeatures("phase"), methods.PrincipalFeatures(form="phase")], ids=str)
def test_single_cosines_may_be_odd_in_number(method: Any, X: np.ndarray[Any, Any]) -> None:
    assert fitted(X, method=method, size=61).features.size == 61


def test_a_tensor_sketch_may_have_any_number_of_features(X: np.ndarray[Any, Any]) -> None:
    assert fitted(X, method="rff", kernel="polynomial", size=61).features.size == 61


@pytest.mark.parametrize("over", ["sample", "all"])
def test_a_kernel_that_rpcholesky_cannot_take_is_told(over: Any, X: np.ndarray[Any, Any]) -> None:
    options = {"kernel": "sigmoid", "gamma": 3e-4, "coef0": -1.0, "landmarks": landmarks.RPCholesky(over=over)}
    with pytest.raises(SpecError, match=r"rpcholesky needs a positive semidefinite kernel, but k\(x, x\) = -0\.\d+"):
        fitted(X, **options)


@pytest.mark.parametrize("method", ["nystroem", "columns", "rff", "rff-pca"])
def test_a_narrow_kernel_is_told_with_the_share_it_leaves(method: str, X: np.ndarray[Any, Any]) -> None:
    with pytest.warns(NarrowKernelWarning, match=r"leave (9\d|100)% of Σ k\(x, x\) unexplained.*`bigkpca sigma`"):
        fitted(X, method=method, sigma=3.0)
    fitted(X, method=method)  # the median length warns of nothing


@pytest.mark.parametrize("method", ["nystroem", "columns"])
def test_an_indefinite_kernel_says_how_negative_with_every_landmark_method(
    method: str, X: np.ndarray[Any, Any]
) -> None:
    with pytest.warns(IndefiniteKernelWarning, match=r"most negative eigenvalue is -\d+(\.\d+)? of the largest"):
        fitted(X, method=method, kernel="sigmoid", gamma=3e-4, coef0=-1.0)


def nothing(A: Any, B: Any) -> Any:
    return np.zeros((len(A), len(B)))


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        *[(name, "matrix of the landmarks has no positive") for name in ("uniform", "leverage", "basic-patterns")],
        ("rpcholesky", r"k\(x, x\) is zero for all sampled rows, so there is nothing to choose landmarks by"),
        (landmarks.RPCholesky(over="all"), r"k\(x, x\) is zero for all sampled rows"),
    ],
    ids=str,
)
def test_a_kernel_that_is_zero_is_an_error_of_the_data(rule: Any, message: str, X: np.ndarray[Any, Any]) -> None:
    with pytest.raises(DataError, match=message):
        fitted(X[:50], kernel=nothing, landmarks=rule, size=10, components=2)


def test_a_gram_matrix_close_to_the_identity_keeps_its_eigenvalues(digits: np.ndarray[Any, Any]) -> None:
    kpca = KernelPCA(5, method="exact", sigma=0.5)
    with pytest.warns(NarrowKernelWarning):
        kpca.fit(digits[:300])
    np.testing.assert_allclose(kpca.eigenvalues_, 1, rtol=1e-6)
    training = kpca.transform(digits[:300])
    np.testing.assert_allclose(training.T @ training, np.eye(5), atol=5e-3)  # kernel values in float32


def test_rows_that_are_all_landmarks_elsewhere_are_refused(X: np.ndarray[Any, Any]) -> None:
    with pytest.raises(DataError, match="no direction varies in feature space"):
        fitted(X, landmarks=np.eye(3, 64) * 1e6, size="auto")
