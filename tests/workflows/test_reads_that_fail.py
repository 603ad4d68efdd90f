"""Reads that fail in a command: the bytes of an undisturbed run, or an error and nothing; never a wrong row.

`python -m pytest -m slow -rP tests/workflows/test_reads_that_fail.py` tries every read, and prints how each ended.
"""

import inspect
import logging
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cache, partial
from itertools import zip_longest
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import h5py
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import zarr
from distributed import Client, LocalCluster
from zarr.codecs import BloscCodec

import bigkpca
from bigkpca.data.stores import clients
from bigkpca.data.stores.clients import client
from bigkpca.errors import BigKPCAError, CorruptionError, IncompleteError, SpecError
from tests.helpers import reads
from tests.helpers.commands import run_apart
from tests.helpers.dask_processes import DaskProcesses, wait_until
from tests.helpers.disks import tree_bytes
from tests.helpers.progress import Recorder
from tests.helpers.proxy import proxy
from tests.helpers.reads import DAMAGE, ONCE, Reads

Array = np.ndarray[Any, Any]
ROWS, COLUMNS, BLOCK = 2000, 6, 200
FIT = {"components": 3, "size": 20, "seed": 1, "block_rows": BLOCK}
PATIENT, IMPATIENT = 60.0, 2.0  # seconds of `timeout`: where reads are tried again at once, and where they end
SAMPLED = 6  # reads of a command, of which quick tests take one for each fault: the first, the last, and others
MOVES = 100  # of an input that is being read
JOB = f"""
seed = 1
[input]
path = "x.zarr"
[model]
path = "m2.zarr"
components = 3
size = 20
[output]
path = "f.zarr"
block_rows = {BLOCK}
[run]
"""


# Inputs: each is written twice, with other values the second time


def numbers(seed):
    return np.random.default_rng(seed).normal(size=(ROWS, COLUMNS)).astype("f4") * np.arange(1, 7, dtype=np.float32)


def gaps(array, values, height):
    """Write all but every fifth piece of so many rows, which keeps the fill value."""
    for number, start in enumerate(range(0, ROWS, height)):
        if number % 5 != 3:
            array[start : start + height] = values[start : start + height]


def dataset(at, values):
    """Integers, so that the fill value is a number."""
    np.save(at / "source.npy", np.round(20 * values).astype("i2"))
    bigkpca.ingest(at / "source.npy", at / "x.zarr", block_rows=BLOCK)


def foreign(version, **options):
    """A Zarr array of others, without checksums, and with chunks that were never written."""

    def write(at, values):
        place, height = str(at / "x.zarr"), (options.get("shards") or options["chunks"])[0]
        made = zarr.create_array(place, shape=values.shape, dtype="f4", fill_value=0.25, zarr_format=version, **options)
        gaps(made, values, height)

    return write


def sparse(values):
    return sp.csr_array(np.where(np.abs(values) > 1.5 * np.abs(values).mean(axis=0), values, 0))


def annotated(group, values):
    """AnnData with a sparse X, in Zarr or HDF5."""
    matrix = sparse(values)
    group.attrs["encoding-type"] = "anndata"
    X = group.create_group("X")
    X.attrs["encoding-type"], X.attrs["shape"] = "csr_matrix", list(matrix.shape)
    for name in ("data", "indices", "indptr"):
        held = getattr(matrix, name)
        if isinstance(X, zarr.Group):
            X.create_array(name, shape=held.shape, dtype=held.dtype, chunks=(300,))[:] = held
        else:
            X.create_dataset(name, data=held, chunks=(300,))


def hdf5(at, values):
    with h5py.File(at / "x.h5ad", "w") as file:
        annotated(file, values)


def features(at, values):
    """The scores of rows."""
    dataset(at, values)
    (at / "x.zarr").rename(at / "rows.zarr")
    bigkpca.fit(at / "rows.zarr", at / "mx.zarr", **FIT)
    bigkpca.transform(at / "mx.zarr", at / "rows.zarr", at / "x.zarr", block_rows=BLOCK)


INPUTS = {
    "dataset": dataset,
    "zarr 3": foreign(3, chunks=(BLOCK, 3)),
    "zarr 2": foreign(2, chunks=(BLOCK, COLUMNS)),
    "sharded": foreign(3, chunks=(BLOCK // 2, COLUMNS), shards=(BLOCK, COLUMNS), compressors=BloscCodec()),
    "npy": lambda at, values: np.save(at / "x.npy", values),
    "npz": lambda at, values: sp.save_npz(at / "x.npz", sparse(values)),
    "hdf5": hdf5,
    "anndata": lambda at, values: annotated(zarr.open_group(str(at / "x.zarr"), mode="w", zarr_format=2), values),
    "features": features,
}
SINGLE = ("npy", "npz", "hdf5")  # one file: at its first read another one is another input
GUARDED = ("dataset", "features")  # their blocks have digests


# Commands


@dataclass(frozen=True)
class Command:
    """What is called, with the folder of a scene and the path of its rows, and what it writes in that folder."""

    name: str  # of the public function
    call: Callable[..., Any]
    out: tuple[str, ...] = ()
    reads: tuple[str, ...] = ("x",)  # of what is there

    def how(self, seconds):
        """How long reads are tried again, as far as this call has an option for it."""
        takes = self.name == "run" or "timeout" in inspect.signature(getattr(bigkpca, self.name)).parameters
        return {"timeout": seconds} if takes else {}


def scheduled(at, x, timeout):
    (at / "job.toml").write_text(f"{JOB}timeout = {timeout}\n")
    bigkpca.run(at / "job.toml")


def exported(end, data="x"):
    def call(at, x, **how):
        bigkpca.export(x if data == "x" else at / "s.zarr", at / f"out.{end}", **how)

    return Command("export", call, (f"out.{end}",), (data,))


COMMANDS = {
    "fit": Command("fit", lambda at, x, **how: bigkpca.fit(x, at / "out.zarr", **FIT, **how), ("out.zarr",)),
    "transform": Command(
        "transform",
        lambda at, x, **how: bigkpca.transform(at / "m.zarr", x, at / "out.zarr", block_rows=BLOCK, **how),
        ("out.zarr",),
    ),
    "reconstruct": Command(
        "reconstruct",
        lambda at, x, **how: bigkpca.reconstruct(
            at / "m.zarr", at / "s.zarr", at / "out.zarr", block_rows=BLOCK, **how
        ),
        ("out.zarr",),
        ("s",),
    ),
    "denoise": Command(
        "denoise",
        lambda at, x, **how: bigkpca.denoise(at / "m.zarr", x, at / "out.zarr", block_rows=BLOCK, **how),
        ("out.zarr",),
    ),
    "evaluate": Command("evaluate", lambda at, x, **how: bigkpca.evaluate(at / "m.zarr", x, sample=50, **how)),
    "verify": Command("verify", lambda at, x, **how: bigkpca.verify(x, **how)),
    "verify features": Command("verify", lambda at, x, **how: bigkpca.verify(at / "s.zarr", **how), (), ("s",)),
    "export csv": exported("csv"),
    "export npy": exported("npy"),
    "export parquet": exported("parquet"),
    "export features": exported("npy", "s"),
    "report": Command(
        "report",
        lambda at, x, **how: bigkpca.report(at / "m.zarr", at / "out.html", scores=at / "s.zarr", **how),
        ("out.html",),
        ("s", "x"),
    ),
    "run": Command("run", scheduled, ("m2.zarr", "f.zarr")),
}


# How they end

# Exit codes that are right after each fault, unless what was written is right. A transient error is no reason to end.
RIGHT = {
    **dict.fromkeys(ONCE, (0,)),
    "EIO always": (6,),
    "ENOENT always": (7,),
    **dict.fromkeys((*DAMAGE, "stale"), (6, 7)),
}


@dataclass
class Tally:
    """How the calls ended to which a fault happened, and what was wrong with which."""

    ended: Counter[str] = field(default_factory=Counter)
    wrong_rows: int = 0
    bad: list[str] = field(default_factory=list)

    def show(self, name):
        """Print the counts, and fail where something was wrong, or nothing happened."""
        counts = ", ".join(f"{count} ended {how}" for how, count in sorted(self.ended.items()))
        print(f"{name}: {self.ended.total()} faults injected, {counts}; {self.wrong_rows} wrong rows")
        if self.bad or not self.ended:
            pytest.fail("\n".join(self.bad)[:5000] or "nothing happened", pytrace=False)


@dataclass(frozen=True)
class Wanted:
    """The result of an undisturbed call, byte by byte and row by row, and how often it read a chunk."""

    files: dict[str, bytes]
    rows: list[bytes]
    reads: int


class Scene:
    """A folder with rows of one kind, a model and scores of them; `twin` has other rows of the same layout."""

    def __init__(self, folder, kind):
        self.kind, self.here, twin = kind, folder / "here", folder / "twin"
        for seed, at in enumerate((self.here, twin)):
            at.mkdir(parents=True)
            INPUTS[kind](at, numbers(seed))
        (path,) = self.here.glob("x.*")
        self.x = path
        bigkpca.fit(path, self.here / "m.zarr", **FIT)
        for at in (self.here, twin):
            bigkpca.transform(self.here / "m.zarr", at / path.name, at / "s.zarr", block_rows=BLOCK)
        self.reads = Reads(folder / "reads", self.here, twin)
        self._kept = set(os.listdir(self.here))

    def files(self, command):
        """The chunks that the command reads."""
        found = []
        for name in command.reads:
            place = self.x if name == "x" else self.here / f"{name}.zarr"
            below = sorted(path for path in place.rglob("*") if path.is_file()) if place.is_dir() else [place]
            found += [path for path in below if path.suffix != ".json" and not path.name.startswith(".z")]
        return found

    def clean(self):
        """Remove what commands wrote."""
        for name in set(os.listdir(self.here)) - self._kept:
            path = self.here / name
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    def result(self, command, how):
        """Call, and give the bytes of what was written, or of what was returned."""
        returned = command.call(self.here, self.x, **how)
        return self.written(command) if command.out else {"": repr(returned).encode()}

    def written(self, command):
        """The bytes of what is there; of a job, of the model and the blocks alone, as the rest tells of each run."""
        found = {}
        for name in command.out:
            place = self.here / name
            held = tree_bytes(place) if place.is_dir() else {"": place.read_bytes()} if place.exists() else {}
            found |= {
                f"{name}/{below}": content for below, content in held.items() if name != "f.zarr" or "/c/" in below
            }
        return found

    def rows(self, command):
        """The rows that were written, of scores, pre-images and tables."""
        values = []
        for place in (self.here / name for name in command.out):
            if place.suffix == ".zarr":
                group = zarr.open_group(str(place / "1" if place.name == "f.zarr" else place), mode="r")
                values = next((group[name][:] for name in ("scores", "x") if name in group), [])
            elif place.suffix == ".npy":
                values = np.load(place)
            elif place.suffix in (".csv", ".parquet"):
                frame = pd.read_parquet(place) if place.suffix == ".parquet" else pd.read_csv(place)
                values = frame.to_numpy()
        return [row.tobytes() for row in values]

    @cache  # noqa: B019  # scenes live as long as the tests
    def wanted(self, command):
        """What an undisturbed call gives."""
        self.clean()
        with self.reads.fault(self.files(command)):
            found = self.result(command, command.how(PATIENT))
            return Wanted(found, self.rows(command), self.reads.count)

    def wrong_rows(self, command):
        """Rows that were written and are not what they are to be; 1 for what has none."""
        return sum(a != b for a, b in zip_longest(self.rows(command), self.wanted(command).rows)) if command.out else 1

    def wanted_of_other(self, command):
        """The result of an undisturbed call on the other version of a file that is the whole input."""
        self.clean()
        self.reads.replace(self.x)
        try:
            return self.result(command, command.how(PATIENT))
        finally:
            self.reads.heal()

    def fail(self, command, what, at, tally, seconds=IMPATIENT):
        """Call, with a fault at this read; then the same call again, without."""
        wanted = self.wanted(command).files
        self.clean()
        with self.reads.fault(self.files(command), what, at):
            code, message, found = self.ended(command, command.how(PATIENT if what in ONCE else seconds))
            happened = self.reads.happened
        if happened is None:
            return
        where = f"read {at}, of {Path(happened).relative_to(self.here)}"
        first = self.kind in SINGLE and at == 1
        if code == 0 and first and what == "other version" and found != wanted:
            found = wanted if found == self.wanted_of_other(command) else {}
        self.judge(command, tally, where, code, message, found, {*RIGHT[what], *self.also_right(what, first)})

    def ended(self, command, how):
        """Call; the exit code, the message of an error, and the result."""
        try:
            return 0, "", self.result(command, how)
        except BigKPCAError as error:
            return error.exit_code, str(error), {}
        except Exception as error:
            return 1, repr(error), {}

    def judge(self, command, tally, where, code, message, found, right):
        """Count how a call ended, and what is wrong with it; where it failed, call again, now that all is as before."""
        wanted = self.wanted(command).files
        if code == 0:
            tally.ended["right" if found == wanted else "with 0 and wrong"] += 1
            if found != wanted:
                tally.wrong_rows += (wrong := self.wrong_rows(command))
                tally.bad.append(f"{where}: ended with 0 and {wrong} wrong rows")
            return
        tally.ended[f"with {code}"] += 1
        if code not in right:
            tally.bad.append(f"{where}: ended with {code}: {message}")
        if not any(name in message for name in (self.x.name, "s.zarr")):
            tally.bad.append(f"{where}: the message does not name the input: {message}")
        left = self.written(command)
        if command.name == "run":  # which publishes the model first
            left = {name: content for name, content in left.items() if content != wanted.get(name)}
            left |= {"a version": b""} if (self.here / "f.zarr" / "manifest.json").exists() else {}
        if left:
            tally.bad.append(f"{where}: published {sorted(left)[:3]}")
        code, message, again = self.ended(command, command.how(PATIENT))
        if code:
            tally.bad.append(f"{where}: the same call afterwards ended with {code}: {message}")
        elif again != wanted:
            tally.wrong_rows += (wrong := self.wrong_rows(command))
            tally.bad.append(f"{where}: {wrong} wrong rows of the same call afterwards")

    def also_right(self, what, first):
        """Codes that are right for files which this process reads by itself when it opens them."""
        if what in ONCE and self.kind in (*SINGLE, "anndata"):
            return {6}
        return {2, 3, 6, 7} if first and what in (*DAMAGE, "ENOENT always") else set()


def sampled(count, most, seed=0):
    """Numbers of reads: the first, the last and seeded others; all of them where there are no more."""
    if count <= most:
        return list(range(1, count + 1))
    return sorted({1, count, *random.Random(seed).sample(range(2, count), most - 2)})


# Threads of this process


@pytest.fixture(scope="module")
def scenes(tmp_path_factory):
    """A scene for each kind of input, made when it is first needed."""
    reads.watch()
    made = {}

    def of(kind):
        if kind not in made:
            made[kind] = Scene(tmp_path_factory.mktemp("reads") / "all", kind)
        os.environ.update(made[kind].reads.environment)
        return made[kind]

    before = dict(os.environ)
    yield of
    os.environ.pop(reads.NAME, None)
    os.environ["PYTHONPATH"] = before.get("PYTHONPATH", "")


class WatchedHdf5(h5py.File):  # type: ignore[misc]  # h5py has no types
    """HDF5 opens files by itself: Python does not see it."""

    def __init__(self, name, *given, **options):
        sys.audit("open", name, "rb", os.O_RDONLY)
        super().__init__(name, *given, **options)


@pytest.fixture
def watched(monkeypatch):
    monkeypatch.setattr(h5py, "File", WatchedHdf5)


def check(scene, name, what, chosen):
    """Inject a fault at the chosen of so many reads, one after the other."""
    command, tally = COMMANDS[name], Tally()
    for at in chosen(scene.wanted(command).reads):
        scene.fail(command, what, at, tally)
    tally.show(f"{name} of {scene.kind}, {what}")


FAULTS = [what for what in reads.FAULTS if what != "stop"]
MAIN = ["ENOENT once", "EIO once", "EIO always", "ENOENT always", *DAMAGE]  # those that quick tests try
CASES = [
    *((name, "dataset") for name in COMMANDS),
    *(
        (name, kind)
        for kind in INPUTS
        if kind != "dataset"
        for name in ("fit" if kind == "features" else "transform", "export npy")
    ),
]


ALWAYS = ("EIO always", "ENOENT always")  # which take as long as a call is patient
SEVERAL = (("transform", "dataset"), ("verify", "dataset"), ("export npy", "dataset"))  # that quick tests try in full


def quick():
    """Cases with their faults, and which of the sampled reads of each. Calls that take long have few."""
    for number, (name, kind) in enumerate(CASES):
        if (name, kind) in SEVERAL:
            faults = [*MAIN, "stale"]
        elif name == "export npy":
            faults = [what for what in MAIN if what not in ALWAYS]
        elif kind == "dataset":
            faults = ["ENOENT once", (*ALWAYS, *DAMAGE)[number % 5]]
        else:
            faults = ["ENOENT once", "ENOENT always" if kind in ("zarr 3", "zarr 2", "npy") else DAMAGE[number % 3]]
        for turn, what in enumerate(faults[: 1 if name == "report" else None]):
            yield name, kind, what, number + turn


@pytest.mark.parametrize(("name", "kind", "what", "turn"), list(quick()))
def test_a_read_that_fails_gives_no_wrong_row(name, kind, what, turn, scenes, watched):
    def one(count):
        several = sampled(count, SAMPLED)
        return [several[turn % len(several)]]

    check(scenes(kind), name, what, one)


@pytest.mark.long
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("what", FAULTS)
@pytest.mark.parametrize(("name", "kind"), CASES)
def test_no_read_that_fails_gives_a_wrong_row(name, kind, what, scenes, watched):
    if what == "stale" and kind not in GUARDED:
        pytest.skip("without checksums, nothing tells a file from another one of its size and time")
    few = name in ("report", "denoise") or what.endswith("always") or what in list(ONCE)[2:]
    check(scenes(kind), name, what, lambda count: sampled(count, SAMPLED if few else count))


def test_a_read_that_is_tried_again_is_noted_once(scenes, caplog):
    scene, command = scenes("dataset"), COMMANDS["transform"]
    wanted = scene.wanted(command).files
    scene.clean()
    with caplog.at_level(logging.INFO, "bigkpca"), scene.reads.fault(scene.files(command), "EIO once", 3):
        assert scene.result(command, command.how(PATIENT)) == wanted
    assert len([record for record in caplog.records if record.name.startswith("bigkpca")]) == 1


# Worker processes


@pytest.fixture(scope="module")
def cluster(scenes):
    """Two worker processes, which runs take while this is the current client."""
    scenes("dataset")  # whose environment they get
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0") as made,
        Client(made) as client,
    ):
        yield client


@pytest.mark.long
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("what", [*MAIN, "stale"])
@pytest.mark.parametrize("name", ["fit", "transform", "verify", "run"])
def test_reads_that_fail_in_worker_processes_give_no_wrong_row(name, what, scenes, cluster):
    scene, command, tally = scenes("dataset"), COMMANDS[name], Tally()
    for at in sampled(scene.wanted(command).reads, 4, seed=1):
        scene.fail(command, what, at, tally, seconds=6)
    tally.show(f"{name} on workers, {what}")


@pytest.mark.long
@pytest.mark.timeout(1500)
def test_reads_that_fail_in_workers_of_the_run_give_no_wrong_row(scenes):
    scene, tally = scenes("dataset"), Tally()
    whole = COMMANDS["transform"]
    scene.wanted(whole)
    command = replace(whole, call=partial(whole.call, workers=2))
    for what in ("ENOENT once", "ENOENT always", "other version"):
        scene.fail(command, what, 4, tally, seconds=20)
    tally.show("transform --workers 2")


# Object stores: the same, by a server that answers otherwise, or has another object


@dataclass
class Bucket:
    """Objects below a prefix; at the n-th GET of a chunk, counted from 1, something happens to it."""

    store: Any  # without the proxy
    twin: Mapping[str, bytes]  # other versions
    what: str = ""
    at: int = 0
    number: int = 0
    happened: str | None = None
    held: bytes = b""

    def answer(self, method, path):
        """What the proxy answers by itself. It asks from several threads."""
        key = unquote(path.partition("?")[0])
        if method != "GET" or "/x/c/" not in key:
            return None
        key = key.split("/", 2)[2]  # behind the name of the bucket
        self.number += 1
        if self.number == self.at and not self.happened:
            self.happened = key
            self.held = bytes(self.store.get(key).bytes())
            if self.what == "404 always":
                self.store.delete(key)
            elif not self.what.startswith(("404", "503")):
                other = {
                    "truncated": self.held[:-40],
                    "zero length": b"",
                    "other version": self.twin[Path(key).parent.name],
                }
                self.store.put(key, other[self.what])
        elif not (self.what.endswith("always") and self.happened == key):
            return None
        if self.what.startswith("503"):
            return _refusal("503 Slow Down", "SlowDown")
        return _refusal("404 Not Found", "NoSuchKey") if self.what == "404 once" else None

    @contextmanager
    def fault(self, what, at):
        self.what, self.at, self.number, self.happened = what, at, 0, None
        try:
            yield
        finally:
            self.what, self.at = "", 0
            if self.happened:
                self.store.put(self.happened, self.held)  # which has the same ETag


def _refusal(status, code):
    body = f'<?xml version="1.0"?><Error><Code>{code}</Code><Message>{code}</Message></Error>'.encode()
    head = f"HTTP/1.1 {status}\r\nContent-Type: application/xml\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


IN_BUCKETS = {
    "404 once": (0,),
    "404 always": (7,),
    "503 once": (0,),
    "503 always": (6,),
    **dict.fromkeys(DAMAGE, (6, 7)),
}


@pytest.mark.long
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("name", ["transform", "fit", "export npy"])
def test_reads_that_fail_in_a_bucket_give_no_wrong_row(name, scenes, bucket, s3_server, use_s3, monkeypatch):
    scene, command, tally = scenes("dataset"), COMMANDS[name], Tally()
    local, twin = scene.here / "source.npy", scene.here.parent / "twin" / "x.zarr" / "x" / "c"
    bigkpca.ingest(local, f"{bucket}/x.zarr", block_rows=BLOCK)
    direct = client("s3", bucket.split("/")[2])
    held = Bucket(direct, {path.parent.name: path.read_bytes() for path in twin.rglob("0") if path.is_file()})
    apart = copy(scene)
    apart.x = Path(bucket) / "x.zarr"
    with proxy(s3_server.port) as between:
        between.answer = held.answer
        monkeypatch.setattr(clients, "PATIENCE", clients.Patience(0.5, read=5, request=5, retry=3, retries=3))
        use_s3(between.port)

        def call(at, _, **how):
            command.call(at, f"{bucket}/x.zarr", **how)

        there = replace(command, call=call)
        apart.clean()
        apart.wanted(there)
        count, held.number = held.number, 0
        assert count
        for what, right in IN_BUCKETS.items():
            for at in sampled(count, 3, seed=2):
                apart.clean()
                with held.fault(what, at):
                    ended = apart.ended(there, there.how(PATIENT if what.endswith("once") else 4.0))
                apart.judge(there, tally, f"{what} at request {at}", *ended, right)
    tally.show(f"{name} of a bucket")


# Real faults: a process stops itself at a read; then a folder moves away, a file system goes, a version is replaced


@dataclass
class Big:
    """A dataset of many small shards, a model and its scores, which processes work on."""

    here: Path
    reads: Reads
    wanted: dict[str, bytes]
    count: int

    ROWS = 3000

    @classmethod
    def made(cls, folder, disk=None):
        """With the dataset in another folder, if one is given."""
        here = folder / "big"
        here.mkdir()
        np.save(here / "source.npy", np.random.default_rng(3).integers(0, 200, (cls.ROWS, 5)).astype("i2"))
        disk = disk or here
        bigkpca.ingest(here / "source.npy", disk / "big.zarr", block_rows=50)
        bigkpca.fit(disk / "big.zarr", here / "m.zarr", components=3, size=20, seed=1)
        bigkpca.transform(here / "m.zarr", disk / "big.zarr", here / "out.zarr", block_rows=50)
        wanted = tree_bytes(here / "out.zarr")
        shutil.rmtree(here / "out.zarr")
        return cls(here, Reads(folder / "reads", folder), wanted, cls.ROWS // 50)

    @contextmanager
    def stopped(self, at, files, *arguments):
        """A command in a process of its own, which stopped when it was about to read one of these files."""
        command = [sys.executable, "-m", "bigkpca.cli", *map(str, arguments)]
        env = {**os.environ, **self.reads.environment}
        with (
            self.reads.fault(files, "stop", at),
            subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process,
        ):
            try:
                wait_until(lambda: process.poll() is not None or is_stopped(process.pid))
                assert process.poll() is None, process.stderr and process.stderr.read()
                yield process
            finally:
                process.kill()

    def transform(self, data, timeout):
        """The arguments of a command on the dataset."""
        where = [self.here / "m.zarr", data, self.here / "out.zarr"]
        return ["transform", *where, "--block-rows", 50, "--timeout", timeout, "-q"]

    def judge(self, process, data, where, tally):
        """Count how a transform ended that goes on now. Where it failed, the same again must give the same bytes."""
        told = process.communicate(timeout=200)[1]
        code, out = process.returncode, self.here / "out.zarr"
        tally.ended["right" if code == 0 and tree_bytes(out) == self.wanted else f"with {code}"] += 1
        if code not in (0, 6, 7):
            tally.bad.append(f"{where}: ended with {code}: {told}")
        if code and out.exists():
            tally.bad.append(f"{where}: ended with {code}, and published its output")
        again = run_apart(*self.transform(data, 60)) if code else None
        if again is not None and again.returncode:
            tally.bad.append(f"{where}: the same command again ended with {again.returncode}: {again.stderr}")
        elif wrong := self.wrong_rows(out):
            tally.wrong_rows += wrong
            tally.bad.append(f"{where}: wrong bytes, {'after' if code else 'in'} a run that ended with {code}: {told}")
        shutil.rmtree(out, ignore_errors=True)
        for left in self.here.glob("out.zarr*"):
            shutil.rmtree(left) if left.is_dir() else left.unlink()

    def wrong_rows(self, out):
        """Rows of scores whose shards are not what they are to be; at least 1 where any byte is not."""
        found = tree_bytes(out)
        shards = sum(found.get(name) != held for name, held in self.wanted.items() if "/c/" in name)
        return 0 if found == self.wanted else max(1, 50 * shards)


def is_stopped(pid):
    """Whether a process got SIGSTOP."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def chunks(place):
    return sorted(path for path in place.rglob("*") if path.is_file() and path.suffix != ".json")


@pytest.fixture(scope="module")
def big(tmp_path_factory):
    return Big.made(tmp_path_factory.mktemp("real"))


@pytest.mark.long
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("part", range(4))  # for as many processes of pytest
def test_an_input_that_is_moved_away_for_a_moment_gives_no_wrong_row(part, big):
    tally, rng, data = Tally(), random.Random(part), big.here / "big.zarr"
    for number in range(MOVES // 4):
        at, gap = rng.randint(1, big.count), rng.choice([0.02, 0.2, 0.6, 2.5])
        with big.stopped(at, chunks(data), *big.transform(data, 3)) as process:
            data.rename(big.here / "x")
            process.send_signal(signal.SIGCONT)
            time.sleep(gap)
            (big.here / "x").rename(data)
            big.judge(process, data, f"run {number}, away at read {at} for {gap} s", tally)
    tally.show("mv of the input while transform reads it")


@contextmanager
def bound(disk, at):
    """A file system that shows a folder at another one; skips the test where that is not allowed."""
    done = subprocess.run(["mount", "--bind", disk, at], capture_output=True, check=False)
    if done.returncode:
        pytest.skip("a file system that goes away needs the right to mount one")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", at], check=False, capture_output=True)


@pytest.fixture
def mounted(tmp_path):
    """With its dataset on a file system of its own, at `mount`."""
    (tmp_path / "disk").mkdir()
    (tmp_path / "mount").mkdir()
    with bound(tmp_path / "disk", tmp_path / "mount"):
        yield Big.made(tmp_path, tmp_path / "mount")


@pytest.mark.long
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("seconds", [0.3, 4.0, None])
def test_a_file_system_that_goes_away_gives_no_wrong_row(seconds, mounted, tmp_path):
    tally, at, data = Tally(), tmp_path / "mount", tmp_path / "mount" / "big.zarr"
    for number in (1, 30, mounted.count):
        with mounted.stopped(number, chunks(data), *mounted.transform(data, 4)) as process:
            subprocess.run(["umount", "-l", at], check=True)
            process.send_signal(signal.SIGCONT)
            if seconds is None:
                wait_until(lambda process=process: process.poll() is not None)  # type: ignore[misc]
            else:
                time.sleep(seconds)
            subprocess.run(["mount", "--bind", tmp_path / "disk", at], check=True)
            mounted.judge(process, data, f"gone at read {number}", tally)
    tally.show(f"umount of the input for {seconds or 'more'} seconds")


@dataclass
class Then(Recorder):
    """Does something once, when some blocks are done."""

    what: Callable[[], object] | None = None

    def advance(self, rows):
        super().advance(rows)
        if self.what is not None and self.rows >= 500:
            self.what()
            self.what = None


@pytest.mark.long
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("late", [False, True], ids=["loses it", "comes late without it"])
def test_a_worker_that_does_not_see_the_input_gives_no_wrong_row(late, mounted, tmp_path):
    at, out, tally = tmp_path / "mount", mounted.here / "out.zarr", Tally()
    apart = ["unshare", "-m"]
    if subprocess.run([*apart, "true"], capture_output=True, check=False).returncode:
        pytest.skip("a worker with mounts of its own needs the right to have them")

    def call(**how):
        bigkpca.transform(mounted.here / "m.zarr", at / "big.zarr", out, block_rows=50, **how)

    with DaskProcesses(tmp_path / "cluster", 1) as cluster:
        if late:
            blind = ["sh", "-c", f'umount -l "{at}" && exec "$@"', "sh"]

            def event():
                cluster.start_worker([*apart, *blind])
                cluster.wait_for_workers()

        else:
            worker = cluster.start_worker(apart)
            cluster.wait_for_workers()

            def event():
                subprocess.run(["nsenter", "-t", str(worker.pid), "-m", "umount", "-l", at], check=True)

        then = Then(what=event)
        try:
            call(scheduler=cluster.address, timeout=20, progress=then)
            tally.ended["right"] += 1
        except (IncompleteError, CorruptionError, SpecError) as error:
            tally.ended[f"with {error.exit_code}"] += 1
            if out.exists():
                tally.bad.append(f"published, with {error}")
            if error.exit_code == SpecError.exit_code and not late:
                tally.bad.append(str(error))
    assert then.what is None
    call()
    if wrong := mounted.wrong_rows(out):
        tally.wrong_rows += wrong
        tally.bad.append(f"{wrong} wrong rows")
    tally.show("a worker that does not see the input")


REPLACED = {  # what is replaced, and the command that reads it meanwhile
    "export csv": ("s.zarr", ["export", "s.zarr", "out.csv"]),
    "export npy": ("s.zarr", ["export", "s.zarr", "out.npy"]),
    "export parquet": ("s.zarr", ["export", "s.zarr", "out.parquet"]),
    "reconstruct": ("s.zarr", ["reconstruct", "m.zarr", "s.zarr", "out.zarr", "--block-rows", "50"]),
    "report": ("s.zarr", ["report", "m.zarr", "out.html", "--scores", "s.zarr"]),
    "verify": ("s.zarr", ["verify", "s.zarr"]),
    "transform": ("m.zarr", ["transform", "m.zarr", "big.zarr", "out.zarr", "--block-rows", "50"]),
    "export onnx": ("m.zarr", ["export", "m.zarr", "out.onnx"]),
}


@pytest.mark.long
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("name", REPLACED)
def test_what_is_replaced_while_it_is_read_is_read_as_one_version(name, big, monkeypatch):
    monkeypatch.chdir(big.here)
    replaced, command = REPLACED[name]
    out = Path(next((word for word in command if word.startswith("out.")), "none"))
    kept, tally = big.here.parent / "kept", Tally()
    fit = {"components": 3, "seed": 1}

    def remove(*paths):
        for path in paths:
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)

    def restore():
        """The first version of model and scores, and nothing of earlier runs."""
        remove(Path("s.zarr"), Path("m.zarr"), *Path().glob("out.*"))
        for each in ("s.zarr", "m.zarr"):
            shutil.copytree(kept / each, each)

    def replace_it():
        if replaced == "s.zarr":
            bigkpca.transform("other.zarr", "big.zarr", "s.zarr", block_rows=50, overwrite=True)
        else:
            bigkpca.fit("big.zarr", "m.zarr", size=25, overwrite=True, **fit)

    def run_it():
        """The exit code, and what is written then."""
        remove(out)
        code = run_apart(*command, "-q").returncode
        return code, tree_bytes(out) if out.is_dir() else out.read_bytes() if out.exists() else None

    if not kept.exists():
        kept.mkdir()
        bigkpca.fit("big.zarr", "other.zarr", size=25, **fit)
        bigkpca.transform("m.zarr", "big.zarr", kept / "s.zarr", block_rows=50)
        shutil.copytree("m.zarr", kept / "m.zarr")
    restore()
    files = chunks(Path("s.zarr" if replaced == "s.zarr" else "m.zarr").absolute())
    with monkeypatch.context() as watched, big.reads.fault(files):
        for variable, value in big.reads.environment.items():
            watched.setenv(variable, value)
        before, count = run_it(), big.reads.count
    assert before[0] == 0
    replace_it()
    after = run_it()
    for at in sampled(count, 4, seed=3):
        restore()
        with big.stopped(at, files, *command, "-q") as process:
            replace_it()
            process.send_signal(signal.SIGCONT)
            told = process.communicate(timeout=200)[1]
        found = tree_bytes(out) if out.is_dir() else out.read_bytes() if out.exists() else None
        code = process.returncode
        whole = found in (before[1], after[1]) if code == 0 else found is None
        tally.ended["right" if code == 0 and whole else f"with {code}"] += 1
        tally.wrong_rows += not whole  # at least
        if code not in (0, 6) or not whole:
            tally.bad.append(f"replaced at read {at}: {code}, {'whole' if whole else 'of two versions'}: {told}")
        if run_it() != after:
            tally.bad.append(f"replaced at read {at}: the same command again does not give the new version")
    restore()
    tally.show(f"{name}, while {replaced} is replaced")
