"""Outputs: whatever is cut off, the same request ends in the same bytes, and nothing of others is lost."""

import itertools
import re
import shutil
import subprocess
from functools import partial
from pathlib import Path

import dask.array as da
import numpy as np
import pytest
import xarray as xr
import zarr

from bigkpca.data.blocks import Block, split
from bigkpca.data.opening import open_rows
from bigkpca.data.stores import LocalDisk, ObjectStore, is_url, store_of
from bigkpca.data.zarr_stores import zarr_store
from bigkpca.errors import CorruptionError, IncompleteError, LockedError, SpecError
from bigkpca.storage import groups, output
from bigkpca.storage.groups import NewArray
from tests.data.cases import case, refused
from tests.helpers.disks import mounted, tree_bytes
from tests.helpers.s3 import BUCKET, in_bucket, rclone
from tests.storage import hostile
from tests.storage.outputs import WRITES

N, ROWS = 80, 32
X = np.random.default_rng(0).normal(size=(200, 3))
ARRAYS = {"x": NewArray(np.float32, (3,)), "far": NewArray(np.uint8, attributes={"a": 1})}
NAMES = sorted(ARRAYS)
ABOUT, BLOCKS = {"rows": N, "arrays": NAMES}, split(N, ROWS)
INPUT = {"path": None, "shape": [80, 3], "dtype": "<f4", "stamp": "x"}
RECORD = {"format": "reconstruction", "model": "m", "input": INPUT, "block_rows": ROWS}
OTHER = RECORD | {"model": "n"}
GROWTH = {"format": "reconstruction", "job": "j"}


def values(block, record):
    """The values of a block: those of another request differ."""
    shift = {"n": 5, "k": 9}.get(record.get("model", record.get("job")), 0)
    return {"x": X[block.start : block.stop] + shift, "far": np.zeros(len(block))}  # far: nothing but fill values


def expected(rows, record=RECORD):
    return values(Block(0, 0, rows), record)["x"].astype("f4")


def write(place, blocks, record=RECORD):
    for block in blocks:
        place.write(block, values(block, record))
    place.check_written(blocks, NAMES)


def fill(place, record=RECORD):
    """All that a run does before it publishes."""
    place.create(ARRAYS, N, ROWS)
    write(place, BLOCKS, record)


def make(path, record=RECORD, **how):
    """Make an output; whether there was anything to do."""
    with output.opened(path, record, **{"overwrite": False} | how) as place:
        if not place.done:
            fill(place, record)
            place.publish(ABOUT)
        return not place.done


def replace(path, record=OTHER, **how):
    return make(path, record, overwrite=True, **how)


def grow(path, rows, record=GROWTH, **how):
    """Add rows up to this number."""
    with output.growing(path, record, **how) as place:
        start = place.before["rows"]
        edges = [start, *range(start // ROWS * ROWS + ROWS, rows, ROWS), rows]
        blocks = [Block(a // ROWS, a, b) for a, b in itertools.pairwise(edges) if a < b]
        write(place, blocks, record)
        place.publish({"rows": rows})


def files(path):
    """Everything at a path and beside it, with its bytes."""
    folder, _, name = path.rpartition("/")
    held = in_bucket(folder) if is_url(path) else tree_bytes(folder)
    return {key: content for key, content in held.items() if key.startswith(name)}


def check(path, rows=N, record=RECORD):
    """The finished output of a request is there, whole, and nothing beside it."""
    np.testing.assert_array_equal(open_rows(path).block(0, rows), expected(rows, record))
    assert open_rows(path).shape == (rows, 3)
    assert all(key.startswith(path.rpartition("/")[2] + "/") for key in files(path))


@pytest.fixture
def patch():
    """Patches that a test takes back before it ends; others stay."""
    with pytest.MonkeyPatch.context() as patch:
        yield patch


def test_an_output_is_made_once_and_opens_as_it_is(root):
    path = f"{root}/o.zarr"
    assert make(path)
    assert not make(path)
    check(path)
    about = groups.describe(path)
    assert {**about, **RECORD} == about
    assert (about["rows"], about["arrays"]) == (N, NAMES)
    store = zarr_store(path)
    np.testing.assert_array_equal(da.from_zarr(store, component="x"), expected(N))
    found = xr.open_zarr(store)  # lazily
    assert (found["x"].dims, found["far"].attrs) == (("row", "column"), {"a": 1})
    np.testing.assert_array_equal(found["x"], expected(N))


# What is there before a run, the run, and the rows and the request that readers find before and after it.
RUNS = {
    "new": (lambda path: None, make, None, (N, RECORD)),
    "replaced": (lambda path: make(path, OTHER), lambda path: replace(path, RECORD), (N, OTHER), (N, RECORD)),
    "grown": (make, lambda path: grow(path, 150), (N, RECORD), (150, RECORD)),
}


@pytest.mark.parametrize(
    ("root", "every"),
    [
        ("local", 12),
        pytest.param("local", 1, marks=pytest.mark.full),
        pytest.param("objects", 5, marks=pytest.mark.full),
        pytest.param("objects", 1, marks=pytest.mark.long),
    ],
    indirect=["root"],
)
@pytest.mark.parametrize("run", RUNS)
def test_a_run_that_is_cut_off_at_any_step_is_continued_by_the_same_request(run, every, root, steps):
    """One of `every` steps is tried. At each, readers find the output from before, or nothing, or the whole new one."""
    before, action, old, new = RUNS[run]
    with steps.cut(10**6):
        before(f"{root}/wanted.zarr")
        action(f"{root}/wanted.zarr")
    wanted = {key.removeprefix("wanted"): content for key, content in files(f"{root}/wanted.zarr").items()}
    for most in itertools.count(0, every):
        path = f"{root}/{most}.zarr"
        before(path)
        with steps.cut(most):
            action(path)
        if steps.count <= most:
            break
        with case(f"step {most}"):
            found = groups.describe(path)
            if found is None:
                assert run != "grown"
            else:
                rows, record = next(
                    each for each in (old, new) if each and found == found | each[1] | {"rows": each[0]}
                )
                np.testing.assert_array_equal(open_rows(path).block(0, rows), expected(rows, record))
            action(path)
            check(path, *new)
            assert {key.removeprefix(f"{most}"): content for key, content in files(path).items()} == wanted
            store_of(path).remove_folder(path)
    assert most > 20


def test_a_finished_output_of_another_request_is_replaced_only_when_that_is_asked_for(root):
    path = f"{root}/o.zarr"
    make(path)
    a_model, here = OTHER | {"format": "model"}, r"other options \(model is 'm' there and 'n' here\): .*--overwrite"
    refused(
        lambda record, overwrite: make(path, record, overwrite=overwrite),
        (OTHER, False, SpecError, f"already holds a store of .* {here}"),
        (a_model, False, SpecError, "already holds a bigkpca store of reconstructed rows"),
        (a_model, True, SpecError, "is a bigkpca store of reconstructed rows, which a model never replaces"),
    )
    check(path)
    assert replace(path)
    check(path, record=OTHER)


def a_file(path):
    store_of(path).make_folder(path.rpartition("/")[0])
    store_of(path).write(path, b"mine")


def theirs(path, name="mine.txt"):
    """A folder that bigkpca did not make."""
    a_file(f"{path}/{name}")


def their_group(path):
    zarr.create_group(zarr_store(path), attributes={"bigkpca": {"format": 3}})


@pytest.mark.parametrize("put", [theirs, a_file, their_group, lambda path: theirs(path, "zarr.json")])
def test_what_others_put_at_a_path_or_beside_it_is_never_replaced(put, root):
    for name, message in (
        ("o.zarr", "exists and was not made by bigkpca, so it is never replaced"),
        ("o.zarr.partial", r"o\.zarr\.partial exists and was not made by bigkpca, which writes there"),
    ):
        path = f"{root}/{len(name)}/o.zarr"
        put(f"{root}/{len(name)}/{name}")
        before = files(path)
        for overwrite in (False, True):
            refused(partial(make, overwrite=overwrite), (path, SpecError, message))
        assert files(path) == before


def test_what_others_put_beside_an_output_stays_when_it_is_done_and_links_are_not_followed(root, tmp_path):
    path, theirs_too = f"{root}/o.zarr", tmp_path / "theirs"
    make(path)
    theirs(f"{path}.partial")
    assert not make(path)
    message = "partial exists and was not made by bigkpca"
    refused(grow, (path, 90, SpecError, message))
    refused(replace, (path, SpecError, message))
    assert files(path)["o.zarr.partial/mine.txt"] == b"mine"
    theirs_too.mkdir()
    (tmp_path / "p.zarr.partial").symlink_to(theirs_too)
    refused(make, (f"{tmp_path}/p.zarr", SpecError, message))
    assert not list(theirs_too.iterdir())


def test_what_appears_at_a_path_during_a_run_is_not_replaced(tmp_path):
    path = f"{tmp_path}/o.zarr"
    make(f"{tmp_path}/other.zarr", OTHER)
    for put, message in (
        (theirs, "was not made by bigkpca"),
        (lambda path: shutil.copytree(f"{tmp_path}/other.zarr", path), "already holds .* made with other options"),
    ):
        with output.opened(path, RECORD, overwrite=False) as place:
            fill(place)
            put(path)
            before = tree_bytes(path)
            refused(place.publish, (ABOUT, SpecError, message))
        assert tree_bytes(path) == before
        shutil.rmtree(path)
    with output.opened(path, RECORD, overwrite=False) as place:
        assert place.missing(BLOCKS, NAMES) == []
    make(path)
    check(path)


def test_one_run_at_a_time_writes_an_output_on_a_disk(tmp_path):
    path = f"{tmp_path}/o.zarr"
    make(path)
    for first in (output.opened(path, OTHER, overwrite=True), output.growing(path, GROWTH)):
        with first:
            for second in (make, replace, partial(grow, rows=150)):
                refused(second, (path, LockedError, "another run is writing"))
    np.testing.assert_array_equal(open_rows(path).block(0, N), expected(N))


def test_what_a_killed_run_left_is_removed_by_another_request_on_a_disk(tmp_path, steps):
    path, notes = f"{tmp_path}/o.zarr", []
    with steps.cut(40):
        make(path, OTHER)
    assert output.claimed(path) == OTHER
    make(path, note=notes.append)
    assert notes == [
        "removed what an interrupted run left of a store of reconstructed rows made with other options (model is 'n' "
        "there and 'm' here)"
    ]
    check(path)


def test_two_runs_of_one_request_at_once_make_the_same_output(bucket):
    path = f"{bucket}/o.zarr"
    with output.opened(path, RECORD, overwrite=False) as first, output.opened(path, RECORD, overwrite=False) as second:
        for place in (first, second):
            place.create(ARRAYS, N, ROWS)
        write(first, split(N, 2 * ROWS))
        write(second, BLOCKS)
        second.publish(ABOUT)
        first.create(ARRAYS, 0, ROWS)  # which finds what there is
        refused(first.write, (Block(0, 0, ROWS), {}, LockedError, "another run took over"))
        refused(first.publish, (ABOUT, LockedError, "another run took over"))
    check(path)
    assert not make(path)


@pytest.mark.full
def test_another_request_is_refused_in_an_object_store_until_it_overwrites(bucket, steps):
    path, notes = f"{bucket}/o.zarr", []
    with output.opened(path, RECORD, overwrite=False) as place:
        place.create(ARRAYS, N, ROWS)
        place.write(BLOCKS[0], values(BLOCKS[0], RECORD))
        message = (
            r"o\.zarr is being made, or was left unfinished, by another request, of a store of reconstructed rows made "
            r"with other options \(model is 'm' there and 'n' here\): wait .* with --overwrite"
        )
        refused(make, (path, OTHER, LockedError, message))
        replace(path, note=notes.append)
        assert notes == [f"removing what is at {path} first"]
        check(path, record=OTHER)
        late = files(path)
        refused(place.write, (BLOCKS[1], values(BLOCKS[1], RECORD), LockedError, "another run took over"))
        refused(place.check_claim, (LockedError, "another run took over"))
        refused(place.publish, (ABOUT, LockedError, "another run took over"))
        place.release()
    assert files(path) == late


@pytest.mark.full
def test_two_requests_that_overwrite_at_once_do_not_mix(bucket, patch):
    """The second comes when the first has removed what was there."""
    path, remove = f"{bucket}/o.zarr", ObjectStore.remove_folder
    make(path, RECORD | {"model": "k"})

    def interrupted(self, folder):
        remove(self, folder)
        if folder == path:
            patch.undo()
            replace(path)

    patch.setattr(ObjectStore, "remove_folder", interrupted)
    message = "is being made, or was left unfinished, by another request"
    refused(replace, (path, RECORD, LockedError, message))
    check(path, record=OTHER)


@pytest.mark.full
def test_what_is_published_while_another_request_starts_is_not_removed(bucket, patch):
    """The second finds the first unfinished, and then finished."""
    path, check_beside = f"{bucket}/o.zarr", output._check_beside
    with output.opened(path, RECORD, overwrite=False) as place:
        fill(place)

        def late(path):
            place.publish(ABOUT)
            return check_beside(path)

        patch.setattr(output, "_check_beside", late)
        message = "already holds a store of reconstructed rows made with other options"
        refused(make, (path, OTHER, SpecError, message))
    check(path)


@pytest.mark.full
def test_a_server_that_ignores_conditions_of_writes_is_refused(tmp_path, use_s3):
    with rclone(tmp_path / "rclone") as port:
        use_s3(port)
        path = f"s3://{BUCKET}/a/o.zarr"
        for _ in range(2):
            refused(make, (path, SpecError, r"ignores conditional writes \(If-None-Match\), so two runs could"))
        assert files(path) == {}


def test_rows_that_are_added_leave_those_that_were_there(root):
    """Also those of a chunk in which rows are added, and the readers that have it open."""
    path = f"{root}/o.zarr"
    make(path)
    before = open_rows(path)
    stamp = before.fingerprint()
    grow(path, 90)
    grow(path, 150)
    assert before.fingerprint() != open_rows(path).fingerprint()
    assert open_rows(path).pin(N).fingerprint() == stamp
    np.testing.assert_array_equal(before.block(0, N), expected(N))
    check(path, 150)


def test_rows_are_not_added_to_a_chunk_that_is_missing(root):
    """Zarr would put fill values in place of those that are there."""
    path = f"{root}/o.zarr"
    make(path)
    store_of(path).remove_file(f"{path}/x/c/2/0")
    refused(grow, (path, 90, CorruptionError, r"o\.zarr/x: .*x/c/2/0 is missing"))
    assert groups.describe(path)["rows"] == N


def test_rows_that_another_request_left_behind_the_published_ones_do_not_count_as_written(root, steps):
    path, other = f"{root}/o.zarr", GROWTH | {"job": "k"}
    make(f"{root}/wanted.zarr")
    grow(f"{root}/wanted.zarr", 150)
    make(path)
    with steps.cut(10**6):
        grow(path, 200, other)
    last = steps.count
    for before_the_end in (8, 12, 20):
        store_of(path).remove_folder(path)
        make(path)
        with steps.cut(last - before_the_end):
            grow(path, 200, other)
        assert groups.describe(path)["rows"] == N
        if is_url(path):
            message = r"by another request, .* remove .*o\.zarr\.partial/claim\.json once"
            refused(grow, (path, 150, LockedError, message))
            store_of(path).remove_file(f"{path}.partial/claim.json")
        grow(path, 150)
        check(path, 150)
        assert list(files(path).values()) == list(files(f"{root}/wanted.zarr").values())


def test_rows_are_added_behind_those_that_another_run_added_meanwhile(root, patch):
    path = f"{root}/o.zarr"
    make(path)
    kind, name = (ObjectStore, "claim") if is_url(path) else (LocalDisk, "writer")
    before = getattr(kind, name)

    def late(self, *given):
        patch.undo()
        grow(path, 90, GROWTH | {"job": "earlier"})
        return before(self, *given)

    patch.setattr(kind, name, late)
    if is_url(path):
        message = "another run has just added rows to it: run the same command again"
        refused(grow, (path, 150, LockedError, message))
        assert groups.describe(path)["rows"] == 90
    grow(path, 150)
    check(path, 150)


def test_what_a_power_failure_left_is_made_again(tmp_path, steps):
    path = f"{tmp_path}/o.zarr"
    for damage in ("x/c/0/0", "far/c/2", "x/zarr.json", "zarr.json", "x/c/1/0"):
        with output.opened(path, RECORD, overwrite=False) as place:
            fill(place)
        Path(f"{path}.partial/group/{damage}").write_bytes(b"")
        with case(damage):
            make(path)
            check(path)
        shutil.rmtree(path)


def test_blocks_that_were_written_but_are_not_there_are_missed(root):
    path = f"{root}/o.zarr"
    with output.opened(path, RECORD, overwrite=False) as place:
        fill(place)
        store_of(path).remove_file(f"{place.folder}/far/c/2")
        assert place.missing(BLOCKS, NAMES) == [BLOCKS[2]]
        message = r"1 of 3 blocks were written but are missing, the first with rows 64 to 79: make sure that all"
        refused(place.check_written, (BLOCKS, NAMES, IncompleteError, rf"o\.zarr: {message}"))


def test_nothing_is_added_to_what_names_no_rows_or_leads_elsewhere(tmp_path):
    path = f"{tmp_path}/o.zarr"
    make(path)
    make(f"{tmp_path}/theirs.zarr")
    about, before = groups.describe(path), files(f"{tmp_path}/theirs.zarr")
    for changes in ({"arrays": ["../theirs.zarr/x"]}, {"arrays": 3}, {"rows": "many"}, {"rows": None}):
        groups.write_manifest(path, {**about, "arrays": []} if "rows" in changes else about)
        hostile.set_attribute(path, about | changes)
        with case(changes):
            refused(grow, (path, 10, CorruptionError, r"is not a valid record: (arrays|rows) is"))
    assert files(f"{tmp_path}/theirs.zarr") == before
    refused(grow, (f"{tmp_path}/new/nothing.zarr", 10, SpecError, "does not exist"))
    assert not (tmp_path / "new").exists()


@pytest.mark.full
def test_claims_that_cannot_be_read_are_those_of_others(bucket):
    path = f"{bucket}/o.zarr"
    for content in (b"{", b"[]", b"3"):
        store_of(path).write(f"{path}.partial/claim.json", content)
        assert output.claimed(path) == {}
        refused(make, (path, LockedError, "by another request, of a bigkpca output of another kind"))
    replace(path, RECORD)
    check(path)


def test_other_output_is_described_in_words_also_by_a_damaged_record():
    wanted = {"format": "model", "identity": {"path": "b.npy", "shape": [9, 2], "stamp": "2"}}
    for identity, expected in (
        ({"path": "b.npy", "shape": [9, 2], "weights": "1"}, "a model of b.npy with other sample weights"),
        ({"shape": "many"}, "a model of other rows"),
    ):
        assert output.other({"format": "model", "identity": identity}, wanted) == expected


PLACES = [*((write, "size") for write in WRITES), ("transform", "nr_inodes")]
MARKS = {11: pytest.mark.full, 1: pytest.mark.long}


@pytest.mark.parametrize(
    ("write", "limit", "every"),
    [
        ("transform", "size", 98),
        *(pytest.param(*place, every, marks=mark) for every, mark in MARKS.items() for place in PLACES),
    ],
)
def test_a_disk_that_fills_up_at_any_moment_stops_a_command_that_then_goes_on(write, limit, every, home):
    """One of `every` sizes of it, or numbers of files, is tried."""
    WRITES[write]("wanted.zarr")
    wanted, messages = tree_bytes(home / "wanted.zarr"), []
    for many in range(2, 100, every):
        amount = f"{4 * many}k" if limit == "size" else str(many)
        with mounted(f"{limit}={amount}", home / f"disk{many}") as disk:
            try:
                WRITES[write](disk / "o.zarr")
            except IncompleteError as error:
                messages.append(str(error))
            else:
                break
            subprocess.run(["mount", "-o", "remount,size=8m,nr_inodes=1000", disk], check=True)
            WRITES[write](disk / "o.zarr")
            assert tree_bytes(disk / "o.zarr") == wanted
            assert [entry.name for entry in disk.iterdir()] == ["o.zarr"]
    assert messages
    told = re.compile(r"the disk is full while writing .*make room and run the same command")
    assert all(told.search(message) for message in messages)
