"""Every method and every landmark rule end to end: the same bits everywhere, and on disk too."""

import numpy as np
import pytest
from sklearn.base import clone

from bigkpca import KernelPCA, kernels
from bigkpca.execution.engine import Engine
from bigkpca.numerics.methods import METHODS
from bigkpca.storage.models import load_model, model_digest, save_model
from tests.fitting.cases import CASES, OWN_ROWS, every_case, fitted
from tests.helpers.fits import scores

_references = {}


def bits(X, engine, **options):
    model = fitted(X, engine, **options)
    return model_digest(model), scores(model, X, engine).tobytes()


@every_case
@pytest.mark.parametrize("engine", ["threads", "processes"], indirect=True)
@pytest.mark.bits
def test_models_and_scores_are_the_same_bytes_everywhere(engine, case, digits):
    options = CASES[case] | {"block_rows": 100}
    if case not in _references:
        _references[case] = bits(digits[:300], Engine(threads=1), **options)
    assert bits(digits[:300], engine, **options) == _references[case]


@every_case
def test_blocks_of_the_default_size_give_the_same_bytes_too(case, digits):
    one, two = (bits(digits[:300], Engine(threads=threads), **CASES[case]) for threads in (1, 2))
    assert one == two


@every_case
def test_other_seeds_give_other_models_where_anything_is_random(case, few):
    one, other = (fitted(few, **CASES[case] | {"seed": seed, "kernel": kernels.Gaussian(30.0)}) for seed in (1, 2))
    same = np.allclose(one.solution.eigenvalues, other.solution.eigenvalues, rtol=1e-9)
    assert same == (case in ("exact", "own rows", "row numbers"))


@pytest.mark.parametrize("case", [name for name in CASES if "all" not in name])  # draws from all rows go by blocks
def test_blocks_change_nothing_but_rounding(case, few):
    one, many = (fitted(few, **CASES[case], block_rows=rows) for rows in (None, 110))
    np.testing.assert_allclose(many.solution.eigenvalues, one.solution.eigenvalues, rtol=1e-9)
    np.testing.assert_allclose(scores(many, few), scores(one, few), atol=1e-6 * np.abs(scores(one, few)).max())


# -- on disk -------------------------------------------------------------------------------------------------


@every_case
def test_a_saved_model_comes_back_the_same_and_so_do_its_parameters(case, digits, tmp_path):
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
def test_fit_transform_is_fit_then_transform(case, few):
    options = {"size": 60, **CASES.get(case, {"method": case})}
    kpca = KernelPCA(6, random_state=3, **options)
    assert kpca.fit_transform(few).tobytes() == clone(kpca).fit(few).transform(few).tobytes()


def test_landmarks_of_the_caller_are_the_landmarks(few):
    numbers = [200, 3, 44, 7]
    np.testing.assert_allclose(KernelPCA(2, landmarks=OWN_ROWS).fit(few).landmarks_, OWN_ROWS, atol=1e-12)
    np.testing.assert_allclose(KernelPCA(2, landmarks=numbers).fit(few).landmarks_, few[numbers], atol=1e-12)
    assert KernelPCA(2, method="rff", size=10).fit(few).landmarks_ is None


def test_rows_and_their_numbers_give_the_same_model(few):
    numbers = np.arange(5, 300, 12)
    by_rows, by_numbers = (fitted(few, landmarks=own, size="auto") for own in (few[numbers], numbers))
    np.testing.assert_array_equal(scores(by_rows, few), scores(by_numbers, few))
