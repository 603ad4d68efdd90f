"""Features that a pass keeps: scores from them are the same bytes, and nothing is computed twice."""

import pickle

import dask.array as da
import numpy as np
import pytest

import bigkpca
from bigkpca import KernelPCA
from bigkpca.data.numpy_rows import ArrayRows
from bigkpca.execution import projection
from bigkpca.execution.kept_features import KeptFeatures
from bigkpca.execution.planning import process_bytes
from bigkpca.fitting.memory_limits import place_for_features
from bigkpca.spec import FitSpec, resolve
from tests.helpers.disks import tree_bytes

FITS = {
    "nystroem": {"size": 60},
    "columns": {"method": "columns", "size": 60},
    "float64": {"size": 60, "dtype": "float64"},
    "blocks that are no tiles": {"size": 60, "block_rows": 700},
    "standardised": {"size": 60, "standardize": True},
    "rff": {"method": "rff", "size": 64},
    "rff-pca": {"method": "rff-pca", "size": 64},
    "sketch": {"method": "rff", "size": 64, "solver": "randomized"},
    "tolerance": {"tol": 0.6},
}


def rows(count=5000):
    rng = np.random.default_rng(0)
    return (rng.normal(size=(count, 6)) + 3 * rng.integers(0, 2, (count, 1))).astype(np.float32)


@pytest.fixture
def taken(monkeypatch):
    """Whether each block found all its features kept."""
    found, take = [], KeptFeatures.take

    def noted(self, *span):
        V_tiles = take(self, *span)
        found.append(V_tiles is not None)
        return V_tiles

    monkeypatch.setattr(KeptFeatures, "take", noted)
    return found


@pytest.mark.bits
@pytest.mark.parametrize("name", FITS)
def test_scores_from_kept_features_are_the_same_bytes(name, taken):
    X, kpca = rows(), KernelPCA(3, sigma=3.0, random_state=0, **FITS[name])
    scores = kpca.fit_transform(X)
    assert taken == [name != "sketch"] * len(taken)
    assert taken
    assert scores.tobytes() == kpca.transform(X).tobytes()


def test_no_kernel_is_computed_again(monkeypatch):
    def never(*_):
        raise AssertionError("features were computed again")

    monkeypatch.setattr(projection, "tile_scores", never)
    assert KernelPCA(3, sigma=3.0, size=60).fit_transform(rows()).shape == (5000, 3)
    with pytest.raises(AssertionError, match="computed again"):
        KernelPCA(3, sigma=3.0, size=60).fit(rows()).transform(rows())


def test_what_has_no_place_is_computed_again(taken, monkeypatch):
    monkeypatch.setattr("bigkpca.fitting.memory_limits._FEATURE_BYTES", 3000 * 60 * 4)
    kpca = KernelPCA(3, sigma=3.0, size=60, random_state=0)
    scores = kpca.fit_transform(rows())
    assert set(taken) == {True, False}
    assert scores.tobytes() == kpca.transform(rows()).tobytes()


def test_a_limit_leaves_what_the_plan_does_not_need():
    given, spec = ArrayRows(rows()), FitSpec.checked(components=3, size=60)
    for limit, kept in ((10**9, True), (process_bytes(), False)):
        place = place_for_features(given, resolve(spec, given), limit)
        assert place is not None
        list(place.keeping(0, [(np.zeros((4, 60), np.float32), np.zeros(4))]))
        assert (place.take(0, 4, 4) is not None) == kept
    for spec in (FitSpec.checked(method="exact"), FitSpec.checked(refine=1)):
        assert place_for_features(given, resolve(spec, given), None) is None


@pytest.mark.parametrize(
    ("columns", "sizes"),
    [(6, (700, 730)), (784, (1500 * 3, 1700 * 3))],  # 288 and 1882 MB of features are the most in float32
    ids=["96 MB", "twice the rows"],
)
def test_without_a_limit_a_third_of_the_features_at_least_is_kept_or_none(columns, sizes):
    given = ArrayRows(np.broadcast_to(np.float32(1), (100_000, columns)))
    for size, kept in zip(sizes, (True, False), strict=True):
        spec = FitSpec.checked(size=size, dtype="float32", sigma=1.0)
        assert (place_for_features(given, resolve(spec, given), None) is not None) == kept


def test_a_pass_forgets_what_another_kept():
    place = KeptFeatures(1000)
    tile = np.ones((4, 50), np.float32)
    for first in (0, 4):  # 800 bytes each: the second finds no room
        list(place.keeping(first, [(tile, np.zeros(4))]))
    assert place.take(4, 8, 4) is None
    place.begin()
    assert place.take(0, 4, 4) is None
    list(place.keeping(4, [(tile, np.zeros(4))]))
    found = place.take(4, 8, 4)
    assert found is not None
    np.testing.assert_array_equal(found[0], tile)
    assert place.take(4, 8, 4) is None  # kept no longer


def test_another_process_keeps_nothing():
    place = pickle.loads(pickle.dumps(KeptFeatures(1000)))
    list(place.keeping(0, [(np.ones((4, 5)), np.zeros(4))]))
    assert place.take(0, 4, 4) is None


@pytest.mark.parametrize("kind", ["array", "graph", "dataset"])
def test_fit_writes_the_scores_that_transform_writes(kind, tmp_path, taken):
    np.save(tmp_path / "x.npy", rows())
    data = {"array": rows(), "graph": da.from_array(rows(), chunks=(1000, 6)), "dataset": tmp_path / "x.npy"}[kind]
    options = {"components": 3, "size": 60, "sigma": 3.0}
    model = bigkpca.fit(data, tmp_path / "model.zarr", transform=tmp_path / "scores.zarr", **options)
    assert taken
    assert all(taken)
    bigkpca.transform(model, data, tmp_path / "again.zarr")
    assert _scores(tmp_path / "scores.zarr") == _scores(tmp_path / "again.zarr")


def test_workers_write_the_same_scores(tmp_path):
    np.save(tmp_path / "x.npy", rows())
    options = {"components": 3, "size": 60, "sigma": 3.0}
    for name, workers in (("here", None), ("there", 2)):
        out = {"out": tmp_path / f"{name}-model.zarr", "transform": tmp_path / f"{name}.zarr"}
        bigkpca.fit(tmp_path / "x.npy", workers=workers, **out, **options)
    assert _scores(tmp_path / "here.zarr") == _scores(tmp_path / "there.zarr")


def test_the_same_call_goes_on_with_the_scores(tmp_path):
    np.save(tmp_path / "x.npy", rows())
    options = {"components": 3, "size": 60, "sigma": 3.0}
    bigkpca.fit(tmp_path / "x.npy", tmp_path / "model.zarr", **options)
    before = tree_bytes(tmp_path / "model.zarr")
    bigkpca.fit(tmp_path / "x.npy", tmp_path / "model.zarr", transform=tmp_path / "scores.zarr", **options)
    assert tree_bytes(tmp_path / "model.zarr") == before
    bigkpca.transform(tmp_path / "model.zarr", tmp_path / "x.npy", tmp_path / "again.zarr")
    assert _scores(tmp_path / "scores.zarr") == _scores(tmp_path / "again.zarr")


def _scores(store):
    return {str(name): data for name, data in tree_bytes(store).items() if str(name).startswith("scores")}
