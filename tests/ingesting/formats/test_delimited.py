"""Text: what a CSV may hold, and which fields of it are refused by row and column."""

import gzip

import numpy as np
import pytest

from bigkpca.errors import DataError
from bigkpca.ingesting.formats import text_rows
from bigkpca.ingesting.streaming import ingest
from tests.data.cases import case
from tests.ingesting.files import X, Y, rows_of, write_parquet


def test_a_csv_may_begin_as_other_formats_do(tmp_path):
    for number, first in enumerate(("PAR1", "PK", "PAR1,b", "GIF89a,b", "CDF", "IDX,b")):
        for suffix in (".csv", ".CSV.GZ"):
            names = (first + ",z").split(",")
            body = (",".join(names) + "\n" + ",".join("1" * len(names)) + "\n").encode()
            source = tmp_path / f"{number}{suffix}"
            source.write_bytes(gzip.compress(body) if suffix.endswith("GZ") else body)
            done = ingest([source], tmp_path / f"{number}{suffix}.zarr")
            np.testing.assert_array_equal(rows_of(done.path), [[1] * len(names)], err_msg=first)


def test_parquet_of_any_suffix_is_known_by_both_its_ends(tmp_path):
    source, _ = write_parquet(tmp_path, X, Y)
    for name in ("rows.csv", "rows", "rows.npy"):
        done = ingest([source.rename(tmp_path / name)], tmp_path / f"{name}.zarr", labels="label")
        np.testing.assert_array_equal(rows_of(done.path), X)
        source = tmp_path / name


def test_csv_forgives_blank_lines_and_quotes(tmp_path):
    (tmp_path / "a.csv").write_text('\n"a, b","c"\r\n"1",2\n\n 3 ,"4"\n\n')
    done = ingest([tmp_path / "a.csv"], tmp_path / "out.zarr")
    np.testing.assert_array_equal(rows_of(done.path), [[1, 2], [3, 4]])


def test_one_line_of_numbers_without_its_end_is_a_row(tmp_path):
    for name, body in (("a.csv", b"1,2"), ("b.csv.gz", gzip.compress(b"1;2"))):
        (tmp_path / name).write_bytes(body)
        np.testing.assert_array_equal(rows_of(ingest([tmp_path / name], tmp_path / f"{name}.zarr").path), [[1, 2]])


def test_a_csv_with_bad_fields_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(text_rows, "_TEXT_BYTES", 2**14)
    for lines, labels, message in (
        ("a,b\n1,2\n3,\n", None, r"row 1, column 1 \('b'\) is missing"),
        ("1,2\n3,x\n", None, r"row 1, column 1 is 'x', not a number"),
        ("k,a\nr,1\ns,t\n", "k", r"row 1, column 1 \('a'\) is 't'"),
        ("k,a,b\nr,1,2\ns,3,nan\n", "k", r"row 1, column 2 \('b'\) is missing"),
        ("a,b\n1,2\n3,4,5\n", None, r"row 1 has 3 fields, the first line 2"),
        ("a,b,c\n1,2\n", None, r"row 0 has 2 fields, the first line 3"),
        ("1,2\n1_0,3\n", None, r"row 1, column 0 is '1_0', not a number"),
        ("k,a\n,1\n", "k", r"row 0 .* has no label"),
        ("k,a\nx,1\nNA,1\n", "k", r"row 1 .* has no label; in quotes, NA, None and the like would be words"),
        ("k,a\n1.5,1\ninf,1\n", "k", r"the labels of .*: row 1, column 0 is infinity"),
        ("k\n1\n", "k", r"no column but its labels"),
        ("", None, r"a\.csv is empty"),
        ("a,b\n", None, r"a\.csv is empty: it holds a header and no rows"),
        ("a,b", None, r"a\.csv is empty: it holds a header and no rows"),
        ("\n\na,b\n\n", None, r"a\.csv is empty: it holds a header and no rows"),
        ("a,b\n1,\xff\n", None, r"is not text in UTF-8.*iconv -f latin1"),
        ("k,a\n" + "1,2\n" * 20000 + "x,2\n", "k", r"row 20000 .* has the label 'x', but the first ones are int64"),
    ):
        (tmp_path / "a.csv").write_bytes(lines.encode("latin1"))
        with case(message), pytest.raises(DataError, match=message):
            ingest([tmp_path / "a.csv"], tmp_path / "out.zarr", labels=labels)
