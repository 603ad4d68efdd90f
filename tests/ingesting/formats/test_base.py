"""Labels: texts as codes, whole numbers as they are, as many as there are rows."""

import h5py
import numpy as np
import pyarrow as pa
import pytest

from bigkpca.errors import DataError, SpecError
from bigkpca.ingesting.formats import base
from bigkpca.ingesting.formats import text as text_files
from tests.ingesting.files import WORDS, X, Y, csv_text, made, npy, refuse


@pytest.mark.parametrize("kind", ["npz", "csv", "parquet", "hdf5", "file", "npy"])
def test_text_labels_become_codes_by_first_appearance(tmp_path, monkeypatch, kind):
    monkeypatch.setattr(base, "READ_BYTES", 333)  # also of labels of which each piece holds some
    words, content, labels = WORDS[Y], X, "kind"
    if kind == "npz":
        content = tmp_path / "a.npz"
        np.savez(content, x=X, kind=words)
    elif kind == "csv":
        content = csv_text(X, ["kind", *"abcde"], words, "\t")
    elif kind == "parquet":
        content = {"a": X[:, 0], "kind": pa.array(words).dictionary_encode(), "b": X[:, 1].astype("f4")}
    elif kind == "hdf5":
        content = tmp_path / "a.h5"
        with h5py.File(content, "w") as file:
            file["x"], file["kind"] = X, [str(word) for word in words]
    elif kind == "npy":
        labels = str(npy(tmp_path / "labels.npy", words))
    else:
        labels = str(tmp_path / "labels.csv")
        (tmp_path / "labels.csv").write_text("\n".join(["kind", *words]))
    found = made(tmp_path, content, labels=labels)
    assert found["categories"] == list(dict.fromkeys(words.tolist()))
    assert found["y"].dtype == np.int32
    np.testing.assert_array_equal(np.array(found["categories"])[found["y"]], words)
    assert found["x"].shape == (300, 2 if kind == "parquet" else 5)


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
        found = made(tmp_path, csv_text(X[: len(labels)], ["y", *"abcde"], labels), labels="y")["y"]
        assert found.dtype == expected.dtype, labels
        np.testing.assert_array_equal(found, expected)


def test_labels_must_match_the_rows(tmp_path, monkeypatch):
    monkeypatch.setattr(base, "READ_BYTES", 40)
    weights = np.where(np.arange(300) == 8, np.inf, 1.0)
    for name, text in (("y.csv", "pear\n" * 300), ("two.csv", "1,2\n")):
        (tmp_path / name).write_text(text)
    for name, values in (("y.npy", Y[:299]), ("x.npy", X), ("w.npy", weights)):
        npy(tmp_path / name, values)
    np.savez(tmp_path / "b.npz", x=X, y=weights)
    for name, error, message in (
        ("y.npy", SpecError, "holds 299 labels for 300 rows"),
        ("y.csv", SpecError, "holds 299 labels for 300 rows .*header"),
        ("two.csv", SpecError, "2 columns: a file of labels must have one"),
        ("b.npz", SpecError, "a file of labels must be"),
        ("x.npy", DataError, r"has shape \(300, 5\)"),
        ("w.npy", DataError, "labels of .* row 8"),
    ):
        refuse(tmp_path, error, message, X, labels=str(tmp_path / name))
    refuse(tmp_path, DataError, "labels of .* row 8", tmp_path / "b.npz", labels="y")
    refuse(tmp_path, SpecError, "has no header, and so no column 'y'", "1,2\n", labels="y")
    refuse(tmp_path, SpecError, "unknown column .* did you mean 'label'", "label,a\n1,2\n", labels="lable")
    monkeypatch.setattr(text_files, "_TEXT_BYTES", 2**14)
    far = "k,a\n" + "1,2\n" * 20000 + f"{2**63},2\n"
    refuse(tmp_path, DataError, "row 20000 .* has the label '9223372036854775808', but", far, labels="k")
