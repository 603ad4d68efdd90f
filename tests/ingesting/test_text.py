"""Text files as people have them: each is read right, or refused with what a person can do about it."""

import gzip

import numpy as np
import pytest

from bigkpca.errors import BigKPCAError
from bigkpca.ingesting import ingest
from tests.helpers.named import stored
from tests.helpers.progress import Recorder

FILES = []
DAY = 15706  # 2013-01-01


def read(name, content, rows, names=None, note=None, suffix="csv", **options):
    """A file that is read right with these options."""
    FILES.append((name, content, suffix, options, rows, names, note))


def refused(name, content, message, instead=None, rows=None, names=None, suffix="csv", **options):
    """A file that is refused by a message, and read right with the options `instead`."""
    FILES.append((name, content, suffix, options, message, None, None))
    if instead is not None:
        FILES.append((f"{name}, with the option", content, suffix, options | instead, rows, names, None))


def csv(**options):
    return {"csv": options}


# Encodings.
read("UTF-8 by its mark", "é,b\n1,2\n".encode("utf-8-sig"), [[1, 2]], ["é", "b"])
refused(
    "UTF-16", "é,b\n1,2\n".encode("utf-16"), "name the delimiter|encoding", csv(encoding="utf-16"), [[1, 2]], ["é", "b"]
)
windows = "città,€\nForlì,2\n".encode("cp1252")
refused(
    *("Windows", windows, r"not text of this encoding .*encoding=cp1252"),
    *(csv(encoding="cp1252") | {"categorical": "città"}, [[1, 2]], ["città=Forlì", "€"]),
)
late = b"a,w\n" + b"1,x\n" * 200 + "2,é\n".encode("latin1")
refused("latin1 far behind ASCII", late, r"column #1: Row #202.*invalid UTF8 data: state the encoding", categorical="w")
refused("an unknown encoding", b"a\n1\n", "utf-61", **csv(encoding="utf-61"))

# The header.
read("numbers as names", b"1100,1102.5\n0.5,0.25\n", [[0.5, 0.25]], ["1100", "1102.5"], r"the first line .* header=no")
read("no header", b"1100,1102.5\n0.5,0.25\n", [[1100, 1102.5], [0.5, 0.25]], **csv(header=False))
read("the index of pandas", b",a,b\n0,1,2\n1,3,4\n", [[1, 2], [3, 4]], ["a", "b"], "leaving out the column ''")
read("a first column without a name", b",a\n7,1\n5,3\n", [[7, 1], [5, 3]], ["", "a"])
read("the header of np.savetxt", b"# a,b\n1,2\n", [[1, 2]], ["# a", "b"])
refused(
    "a line of units",
    b"a,b\nm,s\n1,2\n",
    r"'a' \(string, such as 'm'\)",
    csv(skip_rows_after_names=1),
    [[1, 2]],
    ["a", "b"],
)
read("lines before the header", b"made by a machine\na,b\n1,2\n", [[1, 2]], ["a", "b"], **csv(skip_rows=1))
refused("two columns of one name", b"a,a\n1,2\n", "multiple columns named a")
refused("a header alone", b"a,b\n", "has no rows")
refused("an empty file", b"", "[Ee]mpty CSV file")

# Delimiters and lines.
refused(
    "semicolons",
    b"a;b\n0,5;1\n",
    r"Expected 1 columns, got 2.*delimiter",
    csv(delimiter=";", decimal_point=","),
    [[0.5, 1]],
)
refused(
    "blanks", b"1 2\n4 5\n", "cannot become numbers", csv(delimiter=" ", header=False), [[1, 2], [4, 5]], suffix="dat"
)
read("tabs", b"a\tb\n1\t2\n", [[1, 2]], ["a", "b"], suffix="tsv")
read("lines of Windows, and empty ones", b"a,b\r\n\r\n1,2\r\n\r\n", [[1, 2]], ["a", "b"])
read("quotes", b'"a","b"\n"1","2"\n', [[1, 2]], ["a", "b"])
read("a line break in quotes", b'a,w\n1,"x\ny"\n', [[1, 1]], categorical="w", **csv(newlines_in_values=True))
refused("a longer line", b"a,b\n1,2\n1,2,3\n", r"Row #3: Expected 2 columns, got 3: 1,2,3")
refused("a shorter line", b"a,b\n1\n", r"Row #2: Expected 2 columns, got 1")
refused("gzip that is cut off", gzip.compress(b"a,b\n" + b"1,2\n" * 10**5)[:-40], "[Tt]runcated", suffix="csv.gz")

# Numbers.
refused(
    "decimal commas",
    b'a,b\n"1,5",1\n',
    r"'a' \(string, such as '1,5'\).*decimal_point",
    csv(decimal_point=","),
    [[1.5, 1]],
)
refused("thousands", b'a\n"1,000.50"\n', r"'a' \(string, such as '1,000\.50'\)")
refused("dollars", b"price,b\n$5,1\n", r"'price' \(string, such as '\$5'\) cannot become numbers.*drop")
refused("percent", b"a,b\n50%,1\n", r"'a' \(string, such as '50%'\)")
refused("hexadecimal", b"a\n0x10\n", "invalid value '0x10'")
read("exponents and signs", b"a\n+1e3\n-.5\n5.\n", [[1000], [-0.5], [5]])
refused("infinity", b"a\n1\ninf\n", r"row 1 .* of column 'a' is infinite")
refused("beyond floats", b"a\n1\n1e400\n", r"row 1 .* of column 'a' is infinite")
long = b"id,a\n1,5\n9007199254740993,6\n"
refused(
    *("whole numbers beyond 2**53", long, r"row 1 .* of column 'id' is a whole number .* may round.*drop"),
    *({"categorical": "id"}, [[1, 0, 5], [0, 1, 6]], ["id=1", "id=9007199254740993", "a"]),
)
refused(
    "the same as integers",
    long,
    "is 9007199254740993, which float64 cannot hold",
    **csv(column_types={"id": "int64", "a": "float64"}),
)
read("large floats", b"a\n1e300\n0.5\n", [[1e300], [0.5]])
read("decimals that begin late", b"a\n" + b"1\n" * 600_000 + b"1.5\n", np.append(np.ones(600_000), 1.5)[:, None])
refused("a word that begins late", b"a\n" + b"1\n" * 600_000 + b"x\n", r"column #0: Row #600002: .*'x': state the type")
read("leading zeros as numbers", b"zip,a\n01234,1\n", [[1234, 1]])
codes = b"zip,a\n01234,1\n90210,2\n"
read("leading zeros as codes", codes, [[1, 0, 1], [0, 1, 2]], ["zip=01234", "zip=90210", "a"], categorical="zip")
read("truth", b"a,b\ntrue,1\nfalse,2\n", [[1, 1], [0, 2]])

# Dates.
read("dates of ISO 8601", b"d,e\n2013-01-02,2013-01-02 06:00\n", [[DAY + 1, DAY + 1.25]], ["d", "e"])
read("dates with a time zone", b"d\n2013-01-01T06:00Z\n2013-01-01T00:00+06:00\n", [[DAY + 0.25], [DAY - 0.25]])
read("times of day", b"t\n06:00:00\n18:00:00\n", [[0.25], [0.75]])
american = b"d,a\n01/13/2013,1\n01/01/2013,2\n"
refused(
    "American dates",
    american,
    r"such as '01/13/2013'.*timestamp_parsers",
    csv(timestamp_parsers="%m/%d/%Y"),
    [[DAY + 12, 1], [DAY, 2]],
)
refused("a date of another format", american, "01/13/2013", **csv(timestamp_parsers="%d/%m/%Y"))
read("dates as whole numbers", b"d\n20130102\n", [[20130102]])
refused(
    "dates of which some have a time zone",
    b"d\n2013-01-01T06:00Z\n2013-01-02\n",
    r"'d' \(string, such as '2013-01-01T06:00Z'\)",
)

# Missing values.
for mark in ("NA", "N/A", "null", "NaN", ""):
    read(f"missing as {mark!r}", f"a,b\n1,2\n{mark},3\n3,4\n".encode(), [[1, 2], [2, 3], [3, 4]], missing="mean")
refused(
    "missing", b"a,b\n1,2\n,3\n,4\n", r"row 1 .* of column 'a' is missing, as are 1 values after it: use missing='mean'"
)
refused(
    *("missing as a dash", b"a,b\n1,2\n-,3\n3,4\n", r"'a' \(string, such as '1'\).*missing values"),
    *(csv(null_values="-") | {"missing": "mean"}, [[1, 2], [2, 3], [3, 4]]),
)
refused("an empty column", b"a,b\n1,\n2,\n", "column 'b' is missing.*drop", {"drop": ["b"]}, [[1], [2]])
refused("an empty column of which the mean is wanted", b"a,b\n1,\n2,\n", "'b' has only missing values", missing="mean")
refused("delimiters at the ends of lines", b"a,\n1,\n3,\n", "column '' is missing", {"drop": [""]}, [[1], [3]])
half = [[1, 0, 1], [2, 1 / 3, 2 / 3], [3, 1, 0], [4, 0, 1]]
words = b'a,w\n1,x\n2,NA\n3,"NA"\n4,x\n'
read("a word in quotes, and a missing one", words, half, ["a", "w=NA", "w=x"], categorical="w", missing="mean")

# Options.
refused(
    "an option that Arrow does not have",
    b"a\n1\n",
    "unknown option of CSV 'delimitr': did you mean 'delimiter'",
    **csv(delimitr=";"),
)
refused(
    "a type that Arrow does not have", b"a\n1\n", "'floaty' is not a type of Arrow", **csv(column_types={"a": "floaty"})
)
refused("a wrong value", b"a\n1\n", "csv=.*delimiter", **csv(delimiter=";;"))


@pytest.mark.parametrize(
    ("content", "suffix", "options", "expected", "names", "note"),
    [each[1:] for each in FILES],
    ids=[each[0] for each in FILES],
)
def test_a_text_file_is_read_right_or_refused(content, suffix, options, expected, names, note, tmp_path):
    (tmp_path / f"a.{suffix}").write_bytes(content)
    said = Recorder()
    if isinstance(expected, str):
        with pytest.raises(BigKPCAError, match=f"(?s)a\\.{suffix}.*{expected}|{expected}"):
            ingest(tmp_path / f"a.{suffix}", tmp_path / "o.zarr", **options)
        assert [path.name for path in tmp_path.iterdir()] == [f"a.{suffix}"]
        return
    found = stored(ingest(tmp_path / f"a.{suffix}", tmp_path / "o.zarr", progress=said, **options).path)
    np.testing.assert_allclose(found["x"], expected, rtol=1e-15)
    assert names is None or found["names"] == names
    assert len(said.notes) == (note is not None), said.notes
    if note is not None:
        assert any(np.array([note.split(".*")[0] in each for each in said.notes]))
