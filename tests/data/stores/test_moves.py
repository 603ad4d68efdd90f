"""Moves in object stores that are cut off before each request, and what the next run makes of them."""

import json

import pytest

from bigkpca.data.opening import open_rows
from bigkpca.data.stores import ObjectStore, clients, objects, store_of
from bigkpca.errors import IncompleteError
from bigkpca.storage import groups
from bigkpca.storage.destination import open_destination
from tests.helpers.s3 import in_bucket


class Cut(BaseException):
    """This process was killed: it makes no further request."""


@pytest.fixture
def cut_before(monkeypatch):
    """Lets so many requests pass, and none after. Each asks for the library, and there is no other sign of it before it
    is sent."""
    library = clients._library

    def cut_before(most):
        count = 0

        def counting():
            nonlocal count
            count += 1
            if most is not None and count > most:
                raise Cut
            return library()

        monkeypatch.setattr(clients, "_library", counting)

    return cut_before


def content(digest):
    """The files of a model-like output."""
    about = {"bigkpca": {"format": "model", "format_version": 1, "digest": digest}}
    root = {"zarr_format": 3, "node_type": "group", "attributes": about}
    return {
        "zarr.json": json.dumps(root).encode(),
        "x/zarr.json": digest.encode(),
        "x/manifest.json": digest.encode() * 2,
        "x/c/0/0": digest.encode() * 3,
    }


def made(out, digest):
    """What a run does that makes an output and replaces an earlier one."""
    store = store_of(out)
    with store.writer(out):
        place = open_destination(out, {"format": "model", "digest": digest}, overwrite=True, whole=True)
        if place.done:
            return
        with place.made() as scratch:
            for name, value in content(digest).items():
                store.write(f"{scratch}/{name}", value)
        place.put_in_place()


def check_readers(out):
    """A reader finds a whole output, old or new, or is told that none is finished."""
    there = in_bucket(out)
    if "zarr.json" in there:
        digest = json.loads(there["zarr.json"])["attributes"]["bigkpca"]["digest"]
        assert there == content(digest)
    elif there or store_of(out).is_moving(out):
        with pytest.raises(IncompleteError, match="is not finished"):
            groups.open_group(out, "model")
        with pytest.raises(IncompleteError, match="is not finished"):
            open_rows(out)


@pytest.mark.parametrize(
    ("replaced", "every"),
    [
        pytest.param(False, 3, marks=pytest.mark.full),
        pytest.param(True, 7, marks=pytest.mark.full),
        pytest.param(True, 1, marks=pytest.mark.long),
    ],
)
def test_output_that_was_cut_off_at_any_request_is_finished_by_the_same_run(bucket, cut_before, replaced, every):
    stop, ended, moving = 0, False, 0
    while not ended:
        out = f"{bucket}/{stop}/out"
        if replaced:
            made(out, "old")
        cut_before(stop)
        try:
            made(out, "new")
            ended = True
        except Cut:
            pass
        cut_before(None)
        moving += store_of(out).is_moving(out)
        check_readers(out)
        store_of(out).remove_file(f"{out}.bigkpca-lock")  # as if it had expired
        made(out, "new")
        left = {name: value for name, value in in_bucket(f"{bucket}/{stop}").items() if "-lock-" not in name}
        assert left == {f"out/{name}": value for name, value in content("new").items()}, stop
        stop += every
    assert stop > 25
    assert moving > 20 / every / (2 - replaced)


@pytest.mark.full
@pytest.mark.parametrize("copied", [True, False])
def test_a_move_that_was_cut_off_keeps_the_target_once_it_is_whole_and_is_undone_before(copied, bucket):
    """While its source was removed, by the move itself or before that by an error."""
    out, store = f"{bucket}/out", store_of(bucket)
    for name, value in content("new").items():
        store.write(f"{out}/{name}", value)
    told = {"source": "out.bigkpca-new", "target": "out", "files": 4, "copied": copied}
    store.write(objects.mark(out), json.dumps(told).encode())
    if copied:
        store.write(f"{out}.bigkpca-new/x/c/0/0", b"left")
    else:
        store.remove_file(f"{out}/zarr.json")  # which is copied last
        check_readers(out)
    store.recover(out)
    assert in_bucket(bucket) == {f"out/{name}": value for name, value in content("new").items() if copied}


@pytest.mark.full
def test_what_is_replaced_is_copied_once_and_then_removed(bucket, monkeypatch):
    copied, copy = [], ObjectStore.copy_file

    def counting(store, source, target):
        copied.append(target.removeprefix(f"{bucket}/out").partition("/")[0])
        copy(store, source, target)

    made(f"{bucket}/out", "old")
    monkeypatch.setattr(ObjectStore, "copy_file", counting)
    made(f"{bucket}/out", "new")
    assert {target: copied.count(target) for target in copied} == {".bigkpca-old": 4, "": 4}


@pytest.mark.full
def test_remains_of_what_was_being_removed_are_ours(bucket):
    for ending in ("old", "trash", "new", "new-0123456789ab", "run-0123456789ab"):
        out = f"{bucket}/{ending}/out"
        store_of(out).write(f"{out}.bigkpca-{ending}/x/c/0/0", b"left")
        made(out, "new")
        assert in_bucket(f"{bucket}/{ending}") == {f"out/{name}": value for name, value in content("new").items()}


def test_what_readers_look_at_first_is_removed_first_and_copied_last():
    many = [f"x/c/{number}" for number in range(600)]
    batches = objects.in_reading_order([*many, "x/manifest.json", "x/zarr.json", "zarr.json"])
    assert batches[:3] == [["zarr.json"], ["x/manifest.json"], ["x/zarr.json"]]
    assert sorted(name for batch in batches[3:] for name in batch) == sorted(many)
    assert max(map(len, batches)) <= 256
    assert objects.in_reading_order([]) == []
    assert objects.output_of("s3://b/a/out.zarr.bigkpca-run-7") == "s3://b/a/out.zarr"
    assert objects.mark("s3://b/a/out.zarr.bigkpca-old") == objects.mark("s3://b/a/out.zarr")
