"""Runs that lost their lease: they write nothing more, and touch nothing of the run that took it over."""

import json

import numpy as np
import pytest
import zarr

import bigkpca
from bigkpca.data.opening import open_rows
from bigkpca.data.stores import LocalDisk, clients, leases, store_of
from bigkpca.errors import IncompleteError, LockedError, SpecError
from bigkpca.execution.progress import Silent
from bigkpca.ingesting.streaming import ingest
from bigkpca.storage.destination import open_destination
from tests.helpers.disks import tree_bytes
from tests.helpers.s3 import objects
from tests.helpers.suspended import suspended

RECORD = {"format": "dataset"}


def taken_over(out):
    """What another run does that takes the lease of this process."""
    theirs = json.dumps({"token": "theirs", "seconds": 60}).encode()
    clients.put(f"{out}.bigkpca-lock", theirs, leases._HELD[out].version)


def place(out):
    return open_destination(out, RECORD, overwrite=True, whole=True)


_INGEST = """
import sys
from bigkpca.data.stores import leases
from bigkpca.errors import LockedError
from bigkpca.execution.progress import Silent
from bigkpca.ingesting.formats import base
from bigkpca.ingesting.streaming import ingest
leases.SECONDS = 1.0
base.READ_BYTES = 1024
class Waiting(Silent):
    def advance(self, rows):
        if not waited:
            waited.append(rows)
            print("writing", flush=True)
            sys.stdin.readline()
waited = []
try:
    ingest([sys.argv[1]], sys.argv[2], block_rows=32, progress=Waiting())
except LockedError as error:
    sys.exit(error.exit_code)
"""


class Once(Silent):
    """Does something once, when rows are read."""

    def __init__(self, what):
        self.__dict__["what"] = what  # it is frozen

    def advance(self, rows):
        self.__dict__.pop("what", lambda: None)()


def test_an_ingest_that_was_suspended_and_one_that_took_over_do_not_mix(tmp_path, bucket):
    out = f"{bucket}/data.zarr"
    for name, rows in (("a", 640), ("b", 64)):
        np.save(tmp_path / f"{name}.npy", np.random.default_rng(rows).normal(size=(rows, 4)))
    ingest([tmp_path / "b.npy"], tmp_path / "wanted.zarr", block_rows=32)
    codes = []
    with suspended(_INGEST, str(tmp_path / "a.npy"), out, seconds=4.2) as wake:
        ingest([tmp_path / "b.npy"], out, block_rows=32, progress=Once(lambda: codes.append(wake())))
    assert codes == [5]
    assert objects(bucket) == {f"data.zarr/{name}": held for name, held in tree_bytes(tmp_path / "wanted.zarr").items()}


def test_every_holder_has_a_scratch_of_its_own(bucket):
    out, store, names = f"{bucket}/out.zarr", store_of(bucket), set()
    for _ in range(2):
        with store.writer(out):
            names.add(place(out).work)
            store.write(f"{place(out).work}/zarr.json", b"{}")
            with pytest.raises(IncompleteError, match=r"out\.zarr is not finished: run the command that makes it"):
                open_rows(out)
    assert len(names) == 2
    assert all(name.startswith(f"{out}.bigkpca-new-") for name in names)
    store.write(f"{out}.bigkpca-new/zarr.json", b"of earlier versions")
    store.write(f"{out}.bigkpca-new-of-mine/zarr.json", b"of the user")
    with store.writer(out):
        place(out)
    assert list(objects(bucket)) == ["out.zarr.bigkpca-new-of-mine/zarr.json"]


def failing(target, meanwhile):
    """A run that fails before its output is made."""
    with target.made() as scratch:
        store_of(scratch).write(f"{scratch}/zarr.json", b"{}")
        meanwhile()
        raise OSError("broken")


def test_an_error_removes_a_scratch_unless_the_lease_is_lost(bucket):
    out, store = f"{bucket}/out.zarr", store_of(bucket)
    with store.writer(out):
        target = place(out)
        with pytest.raises(OSError, match="broken"):
            failing(target, lambda: None)
        assert not store.exists(target.work)
        with pytest.raises(LockedError, match="could not renew"):
            failing(target, lambda: taken_over(out))
        assert store.exists(target.work)


CHANGES = [
    lambda store, out: store.write(f"{out}.bigkpca-sums/a", b""),
    lambda store, out: store.put(f"{out}/x/c/0", b""),
    lambda store, out: store.remove_file(f"{out}/x/c/0"),
    lambda store, out: store.remove_folder(f"{out}/x"),
    lambda store, out: store.copy_file(f"{out}/x/c/0", f"{out}.bigkpca-new/c"),
    lambda store, out: zarr.open_array(store.zarr(f"{out}/x"), mode="r+").__setitem__(slice(0, 1), 1),
    lambda store, out: store.check_writer(f"{out}.bigkpca-run-7", ask=False),
]


@pytest.mark.parametrize("change", CHANGES)
def test_a_lost_lease_ends_every_change_of_its_output(bucket, change):
    out, store = f"{bucket}/out", store_of(bucket)
    zarr.create_array(store.zarr(f"{out}/x"), shape=(3,), dtype="f4")[:] = 0
    with store.writer(out):
        lease = leases._HELD[out]
        taken_over(out)
        before = objects(out)
        lease.lost = True
        with pytest.raises(LockedError, match="could not renew"):
            change(store, out)
        lease.lost, lease.renewed = False, lease.renewed - 61  # as of a process that was suspended, and wakes up
        with pytest.raises(LockedError, match="could not renew"):
            change(store, out)
        assert objects(out) == before
        store.write(f"{bucket}/out2", b"of another output")


def test_a_lease_that_is_fresh_is_not_asked_for_at_every_change(bucket, monkeypatch):
    out, store = f"{bucket}/out", store_of(bucket)
    with store.writer(out), monkeypatch.context() as patch:
        patch.setattr(leases.Lease, "renew", lambda _: pytest.fail("the server was asked"))
        store.write(f"{out}/a", b"")
        store.remove_file(f"{out}/a")


class Losing(Silent):
    """Loses the lease of an output when the first block is done, and counts blocks."""

    def __init__(self, out):
        self.__dict__.update(out=out, blocks=[])

    def advance(self, rows):
        self.__dict__["blocks"].append(rows)
        leases._HELD[self.__dict__["out"]].lost = True


def test_a_transform_on_other_machines_ends_when_its_lease_is_lost(tmp_path, bucket, monkeypatch):
    """Workers know of no lease: the process that holds it looks at every block."""
    X = np.random.default_rng(0).normal(size=(640, 3))
    model = bigkpca.fit(X, tmp_path / "m.zarr", components=2, size=20)
    np.save(tmp_path / "x.npy", X)
    ingest([tmp_path / "x.npy"], tmp_path / "x.zarr", block_rows=32)
    monkeypatch.setattr("bigkpca.storage.block_arrays.write_block", lambda path, block, values: {})
    losing = Losing(f"{bucket}/s.zarr")
    with pytest.raises(LockedError, match="could not renew"):
        bigkpca.transform(model, tmp_path / "x.zarr", f"{bucket}/s.zarr", block_rows=32, progress=losing)
    assert len(losing.__dict__["blocks"]) == 1


def test_the_lock_of_a_suspended_process_on_a_local_disk_holds(tmp_path):
    """So that one name of a scratch is enough there."""
    out = str(tmp_path / "out.zarr")
    code = (
        "import sys; from bigkpca.data.stores import LocalDisk\n"
        "with LocalDisk().writer(sys.argv[1]): print('held', flush=True); sys.stdin.read()"
    )
    with suspended(code, out) as wake:
        with pytest.raises(LockedError, match="another run is writing"), LocalDisk().writer(out):
            pass
        wake()
    with LocalDisk().writer(out):
        pass


@pytest.mark.parametrize("name", ["a.bigkpca-b", "out.zarr.bigkpca-new", "a.bigkpca-b.zarr/"])
def test_names_that_look_like_those_beside_an_output_are_refused(name, tmp_path):
    for root in (str(tmp_path), "s3://bucket"):
        with pytest.raises(SpecError, match=r"\.bigkpca- in a name .* choose another name"):
            store_of(root).output_path(f"{root}/{name}", ())
        store_of(root).output_path(f"{root}/a.bigkpca/b", ())


def test_a_clock_that_cannot_be_read_leaves_nothing(bucket, monkeypatch):
    class Unreadable:
        def __init__(self, client):
            self.put, self.delete = client.put, client.delete

        def head(self, key):
            raise IncompleteError("no answer")

    client = clients.client
    monkeypatch.setattr(clients, "client", lambda *where: Unreadable(client(*where)))
    with pytest.raises(IncompleteError, match="no answer"):
        leases._age(f"{bucket}/out", None)  # type: ignore[arg-type]
    monkeypatch.undo()
    assert objects(bucket) == {}
