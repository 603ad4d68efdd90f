"""Thirty nights on MNIST: killed, started twice, without new rows; and a job on an object store."""

import gzip
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import bigkpca
from bigkpca.errors import IncompleteError, LockedError, SpecError
from bigkpca.storage import growing
from tests.helpers.commands import run_apart
from tests.helpers.disks import tree_bytes
from tests.helpers.files import shared_file
from tests.helpers.nights import JOB, Night, some_rows
from tests.helpers.progress import Recorder

_EACH = 2000  # rows of a night
_KILLED, _TWICE, _EMPTY = {5, 11, 23}, {8, 17}, {14}
_MNIST = JOB.replace("components = 3", "components = 20").replace("size = 20", "size = 200").replace("32", "4096")


def command(night):
    return subprocess.Popen(
        [sys.executable, "-m", "bigkpca.cli", "run", night.job, "-q"], stderr=subprocess.PIPE, text=True
    )


def killed(night, rng):
    """Start the job, and kill it at some time; it may have ended."""
    with command(night) as process:
        time.sleep(rng.uniform(0.3, 4))
        process.send_signal(signal.SIGKILL)


def started_twice(night):
    """Start the job twice at once: one or both succeed, and one that does not is refused by the lock."""
    with command(night) as first, command(night) as second:
        codes = sorted((first.wait(100), second.wait(100)))
        errors = [process.stderr.read() for process in (first, second) if process.stderr]
    assert codes in ([0, 0], [0, 5]), errors


@pytest.mark.long
def test_thirty_nights_are_one_transform_to_the_byte(tmp_path):
    file = gzip.decompress(shared_file("mnist", "train-images-idx3-ubyte.gz").read_bytes())
    X = np.frombuffer(file, np.uint8, offset=16).reshape(-1, 784)
    night, rng, begun = Night.made(tmp_path / "job"), random.Random(7), 0
    night.set(_MNIST)
    published, idle = [], []
    for number in range(30):
        if number not in _EMPTY:
            night.append(X[begun : begun + _EACH], chunk=1000)
            begun += _EACH
        if number in _KILLED:
            killed(night, rng)
        if number in _TWICE:
            started_twice(night)
        else:
            started = time.perf_counter()
            night.run()
            idle += [time.perf_counter() - started] if number in _EMPTY else []
        published.append(growing.read(f"{night.out}/1")["rows"])
    assert published == [_EACH * (1 + number - (number >= 14)) for number in range(30)]
    done = [record["rows"] for record in bigkpca.history(night.out) if record["status"] == "done"]
    assert done == [[start, start + _EACH] for start in range(0, 29 * _EACH, _EACH)]
    assert max(idle) < 2
    bigkpca.transform(night.model, night.rows, tmp_path / "wanted.zarr", block_rows=4096)
    wanted, found = tree_bytes(tmp_path / "wanted.zarr" / "scores"), tree_bytes(f"{night.out}/1/scores")
    assert len(wanted) == 17
    assert {name for name in wanted if wanted[name] != found.get(name)} == {"manifest.json"}
    assert wanted.keys() == found.keys()
    assert sorted(path.name for path in Path(night.out).iterdir()) == ["1", "manifest.json", "runs.jsonl", "zarr.json"]


def test_a_job_on_an_object_store(tmp_path, bucket):
    night = Night.made(tmp_path / "job", bucket)
    for number, count in enumerate((90, 20, 33)):
        night.append(some_rows(count, number))
        (record,) = night.run()
        assert record["rows"][1] - record["rows"][0] == count
    assert night.run()[0]["status"] == "nothing new"
    np.testing.assert_array_equal(night.scores(), night.wanted())
    night.run(rows="0:40")
    bigkpca.rollback(night.out)
    assert bigkpca.verify(night.out).shape == (143, 3)

    class Twice(Recorder):
        def start(self, title, rows):
            with pytest.raises(LockedError, match="another run is writing"):
                night.run()

    night.append(some_rows(9))
    night.run(Twice())
    assert night.scores().shape == (152, 3)


def test_a_bucket_without_permission_is_refused(tmp_path, bucket, monkeypatch):
    night = Night.made(tmp_path / "job", bucket)
    night.append(some_rows(90))
    night.run()
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    done = run_apart("run", night.job)
    assert done.returncode == 2
    assert "access denied" in done.stderr


def test_a_scheduler_that_does_not_answer_ends_the_run_with_its_address(tmp_path):
    night = Night.made(tmp_path / "job", scheduler="tcp://127.0.0.1:9", timeout="5 s")
    night.append(some_rows(90))
    with pytest.raises((IncompleteError, SpecError), match=r"tcp://127\.0\.0\.1:9"):
        night.run()
    assert bigkpca.history(night.out)[0]["exit_code"] in (2, 6)
    night.set()
    night.run()
    np.testing.assert_array_equal(night.scores(), night.wanted())
