"""What a dataset says about its columns, so that further files can be checked."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bigkpca.errors import DataError
from bigkpca.ingesting.streaming import ingest
from bigkpca.storage.describe import info
from tests.helpers.named import stored


def test_a_dataset_of_truth_values_says_so_and_takes_no_others(tmp_path):
    (tmp_path / "a.csv").write_text("a,b\ntrue,false\nfalse,true\n")
    (tmp_path / "b.csv").write_text("a,b\n5,0.5\n")
    ingest([tmp_path / "a.csv"], tmp_path / "o.zarr")
    assert [each["kind"] for each in info(str(tmp_path / "o.zarr"))["encoding"]["columns"]] == ["boolean"] * 2
    for out, options in (("o.zarr", {"append": True}), ("p.zarr", {"like": tmp_path / "o.zarr"})):
        with pytest.raises(DataError, match=r"row 0, column 0 \('a'\) is '5', not true or false"):
            ingest([tmp_path / "b.csv"], tmp_path / out, **options)  # type: ignore[arg-type]
    assert stored(tmp_path / "o.zarr")["x"].tolist() == [[1, 0], [0, 1]]


def test_truth_values_may_follow_numbers(tmp_path):
    pq.write_table(pa.table({"a": [0.5, 2.0]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"a": [True, False]}), tmp_path / "b.parquet")
    ingest([tmp_path / "a.parquet"], tmp_path / "o.zarr")
    assert "encoding" not in info(str(tmp_path / "o.zarr"))
    ingest([tmp_path / "b.parquet"], tmp_path / "o.zarr", append=True, dtype="float64")
    assert stored(tmp_path / "o.zarr")["x"].tolist() == [[0.5], [2], [1], [0]]
