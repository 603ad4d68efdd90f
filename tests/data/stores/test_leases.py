"""Leases: of writers of one output in an object store one wins, and one that lost its lease publishes nothing."""

import json
import time
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import numpy as np
import pytest

import bigkpca
from bigkpca.data.stores import clients, leases, store_of
from bigkpca.errors import IncompleteError, LockedError, SpecError
from tests.helpers.proxy import proxy
from tests.helpers.s3 import READER, objects, rclone
from tests.helpers.suspended import suspended


@pytest.fixture
def short(monkeypatch):
    """Leases of one second."""
    monkeypatch.setattr(leases, "SECONDS", 1.0)


def left_behind(url, seconds=1.0):
    """The lock of a run that was killed."""
    clients.put(f"{url}.bigkpca-lock", json.dumps({"token": "other", "seconds": seconds}).encode(), "create")


def test_one_writer_at_a_time(bucket):
    store, out = store_of(bucket), f"{bucket}/out.zarr"
    with store.writer(out):
        store.check_writer(out)
        store.check_writer(f"{out}.bigkpca-new")
        assert list(objects(bucket)) == ["out.zarr.bigkpca-lock"]
        with store.writer(f"{bucket}/other.zarr"):
            pass
        with (
            pytest.raises(LockedError, match=r"another run is writing .*out\.zarr: .* expires in 6\d seconds unless"),
            store.writer(out),
        ):
            pass
    assert objects(bucket) == {}
    with store.writer(out):
        pass
    store.check_writer(out)  # of what nobody holds, nothing is said


def test_the_lock_of_a_failed_run_is_free(bucket):
    with pytest.raises(OSError, match="broken"), store_of(bucket).writer(f"{bucket}/out"):
        raise OSError("broken")
    assert objects(bucket) == {}


def test_a_key_that_may_not_write_is_told(s3_server, bucket, use_s3):
    """Nor may it remove what the test of the server would have written."""
    store_of(bucket).write(f"{bucket}/x", b"1")
    use_s3(s3_server.port, **READER)
    assert store_of(bucket).exists(f"{bucket}/x")
    with (
        pytest.raises(SpecError, match=r"/out: access denied: .* see the environment .*; this command writes there$"),
        store_of(bucket).writer(f"{bucket}/out"),
    ):
        pass
    with pytest.raises(SpecError, match=r"/x: access denied: .* lack the right"):
        store_of(bucket).remove_file(f"{bucket}/x")


@pytest.mark.long
def test_a_lease_is_taken_over_only_after_it_expired(bucket, short):
    out = f"{bucket}/out"
    left_behind(out)
    with pytest.raises(LockedError, match="another run is writing"), store_of(out).writer(out):
        pass
    time.sleep(4.2)
    with store_of(out).writer(out):
        pass
    assert objects(bucket) == {}


@pytest.mark.long
def test_a_lease_that_is_renewed_does_not_expire(bucket, short):
    out = f"{bucket}/out"
    with store_of(out).writer(out):
        time.sleep(4.2)
        with pytest.raises(LockedError, match="another run is writing"), store_of(out).writer(out):
            pass
        store_of(out).check_writer(out)


def test_age_is_not_told_by_this_machine(bucket, short, monkeypatch):
    left_behind(f"{bucket}/out")
    monkeypatch.setattr(time, "time", lambda: 9e9)
    with pytest.raises(LockedError, match=r"expires in [1-4] seconds"), store_of(bucket).writer(f"{bucket}/out"):
        pass


@pytest.mark.parametrize("content", [b"", b"[1]", b"no json"])
def test_a_lock_that_tells_nothing_counts_as_one_of_usual_length(bucket, content):
    clients.put(f"{bucket}/out.bigkpca-lock", content, "create")
    with pytest.raises(LockedError, match=r"expires in [56]\d seconds"), store_of(bucket).writer(f"{bucket}/out"):
        pass


def test_a_renewal_whose_answer_was_lost_is_our_own(bucket, monkeypatch):
    """Each conditional write is carried out, and then said to have failed."""
    put = clients.put

    def unheard(url, content, mode):
        done = put(url, content, mode)
        if url.endswith("-lock"):
            raise IncompleteError("no answer")
        return done

    monkeypatch.setattr(clients, "put", unheard)
    with store_of(bucket).writer(f"{bucket}/out"):
        store_of(bucket).check_writer(f"{bucket}/out")
        store_of(bucket).check_writer(f"{bucket}/out")
    assert objects(bucket) == {}


def test_a_renewal_after_one_that_was_carried_out_unheard(bucket):
    with store_of(bucket).writer(f"{bucket}/out"):
        lease = leases._HELD[f"{bucket}/out"]
        stale = lease.version
        lease.renew()
        lease.version = stale
        lease.renew()
        assert lease.version != stale


def test_a_lease_that_was_taken_over_is_lost(bucket):
    out = f"{bucket}/out"
    with store_of(out).writer(out):
        lease = leases._HELD[out]
        theirs = json.dumps({"token": "theirs", "seconds": 60}).encode()
        clients.put(f"{out}.bigkpca-lock", theirs, lease.version)
        for _ in range(2):
            with pytest.raises(LockedError, match=r"could not renew its lock of .*out within 60 seconds"):
                store_of(out).check_writer(f"{out}.bigkpca-new")
        with pytest.raises(LockedError, match="could not renew"):
            store_of(out).move(f"{out}.bigkpca-new", out)
    assert objects(bucket)["out.bigkpca-lock"] == theirs  # which is not ours to remove


@pytest.mark.long
def test_a_server_that_is_away_for_longer_than_a_lease_costs_it(s3_server, bucket, use_s3, short, monkeypatch):
    patience = clients.Patience(connect=0.2, read=0.2, request=0.2, retry=0.2, retries=0)
    monkeypatch.setattr(clients, "PATIENCE", patience)
    with proxy(s3_server.port) as between:
        use_s3(between.port)
        with store_of(bucket).writer(f"{bucket}/out"):
            between.mode = "stall"
            time.sleep(2.5)
            between.mode = "pass"
            with pytest.raises(LockedError, match="could not renew"):
                store_of(bucket).check_writer(f"{bucket}/out")


@pytest.mark.parametrize("rounds", [1, pytest.param(5, marks=pytest.mark.long)])
def test_of_sixteen_threads_exactly_one_wins(bucket, rounds):
    with store_of(bucket).writer(f"{bucket}/tested"):
        pass
    for number in range(rounds):
        out, start, held = f"{bucket}/out{number}", Barrier(16), Barrier(16)

        def attempt(out=out, start=start, held=held):
            start.wait(30)
            try:
                lease = leases.Lease.acquired(out)
            except LockedError:
                held.wait(60)
                return False
            held.wait(60)
            lease.release()
            return True

        with ThreadPoolExecutor(16) as pool:
            won = [each.result() for each in [pool.submit(attempt) for _ in range(16)]]
        assert sum(won) == 1
    assert objects(bucket) == {}


_HOLDER = """
import sys
from bigkpca.data.stores import leases, store_of
from bigkpca.errors import LockedError
leases.SECONDS = 1.0
out = sys.argv[1]
with store_of(out).writer(out):
    store_of(out).write(out + ".bigkpca-new/zarr.json", b"of the one that was stopped")
    print("held", flush=True)
    sys.stdin.readline()
    try:
        store_of(out).move(out + ".bigkpca-new", out)
    except LockedError as error:
        sys.exit(error.exit_code)
"""


@pytest.mark.long
def test_a_writer_that_was_stopped_publishes_nothing(bucket):
    out = f"{bucket}/out"
    with suspended(_HOLDER, out, seconds=4.2) as wake, store_of(out).writer(out):
        assert wake() == 5
        store_of(out).check_writer(out)
        assert not store_of(out).exists(out)


def test_a_server_that_ignores_conditions_is_refused(tmp_path, use_s3):
    with rclone(tmp_path / "rclone") as port:
        use_s3(port)
        with pytest.raises(SpecError, match=r"ignores conditions of writes .* two runs could write one output"):
            bigkpca.fit(np.zeros((3, 2)), "s3://rows/model.zarr")
        assert [path for path in (tmp_path / "rclone").rglob("*") if path.is_file()] == []
