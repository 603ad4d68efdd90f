"""Features that a pass keeps: scores from them are the same bytes, and nothing is computed twice."""

import pickle
import weakref
from contextlib import nullcontext

import dask.array as da
import numpy as np
import pytest

import bigkpca
from bigkpca import KernelPCA
from bigkpca.data.rows import ArrayRows
from bigkpca.execution.engine import Engine, KeptFeatures
from bigkpca.execution.plan import process_bytes
from bigkpca.execution.projection import score_rows
from bigkpca.fitting.fit import fit_rows
from bigkpca.fitting.memory_limits import make_room
from bigkpca.spec import FitSpec, resolve
from tests.helpers.disks import tree_bytes

OPTIONS = {"n_components": 3, "size": 60, "sigma": 3.0}
FITS = [
    {"size": 60},
    {"size": 60, "block_rows": 400},  # which are no tiles
    {"method": "rff-pca", "size": 64},
    {"method": "rff", "size": 64, "solver": "randomized"},
]
MORE_FITS = [
    {"size": 60, "dtype": "float64"},
    {"size": 60, "standardize": True},
    {"method": "rff", "size": 64},
    {"tol": 0.6},
]


def rows(count=1500):
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
@pytest.mark.parametrize("fits", [FITS, pytest.param(MORE_FITS, marks=pytest.mark.full)], ids=["some", "more"])
def test_scores_from_kept_features_are_the_same_bytes(fits, taken):
    for options in fits:
        taken.clear()
        X, kpca = rows(), KernelPCA(3, sigma=3.0, random_state=0, **options)
        scores = kpca.fit_transform(X)
        assert set(taken) == {"solver" not in options}, options
        assert scores.tobytes() == kpca.transform(X).tobytes(), options


def test_what_has_no_place_is_computed_again(taken):
    given, spec = ArrayRows(rows(5000)), FitSpec.checked(**OPTIONS)
    engine = Engine(threads=2, kept=KeptFeatures(3000 * 60 * 4))
    model = fit_rows(given, spec, engine)
    scores = score_rows(given, model, engine)
    assert set(taken) == {True, False}
    assert scores.tobytes() == score_rows(given, model, Engine(threads=2)).tobytes()


def test_a_limit_leaves_what_the_plan_does_not_need_and_without_one_a_third_at_least_is_kept_or_none():
    given, spec = ArrayRows(rows()), FitSpec.checked(n_components=3, size=60)
    for limit, kept in ((10**9, True), (process_bytes(), False)):
        place = KeptFeatures()
        make_room(place, given, resolve(spec, given), limit)
        place.begin()
        list(place.keeping(0, [(np.zeros((4, 60), np.float32), np.zeros(4))]))
        assert (place.take(0, 4, 4) is not None) == kept
    for spec in (FitSpec.checked(method="exact"), FitSpec.checked(refine=1)):
        make_room(place := KeptFeatures(), given, resolve(spec, given), None)
        assert place.most_bytes == 0
    # Kept are 96 MB or twice the rows: for 6 and 784 columns, as in float32, a third of 288 and of 1882 MB of features.
    for columns, size, kept in [(6, 700, True), (6, 730, False), (784, 4500, True), (784, 5100, False)]:
        given = ArrayRows(np.broadcast_to(np.float32(1), (100_000, columns)))
        spec = FitSpec.checked(size=size, dtype="float32", sigma=1.0)
        make_room(place := KeptFeatures(), given, resolve(spec, given), None)
        assert (place.most_bytes > 0) == kept, (columns, size)


def test_a_pass_forgets_what_another_kept():
    place = KeptFeatures(1000)
    tile = np.ones((4, 50), np.float32)
    for first in (0, 4):  # 800 bytes each: the second finds no room
        list(place.keeping(first, [(tile, np.zeros(4))]))
    assert place.take(4, 8, 4) is None
    place.begin()
    assert place.take(0, 4, 4) is None
    list(place.keeping(4, [(tile, np.zeros(4))]))
    np.testing.assert_array_equal(place.take(4, 8, 4)[0], tile)
    assert place.take(4, 8, 4) is None  # kept no longer
    elsewhere = pickle.loads(pickle.dumps(KeptFeatures(1000)))  # from where nothing would come back
    list(elsewhere.keeping(0, [(np.ones((4, 5)), np.zeros(4))]))
    assert elsewhere.take(0, 4, 4) is None


def test_memory_of_features_is_aligned_and_returned_with_the_last_of_its_tiles():
    place = KeptFeatures(10**6)
    given = [np.full((count, 7), count, np.float32) for count in (1, 3, 5)]
    starts = (0, 1, 4)
    for start, tile in zip(starts, given, strict=True):
        list(place.keeping(start, [(tile, np.zeros(len(tile)))]))
    found = [place.take(start, start + len(tile), len(tile))[0] for start, tile in zip(starts, given, strict=True)]
    for tile, expected in zip(found, given, strict=True):
        assert tile.ctypes.data % 16 == 0  # otherwise tasks would get copies
        np.testing.assert_array_equal(tile, expected)
    piece = weakref.ref(found[0].base)
    place.begin()
    del tile, found[1:]
    assert piece() is not None
    found.clear()
    assert piece() is None


def scores_in(store):
    return {str(name): data for name, data in tree_bytes(store).items() if str(name).startswith("scores")}


@pytest.mark.full
def test_fit_writes_the_scores_that_transform_writes_also_where_it_goes_on(tmp_path, taken):
    np.save(tmp_path / "x.npy", rows())
    for name, data in {"graph": da.from_array(rows(), chunks=(500, 6)), "file": tmp_path / "x.npy"}.items():
        folder = tmp_path / name
        model = bigkpca.fit(data, folder / "model.zarr", transform=folder / "scores.zarr", **OPTIONS)
        assert set(taken) == {True}
        bigkpca.transform(model, data, folder / "again.zarr")
        assert scores_in(folder / "scores.zarr") == scores_in(folder / "again.zarr")
    bigkpca.fit(data, tmp_path / "model.zarr", **OPTIONS)
    before = tree_bytes(tmp_path / "model.zarr")
    bigkpca.fit(data, tmp_path / "model.zarr", transform=tmp_path / "scores.zarr", **OPTIONS)
    assert tree_bytes(tmp_path / "model.zarr") == before
    assert scores_in(tmp_path / "scores.zarr") == scores_in(folder / "again.zarr")


@pytest.mark.full
def test_workers_write_the_same_scores(two_processes, tmp_path):
    np.save(tmp_path / "x.npy", rows())
    for name, where in (("here", nullcontext()), ("there", two_processes.client.as_current())):
        with where:
            out = {"out": tmp_path / f"{name}-model.zarr", "transform": tmp_path / f"{name}.zarr"}
            bigkpca.fit(tmp_path / "x.npy", **out, **OPTIONS)
    assert scores_in(tmp_path / "here.zarr") == scores_in(tmp_path / "there.zarr")
