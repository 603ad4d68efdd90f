"""Memory: what claims more than fits is refused before it is read, and more rows need no more."""

import gzip
import tempfile
import zipfile
from functools import partial

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv, parquet

from bigkpca.errors import MemoryLimitError
from bigkpca.ingesting import ingest
from tests.helpers.commands import peak_bytes
from tests.helpers.memory import traced_peak
from tests.ingesting.files import RNG, idx_bytes, refuse


def many_columns(path):
    with gzip.open(path, "wb", compresslevel=9) as file:
        for _ in range(256):
            file.write(b"," * 2**20)
        file.write(b"\n1\n")


def header(file, shape, by_columns=False):
    np.lib.format.write_array_header_1_0(file, {"descr": "<f8", "fortran_order": by_columns, "shape": shape})


def long_npy(path):
    with path.open("wb") as file:
        header(file, (1, 10**9))
        file.truncate(file.tell() + 8 * 10**9)


def npz_by_columns(path):
    with zipfile.ZipFile(path, "w") as archive, archive.open("x.npy", "w") as file:
        header(file, (10**9, 4), by_columns=True)


NAMES = ",".join(f"c{j}" for j in range(12_000))
FILES = {
    "many.csv.gz": (many_columns, "more than 1 MB: is a line break missing"),
    "some.csv": (
        lambda path: path.write_text(f"{NAMES}\n{','.join('1' * 12_000)}\n"),
        "12,000 columns, of which a table may have 10,000",
    ),
    "long.csv": (
        lambda path: path.write_bytes(b"0,1\n" + b"0," * 2_000_000 + b"0\n"),
        "more than 1 MB: is a line break missing",
    ),
    "x.npy": (long_npy, "8,000 MB have to be read at once"),
    "f.npz": (npz_by_columns, r"32,000 MB have to be read at once, more than 300 MB: save the array by rows"),
}


@pytest.mark.parametrize("name", FILES)
def test_what_claims_more_than_fits_is_refused(name, tmp_path):
    make, message = FILES[name]
    make(tmp_path / name)
    refuse(tmp_path, MemoryLimitError, message, tmp_path / name)


@pytest.mark.full
@pytest.mark.alone
@pytest.mark.parametrize("name", FILES)
def test_it_is_refused_in_little_memory(name, tmp_path):
    """A process takes 175 MB to start."""
    FILES[name][0](tmp_path / name)
    assert peak_bytes("ingest", "-q", tmp_path / name, tmp_path / "d.zarr", how="refused") < 350e6


def test_a_table_in_memory_has_as_many_columns_at_most(tmp_path):
    wide = pa.table({f"c{number}": [0.0] for number in range(10_001)})
    with pytest.raises(MemoryLimitError, match="the pyarrow Table has 10,001 columns"):
        ingest(wide, tmp_path / "o.zarr")


def ingest_and_delete(source, folder, **options):
    with tempfile.TemporaryDirectory(dir=folder) as out:
        ingest(source, f"{out}/rows.zarr", block_rows=1024, **options)


@pytest.mark.parametrize("suffix", [".npy", *(pytest.param(s, marks=pytest.mark.full) for s in (".npz", ".gz"))])
def test_memory_does_not_grow_with_the_rows_of_arrays(tmp_path, suffix, monkeypatch):
    """Peaks for 4 and 16 chunks of 1 MB: in pieces and chunks the longer one needs no more."""
    monkeypatch.setattr("bigkpca.ingesting.arrays.READ_BYTES", 2**19)
    monkeypatch.setattr("bigkpca.ingesting._HELD_BYTES", 2**20)
    peaks = []
    for n in (4, 16):
        values = np.tile(RNG.integers(0, 9, size=(1024, 128)).astype(float), (n, 1))
        source = tmp_path / f"rows{n}{suffix}"
        if suffix == ".gz":
            source.write_bytes(gzip.compress(idx_bytes(values), 1))
        else:
            (np.save if suffix == ".npy" else np.savez)(source, values)
        peaks.append(traced_peak(partial(ingest_and_delete, source, tmp_path)))
    assert peaks[1] < 1.2 * peaks[0]


@pytest.mark.full
@pytest.mark.alone
@pytest.mark.parametrize("suffix", ["csv", "csv.gz", "parquet"])
def test_memory_does_not_grow_with_the_rows_of_tables(suffix, tmp_path):
    """Of the whole process, since Arrow's memory is not Python's: 144 MB more of numbers take a fifth of that at most,
    since its buffers are full by 600,000 rows."""
    peaks = []
    for rows in (600_000, 1_200_000):
        table = pa.table({f"c{j}": RNG.integers(0, 999, rows) for j in range(30)} | {"w": RNG.choice(["x", "y"], rows)})
        path = tmp_path / f"{rows}.{suffix}"
        if suffix == "parquet":
            parquet.write_table(table, path, row_group_size=20_000)
        else:
            csv.write_csv(table, tmp_path / "plain")
            content = (tmp_path / "plain").read_bytes()
            path.write_bytes(gzip.compress(content, 1) if suffix == "csv.gz" else content)
        peaks.append(
            peak_bytes("ingest", "-q", path, tmp_path / f"{rows}.zarr", "--categorical", "w", "--missing", "mean")
        )
    assert peaks[1] < peaks[0] + 32e6
