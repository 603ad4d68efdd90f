"""Labels: texts as codes, whole numbers as they are, as many as there are rows."""

from pathlib import Path

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bigkpca.errors import DataError, SpecError
from bigkpca.ingesting.formats import base, text_rows
from bigkpca.ingesting.streaming import ingest
from tests.ingesting.files import WORDS, X, Y, about, csv_text, labels_of, npy, refuse, rows_of


@pytest.mark.parametrize("kind", ["npz", "csv", "parquet", "hdf5", "file", "npy"])
def test_text_labels_become_codes_by_first_appearance(tmp_path, kind):
    words, labels = WORDS[Y], None
    if kind == "npz":
        np.savez(tmp_path / "a.npz", x=X, y=words)
        source, labels = tmp_path / "a.npz", "y"
    elif kind == "csv":
        source, labels = tmp_path / "a.csv", "kind"
        source.write_text(csv_text(X, ["kind", *"abcde"], words, "\t"))
    elif kind == "parquet":
        source, labels = tmp_path / "a.parquet", "kind"
        column = pa.array(words).dictionary_encode()
        pq.write_table(pa.table({"a": X[:, 0], "kind": column, "b": X[:, 1].astype("f4")}), source)
    elif kind == "hdf5":
        source, labels = tmp_path / "a.h5", "y"
        with h5py.File(source, "w") as file:
            file["x"], file["y"] = X, [str(word) for word in words]
    else:
        source, labels = npy(tmp_path / "a.npy", X), str(tmp_path / f"labels.{kind if kind == 'npy' else 'csv'}")
        if kind == "npy":
            np.save(labels, words)
        else:
            Path(labels).write_text("\n".join(["kind", *words]))
    done = ingest([source], tmp_path / "out.zarr", labels=labels)
    categories = about(done.path)["categories"]
    assert categories == list(dict.fromkeys(words.tolist()))
    assert labels_of(done.path).dtype == np.int32
    np.testing.assert_array_equal(np.array(categories)[labels_of(done.path)], words)
    assert rows_of(done.path).shape == (300, 2 if kind == "parquet" else 5)


def test_a_label_column_has_the_narrowest_kind_of_its_texts(tmp_path):
    for labels, expected in (
        (["1", "2"], np.array([1, 2], np.int64)),
        (["1", "2.5"], np.array([1, 2.5])),
        (["1", "b"], np.array([0, 1], np.int32)),
        (["1e5", "3"], np.array([1e5, 3])),
        ([2**63, 1], np.array([2**63, 1], np.uint64)),
        ([2**64 - 1, 2**64 - 2], np.array([2**64 - 1, 2**64 - 2], np.uint64)),
        ([10**20, 10**20 + 1, 10**20], np.array([0, 1, 0], np.int32)),  # text: as floats both would be one
        ([-1, 2**63], np.array([0, 1], np.int32)),
    ):
        (tmp_path / "a.csv").write_text(csv_text(X[: len(labels)], ["y", *"abcde"], labels))
        found = labels_of(ingest([tmp_path / "a.csv"], tmp_path / "out.zarr", labels="y", overwrite=True).path)
        assert found.dtype == expected.dtype, labels
        np.testing.assert_array_equal(found, expected)


def test_a_long_label_far_down_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(text_rows, "_TEXT_BYTES", 2**14)
    (tmp_path / "a.csv").write_text("k,a\n" + "1,2\n" * 20000 + f"{2**63},2\n")
    refuse(tmp_path, DataError, "row 20000 .* has the label '9223372036854775808', but", tmp_path / "a.csv", labels="k")


def test_labels_must_match_the_rows(tmp_path, monkeypatch):
    monkeypatch.setattr(base, "READ_BYTES", 40)
    a = npy(tmp_path / "a.npy", X)
    labels = npy(tmp_path / "y.npy", Y[:299])
    refuse(tmp_path, SpecError, "holds 299 labels for 300 rows", a, labels=str(labels))
    (tmp_path / "y.csv").write_text("pear\n" * 300)
    refuse(tmp_path, SpecError, "holds 299 labels for 300 rows .*header", a, labels=str(tmp_path / "y.csv"))
    (tmp_path / "two.csv").write_text("1,2\n")
    refuse(tmp_path, SpecError, "2 columns: a file of labels has one", a, labels=str(tmp_path / "two.csv"))
    np.savez(tmp_path / "y.npz", Y)
    refuse(tmp_path, SpecError, "labels in a file of their own come as", a, labels=str(tmp_path / "y.npz"))
    refuse(tmp_path, DataError, r"has shape \(300, 5\)", a, labels=str(a))
    weights = np.where(np.arange(300) == 8, np.inf, 1.0)
    refuse(tmp_path, DataError, "labels of .* row 8", a, labels=str(npy(tmp_path / "w.npy", weights)))
    np.savez(tmp_path / "b.npz", x=X, y=weights)
    refuse(tmp_path, DataError, "labels of .* row 8", tmp_path / "b.npz", labels="y")
    (tmp_path / "c.csv").write_text("1,2\n")
    refuse(tmp_path, SpecError, "has no header, so no column 'y'", tmp_path / "c.csv", labels="y")
    (tmp_path / "d.csv").write_text("label,a\n1,2\n")
    refuse(tmp_path, SpecError, "unknown column .* did you mean 'label'", tmp_path / "d.csv", labels="lable")
