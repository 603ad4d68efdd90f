"""What is learnt of a table before it is read: kinds and categories, over all rows that are kept."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bigkpca.errors import DataError
from bigkpca.ingesting.formats import text_rows
from bigkpca.ingesting.streaming import ingest
from bigkpca.ingesting.tables import learning
from tests.helpers.named import stored
from tests.helpers.progress import Recorder

LATE = [str(i % 3) for i in range(200)] + ["x"]  # a word far behind numbers
MISSING = ["refuse", "mean", "median", "drop"]


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch):
    """The kinds of columns are guessed from the first 64 bytes."""
    monkeypatch.setattr(text_rows, "_TEXT_BYTES", 16)


def csv(path, **columns):
    lines = [",".join(columns), *(",".join(map(str, row)) for row in zip(*columns.values(), strict=True))]
    path.write_text("\n".join(lines) + "\n")
    return path


def test_a_column_is_text_where_any_row_holds_a_word(tmp_path):
    for number, (early, missing) in enumerate(
        (("7", "refuse"), ("2013-01-01", "mean"), ("true", "median"), ("7", "drop"), ("", "drop"))
    ):
        values, notes = [early] * 200 + ["x"], Recorder()
        source, out = csv(tmp_path / "a.csv", a=range(201), w=values), tmp_path / f"{number}.zarr"
        found = stored(ingest([source], out, categories="one-hot", missing=missing, progress=notes).path)
        categories = sorted({early, "x"} - {""})
        assert found["names"] == ["a", *(f"w={each}" for each in categories)]
        expected = [[float(word == each) for each in categories] for word in values if word]
        np.testing.assert_array_equal(found["x"][:, 1:], expected)
        note = f"{source}: row 200, column 1 ('w'), is 'x', unlike the first rows: the column is read as text"
        assert note in notes.notes


def test_words_of_a_later_file_make_text_of_a_column_too(tmp_path):
    a, b = csv(tmp_path / "a.csv", a=[1, 2], w=[1, 2]), csv(tmp_path / "b.csv", a=[3] * 201, w=LATE)
    found = stored(ingest([a, b], tmp_path / "o.zarr", categories="one-hot").path)
    assert found["names"] == ["a", "w=0", "w=1", "w=2", "w=x"]
    assert found["x"].sum(axis=0).tolist() == [606, 67, 68, 67, 1]


def test_without_categories_a_late_word_is_named_with_what_helps(tmp_path):
    source = csv(tmp_path / "a.csv", a=range(201), w=LATE)
    for missing in MISSING:
        with pytest.raises(DataError, match=r"row 200, column 1 \('w'\) is 'x', not a number.*--categories one-hot"):
            ingest([source], tmp_path / "o.zarr", missing=missing)
    ingest([csv(tmp_path / "b.csv", a=[1], w=[1])], tmp_path / "o.zarr")
    with pytest.raises(DataError, match=r"row 200, column 1 \('w'\) is 'x', not a number"):
        ingest([source], tmp_path / "o.zarr", append=True)


def test_a_number_column_of_too_many_values_names_the_word_that_made_it_text(tmp_path):
    source = csv(tmp_path / "a.csv", a=range(1502), w=[*range(1500), "n.a.", 3])
    message = r"column 'w' has more than 1000 different texts \(.*row 1500, column 1 \('w'\), is 'n\.a\.', unlike"
    with pytest.raises(DataError, match=message):
        ingest([source], tmp_path / "o.zarr", categories="one-hot")


def test_other_faults_are_told_beside_late_words(tmp_path):
    source = csv(tmp_path / "a.csv", a=["inf"] * 201, w=LATE)
    with pytest.raises(DataError, match=r"row 0, column 0 \('a'\) is infinity, and 200 more such rows"):
        ingest([source], tmp_path / "o.zarr", categories="one-hot")


def test_categories_are_those_of_the_rows_that_are_kept(tmp_path):
    source = csv(tmp_path / "a.csv", w=["u", "v", "u", "z"], a=[1, 2, "", 4], y=["p", "q", "q", ""])
    for labels, more in ((None, ["y=p", "y=q"]), ("y", [])):
        out = tmp_path / f"{labels}.zarr"
        found = stored(ingest([source], out, labels=labels, categories="one-hot", missing="drop").path)
        assert found["names"] == ["w=u", "w=v", "a", *more]
        np.testing.assert_array_equal(found["x"][:, :3], [[1, 0, 1], [0, 1, 2]])


def test_a_median_of_many_values_is_that_of_a_sample_which_differs_by_column_and_not_by_run(monkeypatch, tmp_path):
    monkeypatch.setattr(learning, "_SAMPLE", 1000)
    values = np.sort(np.random.default_rng(0).exponential(size=20_000))
    pq.write_table(pa.table({"a": [*values, None], "b": [*values, None]}), tmp_path / "a.parquet")
    x, y = (
        stored(ingest([tmp_path / "a.parquet"], tmp_path / f"{run}.zarr", missing="median").path)["x"][-1]
        for run in range(2)
    )
    np.testing.assert_array_equal(x, y)
    assert x[0] != x[1]
    assert (np.abs(np.searchsorted(values, x) / len(values) - 0.5) < 4 * 0.5 / np.sqrt(1000)).all()
