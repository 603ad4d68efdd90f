"""Weights of rows where users keep them, and while others add to them."""

from functools import partial

import numpy as np
import pytest
import zarr

from bigkpca.data.opening import open_rows
from bigkpca.data.rows import ArrayRows
from bigkpca.data.sample_weights import weighted, without
from bigkpca.data.zarr import ZarrRows
from bigkpca.errors import IncompleteError, SpecError
from bigkpca.ingesting import ingest
from tests.data.cases import refused

W = np.random.default_rng(0).exponential(size=100)


@pytest.fixture
def dataset(tmp_path):
    """100 rows with weights, in shards of 16."""
    return add(tmp_path / "d.zarr", W)


def add(path, weights):
    """Rows with these weights, added to a dataset if there is one."""
    np.savez(path.with_suffix(".npz"), x=np.ones((len(weights), 2)), w=weights)
    how = {"append": True} if path.exists() else {"block_rows": 16}
    ingest(path.with_suffix(".npz"), path, sample_weight="w", member="x", **how)
    return path


def weights_of(rows, given):
    return weighted(rows, given).weights.of(0, rows.shape[0])


def test_weights_are_those_that_the_dataset_records(dataset):
    for name in ("x", "sample_weight"):  # as after an append that was stopped
        array = zarr.open_array(str(dataset / name), mode="r+")
        array.resize((120, *array.shape[1:]))
    for given in ("sample_weight", dataset / "sample_weight"):
        np.testing.assert_array_equal(weights_of(open_rows(dataset), given), W)
        part = weighted(open_rows(dataset), given).weights.part(40, 60)
        np.testing.assert_array_equal(part.of(45, 55), W[45:55])


def test_arrays_of_others_are_weights_by_name_or_path(tmp_path):
    group = zarr.open_group(tmp_path / "g.zarr", mode="w")
    group.create_array("x", data=np.ones((100, 2)), chunks=(30, 2))
    group.create_array("deep/w", data=W, chunks=(30,))
    zarr.save_array(str(tmp_path / "w.zarr"), W)
    rows = open_rows(str(tmp_path / "g.zarr"))
    for given in ("deep/w", tmp_path / "g.zarr" / "deep" / "w", str(tmp_path / "w.zarr"), group["deep/w"]):
        np.testing.assert_array_equal(weights_of(rows, given), W)
    stamp = weighted(rows, "deep/w").weights.stamp
    assert weighted(rows, "deep/w").weights.stamp == stamp
    group["deep/w"][50:60] = 1
    assert weighted(rows, "deep/w").weights.stamp != stamp
    held = [zarr.create_array({}, data=values, chunks=(30,)) for values in (W, W, W + 1)]
    stamps = [weighted(rows, each).weights.stamp for each in held]  # of values, since nothing else tells them apart
    assert stamps[0] == stamps[1] != stamps[2]


def test_weights_in_npy_files_are_read_in_ranges(tmp_path, dataset, monkeypatch):
    for values in (W, (8 * W).astype(np.int16), W > 1):
        np.save(tmp_path / "w.npy", values)
        np.testing.assert_array_equal(weights_of(open_rows(dataset), tmp_path / "w.npy"), values.astype(float))
    monkeypatch.chdir(tmp_path)
    found = weighted(open_rows(dataset), "w.npy").weights.part(40, 60)
    monkeypatch.chdir("/")
    assert found.of(45, 55).dtype == float
    np.testing.assert_array_equal(found.of(45, 55), W[45:55] > 1)
    (tmp_path / "w.npy").write_bytes(b"")
    refused(found.of, (45, 55, IncompleteError, r"w\.npy changed while it was being read"))


def test_names_of_arrays_that_may_be_meant_are_listed(tmp_path, dataset):
    group = zarr.open_group(dataset)
    group.create_array("turns", data=np.ones(100, complex))
    group.create_array("counts", data=np.arange(100))
    rows = open_rows(dataset)
    has = "has counts, sample_weight with one number for each row"
    refused(
        partial(weighted, rows),
        ("count", SpecError, rf"the array 'count' does not exist: did you mean 'counts'\? {dataset} {has}"),
        ("../d.zarr", SpecError, rf"the array '\.\./d\.zarr' does not exist; .* {has}"),
        ("x", SpecError, r"x has shape \(100, 2\): sample weights are one number for each row"),
        ("turns", SpecError, "turns contains complex128: sample weights are numbers"),
    )
    np.save(tmp_path / "x.npy", np.ones((100, 2)))
    np.save(tmp_path / "objects.npy", np.array([1, "a"], object))
    refused(
        partial(weighted, open_rows(tmp_path / "x.npy")),
        ("w", SpecError, "the array 'w' does not exist; give the path of a .npy file or of a Zarr array"),
        (tmp_path / "none.npy", SpecError, "the array .* does not exist"),
        (tmp_path / "objects.npy", SpecError, r"objects\.npy contains object: sample weights are numbers"),
        (tmp_path / "x.npy", SpecError, r"x\.npy has shape \(100, 2\)"),
        ("s3://a/w.npy", SpecError, r"s3://a/w\.npy: \.npy files are read only from local disks: copy it to one$"),
    )
    del group["sample_weight"], group["counts"]
    message = r"'sample_weight' does not exist; .*d\.zarr has no array with one number for each row"
    refused(partial(weighted, rows), ("sample_weight", SpecError, message))


def test_weights_of_pinned_rows_stay_the_same_while_others_add_more(tmp_path, dataset):
    def pinned():
        rows = open_rows(dataset)
        assert isinstance(rows, ZarrRows)
        return weighted(rows.pin(98), "sample_weight").weights

    before = pinned()
    stamp = pinned().stamp  # the first one reads its values after more were added
    add(dataset, W + 1)
    assert before.stamp == stamp == pinned().stamp
    np.testing.assert_array_equal(before.of(80, 98), W[80:98])
    with pytest.raises(SpecError, match=r"100 sample weights for 98 rows"):
        weighted(open_rows(dataset).pin(98), W)  # to which nobody can add
    group = zarr.open_group(tmp_path / "g.zarr", mode="w")
    x = group.create_array("x", shape=(100, 2), chunks=(16, 2), dtype="f4")
    w = group.create_array("w", shape=(100,), chunks=(16,), dtype="f4", fill_value=0)
    x[:], w[:90] = 1, W[:90]
    found = weighted(open_rows(tmp_path / "g.zarr").pin(90), "w").weights
    w[90:] = 1
    np.testing.assert_array_equal(found.of(80, 90), W[80:90].astype("f4"))
    w.resize((95,))
    with pytest.raises(IncompleteError, match=r"95 sample weights for the 100 rows .*run the same command again"):
        weighted(open_rows(tmp_path / "g.zarr").pin(100), "w")
    with pytest.raises(SpecError, match=r"95 sample weights for 100 rows .*: give one for each row"):
        weighted(open_rows(tmp_path / "g.zarr"), "w")


def test_rows_with_weights_keep_the_names_of_columns(tmp_path):
    (tmp_path / "x.csv").write_text("a,b,w\n1,2,3\n4,5,6\n")
    ingest(tmp_path / "x.csv", tmp_path / "x.zarr", sample_weight="w")
    assert weighted(open_rows(tmp_path / "x.zarr"), "sample_weight").names == ("a", "b")


@pytest.mark.parametrize("kind", ["none", "in memory", "stored"])
def test_weights_of_rows_that_are_left_out(kind, tmp_path):
    zarr.save_array(str(tmp_path / "w.zarr"), W)
    given = {"none": None, "in memory": W, "stored": str(tmp_path / "w.zarr")}[kind]
    rows = weighted(ArrayRows(np.ones((100, 2))), given)
    found = without(without(rows, np.array([50, 99])), np.array([0, 42])).weights
    expected = np.ones(100) if given is None else W.copy()
    expected[[0, 42, 50, 99]] = 0
    np.testing.assert_array_equal(found.of(0, 100), expected)
    np.testing.assert_array_equal(found.part(40, 60).of(45, 55), expected[45:55])
    if given is not None:
        assert found.stamp != rows.weights.stamp
    assert found.held == (kind != "stored")
