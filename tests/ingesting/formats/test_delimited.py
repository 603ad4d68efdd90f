"""Text: what a CSV may hold, and which fields of it are refused by row and column."""

import gzip

import numpy as np

from bigkpca.errors import DataError
from bigkpca.ingesting.formats import text
from tests.ingesting.files import X, Y, made, refuse, write_parquet


def test_a_csv_may_begin_as_other_formats_do(tmp_path):
    for first in ("PAR1", "PK", "PAR1,b", "GIF89a,b", "CDF", "IDX,b"):
        for name in ("a.csv", "a.CSV.GZ"):
            names = (first + ",z").split(",")
            body = (",".join(names) + "\n" + ",".join("1" * len(names)) + "\n").encode()
            (tmp_path / name).write_bytes(gzip.compress(body) if name.endswith("GZ") else body)
            assert made(tmp_path, tmp_path / name)["x"].tolist() == [[1] * len(names)], first


def test_parquet_of_any_suffix_is_known_by_both_its_ends(tmp_path):
    source, _ = write_parquet(tmp_path, X, Y)
    for name in ("rows.csv", "rows", "rows.npy"):
        source = source.rename(tmp_path / name)
        np.testing.assert_array_equal(made(tmp_path, source, labels="label")["x"], X)


def test_blank_lines_quotes_and_a_last_line_without_its_end_are_read(tmp_path):
    found = made(tmp_path, '\n"a, b","c"\r\n"1",2\n\n 3 ,"4"\n\n')
    assert found["x"].tolist() == [[1, 2], [3, 4]]
    (tmp_path / "b.csv.gz").write_bytes(gzip.compress(b"1;2"))
    for content in ("1,2", tmp_path / "b.csv.gz"):
        assert made(tmp_path, content)["x"].tolist() == [[1, 2]]


def test_a_csv_with_bad_fields_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(text, "_TEXT_BYTES", 2**14)
    for lines, labels, message in (
        ("a,b\n1,2\n3,\n", None, r"row 1, column 1 \('b'\) is missing"),
        ("1,2\n3,x\n", None, r"row 1, column 1 is 'x', not a number"),
        ("k,a\nr,1\ns,t\n", "k", r"row 1, column 1 \('a'\) is 't'"),
        ("k,a,b\nr,1,2\ns,3,nan\n", "k", r"row 1, column 2 \('b'\) is missing"),
        ("a,b\n1,2\n3,4,5\n", None, r"row 1 has 3 fields, but the first line has 2"),
        ("a,b,c\n1,2\n", None, r"row 0 has 2 fields, but the first line has 3"),
        ("1,2\n1_0,3\n", None, r"row 1, column 0 is '1_0', not a number"),
        ("k,a\n,1\n", "k", r"row 0 .* has no label"),
        ("k,a\nx,1\nNA,1\n", "k", r"row 1 .* has no label; if NA, None and the like are meant as words, put"),
        ("k,a\n1.5,1\ninf,1\n", "k", r"the labels of .*: row 1, column 0 is infinity"),
        ("k\n1\n", "k", r"has only its column of labels"),
        ("", None, r"a\.csv is empty"),
        ("a,b\n", None, r"a\.csv is empty: it has a header but no rows"),
        ("a,b", None, r"a\.csv is empty: it has a header but no rows"),
        ("\n\na,b\n\n", None, r"a\.csv is empty: it has a header but no rows"),
        ("a,b\n1,\xff\n", None, r"is not UTF-8 text.*read it with --encoding cp1252"),
        ("k,a\n" + "1,2\n" * 20000 + "x,2\n", "k", r"row 20000 .* has the label 'x', but the first ones are int64"),
    ):
        refuse(tmp_path, DataError, message, lines.encode("latin1"), labels=labels)
