"""Workers that die, fill up, stand still or are slow inside a block: the same bytes, or nothing and the reason."""

import itertools
import subprocess
import threading

import pytest

import bigkpca
from bigkpca.errors import IncompleteError
from tests.helpers import worker_faults
from tests.helpers.dask_processes import DaskProcesses, wait_until
from tests.helpers.disks import mounted, tree_bytes
from tests.helpers.fits import OPTIONS
from tests.helpers.memory_groups import memory_group
from tests.helpers.progress import Recorder
from tests.helpers.worker_faults import NAME, Fault, happened

pytestmark = pytest.mark.full
BLOCK = 100  # rows, of the 1797 of the data: 18 blocks
_PRELOAD = ["--preload", worker_faults.__file__]
# The scheduler blames a task for the second worker that dies of it.
_ONCE_MORE = {"DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "1"}


@pytest.fixture(scope="module")
def processes(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cluster")
    with DaskProcesses(folder, 2, _PRELOAD, {NAME: str(folder / "fault"), **_ONCE_MORE}) as started:
        yield started


@pytest.fixture
def cluster(processes):
    """Two workers to which nothing happens yet."""
    processes.replace_dead()
    processes.wait_for_workers()
    yield processes
    (processes.folder / "fault").unlink(missing_ok=True)


@pytest.fixture
def runs(dataset, model):
    """A fit and a transform of the digits."""
    options = {**OPTIONS, "block_rows": BLOCK}
    return {
        "fit": lambda out, **how: bigkpca.fit(dataset, out, **options, **how),
        "transform": lambda out, **how: bigkpca.transform(model, dataset, out, block_rows=BLOCK, **how),
    }


@pytest.fixture
def here(tmp_path):
    """A folder for one output and what is left beside it."""
    (tmp_path / "here").mkdir()
    return tmp_path / "here"


def check(out, run):
    """What is there is what a run on threads makes, and nothing lies beside it."""
    clean = out.parent.with_name("clean.zarr")
    run(clean)
    assert tree_bytes(out) == tree_bytes(clean)
    assert [path.name for path in out.parent.iterdir()] == [out.name]
    bigkpca.verify(out)


@pytest.mark.parametrize(
    ("command", "moment", "what"),
    [
        ("transform", "reading", "exited"),
        ("fit", "computing", "segfault"),
        ("transform", "writing", "killed"),
        ("transform", "reading", "slow"),
    ],
)
def test_a_worker_that_dies_or_is_slow_inside_a_block_changes_nothing(command, moment, what, runs, cluster, here):
    Fault(moment, what).arm(cluster.folder)
    runs[command](here / "out.zarr", scheduler=cluster.address, timeout=60)
    (struck,) = happened(cluster.folder)
    assert (struck in [worker.pid for worker in cluster.workers if worker.poll() is not None]) == (what != "slow")
    check(here / "out.zarr", runs[command])


def test_a_block_that_kills_its_workers_is_named_and_the_blocks_before_it_are_kept(runs, cluster, here):
    out, shown = here / "out.zarr", Recorder()
    Fault("reading", "exited", row=950, times=100).arm(cluster.folder)
    named = r"killed every worker .* rows 900 to 999[;.] .*memory .*--block-rows"
    with cluster.revived(), pytest.raises(IncompleteError, match=named):
        runs["transform"](out, scheduler=cluster.address, timeout=60)
    assert len(happened(cluster.folder)) <= 4
    assert not out.exists()
    (cluster.folder / "fault").unlink()
    runs["transform"](out, progress=shown)
    assert any("blocks are already written" in note for note in shown.notes)
    check(out, runs["transform"])


def test_a_run_whose_workers_are_all_gone_ends_and_goes_on_when_some_are_back(runs, here, tmp_path, monkeypatch):
    out, told, gone, later = here / "out.zarr", [], threading.Event(), itertools.count(10**9, 10**9)
    # No second goes by before all workers are gone, and then more than any timeout.
    monkeypatch.setattr("bigkpca.execution.on_cluster.monotonic", lambda: next(later) if gone.is_set() else 0)

    def run():
        with pytest.raises(IncompleteError) as error:
            runs["transform"](out, scheduler=cluster.address, timeout=20)  # results that are lost are waited for
        told.append(error.value)

    # This scheduler does not blame a task for two workers, whichever tasks the second has when it is killed.
    with DaskProcesses(tmp_path, 2, _PRELOAD, {NAME: str(tmp_path / "fault")}) as cluster:
        runs["transform"](tmp_path / "first.zarr", scheduler=cluster.address)  # workers import what they need
        Fault("reading", "stalled", row=950).arm(tmp_path)
        running = threading.Thread(target=run, daemon=True)
        running.start()
        wait_until(lambda: len(happened(tmp_path)) == 1)
        cluster.kill_worker(0)
        cluster.kill_worker(0)
        cluster.wait_for_workers()  # until the scheduler knows
        gone.set()
        running.join(60)
        assert f"no worker is connected to the scheduler at {cluster.address}" in str(told)
        assert not out.exists()
        gone.clear()
        (tmp_path / "fault").unlink()
        cluster.replace_dead()
        runs["transform"](out, scheduler=cluster.address)
        check(out, runs["transform"])


def test_a_disk_that_fills_up_under_workers_ends_the_run_which_then_goes_on(runs, cluster, tmp_path):
    with mounted("size=60k", tmp_path / "small") as disk:
        out, shown = disk / "out.zarr", Recorder()
        with pytest.raises(IncompleteError, match=r"the disk is full while writing .*out\.zarr"):
            runs["transform"](out, scheduler=cluster.address)
        assert not out.exists()
        assert not list((disk / "out.zarr.partial").rglob("*.partial"))  # which would keep it full
        subprocess.run(["mount", "-o", "remount,size=4m", disk], check=True)
        runs["transform"](out, scheduler=cluster.address, progress=shown)
        assert any("blocks are already written" in note for note in shown.notes)
        check(out, runs["transform"])


# Workers that the kernel kills because they take too much memory


@pytest.fixture
def little_memory(tmp_path):
    """One worker in a group of processes with little memory, in which one block takes a gigabyte."""
    env = {NAME: str(tmp_path / "fault"), **_ONCE_MORE}
    Fault("reading", "full_memory", row=950, times=100).arm(tmp_path)
    with memory_group(600_000_000) as group, DaskProcesses(tmp_path, 1, _PRELOAD, env, group.command) as started:
        started.group = group
        yield started


def test_a_block_that_needs_too_much_memory_is_named(little_memory, runs, here, tmp_path):
    named = r"rows \d+ to 999[;.] .*ran out of memory .*--block-rows"
    with little_memory.revived(), pytest.raises(IncompleteError, match=named):
        runs["transform"](here / "out.zarr", scheduler=little_memory.address)
    assert little_memory.group.kills() == 2  # as many as the scheduler allows, and one more
    assert not (here / "out.zarr").exists()
    (tmp_path / "fault").unlink()
    runs["transform"](here / "out.zarr")
    check(here / "out.zarr", runs["transform"])


def test_a_block_that_needs_too_much_memory_is_made_by_a_worker_that_has_more(little_memory, runs, here):
    little_memory.start_worker(within=[])
    little_memory.wait_for_workers()
    runs["transform"](here / "out.zarr", scheduler=little_memory.address)
    assert little_memory.group.kills() <= 1  # it depends on who gets the block
    check(here / "out.zarr", runs["transform"])
