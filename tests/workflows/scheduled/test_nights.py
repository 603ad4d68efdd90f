"""A job on an object store, without its scheduler, and nights on MNIST that are killed and started twice."""

import gzip
import os
import random
import subprocess
import sys
import time

import numpy as np
import pytest

import bigkpca
from bigkpca.data.stores import clients, store_of
from bigkpca.data.stores.objects import ObjectStore
from bigkpca.errors import IncompleteError, LockedError, SpecError
from bigkpca.storage import growing
from tests.helpers.disks import tree_bytes
from tests.helpers.files import shared_file
from tests.helpers.nights import JOB, Night, cut_off_at, some_rows
from tests.helpers.s3 import objects


@pytest.mark.full
def test_a_job_on_an_object_store(tmp_path, bucket):
    night = Night.made(tmp_path / "job", bucket)
    for number, count in enumerate((90, 53)):
        night.append(some_rows(count, number))
        (record,) = night.run()
        assert record["rows"][1] - record["rows"][0] == count
    assert night.run()[0]["status"] == "nothing new"
    np.testing.assert_array_equal(night.scores(), night.wanted())
    night.run(rows="0:40")
    bigkpca.rollback(night.out)
    assert bigkpca.verify(night.out).shape == (143, 3)
    night.append(some_rows(9))
    with store_of(night.out).writer(night.out), pytest.raises(LockedError, match="another run is writing"):
        night.run()


@pytest.mark.full
def test_a_model_that_was_cut_off_on_its_way_into_a_bucket_is_finished(tmp_path, bucket):
    night = Night.made(tmp_path / "job", bucket)
    night.append(some_rows(90))
    with cut_off_at(ObjectStore, "copy_file", call=4):
        night.run()
    night.run()
    np.testing.assert_array_equal(night.scores(), night.wanted())


@pytest.mark.full
def test_a_write_that_arrives_after_another_run_took_over_replaces_nothing(tmp_path, bucket, monkeypatch):
    night, late = Night.made(tmp_path / "job", bucket), []
    night.append(some_rows(70))
    night.run()
    night.append(some_rows(10, 1))

    def delayed(url, content, mode):
        if url.endswith(("scores/c/2/0", "manifest.json", "runs.jsonl")) and "/features.zarr" in url:
            late.append((url, content, mode))
            raise KeyboardInterrupt
        return real(url, content, mode)

    real = clients.put
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):  # noqa: PT012
        patched.setattr(clients, "put", delayed)
        night.run()
    night.run()
    night.append(some_rows(50, 2))
    night.run()
    wanted = objects(night.out)
    assert late
    for url, content, mode in late:
        with pytest.raises(clients.Conflict):
            real(url, content, mode)
    assert objects(night.out) == wanted


@pytest.mark.full
def test_a_scheduler_that_does_not_answer_ends_the_run_with_its_address(new):
    new.set(scheduler="tcp://127.0.0.1:9", timeout="1 s")
    new.append(some_rows(90))
    with pytest.raises((IncompleteError, SpecError), match=r"tcp://127\.0\.0\.1:9"):
        new.run()
    assert bigkpca.history(new.out)[0]["exit_code"] in (2, 6)
    new.set()
    assert new.run()[0]["total_rows"] == 90


@pytest.mark.long
def test_nights_that_are_killed_or_started_twice_are_one_transform_to_the_byte(tmp_path):
    """On MNIST: 2000 rows arrive each night, and two processes run the job, which are killed each third night."""
    file = gzip.decompress(shared_file("mnist", "train-images-idx3-ubyte.gz").read_bytes())
    X = np.frombuffer(file, np.uint8, offset=16).reshape(-1, 784)
    night, rng = Night.made(tmp_path / "job"), random.Random(7)
    night.set(JOB.replace("components = 3", "components = 20").replace("size = 20", "size = 200").replace("32", "4096"))
    command = [sys.executable, "-m", "bigkpca.cli", "run", night.job, "-q"]
    for number in range(15):
        night.append(X[2000 * number : 2000 * (number + 1)], chunk=1000)
        with subprocess.Popen(command) as first, subprocess.Popen(command) as second:
            if number % 3 == 2:
                time.sleep(rng.uniform(0.3, 4))  # at any step; they may have ended
                first.kill()
                second.kill()
            codes = sorted(process.wait(200) for process in (first, second))
        if number % 3 == 2:
            night.run()
        else:
            assert codes in ([0, 0], [0, 5])  # one that was refused by the lock
        assert growing.read(f"{night.out}/1")["rows"] == 2000 * (number + 1)
    done = [record["rows"] for record in bigkpca.history(night.out) if record["status"] == "done"]
    assert done == [[start, start + 2000] for start in range(0, 30_000, 2000)]
    bigkpca.transform(night.model, night.rows, tmp_path / "wanted.zarr", block_rows=4096)
    wanted, found = tree_bytes(tmp_path / "wanted.zarr" / "scores"), tree_bytes(f"{night.out}/1/scores")
    assert {name for name in wanted if wanted[name] != found.get(name)} == {"manifest.json"}
    assert wanted.keys() == found.keys()
    assert sorted(os.listdir(night.out)) == ["1", "manifest.json", "runs.jsonl", "zarr.json"]
