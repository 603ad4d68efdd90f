"""CSV files as people have them: each is read right, or refused with the option that reads it right."""

import gzip
import re

import numpy as np
import pytest

from bigkpca.errors import BigKPCAError
from bigkpca.ingesting import ingest
from bigkpca.ingesting.formats import text
from tests.helpers.named import stored
from tests.helpers.progress import Recorder

FILES = []


def read(name, content, rows, names=None, note=None, **options):
    """A file that is read right with these options."""
    FILES.append((name, content, options, rows, names, note))


def refused(name, content, message, instead=None, rows=None, names=None, **options):
    """A file that is refused by a message, which names the options `instead`, with which it is read right."""
    FILES.append((name, content, options, message, None, None))
    if instead is not None:
        FILES.append((f"{name}, with the option", content, options | instead, rows, names, None))


DAY = 15706  # 2013-01-01

# Encodings.
for codec in ("utf-8-sig", "utf-16", "utf-32"):
    read(f"{codec} by its mark", "é,b\n1,2\n".encode(codec), [[1, 2]], ["é", "b"])
read("UTF-16 of the other byte order", b"\xfe\xff" + "é,b\n1,2\n".encode("utf-16-be"), [[1, 2]], ["é", "b"])
read("UTF-16, gzipped", gzip.compress("é;b\r\n1;2\r\n".encode("utf-16")), [[1, 2]], ["é", "b"])
for codec in ("utf-16-le", "utf-16-be"):
    message = rf"a\.csv is not UTF-8 text.* --encoding {codec}$"
    refused(codec, "a,b\n1,2\n".encode(codec), message, {"encoding": codec}, [[1, 2]], ["a", "b"])
    refused(f"{codec}, accents", "é,b\n1,2\n".encode(codec), message, {"encoding": codec}, [[1, 2]], ["é", "b"])
windows = "città,€\nForlì,2\n".encode("cp1252")
refused(
    *("Windows", windows, r"is not UTF-8 text.*--encoding cp1252"),
    *({"encoding": "cp1252", "categorical": ["città"]}, [[1, 2]], ["città=Forlì", "€"]),
)
late = b"a,w\n" + b"1,x\n" * 200 + "2,é\n".encode("latin1")
refused("latin1 far behind ASCII", late, "is not UTF-8 text.*--encoding cp1252", categories="one-hot")
read("a mark counts more than an option", "é\n1\n".encode("utf-8-sig"), [[1]], ["é"], encoding="cp1252")
refused("an unknown encoding", b"a\n1\n", "encoding 'utf-61' is unknown", encoding="utf-61")
refused("bytes that are not text", b"a,b\n\0\x01,2\n", r"null characters in its first lines: is it a text file\?")
refused("half a character", "a\n1\n".encode("utf-16")[:-1], "is not utf-16 text: .*truncated data")

# Numbers.
refused(
    "decimal commas", b"a;b\n0,125;1\n-2,5;2\n", "Use --decimal , for 'a'", {"decimal": ","}, [[0.125, 1], [-2.5, 2]]
)
read("one column of decimal commas", b"a\n1,5\n", [[1.5]], decimal=",")
read(
    *("no header, one column of decimal commas", b"0,125\n0,25\n", [[0, 125], [0, 25]]),
    note="reading commas as delimiters of two columns; if they are decimal commas, use --decimal ,",
)
read(
    "no header, one column of decimal commas, with the option",
    b"\n0,125\n-3\n0,25\n",
    [[0.125], [-3], [0.25]],
    decimal=",",
)
read("no header and decimal commas", b"1,5;2,5\n3;4\n", [[1.5, 2.5], [3, 4]], decimal=",")
refused(
    "a point among decimal commas",
    b"a;b\n1,5;1\n2.5;1\n",
    r"row 1, column 0 \('a'\) is '2\.5', not a number",
    decimal=",",
)
refused(
    *("quoted decimal commas", b'a,b\n"1,5",1\n"2,25",2\n', r"Use --decimal , for 'a'\. Otherwise: turn text"),
    *({"decimal": ","}, [[1.5, 1], [2.25, 2]]),
)
refused(
    "a thousands mark",
    b'a\n"1,000.50"\n"1,234,567"\n5\n',
    "Use --thousands , for 'a'",
    {"thousands": ","},
    [[1000.5], [1234567], [5]],
)
refused(
    "thousands or decimals",
    b'a\n"1,000"\n"2,000"\n',
    "Use --decimal , or --thousands , for 'a'",
    {"thousands": ","},
    [[1000], [2000]],
)
german = b"a;b\n1.234,5;1\n-1.000.000,25;2\n"
refused(
    "German",
    german,
    r"Use --thousands \. --decimal , for 'a'",
    {"thousands": ".", "decimal": ","},
    [[1234.5, 1], [-1000000.25, 2]],
)
refused(
    "blanks between thousands",
    b"a\n1 000\n25 000\n",
    "Use --thousands ' ' for 'a'",
    {"thousands": " "},
    [[1000], [25000]],
)
refused(
    *("decimals with a thousands mark", b'a\n"1,23"\n"2,5"\n', "Use --decimal , instead of --thousands , for 'a'"),
    *({"decimal": ",", "thousands": None}, [[1.23], [2.5]]),
    thousands=",",
)
refused(
    *("a thousands mark that is missing", b"a;b\n1.234,5;1\n", r"Use --thousands \. for 'a'\. Otherwise"),
    *({"thousands": "."}, [[1234.5, 1]]),
    decimal=",",
)
read("groups as in India", b'a\n"12,34,567"\n', [[1234567]], thousands=",")
refused(
    "groups of other lengths", b'a,b\n"1,00",1\n', r"row 0, column 0 \('a'\) is '1,00', not a number", thousands=","
)
money = b'price,b\n"$1,000.50",1\n-$20,2\n$3,3\n'
refused(
    *("dollars", money, r"Use --numeric price --thousands , for 'price'\. Otherwise"),
    *({"numeric": ["price"], "thousands": ","}, [[1000.5, 1], [-20, 2], [3, 3]]),
)
refused("dollars as categories", money, r"Use --numeric price --thousands ,\. To make", categories="one-hot")
euros = "p;b\n1.000,50 €;1\n€ 2;2\n".encode()
refused(
    *("euros", euros, r"Use --numeric p --thousands \. --decimal , for 'p'"),
    *({"numeric": "p", "thousands": ".", "decimal": ","}, [[1000.5, 1], [2, 2]]),
)
refused(
    *("dollars with decimal commas", b"a;d\n1,5;$5\n", "Use --numeric d for 'd'"),
    *({"numeric": "d"}, [[1.5, 5]]),
    decimal=",",
)
refused(
    *("dollars with other marks", b"a;d\n1'000,5;$1'000\n2;$7\n", "Use --numeric d for 'd'"),
    *({"numeric": "d"}, [[1000.5, 1000], [2, 7]]),
    **{"decimal": ",", "thousands": "'"},
)
refused("percent", b"a,b\n50%,1\n12.5 %,2\n", "Use --numeric a for 'a'", {"numeric": ["a"]}, [[0.5, 1], [0.125, 2]])
refused("a sign elsewhere", b"p,q\n$1,$2\n", "Use .*--numeric q", numeric=["p"])
read("exponents and signs", b"a\n+1e3\n-.5\n5.\n", [[1000], [-0.5], [5]])
refused("infinity", b"a\n1\ninf\n", r"row 1, column 0 \('a'\) is infinity")
refused("beyond floats", b"a\n1\n1e400\n", r"row 1, column 0 \('a'\) is infinity")
long = b"id,a\n1,5\n9007199254740993,6\n"
refused(
    *(
        "whole numbers beyond 2**53",
        long,
        r"row 1, column 0 \('id'\) .* is 9007199254740993, which float64.*--drop.*--dtype",
    ),
    *({"categorical": ["id"]}, [[1, 0, 5], [0, 1, 6]], ["id=1", "id=9007199254740993", "a"]),
)
read("whole numbers that floats hold", b"a\n9007199254740994\n100000000000000000000\n", [[2.0**53 + 2], [1e20]])
read("leading zeros as numbers", b"zip,a\n01234,1\n", [[1234, 1]])
read(
    "leading zeros as codes",
    b"zip,a\n01234,1\n90210,2\n",
    [[1, 0, 1], [0, 1, 2]],
    ["zip=01234", "zip=90210", "a"],
    categorical="zip",
)
refused("hexadecimal", b"a\n0x10\n", "is '0x10', not a number")

# Dates.
american = b"d,a\n01/13/2013,1\n01/01/2013,2\n"
refused(
    "American dates",
    american,
    r"Use --date-format '%m/%d/%Y' for 'd'\.",
    {"date_format": "%m/%d/%Y"},
    [[DAY + 12, 1], [DAY, 2]],
)
refused(
    "American dates as categories",
    american,
    r"row 0: '01/13/2013'\. Use --date-format '%m/%d/%Y'\.",
    categories="one-hot",
)
both = "Use --date-format '%d/%m/%Y' or --date-format '%m/%d/%Y' for 'd'"
refused("dates of either order", b"d\n01/02/2013\n", both, {"date_format": "%d/%m/%Y"}, [[DAY + 31]])
refused(
    "German dates", b"d\n31.01.2013\n", r"Use --date-format '%d\.%m\.%Y'", {"date_format": "%d.%m.%Y"}, [[DAY + 30]]
)
refused(
    "months in words",
    b'd\n"Jan 02, 2013"\n',
    "Use --date-format '%b %d, %Y'",
    {"date_format": "%b %d, %Y"},
    [[DAY + 1]],
)
refused(
    *("dates with times", b"d\n01/31/2013 06:00 PM\n", "Use --date-format '%m/%d/%Y %I:%M %p'"),
    *({"date_format": "%m/%d/%Y %I:%M %p"}, [[DAY + 30.75]]),
)
read("dates of two formats", b"d,e\n01/02/2013,2013-01-02\n", [[DAY + 31, DAY + 1]], date_format="%d/%m/%Y")
read("dates as whole numbers", b"d,e\n20130102,20130102\n", [[DAY + 1, 20130102]], date_format={"d": "%Y%m%d"})
read(
    *("whole numbers that are all dates", b"d,e\n20130102,7\n20130101,9\n", [[DAY + 1, 7], [DAY, 9]]),
    *(["d", "e"], r"reading the numbers of column 0 \('d'\) as dates of the format '%Y%m%d'"),
    date_format="%Y%m%d",
)
read(
    *("whole numbers that are dates or missing", b"d\n20130102\n-\n", [[DAY + 1], [DAY + 1]]),
    **{"date_format": "%Y%m%d", "na_values": "-", "missing": "mean"},
)
none = "no column is read as dates of the format '%Y%m%d', .* use --date-format 'COLUMN=%Y%m%d'"
for content in (b"d\n20130102\n20139901\n", b"d\n20130102\n2013111\n"):
    read(
        f"whole numbers that are not all dates {content[-8:]}",
        content,
        [[int(each)] for each in content.split()[1:]],
        note=none,
        date_format="%Y%m%d",
    )
read(
    "whole numbers above dates, no header",
    b"20130102,1,2\n20139901,1,2\n",
    [[20130102, 1, 2], [20139901, 1, 2]],
    note=none,
    date_format="%Y%m%d",
)
read("whole numbers that are named", b"d\n20130102\n", [[20130102]], note=none, date_format="%Y%m%d", numeric="d")
late_number = b"d\n" + b"20130102\n" * 40 + b"7\n"
for options in ({}, {"categories": "one-hot"}):
    refused(
        f"a late number among dates {options}",
        late_number,
        "'7'.* Use --numeric d",
        {"numeric": "d", "date_format": None},
        [[20130102]] * 40 + [[7]],
        date_format="%Y%m%d",
        **options,
    )
mixed_zones = b"d\n2013-01-01T06:00Z\n2013-01-01T00:00+06:00\n2013-01-02\n2013-01-02 06:00\n"
in_utc = [[DAY + 0.25], [DAY - 0.25], [DAY + 1], [DAY + 1.25]]
without = r"reading the dates of column 0 \('d'\) without a time zone as UTC, since others have one"
for options in ({}, {"categories": "one-hot"}):
    read(f"dates of which some have a time zone {options}", mixed_zones, in_utc, ["d"], without, **options)
read(
    "dates of several time zones",
    b"d\n2013-01-01T06:00Z\n2013-01-01T00:00+06:00\n",
    in_utc[:2],
    ["d"],
    categories="one-hot",
)
read("dates with time zones", b"d\n2013-01-01 00:00+0600\n", [[DAY - 0.25]], date_format="%Y-%m-%d %H:%M%z")
refused(
    *("a date of another format than the one given", b"d\n01/13/2013\n01/02/2013\n"),
    *(r"Use --date-format '%m/%d/%Y' instead of --date-format '%d/%m/%Y' for 'd'\. Otherwise",),
    *({"date_format": "%m/%d/%Y"}, [[DAY + 12], [DAY + 1]]),
    date_format="%d/%m/%Y",
)
refused(
    *("a date of another format among categories", b"d\n13/01/2013\n01/13/2013\n"),
    r"row 1: '01/13/2013'; 1 other is a date\. To make categories",  # no format reads both
    **{"date_format": "%d/%m/%Y", "categories": "one-hot"},
)
refused(
    *(
        "another format of one of two columns",
        b"d,e\n01/31/2013,31/01/2013\n",
        "Use --date-format 'e=%d/%m/%Y' --date-format 'd=%m/%d/%Y' instead of --date-format '%d/%m/%Y' for 'd'",
    ),
    *({"date_format": {"d": "%m/%d/%Y", "e": "%d/%m/%Y"}}, [[DAY + 30, DAY + 30]]),
    date_format="%d/%m/%Y",
)
refused(
    *("dates that need no format", b"d\n2013-01-02\n", "Leave out --date-format for 'd'"),
    *({"date_format": None}, [[DAY + 1]]),
    date_format={"d": "%d.%m.%Y"},
)
refused(
    *("an ISO date among others", b"d\n02.01.2013\n2013-01-02\n", r"format '%d\.%m\.%Y' \(rows .*0\)\. Turn text"),
    date_format="%d.%m.%Y",
)
wrong = r"row 1, column 0 \('d'\) is '13/13/2013', not a date of the format '%d/%m/%Y'"
refused("a date that does not exist", b"d\n01/02/2013\n13/13/2013\n", wrong, date_format="%d/%m/%Y")
refused(
    *("one date of another format", b"d\n17/05/2013\n18/05/2013\n05/17/2013\n"),
    *(r"row 2, column 0 \('d'\) is '05/17/2013', .*0\)\. Turn text",),
    date_format="%d/%m/%Y",
)
refused(
    *("a number among named dates", b"n\n20130517\n12\n20130518\n"),
    *(r"Use --numeric n instead of --date-format 'n=%Y%m%d' for 'n'\.",),
    *({"numeric": "n", "date_format": None}, [[20130517], [12], [20130518]]),
    date_format={"n": "%Y%m%d"},
)
refused(
    "a number among dates of whole numbers",
    b"n\n20130517\n12\n20130518\n",
    r"since row 1: '12'; 2 others are dates\. Use --numeric n instead of --date-format 'n=%Y%m%d'\. "
    "To make .* --categorical n instead of --date-format 'n=%Y%m%d'; .* --drop n instead of",
    **{"date_format": {"n": "%Y%m%d"}, "categories": "one-hot"},
)
refused(
    *("dates beside decimal commas", b"a;d\n1,5;31.01.2013\n", r"Use --date-format '%d\.%m\.%Y' for 'd'\. Otherwise"),
    *({"date_format": "%d.%m.%Y"}, [[1.5, DAY + 30]]),
    decimal=",",
)
refused(
    *("dates that are named as numbers", b"d\n31/01/2013\n", "Use --date-format '%d/%m/%Y' instead of --numeric d for"),
    *({"numeric": (), "date_format": "%d/%m/%Y"}, [[DAY + 30]]),
    numeric="d",
)
other = "no column is read as dates of the format '%d/%m/%Y', since other options name the columns that have it; "
for options in ({"drop": ["d"]}, {"categorical": "d"}):
    read(
        f"dates that another option names {options}",
        *(b"d,e\n17/05/2013,1\n", [[1]] if "drop" in options else [[1, 1]]),
        **{"note": other, "date_format": "%d/%m/%Y", **options},
    )
read("times of day", b"t\n06:30\n23:15:00\n", [[6.5], [23.25]])

# Missing values and words among numbers.
for mark in ("NA", "N/A", "null", "NaN", "None", "", "  ", '"NA"', '""'):
    read(f"missing as {mark!r}", f"a,b\n1,2\n{mark},3\n3,4\n".encode(), [[1, 2], [2, 3], [3, 4]], missing="mean")
dashes = b"a,b\n1,2\n-,3\n3,4\n"
refused(
    *("missing as a dash", dashes, "If '-' in 'a' means a missing value, use --na-values -"),
    *({"na_values": "-", "missing": "mean"}, [[1, 2], [2, 3], [3, 4]]),
)
codes = b'a,w\n1,x\n2,"unknown"\n-999.0,x\n3,y\n'
read(
    "missing as a number or a word",
    codes,
    [[1, 1, 0], [3, 0, 1]],
    na_values=[-999, "unknown"],
    missing="drop",
    categorical="w",
)
refused("an empty column", b"a,b\n1,\n2,\n", "Use --drop b for 'b'", {"drop": ["b"]}, [[1], [2]])
refused(
    "delimiters at the ends of lines", b"a,b,\n1,2,\n3,4,\n", "Use --drop '' for ''", {"drop": [""]}, [[1, 2], [3, 4]]
)
mixed = b"a,b\n" + b"".join(b"%d,1\n" % i for i in range(300)) + b"oops,1\n" + b"7,1\n" * 99
since = (
    r"column 0 \('a'\) is read as text since row 300: 'oops'; 399 others are numbers\. If 'oops' .*use --na-values oops"
)
refused("a word late in a column of numbers", mixed, since, categories="one-hot")
refused(
    "a word early in a column of numbers",
    b"a\noops\n1\n2\n",
    "since row 0: 'oops'; 2 others are numbers",
    categories="one-hot",
)
refused("a word among dates", b"d\n2013-01-01\nsoon\n", "since row 1: 'soon'; 1 other is a date", categories="one-hot")
many = b"a\n" + b"".join(b"%d\n" % i for i in range(1200)) + b"n.a.\n"
refused(
    "a word after many numbers",
    many,
    "since row 1,200: 'n.a.'; over 1,000 others .*--na-values n.a.",
    categories="one-hot",
)
words = b"w\n5\nx\ny\nz\n"
note = r"column 0 \('w'\) is read as text since row 1: 'x'; 1 other is a number"
read("a number among words", words, np.eye(4), [f"w={each}" for each in "5xyz"], note, categories="one-hot")
named = [[1, 0], [1, 0], [0, 1]]
read("numbers and a word as categories", b"w\n5\n5\nx\n", named, ["w=5", "w=x"], categorical=["w"])

# Categories.
refused(
    "yes and no",
    b"a,b\nyes,1\nNo,2\n",
    "Use --ordinal a=No,yes for 'a'",
    {"ordinal": {"a": ["No", "yes"]}},
    [[1, 1], [0, 2]],
)
read("true and FALSE", b"a,b\ntrue,1\nFALSE,2\n", [[1, 1], [0, 2]])
sizes = b"size\nlow\nhigh\n mid\n"
read("levels", sizes, [[0], [2], [1]], ["size"], ordinal={"size": ["low", "mid", "high"]})
degrees = b'd,w\nNone,"NA"\nBSc,NA\nNA,x\n None ,"None"\nBSc,x\n'
read(
    *("levels that would mean a missing value", degrees, [[0, 1, 0, 0], [0, 0, 1, 0], [1, 0, 0, 1]]),
    ["d", "w=NA", "w=None", "w=x"],
    **{"ordinal": {"d": ["None", "BSc"]}, "missing": "drop", "categories": "one-hot"},
)
for twice in (["1", "1.0"], ["True", "true"]):
    refused(f"levels {twice}", b"a\n1\n", "column 'a' needs two or more different levels", ordinal={"a": twice})
refused(
    "a level that is not listed",
    sizes,
    r"row 1, column 0 \('size'\) is 'high', not one of its levels low, mid",
    ordinal={"size": ["low", "mid"]},
)
read(
    *("numbers and truth values as categories", b"c,t\n1.0,True\n1,TRUE\n1.50,false\n01,False\n-9.0,true\n"),
    *([[0, 1, 0, 0, 1], [0, 1, 0, 0, 1], [0, 0, 1, 1, 0], [1, 0, 0, 1, 0]],),
    *(["c=01", "c=1", "c=1.50", "t=false", "t=true"],),
    **{"categorical": ["c", "t"], "na_values": "-9", "missing": "drop"},
)
read(
    *("German numbers as categories", b"c;x\n1.234,5;1\n1,5;2\n", [[0, 1, 1], [1, 0, 2]], ["c=1.5", "c=1234.5", "x"]),
    **{"categorical": ["c"], "decimal": ",", "thousands": "."},
)
read(
    *("German numbers that are spelled once", b"c\n1,234\n1.234,0\n1234\n1,234\n", [[1, 0], [0, 1], [0, 1], [1, 0]]),
    *(["c=1.234", "c=1234"],),
    **{"categorical": ["c"], "decimal": ",", "thousands": "."},
)
read("levels as German numbers", b"c\n1,5\n1,0\n", [[1], [0]], ordinal={"c": ["1", "1,5"]}, decimal=",")
read(
    *("a version that means a missing value", b"c,x\nv2,1\nv2.0,2\nv3,3\n", [[1, 0, 1], [0, 1, 3]]),
    *(["c=v2", "c=v3", "x"],),
    **{"categorical": "c", "na_values": "v2.0", "missing": "drop"},
)
read(
    *("a number that means a missing value, in German", b"c;x\n9,0;1\n1,5;2\n9;3\n", [[1, 2]], ["c=1.5", "x"]),
    **{"categorical": "c", "na_values": "9", "missing": "drop", "decimal": ","},
)
letters = b"w\n" + b"a\nb\n" * 3 + b"b\nc\nd\n"
top = [[int(each == b) for each in ("a", "b", "(other)")] for b in ["a", "b"] * 3 + ["b"]] + [[0, 0, 1]] * 2
merged = "column 'w': keeping the 2 most frequent of 4 texts; the others, in 2 rows, become 'w=(other)'"
read(
    "the most frequent words",
    letters,
    top,
    ["w=a", "w=b", "w=(other)"],
    re.escape(merged),
    categories="one-hot",
    max_categories=2,
)
ids = b"w\n" + b"".join(b"id%d\n" % i for i in range(1001))
refused(
    "identifiers",
    ids,
    "more than 1000 distinct texts: leave these columns out with --drop, or .*--max-cat",
    categories="one-hot",
)

# Lines, delimiters and quotes.
read("lines of Windows", b"a,b\r\n1,2\r\n", [[1, 2]])
read("lines of old Macs", b"a,b\r1,2\r3,4\r", [[1, 2], [3, 4]])
read("tabs", b"a\tb\n1\t2\n", [[1, 2]])
read("bars", b"a|b\n1|2\n", [[1, 2]], ["a", "b"])
read("empty lines", b"\n\na,b\n\n1,2\n\n", [[1, 2]])
read("no header", b"1,2,5\n3,4,6\n", [[1, 2, 5], [3, 4, 6]])
read("no header, two columns", b"1,2\n3,4\n", [[1, 2], [3, 4]], note="delimiters of two columns; .* use --decimal ,")
read("no end of the last line", b"a,b\n1,2", [[1, 2]])
refused("only a header", b"a,b\n", "it has a header but no rows")
refused("nothing", b"", r"a\.csv is empty")
refused("ragged rows", b"a,b\n1,2\n3\n", "row 1 has 1 fields, but the first line has 2")
refused("more fields than the header", b"a,b\n1,2,3\n", "row 0 has 3 fields, but the first line has 2")
refused(
    "a name of two columns",
    b"a,b,a\n1,2,3\n",
    "columns 0 and 2 .* are called 'a': give each a unique",
    {"drop": ["a"]},
    [[2]],
    ["b"],
)
read("line ends in quotes", b'w,a\n"x\ny",1\n"x\ny",2\n', [[1, 1], [1, 2]], ["w=x\ny", "a"], categories="one-hot")
read("quotes in quotes", b'w,a\n"say ""so""",1\n', [[1, 1]], ['w=say "so"', "a"], categories="one-hot")
read("delimiters in quotes", b'"a, b",c\n"1",2\n', [[1, 2]], ["a, b", "c"])
read("a very long field", b"w,a\n" + b"x" * 300_000 + b",1\n", [[1, 1]], categories="one-hot", missing="drop")
refused("a very long first field", b"x" * 300_000 + b",1\n", "the first line cannot be read: field larger than")


@pytest.mark.parametrize(
    ("name", "content", "options", "expected", "names", "note"), FILES, ids=[each[0] for each in FILES]
)
def test_an_awkward_file_is_read_right_or_refused_with_the_option_that_reads_it(
    name, content, options, expected, names, note, tmp_path, monkeypatch
):
    if name.startswith(("a word late", "latin1 far", "a late number")):
        monkeypatch.setattr(text, "_TEXT_BYTES", 32)  # kinds of columns are inferred before the word
    source = tmp_path / ("a.csv.gz" if content.startswith(b"\x1f\x8b") else "a.csv")
    source.write_bytes(content)
    notes = Recorder()
    if isinstance(expected, str):
        with pytest.raises(BigKPCAError, match=expected):
            ingest(source, tmp_path / "o.zarr", progress=notes, **options)
        assert not list(tmp_path.glob("o.zarr*"))
        return
    found = stored(ingest(source, tmp_path / "o.zarr", progress=notes, **options).path)
    np.testing.assert_array_equal(found["x"], expected)
    assert names is None or found["names"] == names
    assert (
        [re.search(note, each) is not None for each in notes.notes] == [True]
        if note
        else not notes.notes or options.get("missing")
    )
