"""Reads that fail in a command: the bytes of an undisturbed run, or an error and nothing; never a wrong row.

Quick tests try a few faults; full ones some of them at one read of every kind of input, of a bucket, in most commands
and in worker processes; long ones every fault at every read.
"""

import os
import random
import shutil
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import unquote

import numpy as np
import pytest
import zarr
from zarr.codecs import BloscCodec

import bigkpca
from bigkpca.data.stores import clients
from bigkpca.data.stores.clients import client
from bigkpca.errors import BigKPCAError
from bigkpca.execution.clusters import open_engine
from tests.helpers import reads
from tests.helpers.disks import tree_bytes
from tests.helpers.jobs import toml_of, written
from tests.helpers.proxy import proxy
from tests.helpers.reads import DAMAGE, FAULTS, ONCE, Reads

ROWS, COLUMNS, BLOCK = 600, 6, 100
BLOCKS = {"block_rows": BLOCK}
FIT = {"n_components": 3, "size": 20, "random_state": 1, "preimage": "fixed-point", **BLOCKS}
# Inputs: each is written twice, with other values the second time


def numbers(seed):
    return np.random.default_rng(seed).normal(size=(ROWS, COLUMNS)).astype("f4") * np.arange(1, 7, dtype=np.float32)


def dataset(at, values):
    """Integers, so that the fill value is a number."""
    np.save(at / "source.npy", np.round(20 * values).astype("i2"))
    bigkpca.ingest(at / "source.npy", at / "x.zarr", block_rows=BLOCK)


def zarr_array(version, **options):
    """A Zarr array of others, without checksums."""

    def write(at, values):
        zarr.create_array(str(at / "x.zarr"), data=values, fill_value=0.25, zarr_format=version, **options)

    return write


def features(at, values):
    """The scores of rows."""
    dataset(at, values)
    (at / "x.zarr").rename(at / "rows.zarr")
    bigkpca.fit(at / "rows.zarr", at / "mx.zarr", **FIT)
    bigkpca.transform(at / "mx.zarr", at / "rows.zarr", at / "x.zarr", block_rows=BLOCK)


INPUTS = {
    "dataset": dataset,
    "zarr 3": zarr_array(3, chunks=(BLOCK, 3)),
    "zarr 2": zarr_array(2, chunks=(BLOCK, COLUMNS)),
    "sharded": zarr_array(3, chunks=(BLOCK // 2, COLUMNS), shards=(BLOCK, COLUMNS), compressors=BloscCodec()),
    "npy": lambda at, values: np.save(at / "x.npy", values),
    "features": features,
}


# Commands


@dataclass(frozen=True)
class Command:
    """What is called, with the folder of a scene and the path of its rows; what it writes and reads in that folder."""

    call: object
    out: tuple = ("out.zarr",)
    reads: tuple = ("x",)


def scheduled(at, _):
    tables = {"input": {"path": "x.zarr"}, "model": {"path": "m2.zarr", "n_components": 3, "size": 20}}
    tables["output"] = {"path": "f.zarr", "block_rows": BLOCK}
    bigkpca.run(written(at, toml_of(tables)))


COMMANDS = {
    "fit": Command(lambda at, x: bigkpca.fit(x, at / "out.zarr", **FIT)),
    "transform": Command(lambda at, x: bigkpca.transform(at / "m.zarr", x, at / "out.zarr", **BLOCKS)),
    "denoise": Command(lambda at, x: bigkpca.denoise(at / "m.zarr", x, at / "out.zarr", **BLOCKS)),
    "reconstruct": Command(
        lambda at, _: bigkpca.reconstruct(at / "m.zarr", at / "s.zarr", at / "out.zarr", **BLOCKS), reads=("s",)
    ),
    "evaluate": Command(lambda at, x: bigkpca.evaluate(at / "m.zarr", x, sample=50), ()),
    "verify": Command(lambda at, x: bigkpca.verify(x), ()),
    "export npy": Command(lambda at, x: bigkpca.export(x, at / "out.npy"), ("out.npy",)),
    "export features": Command(lambda at, _: bigkpca.export(at / "s.zarr", at / "out.npy"), ("out.npy",), ("s",)),
    "report": Command(
        lambda at, x: bigkpca.report(at / "m.zarr", at / "out.html", scores=at / "s.zarr"), ("out.html",), ("s", "x")
    ),
    "run": Command(scheduled, ("m2.zarr", "f.zarr")),
}
OTHERS = [kind for kind in INPUTS if kind != "dataset"]
SOME = ("EIO once", "EIO always", "ENOENT always", "other version")
FULL = [(name, "dataset", 1, FAULTS if name == "transform" else SOME) for name in COMMANDS]
FULL += [("transform", kind, 1, FAULTS if kind in ("zarr 3", "sharded") else SOME) for kind in OTHERS]
LONG = [(name, "dataset", 10**6, FAULTS) for name in COMMANDS]
LONG += [(name, kind, 10**6, FAULTS) for kind in OTHERS for name in ("transform", "export npy")]
CASES = [pytest.param(*case, marks=pytest.mark.full, id="-".join(case[:2])) for case in FULL]
CASES += [pytest.param(*case, marks=pytest.mark.long, id="-".join((*case[:2], "all"))) for case in LONG]

# Exit codes that are right after each fault, unless the output is right.
RIGHT = {**dict.fromkeys(ONCE, (6,)), "ENOENT once": (6, 7), "EIO always": (6,), "ENOENT always": (7,)}
RIGHT |= dict.fromkeys(DAMAGE, (6, 7))


class Scene:
    """A folder with rows of one kind, a model and scores of them; `twin` has other rows of the same layout."""

    def __init__(self, folder, kind):
        self.kind, self.here, self.twin = kind, folder / "here", folder / "twin"
        for seed, at in enumerate((self.here, self.twin)):
            at.mkdir(parents=True)
            INPUTS[kind](at, numbers(seed))
        (self.x,) = self.here.glob("x.*")
        bigkpca.fit(self.x, self.here / "m.zarr", **FIT)
        for at in (self.here, self.twin):
            bigkpca.transform(self.here / "m.zarr", at / self.x.name, at / "s.zarr", block_rows=BLOCK)
        self.reads = Reads(folder / "reads", self.here, self.twin)
        self._kept = set(os.listdir(self.here))

    def files(self, command):
        """The chunks that the command reads."""
        found = []
        for name in command.reads:
            place = self.x if name == "x" else self.here / f"{name}.zarr"
            below = sorted(path for path in place.rglob("*") if path.is_file()) if place.is_dir() else [place]
            found += [path for path in below if path.suffix != ".json" and not path.name.startswith(".z")]
        return found

    def ended(self, command, again=False):
        """Call, in the folder as it was made, or with all that is there; exit code, message of an error, and what was
        written or returned."""
        for name in () if again else set(os.listdir(self.here)) - self._kept:
            path = self.here / name
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        try:
            returned = command.call(self.here, self.x)
        except BigKPCAError as error:
            return error.exit_code, str(error), {}
        except Exception as error:
            return 1, repr(error), {}
        return 0, "", self.written(command) if command.out else {"": repr(returned).encode()}

    def written(self, command):
        """The bytes of what is there."""
        found = {}
        for name in command.out:
            place = self.here / name
            held = tree_bytes(place) if place.is_dir() else {"": place.read_bytes()} if place.exists() else {}
            found |= {f"{name}/{each}": content for each, content in held.items()}
        return found

    @cache  # noqa: B019  # scenes live as long as the tests
    def wanted(self, command):
        """What an undisturbed call gives, and how often it reads a chunk."""
        with self.reads.fault(self.files(command)):
            code, message, found = self.ended(command)
            assert code == 0, message
            return found, self.reads.count

    def fail(self, command, what, at):
        """Call, with a fault at this read; then the same call again, without. Whether the fault happened."""
        wanted, _ = self.wanted(command)
        with self.reads.fault(self.files(command), what, at):
            ended, happened = self.ended(command), self.reads.happened
        if happened is not None:
            where = f"{what} at read {at}, of {Path(happened).relative_to(self.here)}"
            self.judge(command, where, *ended, wanted, RIGHT[what])
        return happened is not None

    def judge(self, command, where, code, message, found, wanted, right):
        """Whether a call ended as it should; where it failed, call again, now that all is as before."""
        if code == 0:
            assert found == wanted, f"{where}: ended with 0 and other bytes"
            return
        where = f"{where}: ended with {code}: {message}"
        assert code in right, where
        assert any(name in message for name in (self.x.name, "s.zarr")), where
        left = self.written(command)
        if command is COMMANDS["run"]:  # which publishes the model first
            left = {name: content for name, content in left.items() if content != wanted.get(name)}
            assert not (self.here / "f.zarr" / "zarr.json").exists(), where
        assert not left, f"{where}: published {sorted(left)[:3]}"
        code, message, again = self.ended(command, again=True)
        assert again == wanted, f"{where}; the same call afterwards ended with {code} and other bytes: {message}"


def chosen(first, last, most, turn=0):
    """Numbers of reads: the first, the last and seeded others, or all where there are no more; one of these in turn."""
    several = range(first, last + 1)
    if len(several) > max(most, 4):
        several = sorted({first, last, *random.Random(0).sample(several[1:-1], max(most, 4) - 2)})
    return several if most > 1 else several[turn % max(len(several), 1) :][:1]


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

    before = os.environ.get("PYTHONPATH", "")
    yield of
    os.environ.pop(reads.NAME, None)
    os.environ["PYTHONPATH"] = before


def check(scene, name, most=1, faults=FAULTS):
    """Let every fault happen at so many reads, one after the other."""
    command, happened = COMMANDS[name], []
    for turn, what in enumerate(faults, 2):
        first = 2 if scene.kind == "npy" and what in (*DAMAGE, "ENOENT always") else 1
        happened += [scene.fail(command, what, at) for at in chosen(first, scene.wanted(command)[1], most, turn)]
    assert any(happened)


@pytest.mark.parametrize(
    ("name", "kind", "what"),
    [
        ("transform", "dataset", "ENOENT once"),
        ("transform", "dataset", "EIO always"),
        ("fit", "dataset", "other version"),
        ("export features", "dataset", "truncated"),
        *(("export npy", "sharded", what) for what in ("other version", "truncated", "ENOENT always")),
    ],
)
def test_a_read_that_fails_gives_no_wrong_row(name, kind, what, scenes):
    check(scenes(kind), name, faults=[what])


@pytest.mark.timeout(3000)
@pytest.mark.parametrize(("name", "kind", "most", "faults"), CASES)
def test_no_fault_of_a_read_gives_a_wrong_row(name, kind, most, faults, scenes):
    check(scenes(kind), name, most, faults)


# Worker processes


@pytest.fixture(scope="module")
def cluster(scenes):
    """A client of two worker processes."""
    scenes("dataset")  # whose environment they get
    with open_engine(workers=2) as engine:
        yield engine.client


@pytest.mark.parametrize(
    ("name", "most", "faults"),
    [
        *(pytest.param(name, 1, SOME, marks=pytest.mark.full) for name in ("transform", "verify")),
        *(pytest.param(name, 1000, FAULTS, marks=pytest.mark.long) for name in ("fit", "transform", "verify", "run")),
    ],
)
@pytest.mark.timeout(1500)
def test_reads_that_fail_in_worker_processes_give_no_wrong_row(name, most, faults, scenes, cluster):
    with cluster.as_current():
        check(scenes("dataset"), name, most, faults)


# Object stores: the same, by a server that answers otherwise, or has another object


IN_BUCKETS = {"404 once": (7,), "404 always": (7,), "503 once": (0,), "503 always": (6,)}  # and the right exit codes
IN_BUCKETS |= dict.fromkeys(DAMAGE, (6, 7))
SLOW = "503 Slow Down", "SlowDown"
REFUSALS = {"503 once": SLOW, "503 always": SLOW, "404 once": ("404 Not Found", "NoSuchKey")}


@contextmanager
def fault_in_bucket(between, store, twin, what="", at=0):
    """Something happens at this GET of a chunk, counted from 1; `twin` has other versions. Yields the number of these
    GETs and the key where it happened. The proxy asks from several threads."""
    seen = SimpleNamespace(number=0, key=None, content=b"")

    def answer(method, path):
        key = unquote(path.partition("?")[0])
        if method != "GET" or "/x/c/" not in key:
            return None
        key = key.split("/", 2)[2]  # behind the name of the bucket
        seen.number += 1
        if seen.number == at and not seen.key:
            seen.key, seen.content = key, bytes(store.get(key).bytes())
            if what == "404 always":
                store.delete(key)
            elif what in DAMAGE:
                other = twin[Path(key).parent.name] if what == "other version" else b""
                store.put(key, seen.content[:-40] if what == "truncated" else other)
        elif not (what.endswith("always") and seen.key == key):
            return None
        if what not in REFUSALS:
            return None
        status, code = REFUSALS[what]
        body = f'<?xml version="1.0"?><Error><Code>{code}</Code><Message>{code}</Message></Error>'
        head = f"HTTP/1.1 {status}\r\nContent-Type: application/xml\r\nContent-Length: {len(body)}\r\n\r\n"
        return (head + body).encode()

    usual, between.answer = between.answer, answer
    try:
        yield seen
    finally:
        between.answer = usual
        if seen.key:
            store.put(seen.key, seen.content)  # which has the same ETag


@pytest.mark.timeout(1500)
@pytest.mark.parametrize(
    ("name", "most"),
    [pytest.param("transform", 1, marks=pytest.mark.full)]
    + [pytest.param(name, 1000, marks=pytest.mark.long) for name in ("transform", "fit", "export npy")],
)
def test_reads_that_fail_in_a_bucket_give_no_wrong_row(name, most, scenes, bucket, s3_server, use_s3, monkeypatch):
    scene = scenes("dataset")
    bigkpca.ingest(scene.here / "source.npy", f"{bucket}/x.zarr", block_rows=BLOCK)
    twin = {path.parent.name: path.read_bytes() for path in (scene.twin / "x.zarr/x/c").rglob("0") if path.is_file()}
    store = client("s3", bucket.split("/")[2])  # without the proxy
    command = replace(COMMANDS[name], call=lambda at, _: COMMANDS[name].call(at, f"{bucket}/x.zarr"))
    with proxy(s3_server.port) as between:
        # The client's own retries take real time: one of them.
        monkeypatch.setattr(clients, "PATIENCE", clients.Patience(0.5, read=5, request=5, retry=3, retries=1))
        use_s3(between.port)
        with fault_in_bucket(between, store, twin) as seen:
            code, message, wanted = scene.ended(command)
        assert code == 0, message
        count, happened = seen.number, []
        for turn, (what, right) in enumerate(IN_BUCKETS.items()):
            for at in chosen(1, count, most, turn):
                with fault_in_bucket(between, store, twin, what, at) as seen:
                    ended = scene.ended(command)
                happened.append(seen.key)
                scene.judge(command, f"{what} at request {at}", *ended, wanted, right)
    assert any(happened)
