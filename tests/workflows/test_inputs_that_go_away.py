"""Input that is moved, unmounted, replaced or changed while a command reads it: the right bytes, or an error alone.

A command in a process of its own stops itself at a read (SIGSTOP); then its input goes, and the process goes on.
"""

import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import psutil
import pytest

import bigkpca
from bigkpca.errors import CorruptionError, IncompleteError, SpecError
from tests.helpers.commands import run_apart
from tests.helpers.dask_processes import DaskProcesses, wait_until
from tests.helpers.disks import mounted, tree_bytes
from tests.helpers.fits import OPTIONS
from tests.helpers.progress import Once
from tests.helpers.reads import Reads

pytestmark = pytest.mark.timeout(3000)
ROWS, BLOCK = 3000, 50


class Scene:
    """A dataset of many small chunks, a model, and the scores that are right; `disk` holds the dataset."""

    def __init__(self, folder, disk=None):
        self.here = folder / "here"
        self.here.mkdir()
        self.data, self.model, self.out = (disk or self.here) / "d.zarr", self.here / "m.zarr", self.here / "out.zarr"
        np.save(self.here / "source.npy", np.random.default_rng(3).integers(0, 200, (ROWS, 5)).astype("i2"))
        bigkpca.ingest(self.here / "source.npy", self.data, block_rows=BLOCK)
        bigkpca.fit(self.data, self.model, n_components=3, size=20, random_state=1)
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
                wait_until(lambda: process.poll() is not None or psutil.Process(process.pid).status() == "stopped")
                assert process.poll() is None, process.stderr.read()
                yield process
            finally:
                process.kill()

    def check(self, at, seconds, away, back):
        """A transform whose input is away for so long from this read on, or until it ended, ends well; or it publishes
        nothing, and the same command then ends well."""
        where = f"away at read {at} for {seconds} s"
        transform = ["transform", self.model, self.data, self.out, "--block-rows", BLOCK, "-q"]
        with self.stopped(at, chunks(self.data), *transform, "--timeout", 4) as process:
            away()
            process.send_signal(signal.SIGCONT)
            if seconds is None:
                wait_until(lambda: process.poll() is not None)
            else:
                time.sleep(seconds)
            back()
            told = process.communicate(timeout=200)[1]
        print(where, process.returncode)
        assert process.returncode in (0, 6, 7), f"{where}: {told}"
        if process.returncode:
            assert not self.out.exists(), f"{where}: published, though it ended with {process.returncode}"
            again = run_apart(*transform)
            assert again.returncode == 0, f"{where}: the same command: {again.stderr}"
        assert tree_bytes(self.out) == self.wanted, f"{where}: ended with {process.returncode}: {told}"
        for path in self.here.glob("out.zarr*"):
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


def chunks(place):
    return sorted(path for path in place.rglob("*") if path.is_file() and path.suffix != ".json")


@pytest.fixture(scope="module")
def scene(tmp_path_factory):
    return Scene(tmp_path_factory.mktemp("real"))


@pytest.mark.parametrize("moves", [pytest.param(2, marks=pytest.mark.full), pytest.param(100, marks=pytest.mark.long)])
def test_an_input_that_is_moved_away_for_a_moment_gives_no_wrong_row(moves, scene):
    rng, away = random.Random(0), scene.here / "away"
    for _ in range(moves):
        at, seconds = rng.randint(1, ROWS // BLOCK), rng.choice([0.02, 0.2, 0.6, 2.5, None])
        scene.check(at, seconds, lambda: scene.data.rename(away), lambda: away.rename(scene.data))


@pytest.mark.long
@pytest.mark.parametrize("late", [False, True], ids=["loses it", "comes late without it"])
def test_a_worker_that_does_not_see_the_input_gives_no_wrong_row(late, tmp_path):
    apart = ["unshare", "-m"]
    if subprocess.run([*apart, "true"], capture_output=True, check=False).returncode:
        pytest.skip("a worker with mounts of its own needs the right to have them")

    def transform(**how):
        bigkpca.transform(scene.model, scene.data, scene.out, block_rows=BLOCK, **how)

    with mounted("size=16m", tmp_path / "mount") as at, DaskProcesses(tmp_path / "cluster", 1) as cluster:
        scene = Scene(tmp_path, at)
        if not late:
            worker = cluster.start_worker(apart)
            cluster.wait_for_workers()

        def event():
            if late:
                cluster.start_worker([*apart, "sh", "-c", f'umount -l "{at}" && exec "$@"', "sh"])
                cluster.wait_for_workers()
            else:
                subprocess.run(["nsenter", "-t", str(worker.pid), "-m", "umount", "-l", at], check=True)

        then, finished = Once(what=event, after=499), False
        with suppress(IncompleteError, CorruptionError, *([SpecError] if late else [])):
            transform(scheduler=cluster.address, timeout=20, progress=then)
            finished = True
        assert scene.out.exists() == finished
        assert then.what is None
        transform()
        assert tree_bytes(scene.out) == scene.wanted


# Replaced


REPLACED = {  # what is replaced, and the command that reads it meanwhile
    "export csv": ("s.zarr", "export s.zarr out.csv"),
    "export npy": ("s.zarr", "export s.zarr out.npy"),
    "export parquet": ("s.zarr", "export s.zarr out.parquet"),
    "reconstruct": ("s.zarr", "reconstruct m.zarr s.zarr out.zarr --block-rows 50"),
    "report": ("s.zarr", "report m.zarr out.html --scores s.zarr"),
    "verify": ("s.zarr", "verify s.zarr"),
    "transform": ("m.zarr", "transform m.zarr d.zarr out.zarr --block-rows 50"),
    "export onnx": ("m.zarr", "export m.zarr out.onnx"),
}


STAMPS = rb'"stamp": "[0-9a-f]+"|"bigkpca-request" content="[0-9a-f]+"'


@pytest.mark.parametrize(
    ("name", "most"),
    [pytest.param(name, 1, marks=pytest.mark.full) for name in ("export npy", "transform")]
    + [pytest.param(name, 4, marks=pytest.mark.long) for name in REPLACED],
)
def test_what_is_replaced_while_it_is_read_is_read_as_one_version(name, most, scene, monkeypatch):
    monkeypatch.chdir(scene.here)
    replaced, command = REPLACED[name][0], [*REPLACED[name][1].split(), "-q"]
    kept, fit = scene.here.parent / "kept", {"n_components": 3, "random_state": 1}
    if not kept.exists():
        shutil.copytree("m.zarr", kept / "m.zarr")
        np.save("other.npy", np.load("source.npy")[::-1])
        bigkpca.ingest("other.npy", "other.zarr", block_rows=BLOCK)
        bigkpca.transform("m.zarr", "d.zarr", kept / "s.zarr", block_rows=50)

    def restore(*paths):
        """The first version of these, and nothing that the command wrote."""
        for path in (*map(Path, paths), *Path().glob("out.*")):
            shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)
        for path in paths:
            shutil.copytree(kept / path, path)

    def replace():
        if replaced == "s.zarr":
            bigkpca.transform("m.zarr", "other.zarr", "s.zarr", block_rows=50, overwrite=True)
        else:
            bigkpca.fit("d.zarr", "m.zarr", size=25, overwrite=True, **fit)

    def written():
        """All files, without digests of the times of other files."""
        found = {str(path): path.read_bytes() for path in Path().rglob("*") if path.is_file()}
        return {file: re.sub(STAMPS, b"", found[file]) for file in found if file.startswith("out.")}

    def whole_run():
        """What the command writes where nobody disturbs it."""
        restore()
        done = run_apart(*command)
        assert done.returncode == 0, done.stderr
        return written()

    restore("s.zarr", "m.zarr")
    files = chunks(Path(replaced).absolute())
    with monkeypatch.context() as watched, scene.reads.fault(files):
        for variable, value in scene.reads.environment.items():
            watched.setenv(variable, value)
        before, count = whole_run(), scene.reads.count
    replace()
    after = whole_run()
    for at in random.Random(3).sample(range(1, count + 1), min(most, count)):
        restore("s.zarr", "m.zarr")
        with scene.stopped(at, files, *command) as process:
            replace()
            process.send_signal(signal.SIGCONT)
            told = process.communicate(timeout=200)[1]
        where = f"replaced at read {at} of {count}: {process.returncode}: {told}"
        assert process.returncode in (0, 6), where
        assert written() in ((before, after) if process.returncode == 0 else ({},)), where
        assert whole_run() == after, where
    restore("s.zarr", "m.zarr")


@pytest.fixture
def digits_on_disk(tmp_path, digits):
    """600 rows as a dataset, whose last chunk is not full."""
    np.save(tmp_path / "x.npy", digits[:600])
    bigkpca.ingest(tmp_path / "x.npy", tmp_path / "d.zarr", block_rows=128)
    bigkpca.fit(tmp_path / "d.zarr", tmp_path / "m.zarr", **OPTIONS)
    return tmp_path


def of_digits(command, at, **how):
    """Run a command on these rows; what it writes to out.zarr."""
    if command == "fit":
        bigkpca.fit(at / "d.zarr", at / "out.zarr", n_components=10, size=60, random_state=4, block_rows=100, **how)
    else:
        bigkpca.transform(at / "m.zarr", at / "d.zarr", at / "out.zarr", **how)
    return tree_bytes(at / "out.zarr")


COMMANDS = ["transform", pytest.param("fit", marks=pytest.mark.full)]


@pytest.mark.parametrize("command", COMMANDS)
def test_rows_that_change_while_they_are_read_are_refused(command, digits_on_disk):
    chunks = digits_on_disk / "d.zarr" / "x" / "c"

    def meddle():
        (chunks / "3" / "0").write_bytes((chunks / "2" / "0").read_bytes())

    refused = r"d\.zarr changed while it was being read: run again when nothing writes to it"
    with pytest.raises(IncompleteError, match=refused):
        of_digits(command, digits_on_disk, progress=Once(what=meddle, title="fitting" if command == "fit" else ""))
    assert not (digits_on_disk / "out.zarr").exists()
    of_digits(command, digits_on_disk)
    bigkpca.verify(digits_on_disk / "out.zarr")
    left = sorted(path.name for path in digits_on_disk.iterdir())
    assert left == ["d.zarr", "m.zarr", "out.zarr", "x.npy"]


@pytest.mark.parametrize("command", COMMANDS)
def test_rows_that_are_added_meanwhile_change_nothing(command, digits_on_disk):
    wanted = of_digits(command, digits_on_disk)
    shutil.rmtree(digits_on_disk / "out.zarr")
    then = Once(
        what=lambda: bigkpca.ingest(digits_on_disk / "x.npy", digits_on_disk / "d.zarr", append=True),
        title="fitting" if command == "fit" else "",
    )
    assert of_digits(command, digits_on_disk, progress=then) == wanted
    assert bigkpca.info(digits_on_disk / "d.zarr")["shape"] == [1200, 64]
