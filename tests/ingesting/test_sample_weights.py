"""Weights of rows, which every container holds in a column, an array or a file, beside the rows of a dataset."""

import gzip
import json
from decimal import Decimal
from pathlib import Path

import h5py
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.feather as feather
import pytest
import zarr

import bigkpca
from bigkpca.errors import CorruptionError, DataError, SpecError
from bigkpca.ingesting import ingest
from bigkpca.ingesting.formats import arrow, base, text
from bigkpca.reporting.text import provenance
from tests.helpers.commands import run
from tests.helpers.disks import tree_bytes
from tests.helpers.named import stored
from tests.ingesting.files import WORDS, X, Y, idx_bytes, made, npy, refuse, write

W = np.where(np.arange(300) % 7, np.random.default_rng(1).exponential(size=300).round(1), 0.0)
TABLE = pd.DataFrame({"a": X[:, 0], "w": W, "b": X[:, 1], "kind": WORDS[Y]})
TWO = X[:, :2]


def in_csv(folder):
    return write(folder, TABLE.drop(columns="kind").to_csv(index=False)), {"sample_weight": "w"}


def in_german_csv(folder):
    content = TABLE.drop(columns="kind").to_csv(index=False, sep=";", decimal=",").encode("utf-16")
    (folder / "a.csv.gz").write_bytes(gzip.compress(content))
    return folder / "a.csv.gz", {"sample_weight": "w", "decimal": ","}


def in_parquet(folder):
    return write(folder, TABLE), {"sample_weight": "w", "drop": ["kind"]}


def in_feather(folder):
    feather.write_feather(TABLE, str(folder / "a.feather"), chunksize=70)
    return folder / "a.feather", {"sample_weight": "w", "drop": ["kind"]}


def in_pandas(_):
    return TABLE, {"sample_weight": "w", "drop": ["kind"]}


def in_polars(_):
    return pl.from_pandas(TABLE), {"sample_weight": "w", "drop": ["kind"]}


def in_reader(_):
    reader = pa.Table.from_pandas(TABLE).to_reader(max_chunksize=70)
    return reader, {"sample_weight": "w", "drop": ["kind"]}


def in_npz(folder):
    np.savez(folder / "a.npz", rows=TWO, w=W.astype(">f8"))
    return folder / "a.npz", {"sample_weight": "w"}


def in_hdf5(folder):
    with h5py.File(folder / "a.h5", "w") as file:
        file["rows"], file["deep/w"] = TWO, W
    return folder / "a.h5", {"sample_weight": "deep/w"}


def in_npy(folder):
    return npy(folder / "a.npy", TWO), {"sample_weight": str(npy(folder / "w.npy", W))}


def in_idx(folder):
    (folder / "w").write_bytes(idx_bytes(W))
    return npy(folder / "a.npy", TWO), {"sample_weight": folder / "w"}


def in_a_csv_of_its_own(folder):
    (folder / "w.csv").write_text("weight\n" + "".join(f"{w}\n" for w in W))
    return npy(folder / "a.npy", TWO), {"sample_weight": str(folder / "w.csv")}


def in_the_names_of_folders(folder):
    for w in np.unique(W):
        (folder / "f" / f"w={w}").mkdir(parents=True)
        TABLE[w == W][["a", "b"]].to_parquet(folder / "f" / f"w={w}" / "part.parquet", index=False)
    return folder / "f", {"sample_weight": "w"}


QUICK = [in_csv, in_parquet, in_pandas, in_npz, in_hdf5, in_npy, in_the_names_of_folders]
CONTAINERS = [in_german_csv, in_feather, in_polars, in_reader, in_idx, in_a_csv_of_its_own]
CONTAINERS = [*QUICK, *(pytest.param(each, marks=pytest.mark.full) for each in CONTAINERS)]


@pytest.mark.parametrize("container", CONTAINERS)
def test_every_container_gives_the_rows_and_the_weights(container, tmp_path, monkeypatch):
    for module in (base, arrow):
        monkeypatch.setattr(module, "READ_BYTES", 700)
    monkeypatch.setattr(text, "_TEXT_BYTES", 700)
    source, options = container(tmp_path)
    done = ingest(source, tmp_path / "o.zarr", block_rows=64, **options)
    found = stored(done.path)
    assert (done.sample_weight, done.labels, found["w"].dtype, found["y"]) == (True, False, np.float64, None)
    order = np.lexsort(TWO.T), np.lexsort(found["x"].T)  # folders are read in the order of their names
    np.testing.assert_array_equal(found["x"][order[1]], TWO[order[0]])
    np.testing.assert_array_equal(found["w"][order[1]], W[order[0]])
    assert bigkpca.verify(done.path).shape == (300, 2)
    assert Path(bigkpca.info(done.path)["sample_weight"]).name == Path(options["sample_weight"]).name


def test_weights_of_any_type_of_number_are_float64(tmp_path):
    for values in (
        np.array([3, 0, 2**40]),
        np.array([3, 0, 255], np.uint8),
        np.array([0.5, 0, 1e-3], np.float32),
        np.array([True, False, True]),
        pa.array([Decimal("1.50"), Decimal(0), Decimal(7)]),
        pa.array(["1.5", "0", " 7e3"]),
        pa.array([2, 0, 2]).dictionary_encode(),
    ):
        found = made(tmp_path, {"a": [1.0, 2.0, 4.0], "w": values}, sample_weight="w")
        assert found["w"].dtype == np.float64
        assert found["w"].tolist() == [float(value) for value in values.tolist()]
    np.savez(tmp_path / "i.npz", x=TWO[:3], w=np.array([3, 0, 9], ">i4"))
    assert made(tmp_path, tmp_path / "i.npz", sample_weight="w")["w"].tolist() == [3, 0, 9]
    thousands = made(tmp_path, 'a,w\n1,"1,200"\n2,3\n', sample_weight="w", thousands=",")
    assert thousands["w"].tolist() == [1200, 3]


def test_files_may_hold_weights_of_different_types(tmp_path):
    whole, others = pd.DataFrame({"a": [0.5, 1.5], "w": [2, 3]}), pd.DataFrame({"w": [0.25, 1], "a": [2.5, 3.5]})
    found = made(tmp_path, whole, others, others.to_csv(index=False), sample_weight="w")
    assert found["w"].tolist() == [2, 3, 0.25, 1, 0.25, 1]


def test_labels_and_weights_are_kept_together_and_rows_that_lack_one_are_dropped(tmp_path):
    holes = TABLE.copy()
    for row, name in ((3, "w"), (4, "kind"), (5, "a"), (299, "w")):
        holes.loc[row, name] = None
    left = holes.dropna()
    for content in (holes, holes.to_csv(index=False)):
        found = made(tmp_path, content, labels="kind", sample_weight="w", missing="drop")
        np.testing.assert_array_equal(found["x"], left[["a", "b"]])
        np.testing.assert_array_equal(found["w"], left["w"])
        assert [found["categories"][code] for code in found["y"]] == left["kind"].tolist()
        assert found["notes"][-1] == "missing values: 1 in 'a'; dropped 4 rows"
    only = holes.drop(index=5)
    notes = made(tmp_path, only, labels="kind", sample_weight="w", missing="drop")["notes"]
    assert notes[-1] == "missing values: labels and sample weights; dropped 3 rows"
    unknown = "a,w\n1,2\n2,?\n3,4\n"
    assert made(tmp_path, unknown, sample_weight="w", missing="drop", na_values="?")["w"].tolist() == [2, 4]


def test_keys_of_folders_may_be_numbers_that_labels_keep_as_text(tmp_path):
    for key in ("01", "12"):
        (tmp_path / "f" / f"w={key}").mkdir(parents=True)
        pd.DataFrame({"a": [0.5]}).to_parquet(tmp_path / "f" / f"w={key}" / "a.parquet")
    assert made(tmp_path, tmp_path / "f", sample_weight="w")["w"].tolist() == [1, 12]
    assert made(tmp_path, tmp_path / "f", labels="w")["categories"] == ["01", "12"]


def test_what_is_not_a_weight_is_named_by_its_file_row_and_column(tmp_path, monkeypatch):
    monkeypatch.setattr(text, "_TEXT_BYTES", 2**14)
    late = "a,w\n" + "1,2\n" * 20000 + "1,-3\n"
    dates = pa.array([0, 1], pa.date32())
    for content, message in (
        (
            "a,w\n1,2\n3,-1\n",
            r"a\.csv, column 1 \('w'\): the sample weight of row 1 is -1: weights are finite numbers of",
        ),
        (late, r"a\.csv, column 1 \('w'\): the sample weight of row 20000 is -3"),
        (
            "a,w\n1,2\n3,\n",
            r"a\.csv: row 1 \(counted from 0\) has no sample weight: column 1 \('w'\) is missing; weights",
        ),
        ("a,w\n1,2\n3,NA\n", r"row 1 .* has no sample weight"),
        ("a,w\n1,2\n3,two\n", r"row 1 .* has no sample weight: column 1 \('w'\) is 'two', not a number"),
        ("a,w\n1,inf\n", r"column 1 \('w'\): the sample weight of row 0 is inf"),
        ({"a": [1.0, 2], "w": [1, -2]}, r"a\.parquet, column 1 \('w'\): the sample weight of row 1 is -2"),
        ({"a": [1.0, 2], "w": [1, None]}, r"a\.parquet: row 1 .* has no sample weight: column 1 \('w'\) is missing"),
        ({"a": [1.0, 2], "w": [1, np.nan]}, r"row 1 .* has no sample weight: column 1 \('w'\) is NaN"),
        ({"a": [1.0, 2], "w": ["1", "x"]}, r"row 1 .* has no sample weight: column 1 \('w'\) is 'x', not a number"),
        ({"a": [1.0, 2], "w": dates}, r"a\.parquet: column 1 \('w'\) is of type date32.*: sample weights are numbers"),
        ({"a": [1.0, 2], "w": [[1], [2]]}, r"column 1 \('w'\) is of type list<.*: sample weights are numbers"),
        ({"w": [1.0]}, "a.parquet has no columns besides its sample weights"),
        ("w\n1\n", "a.csv has only its column of sample weights"),
    ):
        refuse(tmp_path, DataError, message, content, sample_weight="w")
    for missing in ("mean", "median"):
        refuse(
            tmp_path, DataError, "row 1 .* has no sample weight", "a,w\n1,2\n,\n", sample_weight="w", missing=missing
        )
    frame = pd.DataFrame({"a": [1.0, 2.0], "w": [1, "x"]})
    message = r"the pandas DataFrame: column 1 \('w'\) is of type object .*: it cannot be sample weights"
    with pytest.raises(DataError, match=message):
        ingest(frame, tmp_path / "o.zarr", sample_weight="w")
    bad = np.where(np.arange(300) == 8, -1, W)
    np.savez(tmp_path / "b.npz", x=TWO, w=bad, text=WORDS[Y], wide=TWO, few=W[:9])
    npy(tmp_path / "few.npy", W[:9])
    npy(tmp_path / "bad.npy", bad)
    with h5py.File(tmp_path / "packed.h5", "w") as file:
        file["x"], file["w"] = TWO, np.arange(300)
        file["w"].attrs["_FillValue"] = 7
    for source, name, error, message in (
        ("b.npz", "w", DataError, r"b\.npz:w: the sample weight of row 8 is -1"),
        (
            "b.npz",
            "text",
            DataError,
            r"b\.npz:text has shape .* and type <U5: sample weights are \(n,\), numbers of at",
        ),
        ("b.npz", "wide", DataError, r"b\.npz:wide has shape \(300, 2\)"),
        ("b.npz", "few", SpecError, r"b\.npz:few holds 9 sample weights for 300 rows"),
        ("packed.h5", "w", DataError, r"the sample weights of .*packed\.h5:w: row 7, column 0 is missing, as the fill"),
    ):
        refuse(tmp_path, error, message, tmp_path / source, sample_weight=name, member="x")
    for name, error, message in (
        ("few.npy", SpecError, r"few\.npy holds 9 sample weights for 300 rows"),
        ("bad.npy", DataError, r"bad\.npy: the sample weight of row 8 is -1"),
        ("b.npz", SpecError, r"b\.npz: a file of sample weights must be \.npy, IDX or one-column \.csv"),
    ):
        refuse(tmp_path, error, message, TWO, sample_weight=str(tmp_path / name))
    refuse(
        tmp_path, SpecError, "has a sample weight for each row, so rows cannot be dropped", "a\n1\n", missing="drop",
        sample_weight=str(tmp_path / "few.npy"),
    )  # fmt: skip


def test_names_of_weights_that_do_not_fit_are_refused(tmp_path):
    table = {"a": [1.0, 2.0], "w": [1, 2]}
    for content, options, message in (
        (TWO, {"sample_weight": "w"}, r"--sample-weight w: there is no such file, and .*a\.npy has no named columns"),
        (table, {"sample_weight": "v"}, r"unknown column of .*a\.parquet 'v': known are a, w"),
        ("a,w\n1,2\n", {"sample_weight": "v"}, r"unknown column of .*a\.csv 'v'"),
        ("1,2\n", {"sample_weight": "v"}, "has no header, and so no column 'v'"),
        ("a,w,w\n1,2,3\n", {"sample_weight": "w"}, "2 columns 'w': give the column of sample weights a unique name"),
        (table, {"sample_weight": "w", "labels": "w"}, "labels and sample_weight name the same column"),
        (table, {"sample_weight": [1, 2]}, "sample_weight is of type list: name a column, or give the path of a file"),
        (table, {"sample_weight": "w", "columns": ["a", "w"]}, "unknown column of .* 'w'"),
    ):
        refuse(tmp_path, SpecError, message, content, **options)


def test_rows_are_appended_with_their_weights(tmp_path):
    first, second = TABLE[:200], TABLE[200:]
    options = {"drop": ["kind"], "sample_weight": "w", "block_rows": 64}
    path = ingest(write(tmp_path, first), tmp_path / "o.zarr", **options).path
    whole = ingest(write(tmp_path, TABLE, "whole"), tmp_path / "whole.zarr", **options).path
    more = write(tmp_path, second, "b")
    for _ in range(2):  # again, which changes nothing
        done = ingest(more, path, sample_weight="w", append=True)
    assert (done.rows, done.already_done, done.sample_weight) == (300, True, True)
    assert {name: held for name, held in tree_bytes(path).items() if "/c/" in name} == {
        name: held for name, held in tree_bytes(whole).items() if "/c/" in name
    }
    more = TABLE[:50].assign(w=7.5)
    refuse(
        tmp_path, SpecError, "sample_weight is float64 there and none in the new", more.drop(columns="w"), append=True
    )
    np.testing.assert_array_equal(made(tmp_path, more, sample_weight="w", append=True)["w"], [*W, *[7.5] * 50])
    found = made(tmp_path, TABLE[:50], sample_weight="w", append=True)["w"]
    np.testing.assert_array_equal(found, [*W, *[7.5] * 50, *W[:50]])
    made(tmp_path, TABLE[["a", "b"]], out="plain.zarr")
    message = "sample_weight is none there and float64 in the new rows"
    refuse(tmp_path, SpecError, message, TABLE[["a", "b", "w"]], out="plain.zarr", sample_weight="w", append=True)
    like = stored(ingest(write(tmp_path, second), tmp_path / "like.zarr", sample_weight="w", like=path).path)
    np.testing.assert_array_equal(like["w"], W[200:])


def test_another_column_of_weights_makes_another_dataset(tmp_path):
    source = write(tmp_path, TABLE.assign(v=1.0))
    options = {"drop": ["kind"], "sample_weight": "w"}
    assert not ingest(source, tmp_path / "o.zarr", **options).already_done
    assert ingest(source, tmp_path / "o.zarr", **options).already_done
    for other in ({"drop": ["kind"]}, {"drop": ["kind"], "sample_weight": "v"}):
        with pytest.raises(SpecError, match=r"made with other options .*sample_weight is 'w' there and"):
            ingest(source, tmp_path / "o.zarr", **other)


def test_weights_that_are_not_those_of_ingest_are_found(tmp_path):
    path = Path(ingest(TABLE, tmp_path / "o.zarr", drop=["kind"], sample_weight="w", block_rows=64).path)
    chunk = path / "sample_weight" / "c" / "2"
    whole = chunk.read_bytes()
    for harm, message in (
        (lambda: chunk.write_bytes(whole[:-3]), r"sample_weight: rows \d+ to \d+ cannot be read"),
        (chunk.unlink, r"sample_weight/c/2 is missing"),
    ):
        harm()
        with pytest.raises(CorruptionError, match=message):
            bigkpca.fit(path, tmp_path / "m.zarr", n_components=2, size=20, sample_weight="sample_weight")
        with pytest.raises(CorruptionError, match=message):
            bigkpca.verify(path)
    chunk.write_bytes(whole)
    zarr.open_group(str(path)).create_array("own", data=np.ones(300))  # which others put there
    bigkpca.verify(path)


@pytest.mark.usefixtures("quiet_signals")
def test_a_file_with_weights_leads_to_a_weighted_model(tmp_path):
    TABLE.drop(columns="kind").to_csv(tmp_path / "t.csv", index=False)
    rows, model = tmp_path / "t.zarr", tmp_path / "m.zarr"
    shown = run("ingest", tmp_path / "t.csv", rows, "--sample-weight", "w", "-q")
    assert (shown.exit_code, "300 × 2" in shown.stdout) == (0, True), shown.output
    options = ("--components", 2, "--size", 20, "--sigma", 2, "-q")
    assert run("fit", rows, model, "--sample-weight", "sample_weight", *options).exit_code == 0
    facts = json.loads(run("info", model, "--json").stdout)
    assert facts["sample_weight"] == {"rows": np.count_nonzero(W), "sum": pytest.approx(W.sum())}
    assert f"rows {np.count_nonzero(W)}, sum {W.sum():,.10g}" in run("info", model).stdout
    kpca = bigkpca.KernelPCA(2, size=20, sigma=2.0, random_state=0).fit(TWO, sample_weight=W)
    np.testing.assert_allclose(facts["eigenvalues"], kpca.eigenvalues_, rtol=1e-9)
    assert kpca.model_.summary().facts["rows"] == f"{np.count_nonzero(W)}, of weight {W.sum():,.10g}"
    assert provenance(bigkpca.load(model), facts, "", None)["weight of the rows"] == f"{W.sum():,.10g}"
    for name, message in (
        (
            "sample_weights",
            f"there is no array 'sample_weights': did you mean 'sample_weight'? {rows} has sample_weight",
        ),
        ("households", f"there is no array 'households'; {rows} has sample_weight with one number for each row"),
        (tmp_path / "none.npy", "there is no array"),
    ):
        shown = run("fit", rows, tmp_path / "n.zarr", "--sample-weight", name, *options)
        assert (shown.exit_code, message in shown.stderr) == (2, True), shown.output
    assert run("info", rows).stdout.count("sample weight") == 1
