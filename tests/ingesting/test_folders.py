"""Folders of files, also with columns in the names of folders, against pyarrow's data sets."""

import gzip
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest

from bigkpca.errors import CorruptionError, DataError, IncompleteError, SpecError
from bigkpca.ingesting import ingest
from bigkpca.ingesting.formats import text
from tests.helpers.commands import run
from tests.helpers.named import stored
from tests.helpers.progress import Once
from tests.ingesting.files import X, about, made, npy, refuse

RNG = np.random.default_rng(5)


def table(rows=6, **columns):
    return pa.table({"delay": RNG.normal(size=rows), "carrier": RNG.choice(["AA", "UA"], rows), **columns})


def write(folder, files):
    """Parquet files of these tables at these paths."""
    for path, content in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(content, folder / path)
    return folder


def by_month(folder):
    """Files by year and month, as Spark, Dask, Polars and pyarrow write them, and what they leave beside the files."""
    paths = [
        f"year={year}/month={month:02}/part-{part}.parquet"
        for year in (2013, 2014)
        for month in (2, 1)
        for part in (0, 1)
    ]
    write(folder, {path: table() for path in paths})
    (folder / "_SUCCESS").touch()
    (folder / "year=2013" / ".part-0.parquet.crc").write_bytes(b"crc")
    write(folder, {"_temporary/0/part-0.parquet": table()})
    return folder


def of_pyarrow(folder):
    return pyarrow.dataset.dataset(folder, partitioning="hive").to_table()


def test_a_folder_with_keys_is_the_data_set_of_pyarrow(tmp_path):
    folder = by_month(tmp_path / "flights")
    expected = of_pyarrow(folder)
    found = stored(ingest(folder, tmp_path / "o.zarr", categories="one-hot").path)
    assert found["names"] == ["delay", "carrier=AA", "carrier=UA", "year", "month"]
    for name in ("delay", "year", "month"):
        np.testing.assert_array_equal(found["x"][:, found["names"].index(name)], expected[name].to_numpy())
    assert [each["path"] for each in about(tmp_path / "o.zarr")["sources"]] == sorted(map(str, folder.glob("y*/*/*")))
    assert ingest(folder, tmp_path / "o.zarr", categories="one-hot").already_done


def test_a_file_is_another_source_without_the_names_of_its_folders(tmp_path):
    folder = write(tmp_path / "f", {"k=1/a.parquet": pa.table({"a": [0.5]})})
    assert made(tmp_path, folder)["names"] == ["a", "k"]
    refuse(tmp_path, SpecError, r"o\.zarr already holds a dataset", folder / "k=1" / "a.parquet", overwrite=False)


def test_keys_are_chosen_dropped_and_labels_like_other_columns(tmp_path):
    folder = by_month(tmp_path / "flights")
    expected = of_pyarrow(folder)
    found = made(tmp_path, folder, columns=["month", "year"])
    assert found["names"] == ["month", "year"]
    assert found["x"].dtype == np.int32
    np.testing.assert_array_equal(found["x"], np.stack([expected["month"], expected["year"]], axis=1))
    found = made(tmp_path, folder, labels="year", drop=["carrier"])
    np.testing.assert_array_equal(found["y"], expected["year"])
    assert found["names"] == ["delay", "month"]
    refuse(tmp_path, SpecError, "unknown column of .* 'yeer'", folder, labels="yeer")


def test_keys_alone_need_no_other_column_to_be_readable(tmp_path, monkeypatch):
    monkeypatch.setattr(text, "_TEXT_BYTES", 500)
    (tmp_path / "f" / "k=3").mkdir(parents=True)
    (tmp_path / "f" / "k=3" / "a.csv").write_text("a,b\n" + "1,2\n" * 500 + "oops,\n")
    np.testing.assert_array_equal(made(tmp_path, tmp_path / "f", columns=["k"])["x"], [[3]] * 501)


def test_keys_are_numbers_dates_or_text_and_can_be_missing(tmp_path):
    for key, values, expected in (
        ("n", ["1", "-20"], [1, -20]),
        ("n", [str(2**40), "7"], [2**40, 7]),
        ("day", ["1970-01-02", "1970-01-11"], [1, 10]),
        ("n", ["1", "__HIVE_DEFAULT_PARTITION__"], [1, 1]),
        ("a%20b", ["0", "1"], [0, 1]),
    ):
        shutil.rmtree(tmp_path / "f", ignore_errors=True)
        write(tmp_path / "f", {f"{key}={value}/a.parquet": pa.table({"a": [0.5]}) for value in values})
        found = made(tmp_path, tmp_path / "f", missing="mean")
        assert found["names"] == ["a", key.replace("%20", " ")]
        assert sorted(found["x"][:, 1]) == sorted(expected)
        if str(2**40) in values:  # beyond 32 bits
            assert made(tmp_path, tmp_path / "f", columns=["n"])["x"].dtype == np.int64
    write(tmp_path / "t", {f"city=New%20{name}/a.parquet": pa.table({"a": [0.5]}) for name in ("York", "Bern")})
    found = made(tmp_path, tmp_path / "t", categories="one-hot")
    assert found["names"] == ["a", "city=New Bern", "city=New York"]
    np.testing.assert_array_equal(found["x"][:, 1:], np.eye(2))
    refuse(tmp_path, DataError, r"a\.parquet: row 0, column 1 \('city'\) is 'New Bern', not a number", tmp_path / "t")


def test_keys_with_leading_zeros_are_numbers_unless_they_are_categories(tmp_path):
    folder = write(
        tmp_path / "f", {f"zip={key}/a.parquet": pa.table({"a": [0.5]}) for key in ("01234", "00501", "90210")}
    )
    found = made(tmp_path, folder)
    assert found["x"].tolist() == [[0.5, 501], [0.5, 1234], [0.5, 90210]]
    (note,) = found["notes"]
    assert (
        "a.parquet and 2 more: reading zip=00501 in its path as a number (to keep the text, use --categorical" in note
    )
    assert made(tmp_path, folder, numeric="zip")["notes"] == made(tmp_path, folder, drop=["zip"])["notes"] == []
    found = made(tmp_path, folder, categorical="zip")
    assert (found["names"], found["notes"]) == (["a", "zip=00501", "zip=01234", "zip=90210"], [])
    np.testing.assert_array_equal(found["x"][:, 1:], np.eye(3))
    further = write(tmp_path / "g", {"zip=01234/b.parquet": pa.table({"a": [1.5]})})
    assert made(tmp_path, further, append=True)["x"][-1].tolist() == [1.5, 0, 1, 0]
    levels = {"zip": ["90210", "01234", "00501"]}
    assert made(tmp_path, folder, ordinal=levels)["x"].tolist() == [[0.5, 2], [0.5, 1], [0.5, 0]]
    assert made(tmp_path, folder, labels="zip")["categories"] == ["00501", "01234", "90210"]
    labels = made(tmp_path, write(tmp_path / "h", {"zip=7/a.parquet": pa.table({"a": [0.5]})}), labels="zip")
    assert (labels["y"].tolist(), labels["categories"]) == ([7], None)


def test_keys_keep_their_digits_where_these_say_more_than_a_number(tmp_path):
    def folder(name, key):
        path = tmp_path / name / key
        path.mkdir(parents=True)
        (path / "a.csv").write_text("a\n1\n")
        return tmp_path / name

    assert made(tmp_path, folder("hex", "id=0x10"), categorical="id")["names"] == ["a", "id=0x10"]
    refuse(tmp_path, DataError, r"column 1 \('id'\) is '0x10', not a number", tmp_path / "hex")
    days = folder("days", "day=01022013")
    assert made(tmp_path, days, date_format={"day": "%d%m%Y"})["x"].tolist() == [[1, 15737]]  # 2013-02-01
    message = r"row 0, column 0 \('day'\) is 1022013, not a date of the format '%d%m%Y'"
    refuse(tmp_path, DataError, message, {"day": [1022013, 10022013]}, date_format={"day": "%d%m%Y"})
    dotted = folder("dotted", "d=01.02.2013")
    message = r"Use --date-format 'd=%d\.%m\.%Y' .*instead of --date-format '%d\.%m\.%Y' for 'd'"
    refuse(tmp_path, DataError, message, dotted, date_format="%d.%m.%Y")
    assert made(tmp_path, dotted, date_format={"d": "%d.%m.%Y"})["x"].tolist() == [[1, 15737]]


def test_a_key_replaces_a_column_of_the_file_as_in_pyarrow(tmp_path):
    folder = write(tmp_path / "f", {"year=2013/a.parquet": pa.table({"year": pa.array([7], pa.int32()), "a": [0.5]})})
    assert of_pyarrow(folder)["year"].to_pylist() == [2013]
    found = made(tmp_path, folder)
    assert dict(zip(found["names"], found["x"][0], strict=True)) == {"year": 2013, "a": 0.5}


def test_files_of_a_folder_are_matched_by_name_and_those_without_rows_are_left_out(tmp_path):
    first, second = table(), table()
    files = {"a.parquet": first[:0], "b.parquet": first, "c.parquet": second.select(["carrier", "delay"])}
    folder = write(tmp_path / "f", files)
    found = made(tmp_path, folder, drop=["carrier"])
    np.testing.assert_array_equal(found["x"][:, 0], np.concatenate([first["delay"], second["delay"]]))
    write(folder, {"d.parquet": table().append_column("more", [[1] * 6])})
    refuse(tmp_path, SpecError, r"d\.parquet has the column 'more', unlike .*b\.parquet", folder, drop=["carrier"])
    write(tmp_path / "g", {"k=1/a.parquet": pa.table({"a": [0.5]}), "b.parquet": pa.table({"a": [0.5]})})
    refuse(tmp_path, SpecError, r"lacks the column 'k' of|has the column 'k', unlike", tmp_path / "g")
    refuse(tmp_path, DataError, r"a\.parquet is empty: it has no rows", write(tmp_path / "e", {"a.parquet": first[:0]}))


def test_a_folder_can_hold_any_format_but_nothing_else(tmp_path):
    folder = tmp_path / "f"
    folder.mkdir()
    (folder / "a.csv").write_text("a,b\n1,2\n")
    (folder / "b.csv.gz").write_bytes(gzip.compress(b"b,a\n4,3\n"))
    np.testing.assert_array_equal(made(tmp_path, folder)["x"], [[1, 2], [3, 4]])
    (folder / "c.parquet").touch()
    refuse(tmp_path, CorruptionError, r"c\.parquet does not decode", folder)
    (folder / "c.parquet").rename(folder / "README")
    refuse(tmp_path, SpecError, "README has an unknown format", folder)
    (tmp_path / "h" / "k=1").mkdir(parents=True)
    npy(tmp_path / "h" / "k=1" / "a.npy", X)
    refuse(
        tmp_path, SpecError, r"a\.npy is an array of numbers, to which k in its path cannot be added", tmp_path / "h"
    )
    (tmp_path / "h" / "k=1" / "a.npy").unlink()
    (tmp_path / "h" / "k=1" / "a.csv").write_text("1,2\n3,4\n")
    refuse(tmp_path, SpecError, r"a\.csv has no column names, so k in its path cannot be columns", tmp_path / "h")


def test_an_output_inside_the_folder_and_a_file_that_changes_are_refused(tmp_path):
    folder = by_month(tmp_path / "flights")
    with pytest.raises(SpecError, match="lie inside each other"):
        ingest(folder, folder / "o.zarr")
    changing = sorted(folder.glob("year=2014/*/*"))[-1]
    change = Once(what=lambda: pq.write_table(table(9), changing), title="ingest")
    refuse(tmp_path, IncompleteError, "changed while it was being read", folder, drop=["carrier"], progress=change)


def test_the_command_takes_a_folder(tmp_path):
    folder = by_month(tmp_path / "flights")
    run("ingest", folder, tmp_path / "o.zarr", "--drop", "carrier", "--labels", "month")
    assert stored(tmp_path / "o.zarr")["names"] == ["delay", "year"]
