"""Ways back are part of a model on disk, and grow with it where they can."""

import itertools
import json

import numpy as np
import pytest

from bigkpca import KernelPCA, methods, preimages
from bigkpca.data.numpy_rows import ArrayRows
from bigkpca.execution.engine import Engine
from bigkpca.execution.progress import Silent
from bigkpca.fitting.fit import fit_rows
from bigkpca.fitting.partial_fit import extend
from bigkpca.spec import FitSpec
from bigkpca.storage.models import load_model, model_digest, save_model
from tests.helpers.commands import run
from tests.helpers.disks import tree_bytes
from tests.workflows.reconstruct.digits import OPTIONS, WAYS, error_of, fitted, rows_of


@pytest.mark.parametrize(
    ("way", "method"),
    [
        pytest.param(way, method, marks=() if way in ("linear", "ridge") else pytest.mark.full)
        for way, method in zip(WAYS, itertools.cycle(["columns", "rff-pca", "exact"]))
    ],
)
def test_ways_back_are_saved_and_loaded(way, method, X, tmp_path):
    few = X[:100]
    first, again = (fitted(few, method=method, **WAYS[way]) for _ in range(2))
    save_model(first, str(tmp_path / "first.zarr"))
    save_model(again, str(tmp_path / "again.zarr"))
    assert tree_bytes(tmp_path / "first.zarr") == tree_bytes(tmp_path / "again.zarr")
    loaded = load_model(str(tmp_path / "first.zarr"))
    assert model_digest(loaded) == model_digest(first)
    assert FitSpec.of(loaded).preimage_value == FitSpec.checked(**OPTIONS | WAYS[way]).preimage_value
    rows = rows_of(loaded, few)
    np.testing.assert_array_equal(rows, rows_of(first, few))
    assert rows.dtype == np.float32


def test_estimators_with_a_way_back_are_loaded_with_it(X, tmp_path):
    kpca = KernelPCA(4, size=40, preimage=preimages.Ridge(ridge=0.5, size=30), noise=2.0, random_state=0).fit(X)
    kpca.save(tmp_path / "model.zarr")
    loaded = KernelPCA.load(tmp_path / "model.zarr")
    assert loaded.get_params() == kpca.get_params()
    Y = kpca.transform(X)
    np.testing.assert_array_equal(loaded.inverse_transform(Y), kpca.inverse_transform(Y))
    assert loaded.score(X) == kpca.score(X)
    assert json.loads(run("info", tmp_path / "model.zarr", "--json").stdout)["preimage"] == "ridge"


@pytest.mark.filterwarnings("ignore::bigkpca.errors.UniformLandmarksWarning")
@pytest.mark.parametrize(("way", "method"), [("fixed-point", "columns"), ("linear", "nystroem")])
def test_a_model_that_grew_leads_back_as_one_fitted_on_all(way, method, X):
    rows = X.astype(np.float64)
    given = {"landmarks": rows[:300:5], "size": "auto", "sigma": 30.0} if method == "nystroem" else {"sigma": 30.0}
    spec = FitSpec.checked(**OPTIONS | given | {"method": method, "preimage": way})
    first = fit_rows(ArrayRows(rows[:300]), spec, Engine(threads=1), Silent())
    grown = extend(first, ArrayRows(rows[300:]), spec, Engine(threads=1), Silent())
    assert not np.allclose(rows_of(grown, rows[:50]), rows_of(first, rows[:50]), atol=1e-3)
    own = first.features.landmarks_in_user_units()
    if method == "nystroem":
        whole = fit_rows(ArrayRows(rows), FitSpec.checked(**OPTIONS | given | {"preimage": way}), Engine(), Silent())
        assert whole.decoder is not None
        np.testing.assert_allclose(own, whole.features.landmarks_in_user_units())
        np.testing.assert_allclose(rows_of(grown, rows), rows_of(whole, rows), atol=1e-3)
    assert error_of(grown, rows) < 0.4


@pytest.mark.parametrize(("way", "method"), [("fixed-point", "rff"), ("linear", "rff-pca"), ("mds", "rff")])
@pytest.mark.full
def test_random_features_that_grew_lead_back_for_old_rows_and_new(way, method, X):
    spec = FitSpec.checked(**OPTIONS | {"size": 400, "method": method, "preimage": way})
    grown = fit_rows(ArrayRows(X[:300]), spec, Engine(threads=1), Silent())
    for piece in (X[300:490], X[490:497], X[497:]):  # however few are added
        grown = extend(grown, ArrayRows(piece), spec, Engine(threads=1), Silent())
    whole = fit_rows(ArrayRows(X), spec, Engine(threads=1), Silent())
    assert error_of(grown, X) < 1.2 * error_of(whole, X)


@pytest.mark.parametrize("way", ["ridge", "denoising"])
def test_what_was_learned_from_the_rows_before_takes_no_more(way, X):
    kpca = KernelPCA(4, size=30, preimage=WAYS[way]["preimage"], random_state=0).fit(X)
    with pytest.raises(AttributeError) as caught:
        kpca.partial_fit(X)
    assert f"no rows can be added to what preimage='{way}' learned" in str(caught.value.__cause__)
    laplacian = KernelPCA(4, size=30, kernel="laplacian", random_state=0)  # which has no way back
    assert laplacian.partial_fit(X[:300]).partial_fit(X[300:]).model_.decoder is None


@pytest.mark.full
def test_there_is_a_score_where_there_is_a_way_back(X):
    phase = methods.RandomFeatures("phase")
    for options in ({"method": "rff", "kernel": "polynomial"}, {"method": phase}, {"kernel": "laplacian"}):
        for way in ("fixed-point", "ridge"):
            kpca = KernelPCA(4, size=30, preimage=way, random_state=0, **options)
            assert hasattr(kpca, "score") == (way == "ridge"), options
            assert hasattr(kpca.fit(X), "score") == (way == "ridge"), options
        assert -np.inf < kpca.score(X) < 0
    assert hasattr(KernelPCA(kernel="no kernel"), "score")  # a fit says what is wrong with it
