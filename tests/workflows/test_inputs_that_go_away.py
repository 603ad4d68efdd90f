"""Input that is moved, unmounted or replaced while a command reads it: the right bytes, or an error and nothing.

A command in a process of its own stops itself at a read (SIGSTOP); then its input goes, and the process goes on.
"""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import pytest

import bigkpca
from bigkpca.errors import CorruptionError, IncompleteError, SpecError
from tests.helpers.commands import run_apart
from tests.helpers.dask_processes import DaskProcesses, wait_until
from tests.helpers.disks import tree_bytes
from tests.helpers.progress import Recorder
from tests.helpers.reads import Reads

pytestmark = pytest.mark.timeout(3000)
ROWS, BLOCK = 3000, 50


class Scene:
    """A dataset of many small shards, a model, and the scores that are right; `disk` holds the dataset."""

    def __init__(self, folder, disk=None):
        self.here = folder / "here"
        self.here.mkdir()
        self.data, self.model, self.out = (disk or self.here) / "d.zarr", self.here / "m.zarr", self.here / "out.zarr"
        np.save(self.here / "source.npy", np.random.default_rng(3).integers(0, 200, (ROWS, 5)).astype("i2"))
        bigkpca.ingest(self.here / "source.npy", self.data, block_rows=BLOCK)
        bigkpca.fit(self.data, self.model, components=3, size=20, seed=1)
        bigkpca.transform(self.model, self.data, self.out, block_rows=BLOCK)
        self.wanted = tree_bytes(self.out)
        shutil.rmtree(self.out)
        self.reads = Reads(folder / "reads", folder)

    @contextmanager
    def stopped(self, at, files, *arguments):
        """A command that stopped when it was about to read one of these files for the time `at`."""
        command = [sys.executable, "-m", "bigkpca.cli", *map(str, arguments)]
        env = {**os.environ, **self.reads.environment}
        with (
            self.reads.fault(files, "stop", at),
            subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process,
        ):
            try:
                wait_until(lambda: process.poll() is not None or is_stopped(process.pid))
                assert process.poll() is None, process.stderr.read()
                yield process
            finally:
                process.kill()

    def transform(self, timeout):
        """The arguments of a command."""
        return ["transform", self.model, self.data, self.out, "--block-rows", BLOCK, "--timeout", timeout, "-q"]

    def check(self, process, where, ended):
        """A transform that goes on now ends well, or publishes nothing and the same command then ends well."""
        told = process.communicate(timeout=200)[1]
        ended[process.returncode] += 1
        assert process.returncode in (0, 6, 7), f"{where}: {told}"
        if process.returncode:
            assert not self.out.exists(), f"{where}: published, though it ended with {process.returncode}"
            again = run_apart(*self.transform(60))
            assert again.returncode == 0, f"{where}: the same command: {again.stderr}"
        assert tree_bytes(self.out) == self.wanted, f"{where}: ended with {process.returncode}: {told}"
        for path in self.here.glob("out.zarr*"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def is_stopped(pid):
    """Whether a process got SIGSTOP."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def chunks(place):
    return sorted(path for path in place.rglob("*") if path.is_file() and path.suffix != ".json")


@pytest.fixture(scope="module")
def scene(tmp_path_factory):
    return Scene(tmp_path_factory.mktemp("real"))


@pytest.mark.parametrize("moves", [pytest.param(2, marks=pytest.mark.full), pytest.param(100, marks=pytest.mark.long)])
def test_an_input_that_is_moved_away_for_a_moment_gives_no_wrong_row(moves, scene):
    ended, rng, away = Counter(), random.Random(0), scene.here / "away"
    for number in range(moves):
        at, seconds = rng.randint(1, ROWS // BLOCK), rng.choice([0.02, 0.2, 0.6, 2.5])
        with scene.stopped(at, chunks(scene.data), *scene.transform(3)) as process:
            scene.data.rename(away)
            process.send_signal(signal.SIGCONT)
            time.sleep(seconds)  # how long it is away: shorter and longer than reads are tried again
            away.rename(scene.data)
            scene.check(process, f"move {number}, at read {at} for {seconds} s", ended)
    print(ended)


# File systems that go, and workers that do not see them


@pytest.fixture
def mounted(tmp_path):
    """With its dataset on a file system of its own, at `mount`; skips the test where none can be mounted."""
    disk, at = tmp_path / "disk", tmp_path / "mount"
    disk.mkdir()
    at.mkdir()
    if subprocess.run(["mount", "--bind", disk, at], capture_output=True, check=False).returncode:
        pytest.skip("a file system that goes away needs the right to mount one")
    try:
        yield Scene(tmp_path, at)
    finally:
        subprocess.run(["umount", "-l", at], check=False, capture_output=True)


@pytest.mark.long
@pytest.mark.parametrize("seconds", [0.3, 4.0, None])
def test_a_file_system_that_goes_away_gives_no_wrong_row(seconds, mounted, tmp_path):
    ended, at = Counter(), tmp_path / "mount"
    for number in (1, 30, ROWS // BLOCK):
        with mounted.stopped(number, chunks(mounted.data), *mounted.transform(4)) as process:
            subprocess.run(["umount", "-l", at], check=True)
            process.send_signal(signal.SIGCONT)
            if seconds is None:
                wait_until(lambda process=process: process.poll() is not None)
            else:
                time.sleep(seconds)
            subprocess.run(["mount", "--bind", tmp_path / "disk", at], check=True)
            mounted.check(process, f"gone at read {number}", ended)
    print(ended)


class Then(Recorder):
    """Does something once, when some blocks are done."""

    def __init__(self, what):
        super().__init__()
        self.what = what

    def advance(self, rows):
        super().advance(rows)
        if self.what is not None and self.rows >= 500:
            self.what()
            self.what = None


@pytest.mark.long
@pytest.mark.parametrize("late", [False, True], ids=["loses it", "comes late without it"])
def test_a_worker_that_does_not_see_the_input_gives_no_wrong_row(late, mounted, tmp_path):
    apart, at = ["unshare", "-m"], tmp_path / "mount"
    if subprocess.run([*apart, "true"], capture_output=True, check=False).returncode:
        pytest.skip("a worker with mounts of its own needs the right to have them")

    def transform(**how):
        bigkpca.transform(mounted.model, mounted.data, mounted.out, block_rows=BLOCK, **how)

    with DaskProcesses(tmp_path / "cluster", 1) as cluster:
        if not late:
            worker = cluster.start_worker(apart)
            cluster.wait_for_workers()

        def event():
            if late:
                cluster.start_worker([*apart, "sh", "-c", f'umount -l "{at}" && exec "$@"', "sh"])
                cluster.wait_for_workers()
            else:
                subprocess.run(["nsenter", "-t", str(worker.pid), "-m", "umount", "-l", at], check=True)

        then, finished = Then(event), False
        with suppress(IncompleteError, CorruptionError, *([SpecError] if late else [])):
            transform(scheduler=cluster.address, timeout=20, progress=then)
            finished = True
        assert mounted.out.exists() == finished
        assert then.what is None
    transform()
    assert tree_bytes(mounted.out) == mounted.wanted


# Replaced


REPLACED = {  # what is replaced, and the command that reads it meanwhile
    "export csv": ("s.zarr", ["export", "s.zarr", "out.csv"]),
    "export npy": ("s.zarr", ["export", "s.zarr", "out.npy"]),
    "export parquet": ("s.zarr", ["export", "s.zarr", "out.parquet"]),
    "reconstruct": ("s.zarr", ["reconstruct", "m.zarr", "s.zarr", "out.zarr", "--block-rows", "50"]),
    "report": ("s.zarr", ["report", "m.zarr", "out.html", "--scores", "s.zarr"]),
    "verify": ("s.zarr", ["verify", "s.zarr"]),
    "transform": ("m.zarr", ["transform", "m.zarr", "d.zarr", "out.zarr", "--block-rows", "50"]),
    "export onnx": ("m.zarr", ["export", "m.zarr", "out.onnx"]),
}


@pytest.mark.parametrize(
    ("name", "most"),
    [pytest.param(name, 1, marks=pytest.mark.full) for name in ("export npy", "transform")]
    + [pytest.param(name, 4, marks=pytest.mark.long) for name in REPLACED],
)
def test_what_is_replaced_while_it_is_read_is_read_as_one_version(name, most, scene, monkeypatch):
    monkeypatch.chdir(scene.here)
    replaced, command = REPLACED[name]
    out = Path(next((word for word in command if word.startswith("out.")), "none"))
    kept, fit = scene.here.parent / "kept", {"components": 3, "seed": 1}
    if not kept.exists():
        kept.mkdir()
        bigkpca.fit("d.zarr", "other.zarr", size=25, **fit)
        bigkpca.transform("m.zarr", "d.zarr", kept / "s.zarr", block_rows=50)
        shutil.copytree("m.zarr", kept / "m.zarr")

    def restore():
        """The first version of model and scores, and nothing of earlier runs."""
        for path in (Path("s.zarr"), Path("m.zarr"), *Path().glob("out.*")):
            shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)
        for each in ("s.zarr", "m.zarr"):
            shutil.copytree(kept / each, each)

    def replace():
        if replaced == "s.zarr":
            bigkpca.transform("other.zarr", "d.zarr", "s.zarr", block_rows=50, overwrite=True)
        else:
            bigkpca.fit("d.zarr", "m.zarr", size=25, overwrite=True, **fit)

    def written():
        return tree_bytes(out) if out.is_dir() else out.read_bytes() if out.exists() else None

    def whole_run():
        """What the command writes where nobody disturbs it."""
        shutil.rmtree(out) if out.is_dir() else out.unlink(missing_ok=True)
        done = run_apart(*command, "-q")
        assert done.returncode == 0, done.stderr
        return written()

    restore()
    files = chunks(Path(replaced).absolute())
    with monkeypatch.context() as watched, scene.reads.fault(files):
        for variable, value in scene.reads.environment.items():
            watched.setenv(variable, value)
        before, count = whole_run(), scene.reads.count
    replace()
    after = whole_run()
    for at in random.Random(3).sample(range(1, count + 1), min(most, count)):
        restore()
        with scene.stopped(at, files, *command, "-q") as process:
            replace()
            process.send_signal(signal.SIGCONT)
            told = process.communicate(timeout=200)[1]
        where = f"replaced at read {at} of {count}: {process.returncode}: {told}"
        assert process.returncode in (0, 6), where
        assert written() in ((before, after) if process.returncode == 0 else (None,)), where
        assert whole_run() == after, where
    restore()
