"""Text files as people have them: each is read right, or refused with what a person can do about it."""

import gzip

import numpy as np
import pytest

from bigkpca.errors import BigKPCAError
from bigkpca.ingesting import ingest
from tests.helpers.named import stored
from tests.helpers.progress import Recorder

DAY = 15706  # 2013-01-01
LATE = b"a\n" + b"1\n" * 600_000  # more than the rows from which Arrow finds types
LONG = b"id,a\n1,5\n9007199254740993,6\n"
WINDOWS = "città,€\nForlì,2\n".encode("cp1252")
AMERICAN = b"d,a\n01/13/2013,1\n01/01/2013,2\n"
CODES = b"zip,a\n01234,1\n90210,2\n"
LATIN = b"a,w\n" + b"1,x\n" * 200 + "2,é\n".encode("latin1")


def csv(**options):
    return {"csv": options}


# Content, options, the rows, and the names of the columns or a note, where they matter.
READ = {
    "UTF-8 by its mark": ("é,b\n1,2\n".encode("utf-8-sig"), {}, [[1, 2]], ["é", "b"]),
    "UTF-16": ("é,b\n1,2\n".encode("utf-16"), csv(encoding="utf-16"), [[1, 2]], ["é", "b"]),
    "Windows": (WINDOWS, csv(encoding="cp1252") | {"categorical": "città"}, [[1, 2]], ["città=Forlì", "€"]),
    "numbers as names": (b"1100,1102.5\n0.5,0.25\n", {}, [[0.5, 0.25]], "the first line (1100, 1102.5) is taken"),
    "no header": (b"1100,1102.5\n0.5,0.25\n", csv(header=False), [[1100, 1102.5], [0.5, 0.25]], None),
    "the index of pandas": (b",a,b\n0,1,2\n1,3,4\n", {}, [[1, 2], [3, 4]], "leaving out the column ''"),
    "a first column without a name": (b",a\n7,1\n5,3\n", {}, [[7, 1], [5, 3]], ["", "a"]),
    "a line of units": (b"a,b\nm,s\n1,2\n", csv(skip_rows_after_names=1), [[1, 2]], ["a", "b"]),
    "lines before the header": (b"made by a machine\na,b\n1,2\n", csv(skip_rows=1), [[1, 2]], ["a", "b"]),
    "semicolons": (b"a;b\n0,5;1\n", csv(delimiter=";", decimal_point=","), [[0.5, 1]], ["a", "b"]),
    "quotes": (b'"a","w"\n1,"x\ny"\n', csv(newlines_in_values=True) | {"categorical": "w"}, [[1, 1]], None),
    "whole numbers as categories": (LONG, {"categorical": "id"}, [[1, 0, 5], [0, 1, 6]], None),
    "large floats": (b"a\n1e300\n0.5\n", {}, [[1e300], [0.5]], None),
    "whole numbers beyond float64": (LONG, {}, [[1, 5], [2**53, 6]], None),
    "decimals that begin late": (LATE + b"1.5\n", {}, np.append(np.ones(600_000), 1.5)[:, None], None),
    "leading zeros": (CODES, {"categorical": "zip"}, [[1, 0, 1], [0, 1, 2]], ["zip=01234", "zip=90210", "a"]),
    "truth": (b"a,b\ntrue,1\nfalse,2\n", {}, [[1, 1], [0, 2]], None),
    "dates": (b"d,e\n2013-01-02,2013-01-02 06:00\n", {}, [[DAY + 1, DAY + 1.25]], None),
    "dates with a time zone": (
        b"d\n2013-01-01T06:00Z\n2013-01-01T00:00+06:00\n",
        {},
        [[DAY + 0.25], [DAY - 0.25]],
        None,
    ),
    "American dates": (AMERICAN, csv(timestamp_parsers="%m/%d/%Y"), [[DAY + 12, 1], [DAY, 2]], None),
    "missing": (b"a,b\n1,2\nNA,3\n,4\n3,5\n", {"missing": "mean"}, [[1, 2], [2, 3], [2, 4], [3, 5]], None),
    "missing as a dash": (b"a\n1\n-\n3\n", csv(null_values="-") | {"missing": "mean"}, [[1], [2], [3]], None),
    "a missing word, and the same in quotes": (
        b'a,w\n1,x\n2,NA\n3,"NA"\n4,x\n',
        {"categorical": "w", "missing": "mean"},
        [[1, 0, 1], [2, 1 / 3, 2 / 3], [3, 1, 0], [4, 0, 1]],
        ["a", "w=NA", "w=x"],
    ),
}
REFUSED = [
    (WINDOWS, {}, r"not text of this encoding .*encoding=cp1252"),
    (LATIN, {"categorical": "w"}, r"column #1: Row #202.*invalid UTF8 data: state the encoding"),
    (b"a\n1\n", csv(encoding="utf-61"), "utf-61"),
    (b"a,b\nm,s\n1,2\n", {}, r"'a' \(string, such as 'm'\)"),
    (b"a,a\n1,2\n", {}, "multiple columns named a"),
    (b"a,b\n", {}, "has no rows"),
    (b"", {}, "[Ee]mpty CSV file"),
    (b"a;b\n0,5;1\n", {}, r"Expected 1 columns, got 2.*delimiter"),
    (b"a,b\n1,2\n1,2,3\n", {}, r"Row #3: Expected 2 columns, got 3: 1,2,3"),
    (b'a,b\n"1,5",1\n', {}, r"'a' \(string, such as '1,5'\).*decimal_point"),
    (b"price,b\n$5,1\n", {}, r"'price' \(string, such as '\$5'\) cannot become numbers.*drop"),
    (b"a\n1\n1e400\n", {}, r"row 1 .* of column 'a' is infinite"),
    (LONG, csv(column_types={"id": "int64", "a": "float64"}), "is 9007199254740993, which float64 cannot hold"),
    (LATE + b"x\n", {}, r"column #0: Row #600002: .*'x': state the .*column_types=NAME:string"),
    (AMERICAN, {}, r"such as '01/13/2013'.*timestamp_parsers"),
    (b"t\n06:00:00\n", {}, r"'t' \(time32.*, such as .*cannot become numbers"),
    (b"a,b\n1,2\n,3\n,4\n", {}, r"row 1 .* of column 'a' is missing, as are 1 values after it: use missing='mean'"),
    (b"a,b\n1,2\n-,3\n3,4\n", {}, r"'a' \(string, such as '1'\).*missing values"),
    (b"a,b\n1,\n2,\n", {}, "column 'b' is missing.*drop"),
    (b"a,b\n1,\n2,\n", {"missing": "mean"}, "'b' has only missing values"),
    (b"a\n1\n", csv(delimitr=";"), "unknown option of CSV 'delimitr': did you mean 'delimiter'"),
    (b"a\n1\n", csv(column_types={"a": "floaty"}), "No type alias for floaty"),
    (b"a\n1\n", csv(delimiter=";;"), "csv=.*delimiter"),
]


@pytest.mark.parametrize("name", READ)
def test_a_text_file_is_read_right(name, tmp_path):
    content, options, rows, told = READ[name]
    (tmp_path / "a.csv").write_bytes(content)
    said = Recorder()
    found = stored(ingest(tmp_path / "a.csv", tmp_path / "o.zarr", progress=said, **options).path)
    np.testing.assert_allclose(found["x"], rows, rtol=1e-15)
    notes = [told] if isinstance(told, str) else []
    assert [note in shown for note, shown in zip(notes, said.notes, strict=True)] == [True] * len(notes)
    assert not isinstance(told, list) or found["names"] == told


def test_whole_weights_may_be_followed_by_others_and_labels_stay_whole(tmp_path):
    (tmp_path / "a.csv").write_bytes(b"x,w,y\n" + b"0.5,1,3\n" * 200_000 + b"0.5,1.5,4\n")
    found = stored(ingest(tmp_path / "a.csv", tmp_path / "o.zarr", labels="y", sample_weight="w").path)
    assert (found["w"][-1], found["y"][-1], found["y"].dtype) == (1.5, 4, np.int64)


@pytest.mark.parametrize(("content", "options", "message"), REFUSED)
def test_a_text_file_is_refused_by_name(content, options, message, tmp_path):
    (tmp_path / "a.csv").write_bytes(content)
    with pytest.raises(BigKPCAError, match=f"(?s)a\\.csv.*{message}|{message}"):
        ingest(tmp_path / "a.csv", tmp_path / "o.zarr", **options)
    assert [path.name for path in tmp_path.iterdir()] == ["a.csv"]


def test_tabs_and_gzip_are_known_by_the_name(tmp_path):
    (tmp_path / "a.tsv").write_bytes(b"a\tb\n1\t2\n")
    np.testing.assert_array_equal(stored(ingest(tmp_path / "a.tsv", tmp_path / "o.zarr").path)["x"], [[1, 2]])
    (tmp_path / "b.csv.gz").write_bytes(gzip.compress(b"a,b\n" + b"1,2\n" * 10**5)[:-40])
    with pytest.raises(BigKPCAError, match=r"b\.csv\.gz.*[Tt]runcated"):
        ingest(tmp_path / "b.csv.gz", tmp_path / "p.zarr")
