"""Input that is moved, unmounted, replaced or changed while a command reads it: the right bytes, or an error alone."""

import contextlib
import random
import re
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

import bigkpca
from bigkpca.data.stores import LocalDisk
from bigkpca.errors import BigKPCAError, CorruptionError, IncompleteError, SpecError
from tests.helpers.dask_processes import DaskProcesses
from tests.helpers.disks import mounted, tree_bytes
from tests.helpers.progress import Once
from tests.helpers.reads import Events

ROWS, BLOCK = 2990, 50  # the last chunk is not full
TITLES = {"transform": "transforming", "fit": "fitting"}  # of passes


class Scene:
    """A dataset of many small chunks, a model, and the scores that are right; `disk` holds the dataset."""

    def __init__(self, folder, disk=None):
        self.here = folder / "here"
        self.here.mkdir()
        self.data, self.model, self.out = (disk or self.here) / "d.zarr", self.here / "m.zarr", self.here / "out.zarr"
        np.save(self.here / "source.npy", np.random.default_rng(3).integers(0, 200, (ROWS, 5)).astype("i2"))
        bigkpca.ingest(self.here / "source.npy", self.data, block_rows=BLOCK)
        bigkpca.fit(self.data, self.model, n_components=3, size=20, random_state=1)
        self.transform()
        self.wanted = tree_bytes(self.out)
        shutil.rmtree(self.out)

    def transform(self, **how):
        bigkpca.transform(self.model, self.data, self.out, block_rows=BLOCK, **how)

    def fit(self, **how):
        bigkpca.fit(self.data, self.out, n_components=3, size=20, random_state=4, block_rows=2 * BLOCK, **how)


def ended(work):
    """The exit code of a call, and the message of its error."""
    try:
        work()
    except BigKPCAError as error:
        return error.exit_code, str(error)
    return 0, ""


@pytest.fixture(scope="module")
def scene(tmp_path_factory):
    return Scene(tmp_path_factory.mktemp("real"))


@pytest.mark.timeout(3000)
@pytest.mark.parametrize(
    "moves", [2, pytest.param(10, marks=pytest.mark.full), pytest.param(200, marks=pytest.mark.long)]
)
def test_an_input_that_is_moved_away_for_some_reads_gives_no_wrong_row(moves, scene):
    """It comes back after these, or when the command has ended: it ends well, or it publishes nothing."""
    rng, away = random.Random(moves), scene.here / "away"
    for _ in range(moves):
        at, back = rng.randint(1, ROWS // BLOCK), rng.choice([1, 2, 5, 20, None])
        events = Events(scene.data, {at: lambda: scene.data.rename(away)})
        if back:
            events.actions[at + back] = lambda: away.rename(scene.data)
        with events.watched():
            code, told = ended(scene.transform)
        assert code in (0, 6, 7), (at, back, told)
        assert scene.out.exists() == (code == 0), (at, back, told)
        if away.exists():
            away.rename(scene.data)
        if code:
            scene.transform()
        assert tree_bytes(scene.out) == scene.wanted, (at, back, told)
        assert [path.name for path in scene.here.glob("out.zarr*")] == ["out.zarr"]
        shutil.rmtree(scene.out)


@pytest.mark.long
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("late", [False, True], ids=["loses it", "comes late without it"])
def test_a_worker_that_does_not_see_the_input_gives_no_wrong_row(late, tmp_path):
    apart = ["unshare", "-m"]
    if subprocess.run([*apart, "true"], capture_output=True, check=False).returncode:
        pytest.skip("a worker with mounts of its own needs the right to have them")

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
            scene.transform(scheduler=cluster.address, timeout=20, progress=then)
            finished = True
        assert scene.out.exists() == finished
        assert then.what is None
        scene.transform()
        assert tree_bytes(scene.out) == scene.wanted


# Replaced


REPLACED = {  # what is replaced, and what reads it meanwhile
    "export csv": ("s.zarr", lambda: bigkpca.export("s.zarr", "out.csv")),
    "export npy": ("s.zarr", lambda: bigkpca.export("s.zarr", "out.npy")),
    "export parquet": ("s.zarr", lambda: bigkpca.export("s.zarr", "out.parquet")),
    "reconstruct": ("s.zarr", lambda: bigkpca.reconstruct("m.zarr", "s.zarr", "out.zarr", block_rows=BLOCK)),
    "report": ("s.zarr", lambda: bigkpca.report("m.zarr", "out.html", scores="s.zarr")),
    "verify": ("s.zarr", lambda: bigkpca.verify("s.zarr")),
    "transform": ("m.zarr", lambda: bigkpca.transform("m.zarr", "d.zarr", "out.zarr", block_rows=BLOCK)),
    "export onnx": ("m.zarr", lambda: bigkpca.export("m.zarr", "out.onnx")),
}
STAMPS = rb'"stamp": "[0-9a-f]+"|"bigkpca-request" content="[0-9a-f]+"'


@pytest.fixture(scope="module")
def versions(scene):
    """Two versions of scores, which are of other rows, and of a model."""
    with contextlib.chdir(scene.here):
        np.save("other.npy", np.load("source.npy")[::-1])
        bigkpca.ingest("other.npy", "other.zarr", block_rows=BLOCK)
        for rows, out in (("d.zarr", "1/s.zarr"), ("other.zarr", "2/s.zarr")):
            bigkpca.transform("m.zarr", rows, out, block_rows=BLOCK)
        shutil.copytree("m.zarr", "1/m.zarr")
        bigkpca.fit("d.zarr", "2/m.zarr", n_components=3, size=25, random_state=1)
    return scene.here


@pytest.mark.timeout(3000)
@pytest.mark.parametrize(
    ("name", "most"),
    [
        ("transform", 1),
        *(pytest.param(name, 3, marks=pytest.mark.full) for name in ("transform", "export npy", "reconstruct")),
        *(pytest.param(name, 30, marks=pytest.mark.long) for name in REPLACED),
    ],
)
def test_what_is_replaced_while_it_is_read_is_read_as_one_version(name, most, versions, monkeypatch):
    monkeypatch.chdir(versions)
    replaced, work = REPLACED[name]

    def restore(version):
        """One version at the path of what is replaced, the first of others, and nothing that the command wrote."""
        for path in (Path("s.zarr"), Path("m.zarr"), Path("new"), *Path().glob("out.*")):
            shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)
        for path in ("s.zarr", "m.zarr"):
            shutil.copytree(f"{version if path == replaced else 1}/{path}", path)

    def written():
        """All files, without digests of the times of other files."""
        found = {str(path): path.read_bytes() for path in Path().glob("out.*") if path.is_file()}
        found |= {f"{path}/{file}": held for path in Path().glob("out.zarr") for file, held in tree_bytes(path).items()}
        return {file: re.sub(STAMPS, b"", content) for file, content in found.items()}

    def replace():
        shutil.copytree(f"2/{replaced}", "new")
        LocalDisk().move("new", replaced, "old")

    undisturbed = []
    for version in (1, 2):
        restore(version)
        with Events(Path(replaced).absolute()).watched() as events:
            work()
        undisturbed.append(written())
    for at in random.Random(3).sample(range(1, events.count + 1), min(most, events.count)):
        restore(1)
        with Events(Path(replaced).absolute(), {at: replace}).watched() as events:
            code, told = ended(work)
        assert not events.actions
        assert code in (0, 6), (at, told)
        assert written() in (undisturbed if code == 0 else ({},)), (at, told)
        for path in Path().glob("out.*"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        work()
        assert written() == undisturbed[1], at
    restore(1)


COMMANDS = ["transform", pytest.param("fit", marks=pytest.mark.full)]


@pytest.mark.parametrize("command", COMMANDS)
def test_rows_that_change_while_they_are_read_are_refused(command, tmp_path):
    scene = Scene(tmp_path)
    work, chunks, left = getattr(scene, command), scene.data / "x" / "c", {path.name for path in scene.here.iterdir()}

    def meddle():
        (chunks / "3" / "0").write_bytes((chunks / "2" / "0").read_bytes())

    refused = r"d\.zarr changed while it was being read: run again when nothing writes to it"
    with pytest.raises(IncompleteError, match=refused):
        work(progress=Once(what=meddle, title=TITLES[command]))
    assert not scene.out.exists()
    work()
    bigkpca.verify(scene.out)
    assert {path.name for path in scene.here.iterdir()} == left | {"out.zarr"}


@pytest.mark.parametrize("command", COMMANDS)
def test_rows_that_are_added_meanwhile_change_nothing(command, tmp_path):
    scene = Scene(tmp_path)
    work, source = getattr(scene, command), scene.here / "source.npy"
    work()
    wanted = tree_bytes(scene.out)
    shutil.rmtree(scene.out)
    work(progress=Once(what=lambda: bigkpca.ingest(source, scene.data, append=True), title=TITLES[command]))
    assert tree_bytes(scene.out) == wanted
    assert bigkpca.info(scene.data)["shape"] == [2 * ROWS, 5]
