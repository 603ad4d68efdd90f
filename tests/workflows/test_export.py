"""Scores and rows as files of other programs, read back by these."""

import os
from functools import partial
from unittest import mock

import dask.array as da
import numpy as np
import pandas as pd
import pyarrow.csv as pa_csv
import pytest
import zarr

import bigkpca
from bigkpca.data.stores import LocalDisk, clients
from bigkpca.errors import BigKPCAError, IncompleteError, SpecError
from bigkpca.workflows import export
from tests.data.cases import refused
from tests.helpers.commands import run
from tests.helpers.disks import Restored
from tests.helpers.named import FRAME, WRITERS, stored
from tests.helpers.progress import Once
from tests.helpers.proxy import proxy
from tests.helpers.s3 import in_bucket

LEAST_PART = 5 * 2**20  # bytes, that S3 takes
WORDS = np.array(["pear", "fig", 'a "plum", ripe'])[np.arange(60) % 3]


def read(path):
    """A file as a frame, by readers that round no number."""
    if path.suffix == ".npy":
        return pd.DataFrame(np.load(path))
    return pa_csv.read_csv(path).to_pandas() if path.suffix == ".csv" else pd.read_parquet(path)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The scores of 60 rows with labels of text."""
    folder = tmp_path_factory.mktemp("made") / "here"
    folder.mkdir()
    source = WRITERS["csv"](folder / "a.csv", FRAME.assign(kind=WORDS))
    bigkpca.ingest(source, folder / "x.zarr", labels="kind")
    bigkpca.fit(folder / "x.zarr", folder / "model.zarr", n_components=2)
    bigkpca.transform(folder / "model.zarr", folder / "x.zarr", folder / "scores.zarr", block_rows=16)
    return Restored.made(folder)


@pytest.fixture
def scores(made):
    return made.again() / "scores.zarr"


@pytest.fixture
def tmp_path(request, tmp_path):
    """The folder of the scores in tests that take them."""
    return request.getfixturevalue("made").folder if "scores" in request.fixturenames else tmp_path


@pytest.mark.parametrize(
    ("suffix", "piece_bytes"), [(".csv", 100), (".parquet", 100), (".npy", 2**23), (".npy", 100), (".CSV", 2**23)]
)
def test_scores_are_the_same_bits_in_every_format(suffix, piece_bytes, scores, tmp_path, monkeypatch):
    monkeypatch.setattr(export, "READ_BYTES", piece_bytes)
    out = tmp_path / f"out{suffix}"
    assert bigkpca.export(scores, out) == export.Exported(str(out), 60, 2)
    found = read(out.rename(out.with_suffix(suffix.lower())))
    np.testing.assert_array_equal(found, zarr.open_array(scores / "scores", mode="r")[:])
    if suffix != ".npy":
        assert list(found.columns) == ["kernelpca0", "kernelpca1"]
    assert not list(tmp_path.glob("*.partial"))


def test_labels_and_weights_are_found_beside_an_array_that_is_named_by_its_path(tmp_path):
    X, group = np.random.default_rng(0).normal(size=(60, 3)), zarr.open_group(tmp_path / "g.zarr")
    for name, values in (("a", X), ("b", X), ("w", np.linspace(1, 2, len(X))), ("y", np.arange(len(X)))):
        group.create_array(name, data=values)
    model = bigkpca.fit(tmp_path / "g.zarr/a", tmp_path / "m.zarr", n_components=2, size=20, sample_weight="w")
    assert model.sums.weight == pytest.approx(1.5 * len(X))
    bigkpca.transform(model, tmp_path / "g.zarr/a", tmp_path / "s.zarr")
    bigkpca.export(tmp_path / "s.zarr", tmp_path / "s.csv", labels="y")
    np.testing.assert_array_equal(read(tmp_path / "s.csv")["label"], np.arange(len(X)))


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_labels_stand_first_and_those_of_a_dataset_that_grew_are_those_of_the_first_rows(suffix, scores, tmp_path):
    done = run("export", str(scores), str(tmp_path / f"out{suffix}"), "--labels", "y")
    assert done.exit_code == 0, done.output
    assert list(read(tmp_path / f"out{suffix}").columns) == ["label", "kernelpca0", "kernelpca1"]
    np.save(tmp_path / "own.npy", np.arange(60) / 7)
    more = WRITERS["csv"](tmp_path / "more.csv", FRAME.assign(kind="fig"))
    bigkpca.ingest(more, tmp_path / "x.zarr", labels="kind", append=True)
    zarr.open_group(tmp_path / "x.zarr").create_array("numbers", data=np.arange(60))  # not of the categories of y
    for labels, wanted in (
        ("y", WORDS),
        (tmp_path / "x.zarr", WORDS),
        (tmp_path / "x.zarr" / "y", WORDS),
        (tmp_path / "own.npy", np.arange(60) / 7),
        ("numbers", np.arange(60)),
    ):
        bigkpca.export(scores, tmp_path / f"out{suffix}", labels=labels, overwrite=True)
        np.testing.assert_array_equal(read(tmp_path / f"out{suffix}")["label"], wanted)


def test_rows_keep_the_names_of_their_columns(tmp_path):
    bigkpca.ingest(WRITERS["csv"](tmp_path / "a.csv", FRAME), tmp_path / "x.zarr")
    bigkpca.export(tmp_path / "x.zarr", tmp_path / "b.csv")
    bigkpca.ingest(tmp_path / "b.csv", tmp_path / "again.zarr")
    np.testing.assert_array_equal(stored(tmp_path / "again.zarr")["x"], stored(tmp_path / "x.zarr")["x"])
    for number, (rows, text) in enumerate(
        (
            (tmp_path / "x.zarr", "a,b,c\n"),
            (np.float32([[1, 2], [3, 0.1]]), "column0,column1\n1,2\n3,0.1\n"),
            (np.array([[1, 2]], ">f8"), "column0,column1\n1,2\n"),
        )
    ):
        bigkpca.export(rows, tmp_path / f"{number}.csv")
        assert (tmp_path / f"{number}.csv").read_text().replace('"', "").startswith(text)


@pytest.mark.filterwarnings("ignore::bigkpca.errors.FlaggedShareWarning")
def test_flags_of_rows_follow_their_scores_with_reasons_as_words(tmp_path):
    X = np.random.default_rng(0).normal(size=(300, 3))
    bigkpca.fit(X[:200], tmp_path / "m.zarr", n_components=2, size=20, calibration_rows=60)
    bigkpca.transform(tmp_path / "m.zarr", 2 * X, tmp_path / "s.zarr", flag=0.1, block_rows=64)
    group = zarr.open_group(tmp_path / "s.zarr")
    for suffix in (".csv", ".parquet"):
        assert bigkpca.export(tmp_path / "s.zarr", tmp_path / f"s{suffix}").columns == 4
        found = read(tmp_path / f"s{suffix}")
        assert list(found) == ["kernelpca0", "kernelpca1", "statistic", "flagged"]
        np.testing.assert_array_equal(found["statistic"], group["statistic"][:])
        words = found["flagged"].fillna("")
        assert words.tolist() == [["", "residual", "distance"][code] for code in group["flagged"][:]]
        assert {"", "residual"} <= set(words)


def test_every_chunk_is_computed_once(tmp_path, monkeypatch):
    monkeypatch.setattr(export, "READ_BYTES", 100)
    X, computed = np.arange(600.0).reshape(200, 3), []
    chunks = da.from_array(X, chunks=(50, 3))
    seen = chunks.map_blocks(lambda block: (computed.append(block[0, 0]), block)[1], dtype=float, meta=X[:0, :0])
    bigkpca.export(seen, tmp_path / "a.npy")
    assert sorted(computed) == [0, 150, 300, 450]
    np.testing.assert_array_equal(read(tmp_path / "a.npy"), X)


# What is refused


def test_what_is_in_the_way_stays(scores, tmp_path):
    (tmp_path / "own.csv").write_text("mine")
    (tmp_path / "folder.csv").mkdir()
    (tmp_path / "model.zarr" / "deep").mkdir()
    for out, message in (
        ("own.csv", "own.csv already exists: choose another name, or replace it with --overwrite"),
        ("folder.csv", "folder.csv is a folder"),
        ("none/a.csv", "its folder does not exist"),
        ("a.txt", r"rows are exported as \.csv, \.parquet, \.npy"),
        ("scores", r"rows are exported as"),
        ("x.zarr/a.csv", r"a\.csv cannot be written: it would lie in .*x\.zarr, a folder of Zarr arrays"),
        ("model.zarr/deep/a.npy", r"it would lie in .*model\.zarr, a folder of Zarr arrays"),
    ):
        refused(bigkpca.export, (scores, tmp_path / out, SpecError, message))
    assert (tmp_path / "own.csv").read_text() == "mine"
    bigkpca.export(scores, tmp_path / "own.csv", overwrite=True)
    assert read(tmp_path / "own.csv").shape == (60, 2)


def test_what_another_run_wrote_just_before_stays(scores, tmp_path, monkeypatch):
    out, writer = tmp_path / "own.csv", LocalDisk.writer

    def later(store, path):
        out.write_text("mine")
        return writer(store, path)

    monkeypatch.setattr(LocalDisk, "writer", later)
    refused(bigkpca.export, (scores, out, SpecError, r"own\.csv already exists: choose another name"))
    assert out.read_text() == "mine"


def test_labels_and_columns_that_do_not_fit_leave_nothing(scores, tmp_path):
    for name, labels in (("short", np.zeros(59)), ("long", np.zeros(61)), ("complex", np.zeros(60, complex))):
        np.save(tmp_path / f"{name}.npy", labels)
    for rows, out, labels, message in (
        (scores, "b.csv", tmp_path / "long.npy", r"long\.npy has labels of shape \(61,\), but the rows need 60 labels"),
        (scores, "b.csv", tmp_path / "complex.npy", "the column label has the dtype complex128, which CSV and Parquet"),
        (scores, "b.parquet", np.zeros(60), r"labels must be a path or a name, not ndarray: .*np\.save"),
        (scores, "b.csv", tmp_path / "short.npy", r"short\.npy has labels of shape \(59,\), but the rows need 60"),
        (scores, "b.csv", "z", "z"),
        (scores, "b.npy", "y", r"b\.npy: a \.npy file has no column of labels: leave them out"),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), "b.csv", None, "two columns would have the name 'a'"),
        (np.zeros((3, 2), np.longdouble), "b.csv", None, r"column0 has the dtype (float128|longdouble), which CSV"),
    ):
        refused(partial(bigkpca.export, labels=labels), (rows, tmp_path / out, SpecError, message))
    about = zarr.open_group(tmp_path / "x.zarr", mode="r+").attrs
    about["bigkpca"] = about["bigkpca"] | {"categories": ["pear"]}  # as if it was damaged
    message = r"x\.zarr has labels that do not number its 1 categories"
    refused(partial(bigkpca.export, labels="y"), (scores, tmp_path / "b.csv", SpecError, message))
    assert not list(tmp_path.glob("b.*"))


def test_a_full_disk_leaves_nothing(scores, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "replace", mock.Mock(side_effect=OSError(28, "No space left on device")))
    message = r"the disk is full while writing .*out\.csv"
    refused(bigkpca.export, (scores, tmp_path / "out.csv", IncompleteError, message))
    assert not list(tmp_path.glob("out.csv*"))


# Object stores


@pytest.mark.full
def test_a_bucket_gets_the_bytes_of_a_local_file_in_parts_of_one_size(tmp_path, s3_server, use_s3, bucket, monkeypatch):
    monkeypatch.setattr(export, "READ_BYTES", 2**18)
    rows = np.random.default_rng(0).normal(size=(400_000, 4))
    bigkpca.export(rows, tmp_path / "a.parquet")
    content = (tmp_path / "a.parquet").read_bytes()
    with proxy(s3_server.port) as between:
        use_s3(between.port)
        monkeypatch.setattr("bigkpca.data.stores.objects._PART", LEAST_PART)
        done = bigkpca.export(rows, f"{bucket}/a.parquet")
        asked = between.requests
    use_s3(s3_server.port)
    assert done == export.Exported(f"{bucket}/a.parquet", 400_000, 4)
    assert in_bucket(bucket) == {"a.parquet": content}
    parts = {path for method, path in asked if method == "PUT" and "partNumber=" in path}
    assert len(parts) == -(-len(content) // LEAST_PART) > 2


@pytest.mark.full
@pytest.mark.parametrize("part_bytes", [LEAST_PART, 2**25])  # with parts that are under way, and before the first
def test_a_run_that_ends_in_the_middle_leaves_nothing_in_a_bucket(
    part_bytes, s3_server, use_s3, bucket, monkeypatch, quiet_signals
):
    monkeypatch.setattr("bigkpca.data.stores.objects._PART", part_bytes)
    rows, out = np.random.default_rng(0).normal(size=(400_000, 4)), f"{bucket}/a.npy"
    with proxy(s3_server.port) as between:
        use_s3(between.port)
        with pytest.raises(KeyboardInterrupt):
            bigkpca.export(rows, out, progress=Once(after=200_000))
        begun = [path for method, path in between.requests if method == "POST" and "uploads" in path]
        ended = [path for method, path in between.requests if method == "DELETE" and "uploadId=" in path]
    assert len(begun) == len(ended) == (part_bytes == LEAST_PART)
    use_s3(s3_server.port)
    assert in_bucket(bucket) == {}


@pytest.mark.full
@pytest.mark.parametrize("mode", ["answer", "reset"])
def test_a_server_that_fails_at_the_end_is_told(mode, scores, s3_server, use_s3, bucket, monkeypatch):
    monkeypatch.setattr(clients, "PATIENCE", clients.Patience(0.5, read=1, request=1, retry=0.5, retries=1))
    with proxy(s3_server.port) as between:

        def answer(method, path):
            if method != "PUT" or not path.endswith("a.csv"):
                return None
            between.mode = "reset" if mode == "reset" else "pass"
            return b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n" if mode == "answer" else None

        use_s3(between.port)
        between.answer = answer
        with pytest.raises(BigKPCAError, match="access denied" if mode == "answer" else "does not answer") as told:
            bigkpca.export(scores, f"{bucket}/a.csv")
        assert "127.0.0.1" not in str(told.value)
    use_s3(s3_server.port)
    assert "a.csv" not in in_bucket(bucket)
