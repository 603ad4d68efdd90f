"""Leases: of writers of one output in an object store one wins, and one that lost its lease publishes nothing, and
touches nothing of the run that took it over."""

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from threading import Barrier
from unittest import mock

import numpy as np
import pytest
import zarr

import bigkpca
from bigkpca.data.opening import open_rows
from bigkpca.data.stores import clients, leases, store_of
from bigkpca.data.stores.base import address
from bigkpca.errors import IncompleteError, LockedError, SpecError
from bigkpca.execution.progress import Silent
from bigkpca.ingesting import ingest
from bigkpca.storage.destination import open_destination
from tests.helpers.dask_processes import wait_until
from tests.helpers.disks import tree_bytes
from tests.helpers.proxy import proxy
from tests.helpers.s3 import READER, in_bucket, rclone
from tests.helpers.suspended import suspended

pytestmark = pytest.mark.full
THEIRS = json.dumps({"token": "theirs", "seconds": 60}).encode()
IMPATIENT = clients.Patience(connect=0.5, read=0.5, request=0.5, retry=0.5, retries=0)


def write_lock(out, content):
    """Write the lock of an output, whatever is there, as another run would that has just taken it over."""
    at = address(f"{out}.bigkpca-lock")
    clients.client(at.scheme, at.bucket).put(at.key, content)


def no_lease(out, error, message):
    """A writer of this output is refused."""
    with pytest.raises(error, match=message), store_of(out).writer(out):
        pass


def take(out):
    """Be the writer of an output for a moment."""
    with store_of(out).writer(out):
        pass


def test_one_writer_at_a_time(bucket):
    store, out = store_of(bucket), f"{bucket}/out.zarr"
    with store.writer(out):
        store.check_writer(out)
        store.check_writer(f"{out}.bigkpca-new")
        assert list(in_bucket(bucket)) == ["out.zarr.bigkpca-lock"]
        take(f"{bucket}/other.zarr")
        no_lease(out, LockedError, r"another run is writing .*out\.zarr: .* expires in [3-6]\d seconds unless")
    assert in_bucket(bucket) == {}
    with pytest.raises(OSError, match="broken"), store.writer(out):
        raise OSError("broken")
    take(out)
    store.check_writer(out)  # of what nobody holds, nothing is said
    assert in_bucket(bucket) == {}


def test_a_key_that_may_not_write_is_told(s3_server, bucket, use_s3):
    """Nor may it remove what the test of the server would have written."""
    store_of(bucket).write(f"{bucket}/x", b"1")
    use_s3(s3_server.port, **READER)
    assert store_of(bucket).exists(f"{bucket}/x")
    message = r"/out: access denied: .* see the environment .*; this command writes there$"
    no_lease(f"{bucket}/out", SpecError, message)
    with pytest.raises(SpecError, match=r"/x: access denied: .* lack permission"):
        store_of(bucket).remove_file(f"{bucket}/x")


def test_a_lease_is_taken_over_only_after_it_expired_by_the_clock_of_the_server(bucket, monkeypatch):
    out = f"{bucket}/out"
    monkeypatch.setattr(time, "time", lambda: 9e9)
    for content in (THEIRS, b"", b"[1]", b"no json"):  # a lock that tells nothing is of usual length
        write_lock(out, content)
        no_lease(out, LockedError, r"another run is writing .* expires in [2-6]\d seconds")
    write_lock(out, THEIRS.replace(b"60", b"-2"))  # which counts for 2 seconds more than it says
    take(out)
    assert in_bucket(bucket) == {}


def test_the_holder_of_a_lease_renews_it_by_itself(bucket, monkeypatch):
    monkeypatch.setattr(leases, "SECONDS", 1.0)
    out = f"{bucket}/out"

    def renewals():
        return json.loads(in_bucket(bucket)["out.bigkpca-lock"])["renewals"]

    with store_of(out).writer(out):
        first = renewals()
        wait_until(lambda: renewals() > first + 2, 120)
        store_of(out).check_writer(out)


def test_a_lease_may_miss_a_renewal_and_does_not_expire(monkeypatch):
    class Ended:
        waits = ()

        def wait(self, seconds):
            self.waits += (seconds,)
            return len(self.waits) == 4

    monkeypatch.setattr(leases, "_now", lambda: 100.0)
    lease = leases.Lease("s3://bucket/out", "ours", 60.0, renewed=90.0, ended=Ended())
    answers = iter([IncompleteError("no answer"), None, None])
    monkeypatch.setattr(lease, "renew", mock.Mock(side_effect=answers))
    lease.keep()
    assert lease.renew.call_count == 3
    assert all(2 * seconds < lease.seconds for seconds in lease.ended.waits)


def test_a_renewal_whose_answer_was_lost_is_our_own(s3_server, bucket, use_s3, monkeypatch):
    out, store, put = f"{bucket}/out", store_of(bucket), clients.put

    def unheard(url, content, mode):
        """A conditional write that is carried out, and then said to have failed."""
        done = put(url, content, mode)
        if url.endswith("-lock"):
            raise IncompleteError("no answer")
        return done

    with monkeypatch.context() as patch:
        patch.setattr(clients, "put", unheard)
        with store.writer(out):
            store.check_writer(out)
            store.check_writer(out)
    monkeypatch.setattr(clients, "PATIENCE", IMPATIENT)
    with proxy(s3_server.port) as between:
        use_s3(between.port)
        with store.writer(out):
            between.mode = "cut"  # the server is asked, and its answers are lost, also those to questions
            with pytest.raises(IncompleteError, match="does not answer"):
                store.check_writer(out)
            between.mode = "pass"
            store.check_writer(out)
        assert in_bucket(bucket) == {}


def test_a_server_that_is_away_for_longer_than_a_lease_costs_it(s3_server, bucket, use_s3, monkeypatch):
    monkeypatch.setattr(leases, "SECONDS", 1.0)
    monkeypatch.setattr(clients, "PATIENCE", IMPATIENT)
    with proxy(s3_server.port) as between:
        use_s3(between.port)
        with store_of(bucket).writer(f"{bucket}/out"):
            (renewing,) = (each for each in threading.enumerate() if each.name == f"lease of {bucket}/out")
            between.mode = "stall"
            renewing.join(120)
            assert not renewing.is_alive()
            between.mode = "pass"
            with pytest.raises(LockedError, match="could not renew"):
                store_of(bucket).check_writer(f"{bucket}/out")


def test_of_sixteen_threads_exactly_one_wins(bucket):
    def attempt(out, start, held):
        start.wait(100)
        try:
            lease = leases.Lease.acquired(out)
        except LockedError:
            lease = None
        held.wait(100)
        if lease:
            lease.release()
        return lease is not None

    take(f"{bucket}/tested")
    for number in range(3):
        given = f"{bucket}/out{number}", Barrier(16), Barrier(16)
        with ThreadPoolExecutor(16) as pool:
            assert sum(pool.map(attempt, *([each] * 16 for each in given))) == 1
    assert in_bucket(bucket) == {}


_INGEST = """
import sys
from bigkpca.data.stores import leases
from bigkpca.errors import LockedError
from bigkpca.execution.progress import Silent
from bigkpca.ingesting.formats import base
from bigkpca.ingesting import ingest
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


def at_every_block(what):
    """Progress that does something whenever rows were read."""
    progress = Silent()
    progress.__dict__["advance"] = what  # it is frozen
    return progress


def test_an_ingest_that_was_suspended_and_one_that_took_over_do_not_mix(tmp_path, bucket):
    out = f"{bucket}/data.zarr"
    for name, rows in (("a", 640), ("b", 64)):
        np.save(tmp_path / f"{name}.npy", np.random.default_rng(rows).normal(size=(rows, 4)))
    ingest([tmp_path / "b.npy"], tmp_path / "wanted.zarr", block_rows=32)
    codes = []
    with suspended(_INGEST, str(tmp_path / "a.npy"), out) as wake:

        def done():
            progress = at_every_block(lambda rows: codes or codes.append(wake()))
            try:
                ingest([tmp_path / "b.npy"], out, block_rows=32, progress=progress)
            except LockedError:  # its lease has not expired
                return False
            return True

        wait_until(done, 120)
    assert codes == [5]
    assert in_bucket(bucket) == {
        f"data.zarr/{name}": held for name, held in tree_bytes(tmp_path / "wanted.zarr").items()
    }


def test_a_server_that_ignores_conditions_is_refused(tmp_path, use_s3):
    with rclone(tmp_path / "rclone") as port:
        use_s3(port)
        with pytest.raises(SpecError, match=r"ignores conditional writes .* two runs could write one output"):
            bigkpca.fit(np.zeros((3, 2)), "s3://rows/model.zarr")
        assert [path for path in (tmp_path / "rclone").rglob("*") if path.is_file()] == []


def test_a_clock_that_cannot_be_read_leaves_nothing(s3_server, bucket, use_s3, monkeypatch):
    monkeypatch.setattr(clients, "PATIENCE", IMPATIENT)
    write_lock(f"{bucket}/out", THEIRS)
    before = in_bucket(bucket)

    def broken(method, path):
        if method == "HEAD" and "-clock-" in path:
            return b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        return None

    with proxy(s3_server.port) as between:
        use_s3(between.port)
        between.answer = broken
        no_lease(f"{bucket}/out", IncompleteError, "HTTP status 503")
        assert in_bucket(bucket) == before
    assert [path for _, path in between.requests if "-clock-" in path]


def place(out):
    return open_destination(out, {"format": "dataset"}, overwrite=True, whole=True)


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
    assert list(in_bucket(bucket)) == ["out.zarr.bigkpca-new-of-mine/zarr.json"]


def test_an_error_removes_a_scratch_unless_the_lease_is_lost(bucket):
    out, store = f"{bucket}/out.zarr", store_of(bucket)

    def fail(meanwhile):
        with target.made() as scratch:
            store.write(f"{scratch}/zarr.json", b"{}")
            meanwhile()
            raise OSError("broken")

    with store.writer(out):
        target = place(out)
        with pytest.raises(OSError, match="broken"):
            fail(lambda: None)
        assert not store.exists(target.work)
        with pytest.raises(LockedError, match="could not renew"):
            fail(lambda: write_lock(out, THEIRS))
        assert store.exists(target.work)


@contextmanager
def later(seconds):
    """This machine's clock is ahead, as that of a process that was suspended, and wakes up."""
    now = leases._now
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(leases, "_now", lambda: now() + seconds)
        yield


def test_a_lost_lease_ends_every_change_of_its_output(bucket):
    out, store = f"{bucket}/out", store_of(bucket)
    zarr.create_array(store.zarr(f"{out}/x"), shape=(3,), dtype="f4")[:] = 0
    before = in_bucket(out)
    for number, change in enumerate(
        (
            lambda: store.write(f"{out}.bigkpca-sums/a", b""),
            lambda: store.put(f"{out}/x/c/0", b""),
            lambda: store.remove_file(f"{out}/x/c/0"),
            lambda: store.remove_folder(f"{out}/x"),
            lambda: store.copy_file(f"{out}/x/c/0", f"{out}.bigkpca-new/c"),
            lambda: store.move(f"{out}/x", f"{out}/y"),
            lambda: zarr.open_array(store.zarr(f"{out}/x"), mode="r+").__setitem__(slice(0, 1), 1),
            lambda: store.check_writer(f"{out}.bigkpca-run-7", ask=False),
        )
    ):
        with store.writer(out):
            write_lock(out, THEIRS)
            with later(61), pytest.raises(LockedError, match="could not renew"):
                change()
            with pytest.raises(LockedError, match="could not renew"):  # now it is known
                change()
            store.write(f"{bucket}/out2", b"of another output")
        assert in_bucket(bucket)["out.bigkpca-lock"] == THEIRS  # which is not ours to remove
        store.remove_file(f"{out}.bigkpca-lock")
        assert in_bucket(out) == before, number


def test_a_lease_that_is_fresh_is_not_asked_for_at_every_change(s3_server, bucket, use_s3):
    out, store = f"{bucket}/out", store_of(bucket)
    with proxy(s3_server.port) as between:
        use_s3(between.port)
        with store.writer(out):
            del between.requests[:]
            store.write(f"{out}/a", b"")
            store.remove_file(f"{out}/a")
            assert between.requests
            assert not [path for _, path in between.requests if "bigkpca-lock" in path]


def test_a_transform_on_other_machines_ends_when_its_lease_is_lost(tmp_path, bucket, monkeypatch):
    """Workers know of no lease: the process that holds it looks at every block."""
    X = np.random.default_rng(0).normal(size=(640, 3))
    out, blocks = f"{bucket}/s.zarr", []
    model = bigkpca.fit(X, tmp_path / "m.zarr", components=2, size=20)
    monkeypatch.setattr("bigkpca.storage.block_arrays.write_block", lambda path, block, values: {})

    def lose(rows):
        blocks.append(rows)
        write_lock(out, THEIRS)
        ahead.enter_context(later(61))

    with ExitStack() as ahead, pytest.raises(LockedError, match="could not renew"):
        bigkpca.transform(model, X, out, block_rows=32, progress=at_every_block(lose))
    assert len(blocks) == 1
