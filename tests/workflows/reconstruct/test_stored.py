"""Rows that are written back to disk, never in place of others; and ways back as part of a model on disk."""

import itertools
import shutil

import numpy as np
import pytest
import zarr

import bigkpca
from bigkpca import KernelPCA, methods, preimages
from bigkpca.data.opening import open_rows
from bigkpca.data.rows import ArrayRows
from bigkpca.errors import SpecError
from bigkpca.execution.engine import Engine
from bigkpca.fitting.fit import fit_rows
from bigkpca.fitting.merge import extend
from bigkpca.spec import FitSpec
from bigkpca.storage import groups
from bigkpca.storage.models import load_model, model_digest
from bigkpca.workflows.fit import save
from tests.helpers.disks import tree_bytes
from tests.workflows.reconstruct.digits import ARRAYS, CHUNK, OPTIONS, WAYS, N, error_of, fitted, rows_of


def test_the_manifest_names_the_model_the_input_and_every_array(model, scores, back):
    manifest = groups.describe(back)
    assert manifest["model"] == model_digest(load_model(model))
    assert manifest["input"] == open_rows(scores).fingerprint()
    assert manifest["input"]["path"] == scores
    assert (manifest["format"], manifest["given"], manifest["rows"]) == ("reconstruction", "scores", N)
    assert manifest["arrays"] == sorted(ARRAYS)
    assert {name: array.chunks[0] for name, array in zarr.open_group(back).arrays()} == dict.fromkeys(ARRAYS, CHUNK)


def test_stored_rows_and_scores_are_datasets_like_any(back, scores, tmp_path):
    import xarray

    opened = xarray.open_zarr(back)
    assert opened["x"].dims == ("row", "column")
    assert [opened[name].dims for name in ARRAYS[1:]] == [("row",)] * 3
    assert xarray.open_zarr(scores)["scores"].dims == ("row", "component")
    facts = bigkpca.info(back)
    assert (facts["kind"], facts["finished"]) == ("reconstruction", True)
    bigkpca.fit(back, tmp_path / "again.zarr", size=20, n_components=3)


def test_what_is_in_the_way_is_named_and_kept(model, other, scores, dataset, X, back, tmp_path):
    out = tmp_path / "back.zarr"
    shutil.copytree(back, out)
    Y = zarr.open_group(scores, mode="r")["scores"][:]
    for work, differs in (
        (lambda: bigkpca.reconstruct(other, Y, out, block_rows=CHUNK), r"rows of other rows \(.*scores.zarr, \d+ rows"),
        (lambda: bigkpca.reconstruct(model, Y, out, block_rows=CHUNK), r"rows of other rows \(.*scores.zarr, \d+ rows"),
        (lambda: bigkpca.reconstruct(model, scores, out, block_rows=200), "block_rows is 100 there and 200 here"),
        (
            lambda: bigkpca.denoise(model, dataset, out, block_rows=CHUNK),
            r"rows of other rows \(.*scores.zarr, \d+ rows",
        ),
        (lambda: bigkpca.transform(model, dataset, out, block_rows=CHUNK), "a bigkpca store of reconstructed"),
    ):
        with pytest.raises(SpecError, match=f"already holds .*{differs}.*--overwrite"):
            work()
    assert tree_bytes(out) == tree_bytes(back)
    stored = bigkpca.denoise(model, X[:50], out, overwrite=True)
    assert stored.shape == (50, 64)
    assert [path.name for path in tmp_path.iterdir()] == ["back.zarr"]


# Ways back in models, which grow with them where they can


@pytest.mark.parametrize(
    ("way", "method"),
    [
        pytest.param(way, method, marks=() if way in ("linear", "ridge") else pytest.mark.full)
        for way, method in zip(WAYS, itertools.cycle(["columns", "rff-pca", "exact"]))
    ],
)
def test_ways_back_are_saved_and_loaded(way, method, X, tmp_path):
    few = X[:100]
    save(first := fitted(few, method=method, **WAYS[way]), tmp_path / "first.zarr")
    loaded = load_model(str(tmp_path / "first.zarr"))
    assert model_digest(loaded) == model_digest(first)
    assert FitSpec.of(loaded).preimage_value == FitSpec.checked(**OPTIONS | WAYS[way]).preimage_value
    np.testing.assert_array_equal(rows_of(loaded, few), rows_of(first, few))
    assert rows_of(loaded, few).dtype == np.float32


@pytest.mark.filterwarnings("ignore::bigkpca.errors.UniformLandmarksWarning")
@pytest.mark.parametrize(("way", "method"), [("fixed-point", "columns"), ("linear", "nystroem")])
def test_a_model_that_grew_leads_back_as_one_fitted_on_all(way, method, X):
    rows = X.astype(np.float64)
    given = {"landmarks": rows[:300:5], "size": "auto", "sigma": 30.0} if method == "nystroem" else {"sigma": 30.0}
    spec = FitSpec.checked(**OPTIONS | given | {"method": method, "preimage": way})
    first = fit_rows(ArrayRows(rows[:300]), spec, Engine(threads=1))
    grown = extend(first, ArrayRows(rows[300:]), spec, Engine(threads=1))
    assert not np.allclose(rows_of(grown, rows[:50]), rows_of(first, rows[:50]), atol=1e-3)
    own = first.features.landmarks_in_user_units()
    if method == "nystroem":
        whole = fit_rows(ArrayRows(rows), FitSpec.checked(**OPTIONS | given | {"preimage": way}), Engine())
        assert whole.decoder is not None
        np.testing.assert_allclose(own, whole.features.landmarks_in_user_units())
        np.testing.assert_allclose(rows_of(grown, rows), rows_of(whole, rows), atol=1e-3)
    assert error_of(grown, rows) < 0.4


@pytest.mark.filterwarnings("ignore::bigkpca.errors.UniformLandmarksWarning")
def test_the_default_learns_again_from_the_rows_that_it_keeps_when_a_model_grows(X):
    first = KernelPCA(8, size=60, random_state=0).fit(X[:300])
    kept = first.model_.features.unshifted(first.model_.decoder.reference_rows).astype(np.float32)
    merged = sum([first, KernelPCA(8, size=60, random_state=0).fit(X[300:], like=first)])
    for grown in (merged.model_, first.partial_fit(X[300:]).model_):
        again = preimages.Automatic().decoder(grown.fitted, kept)
        for name, values in grown.decoder.arrays().items():
            np.testing.assert_allclose(values, again.arrays()[name], rtol=1e-5, atol=1e-6 * np.abs(values).max())
        assert error_of(grown, X) < 0.4


@pytest.mark.parametrize(("way", "method"), [("fixed-point", "rff"), ("linear", "rff-pca"), ("mds", "rff")])
@pytest.mark.full
def test_random_features_that_grew_lead_back_for_old_rows_and_new(way, method, X):
    spec = FitSpec.checked(**OPTIONS | {"size": 400, "method": method, "preimage": way})
    grown = fit_rows(ArrayRows(X[:300]), spec, Engine(threads=1))
    for piece in (X[300:490], X[490:497], X[497:]):  # however few are added
        grown = extend(grown, ArrayRows(piece), spec, Engine(threads=1))
    whole = fit_rows(ArrayRows(X), spec, Engine(threads=1))
    assert error_of(grown, X) < 1.2 * error_of(whole, X)


@pytest.mark.parametrize("way", ["ridge", "denoising"])
def test_what_was_learned_from_the_rows_before_takes_no_more(way, X):
    kpca = KernelPCA(4, size=30, preimage=WAYS[way]["preimage"], random_state=0).fit(X)
    with pytest.raises(AttributeError, match=f"preimage='{way}' was trained on the earlier rows"):
        kpca.partial_fit(X)
    laplacian = KernelPCA(4, size=30, kernel="laplacian", random_state=0)  # which has no way back
    assert laplacian.partial_fit(X[:300]).partial_fit(X[300:]).model_.decoder is None


@pytest.mark.full
def test_there_is_a_score_where_there_is_a_way_back(X):
    phase = methods.RandomFeatures("phase")
    for options in ({"method": "rff", "kernel": "polynomial"}, {"method": phase}, {"kernel": "laplacian"}):
        for way in ("auto", "ridge"):
            kpca = KernelPCA(4, size=30, preimage=way, random_state=0, **options)
            assert hasattr(kpca, "score") == (way == "ridge"), options
            assert hasattr(kpca.fit(X), "score") == (way == "ridge"), options
        assert -np.inf < kpca.score(X) < 0
    assert hasattr(KernelPCA(kernel="no kernel"), "score")  # a fit says what is wrong with it
