"""Rows and labels written in every format, and what a dataset made of them holds."""

import gzip
import struct
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
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


def npy(path, values):
    np.save(path, values)
    return path


def write(folder, content, name="a"):
    """A file of this content: CSV of text, Parquet of columns or a frame, .npy of an array. A path stays as it is."""
    if isinstance(content, Path):
        return content
    if isinstance(content, np.ndarray):
        return npy(folder / f"{name}.npy", content)
    path = folder / f"{name}.{'csv' if isinstance(content, str) else 'parquet'}"
    if isinstance(content, dict):
        pq.write_table(pa.table(content), path)
    else:
        path.write_text(content) if isinstance(content, str) else content.to_parquet(path)
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


# Functions of a folder, rows and labels, which write a file and return it with the options that ingest needs.


def write_npy(at, X, y):
    return npy(at / "a.npy", X), {}


def write_big_endian_fortran_npy(at, X, y):
    return npy(at / "a.npy", np.asfortranarray(X.astype(X.dtype.newbyteorder(">")))), {}


def write_npz(at, X, y):
    np.savez_compressed(at / "a.npz", data=X, y=y, scalar=3)
    return at / "a.npz", {"labels": "y"}


def write_fortran_npz(at, X, y):
    np.savez(at / "a.npz", data=np.asfortranarray(X), other=X[:2], y=y)
    return at / "a.npz", {"labels": "y", "member": "data"}


def write_idx(at, X, y, kind="u1", packed=bytes, end=""):
    for name, values in ((f"rows{end}", X), (f"labels{end}", y.astype(kind))):
        (at / name).write_bytes(packed(idx_bytes(values)))
    return at / f"rows{end}", {"labels": str(at / f"labels{end}")}


def write_idx_gz(at, X, y):
    return write_idx(at, X, y, "i4", gzip.compress, "-ubyte.gz")


def as_frame(X, y):
    return pd.DataFrame(X, columns=[*"abcde"]).assign(kind=y)


def write_csv(at, X, y):
    as_frame(X, y).to_csv(at / "a.csv", index=False)
    return at / "a.csv", {"labels": "kind"}


def write_csv_gz(at, X, y):
    as_frame(X, y).drop(columns="kind").to_csv(at / "a.csv.gz", index=False, sep=";", encoding="utf-8-sig")
    return at / "a.csv.gz", {"labels": str(npy(at / "y.npy", y)), "csv": {"delimiter": ";"}}


def write_parquet(at, X, y):
    as_frame(X, y).to_parquet(at / "a.parquet", row_group_size=70)
    return at / "a.parquet", {"labels": "kind"}


def write_feather(at, X, y):
    as_frame(X, y).to_feather(at / "a.feather", chunksize=70)
    return at / "a.feather", {"labels": "kind"}


ARRAYS = [write_npy, write_big_endian_fortran_npy, write_npz, write_fortran_npz, write_idx, write_idx_gz]
TABLES = [write_csv, write_csv_gz, write_parquet, write_feather]
