"""Commands on object stores: the bytes of local disks, no secrets, and runs that end before their output does."""

import itertools
import re
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import numpy as np
import pytest

import bigkpca
from bigkpca.data.stores import clients, store_of
from bigkpca.errors import IncompleteError, LockedError, SpecError
from bigkpca.ingesting import ingest
from tests.helpers.commands import run, run_apart
from tests.helpers.disks import tree_bytes
from tests.helpers.progress import Once
from tests.helpers.s3 import KEY, SECRET, Server, in_bucket
from tests.helpers.stores import as_npy

FIT = {"n_components": 3, "size": 20, "random_state": 1, "block_rows": 32}


@pytest.fixture
def source(tmp_path):
    """A file of 90 rows."""
    return as_npy(tmp_path, np.random.default_rng(0).normal(size=(90, 4)).astype("f4"))


def made(source, rows, out, **options):
    """Every kind of output in the folder `out`; models, scores and reconstructed rows of what lies in `rows`."""
    ingest([source], f"{out}/data.zarr", block_rows=32)
    bigkpca.fit(f"{rows}/data.zarr", f"{out}/model.zarr", **FIT, **options)
    bigkpca.transform(f"{out}/model.zarr", f"{rows}/data.zarr", f"{out}/scores.zarr", residual=True, **options)
    bigkpca.reconstruct(f"{out}/model.zarr", f"{rows}/scores.zarr", f"{out}/rows.zarr", **options)


@pytest.mark.full
def test_a_bucket_gets_the_bytes_of_a_folder(source, tmp_path, bucket, quiet_signals):
    local = str(tmp_path / "local")
    made(source, local, local)
    made(source, local, f"{bucket}/1")
    here = tree_bytes(local)
    assert in_bucket(f"{bucket}/1") == here
    made(source, f"{bucket}/2", f"{bucket}/2")  # all of it in the bucket: the paths of inputs are others
    there = in_bucket(f"{bucket}/2")
    assert there.keys() == here.keys()
    assert [name for name in here if there[name] != here[name] and "/c/" in name] == []
    for name in ("data", "model", "scores", "rows"):
        told = [run("info", f"{root}/{name}.zarr").stdout.replace(root, "") for root in (local, f"{bucket}/2")]
        told = [re.sub(".*[0-9a-f]{12}.*", "", text) for text in told]  # but for digests of files, which hold paths
        assert told[0] == told[1] != ""
    before = store_of(bucket).files(bucket)
    made(source, f"{bucket}/2", f"{bucket}/2")  # again: nothing to do
    assert store_of(bucket).files(bucket) == before
    made(source, f"{bucket}/2", f"{local}/2", workers=2)  # input in a bucket, output in a folder, by processes
    assert tree_bytes(f"{local}/2") == there


@pytest.mark.full
def test_no_secret_is_ever_shown_or_stored(source, bucket, quiet_signals):
    apart = run_apart("fit", "-v", source, f"{bucket}/apart.zarr", "--size", "20")  # with what libraries print
    printed = apart.stdout + apart.stderr
    for code, *step in (
        (0, "ingest", source, f"{bucket}/data.zarr"),
        (0, "fit", "-v", f"{bucket}/data.zarr", f"{bucket}/model.zarr", "--components", "3", "--size", "20"),
        (0, "info", f"{bucket}/model.zarr"),
        (2, "fit", "-v", f"{bucket}/none.zarr", f"{bucket}/none-model.zarr"),
        (2, "fit", "-v", "s3://no-such-bucket/x", f"{bucket}/none-model.zarr"),
        (2, "info", "-v", "s3://me:hidden@bucket/x"),
        (2, "info", "-v", "s3://bucket/x?X-Amz-Signature=hidden"),
    ):
        done = run(*step)
        assert done.exit_code == code, (step, done.output)
        printed += done.output
    for text in (printed.encode(), *in_bucket(bucket).values()):
        assert not any(secret.encode() in text for secret in (KEY, SECRET, "hidden", "127.0.0.1"))


@pytest.mark.full
def test_reports_and_comparisons_are_written_to_buckets(source, tmp_path, bucket):
    made(source, bucket, bucket)
    for out in (bucket, str(tmp_path)):
        bigkpca.report(f"{bucket}/model.zarr", f"{out}/report.html", scores=f"{bucket}/scores.zarr")
    with store_of(bucket).open(f"{bucket}/report.html") as page:
        assert page.read() == (tmp_path / "report.html").read_bytes()
    options = {"methods": "rff", "sizes": [10], "seeds": 1, "n_components": 2}
    found = bigkpca.compare(f"{bucket}/data.zarr", f"{bucket}/compared", **options)
    with store_of(bucket).open(f"{found.path}/compare.csv") as table:
        assert len(table.read().splitlines()) == 3
    with pytest.raises(SpecError, match="already holds a comparison"):
        bigkpca.compare(f"{bucket}/data.zarr", f"{bucket}/compared", **options)
    bigkpca.compare(f"{bucket}/data.zarr", f"{bucket}/compared", overwrite=True, **options)


@pytest.mark.full
def test_a_run_goes_on_after_its_server_was_killed(source, tmp_path, use_s3, monkeypatch):
    local, bucket = str(tmp_path / "local"), "s3://rows/killed"
    made(source, local, local)
    server = Server(tmp_path / "server")
    server.folder.mkdir()
    try:
        server.start()
        use_s3(server.port)
        made(source, local, bucket)
        store_of(bucket).remove_folder(f"{bucket}/scores.zarr")

        def transform(**options):
            data = f"{local}/data.zarr"
            bigkpca.transform(f"{local}/model.zarr", data, f"{bucket}/scores.zarr", residual=True, **options)

        def kill():
            server.kill()
            impatient.setattr(clients, "PATIENCE", clients.Patience(0.5, read=2, request=2, retry=1, retries=1))
            use_s3(server.port)  # with clients that are made anew

        with monkeypatch.context() as impatient, pytest.raises(IncompleteError, match="does not answer"):
            transform(progress=Once(what=kill))
        server.start()
        use_s3(server.port)
        transform()
        assert in_bucket(bucket) == tree_bytes(local)
    finally:
        server.kill()


@pytest.mark.full
def test_two_runs_of_a_request_at_once_make_its_bytes(source, tmp_path, bucket):
    local = str(tmp_path / "local")
    made(source, local, local)

    def run_once(path):
        with suppress(LockedError):  # the other one published first
            bigkpca.transform(f"{local}/model.zarr", f"{local}/data.zarr", path, residual=True)
            return True

    with ThreadPoolExecutor(2) as pool:
        assert any(pool.map(run_once, [f"{bucket}/out"] * 2))
    assert in_bucket(f"{bucket}/out") == tree_bytes(f"{local}/scores.zarr")


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # of writes that Zarr did not begin
@pytest.mark.parametrize(("step", "every"), [("ingest", 3), ("append", 1), ("fit", 23), ("transform", 5)])
def test_a_command_that_was_cut_off_at_any_request_is_finished_by_the_same(
    source, tmp_path, bucket, steps, step, every
):
    local = str(tmp_path / "local")
    other = as_npy(tmp_path, np.random.default_rng(1).normal(size=(50, 4)).astype("f4"), "other.npy")
    made(source, local, local)
    how = {"block_rows": 32, "overwrite": True}
    command = {
        "ingest": lambda out, rows: ingest([rows], out, **how),
        "append": lambda out, rows: ingest([rows], out, block_rows=32, append=rows == other),
        "fit": lambda out, rows: bigkpca.fit(rows, out, **FIT | how),
        "transform": lambda out, rows: bigkpca.transform(f"{local}/model.zarr", rows, out, **how),
    }[step]
    for rows in (source, other):
        command(f"{local}/wanted/out", rows)
    for most in itertools.count(0, every):
        out = f"{bucket}/{most}"
        command(f"{out}/out", source)
        with steps.cut(most):
            command(f"{out}/out", other)
        if steps.count <= most:
            break
        command(f"{out}/out", other)
        assert in_bucket(out) == tree_bytes(f"{local}/wanted"), most
    assert most // every > 4, "too few stops to tell anything"
