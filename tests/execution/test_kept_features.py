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
    given = ArrayRows(rows())
    cases = [({}, given, 10**9, True), ({}, given, process_bytes(), False)]
    cases += [({"method": "exact"}, given, None, False), ({"refine": 1}, given, None, False)]
    # Kept are 96 MB or twice the rows: for 6 and 784 columns, as in float32, a third of 288 and of 1882 MB of features.
    for columns, size, kept in [(6, 700, True), (6, 730, False), (784, 4500, True), (784, 5100, False)]:
        many = ArrayRows(np.broadcast_to(np.float32(1), (100_000, columns)))
        cases.append(({"size": size, "dtype": "float32"}, many, None, kept))
    for options, given, limit, kept in cases:
        make_room(place := KeptFeatures(), given, resolve(FitSpec.checked(sigma=1.0, **options), given), limit)
        assert (place.most_bytes > 0) == kept, options


def keep(place, first, tile):
    list(place.keeping(first, [(tile, np.zeros(len(tile)))]))


def test_a_pass_forgets_what_another_kept():
    place, tile = KeptFeatures(1000), np.ones((4, 50), np.float32)
    for first in (0, 4):  # 800 bytes each: the second finds no room
        keep(place, first, tile)
    assert place.take(4, 8, 4) is None
    place.begin()
    assert place.take(0, 4, 4) is None
    keep(place, 4, tile)
    np.testing.assert_array_equal(place.take(4, 8, 4)[0], tile)
    assert place.take(4, 8, 4) is None  # kept no longer
    elsewhere = pickle.loads(pickle.dumps(KeptFeatures(1000)))  # from where nothing would come back
    keep(elsewhere, 0, tile)
    assert elsewhere.take(0, 4, 4) is None


def test_memory_of_features_is_aligned_and_returned_with_the_last_of_its_tiles():
    place = KeptFeatures(10**6)
    given = {first: np.full((count, 7), count, np.float32) for first, count in ((0, 1), (1, 3), (4, 5))}
    for first, tile in given.items():
        keep(place, first, tile)
    found = [place.take(first, first + len(tile), len(tile))[0] for first, tile in given.items()]
    for tile, expected in zip(found, given.values(), strict=True):
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
def test_fit_writes_the_scores_that_transform_writes_also_where_it_goes_on_and_on_workers(
    tmp_path, taken, two_processes
):
    np.save(tmp_path / "x.npy", rows())
    where = {"graph": nullcontext(), "file": nullcontext(), "workers": two_processes.client.as_current()}
    for name, entered in where.items():
        data = da.from_array(rows(), chunks=(500, 6)) if name == "graph" else tmp_path / "x.npy"
        model, scores, again = (tmp_path / f"{name}-{what}.zarr" for what in ("model", "scores", "again"))
        with entered:
            bigkpca.fit(data, model, transform=scores, **OPTIONS)
        assert set(taken) == {True}  # where tasks run in this process
        bigkpca.transform(model, data, again)
        assert scores_in(scores) == scores_in(again)
    before = tree_bytes(model)
    bigkpca.fit(data, model, transform=tmp_path / "later.zarr", **OPTIONS)
    assert tree_bytes(model) == before
    assert scores_in(tmp_path / "later.zarr") == scores_in(scores)
