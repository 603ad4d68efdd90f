"""Files whose headers or lines claim more than fits: refused before they are read, in little memory."""

import gzip
import re
import struct
import zipfile

import h5py
import numpy as np
import pytest

from bigkpca.errors import MemoryLimitError
from bigkpca.execution.plan import process_bytes
from bigkpca.ingesting import ingest
from tests.helpers.commands import peak_bytes, peak_of_refusal, run_apart
from tests.ingesting.files import npy, refuse


def many_columns(path):
    with gzip.open(path, "wb", compresslevel=9) as file:
        for _ in range(256):
            file.write(b"," * 2**20)
        file.write(b"\n1\n")


def long_line(path):
    path.write_bytes(b"0,1\n" + b"0," * 2_000_000 + b"0\n")


def no_line_break(path, megabytes=1000):
    with gzip.open(path, "wb", compresslevel=1) as file:
        for _ in range(megabytes):
            file.write(b"0" * 2**20)


def header(file, shape, by_columns=False):
    np.lib.format.write_array_header_1_0(file, {"descr": "<f8", "fortran_order": by_columns, "shape": shape})


def long_npy(path):
    with path.open("wb") as file:
        header(file, (1, 10**9))
        file.truncate(file.tell() + 8 * 10**9)


def long_npz(path, shape=(2**50, 10**9), by_columns=False):
    with zipfile.ZipFile(path, "w") as archive, archive.open("x.npy", "w") as file:
        header(file, shape, by_columns)


def npz_by_columns(path):
    long_npz(path, (10**9, 4), by_columns=True)


def long_idx(path):
    path.write_bytes(b"\0\0\x0e\x02" + struct.pack(">2I", 4, 2**31) + b"\0" * 100)


def large_chunks(path):
    with h5py.File(path, "w") as file:
        file.create_dataset("x", shape=(10**6, 1000), chunks=(10**5, 1000), dtype="f8", compression="gzip")


QUICK = {
    "long.csv": (long_line, r"with [\d,]+ columns, need .*: allow more with --memory .*; is a line break missing\?"),
    "x.npy": (long_npy, r"rows of 8,000\.0 MB, 1 in a chunk, need 32,[\d]+ MB in this process, 2,000 MB are allowed"),
    "x.npz": (long_npz, r"rows of 8,000\.0 MB, 1 in a chunk, need"),
    "f.npz": (npz_by_columns, r"rows of 0\.0 MB, 65,536 in a chunk, from parts of 64,000\.0 MB, need"),
    "x.idx": (long_idx, r"rows of 17,179\.9 MB, 1 in a chunk, need"),
    "x.h5": (large_chunks, r"rows of 0\.0 MB, 256 in a chunk, from parts of 1,600\.0 MB, need"),
}
MANY = r"a line of [\d.]+ MB or more, with [\d,]+ columns, need [\d,]+ MB in this process, 2"
TEXTS = {
    "many.csv.gz": (many_columns, MANY),
    "one.csv.gz": (no_line_break, r"a line of \d\d\.\d MB or more, with 1 columns, need"),
}


def test_what_claims_more_than_two_gigabytes_is_refused(tmp_path):
    for name, (make, match) in QUICK.items():
        make(tmp_path / name)
        refuse(tmp_path, MemoryLimitError, match, tmp_path / name, memory="1 GB" if name == "x.h5" else None)


@pytest.mark.full
@pytest.mark.alone
@pytest.mark.parametrize("name", [*TEXTS, "long.csv", "x.npz", "x.h5"])
def test_what_claims_more_than_two_gigabytes_is_refused_in_little_memory(name, tmp_path):
    """A process takes 175 MB to start."""
    make, match = (QUICK | TEXTS)[name]
    make(tmp_path / name)
    if name in TEXTS:
        refuse(tmp_path, MemoryLimitError, match, tmp_path / name)
    limit = ["--memory", "1 GB"] if name == "x.h5" else []
    assert peak_of_refusal("ingest", "-q", tmp_path / name, tmp_path / "d.zarr", *limit) < 400e6


def test_limits_of_the_user_hold_for_columns_rows_and_chunks(tmp_path):
    limit = {"memory": process_bytes() + 80_000_000}
    wide, rows = {f"c{number}": np.zeros(1) for number in range(9000)}, np.zeros((40, 1000))
    message = r"a\.parquet: 9,000 columns, need \d+ MB in this process, \d+ MB are"
    refuse(tmp_path, MemoryLimitError, message, wide, **limit)
    source = npy(tmp_path / "x.npy", rows)
    ingest([source], tmp_path / "x.zarr", **limit)
    message = r"10,000 in a chunk, need \d+ MB .* or fewer rows with --block-rows"
    refuse(tmp_path, MemoryLimitError, message, source, block_rows=10_000, **limit)
    assert ingest([source], tmp_path / "x.zarr", **limit).already_done
    message = "100 MB are allowed"  # also when rows are added
    refuse(tmp_path, MemoryLimitError, message, source, out="x.zarr", append=True, memory="100 MB")
    labels = tmp_path / "labels.csv.gz"
    no_line_break(labels, 50)
    refuse(tmp_path, MemoryLimitError, r"labels\.csv\.gz: a line of", source, labels=str(labels), **limit)


@pytest.mark.alone
@pytest.mark.full
@pytest.mark.parametrize("name", ["x.npy", "x.csv"])
def test_what_is_needed_suffices_and_is_not_exceeded(name, tmp_path):
    """A table is refused by its lines, and then by its rows. What a process holds when it begins counts in steps of
    64 MB, which may differ by one from run to run: one more is allowed, and none of it used."""
    if name == "x.npy":
        np.save(tmp_path / name, np.random.default_rng(0).random((3, 10_000_000)))
    else:
        (tmp_path / name).write_bytes(b"\n".join([b",".join([b"0.25"] * 20_000)] * 3) + b"\n")
    command = ("ingest", "-q", tmp_path / name, tmp_path / "d.zarr", "--overwrite", "--memory")
    allowed, needed = 400, 0
    for _ in range(3):
        found = re.search(r"need (\d+) MB", run_apart(*command, f"{allowed} MB").stderr)
        if found is None:
            break
        needed = int(found[1])
        allowed = needed + 64
    assert found is None
    assert peak_bytes(*command, f"{allowed} MB") < needed * 1e6
