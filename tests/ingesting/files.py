"""Rows and labels written in every format, and what a dataset made of them holds."""

import gzip
import struct
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest

from bigkpca.ingesting import ingest
from bigkpca.storage import groups
from tests.data.cases import case
from tests.helpers.disks import tree_bytes
from tests.helpers.named import stored
from tests.helpers.progress import Recorder

RNG = np.random.default_rng(7)
X = RNG.normal(size=(300, 5))
Y = RNG.integers(0, 4, 300)
WORDS = np.array(["pear", "apple", "fig", "plum"])


def idx_bytes(values):
    code = {"u1": 8, "i1": 9, "i2": 11, "i4": 12, "f4": 13, "f8": 14}[values.dtype.str[1:]]
    head = bytes([0, 0, code, values.ndim]) + struct.pack(f">{values.ndim}I", *values.shape)
    return head + values.astype(values.dtype.newbyteorder(">")).tobytes()


def csv_text(X, names=None, labels=None, mark=","):
    lines = [] if names is None else [mark.join(names)]
    for i, row in enumerate(X):
        fields = [repr(float(value)) for value in row]
        lines.append(mark.join([str(labels[i]), *fields] if labels is not None else fields))
    return "\n".join(lines) + "\n"


def npy(path, values):
    np.save(path, values)
    return path


def write(folder, content, name="a"):
    """A file of this content: CSV of text, Parquet of columns or a frame, .npy of an array. A path stays as it is."""
    if isinstance(content, Path):
        return content
    if isinstance(content, np.ndarray):
        return npy(folder / f"{name}.npy", content)
    path = folder / f"{name}.{'csv' if isinstance(content, str | bytes) else 'parquet'}"
    if isinstance(content, str | bytes):
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    elif isinstance(content, pd.DataFrame):
        content.to_parquet(path)
    else:
        pq.write_table(pa.table(content), path)
    return path


def made(folder, *contents, out="o.zarr", **options):
    """What a dataset made of these contents, in files a, b, ..., holds, and the notes of ingest. It replaces others."""
    sources = [write(folder, content, name) for content, name in zip(contents, "abcde", strict=False)]
    options = {"overwrite": not options.get("append"), "progress": Recorder()} | options
    return stored(ingest(sources, folder / out, **options).path) | {"notes": options["progress"].notes}


def refuse(folder, error, message, *contents, out="o.zarr", **options):
    """Ingest refuses these contents with an error, and leaves what was there and nothing beside it."""
    there, before = sorted(folder.glob(f"{out}*")), tree_bytes(folder / out)
    with case(message), pytest.raises(error, match=message):
        made(folder, *contents, out=out, **options)
    assert sorted(folder.glob(f"{out}*")) == there
    assert tree_bytes(folder / out) == before


def about(path):
    return groups.describe(str(path))


def write_npy(path, X, y):
    return npy(path / "a.npy", X), {}


def write_big_endian_fortran_npy(path, X, y):
    return npy(path / "a.npy", np.asfortranarray(X.astype(X.dtype.newbyteorder(">")))), {}


def write_npz(path, X, y):
    np.savez_compressed(path / "a.npz", data=X, y=y, scalar=3)
    return path / "a.npz", {"labels": "y"}


def write_fortran_npz(path, X, y):
    np.savez(path / "a.npz", data=np.asfortranarray(X), other=X[:2], y=y)
    return path / "a.npz", {"labels": "y", "member": "data"}


def write_idx(path, X, y):
    (path / "rows").write_bytes(idx_bytes(X))
    (path / "labels").write_bytes(idx_bytes(y.astype(np.uint8)))
    return path / "rows", {"labels": str(path / "labels")}


def write_idx_gz(path, X, y):
    (path / "rows-ubyte.gz").write_bytes(gzip.compress(idx_bytes(X)))
    (path / "labels.gz").write_bytes(gzip.compress(idx_bytes(y.astype(np.int32))))
    return path / "rows-ubyte.gz", {"labels": str(path / "labels.gz")}


def write_csv(path, X, y):
    (path / "a.csv").write_text(csv_text(X, ["kind", *"abcde"], y))
    return path / "a.csv", {"labels": "kind"}


def write_csv_gz(path, X, y):
    (path / "a.csv.gz").write_bytes(gzip.compress(csv_text(X, "abcde", mark=";").encode("utf-8-sig")))
    npy(path / "y.npy", y)
    return path / "a.csv.gz", {"labels": str(path / "y.npy"), "csv": {"delimiter": ";"}}


def arrow_table(X, y):
    return pa.table({"label": y, **dict(zip("abcde", X.T, strict=True))})


def write_parquet(path, X, y):
    pq.write_table(arrow_table(X, y), path / "a.parquet", row_group_size=70)
    return path / "a.parquet", {"labels": "label"}


def write_feather(path, X, y):
    feather.write_feather(arrow_table(X, y), str(path / "a.feather"), chunksize=70)
    return path / "a.feather", {"labels": "label"}


ARRAYS = [write_npy, write_big_endian_fortran_npy, write_npz, write_fortran_npz, write_idx, write_idx_gz]
TABLES = [write_csv, write_csv_gz, write_parquet, write_feather]
