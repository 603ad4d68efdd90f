"""Workers that the kernel kills because they take too much memory."""

import pytest

import bigkpca
from bigkpca.errors import IncompleteError
from tests.helpers import worker_faults
from tests.helpers.dask_processes import DaskProcesses
from tests.helpers.disks import tree_bytes
from tests.helpers.memory_groups import memory_group
from tests.helpers.worker_faults import NAME, Fault

pytestmark = pytest.mark.long


@pytest.fixture
def group():
    with memory_group(600_000_000) as group:
        yield group


@pytest.fixture
def cluster(group, tmp_path):
    """One worker that may use little memory, in which one block takes a gigabyte."""
    env = {NAME: str(tmp_path / "fault"), "DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "1"}
    Fault("reading", "full_memory", row=950, times=100).arm(tmp_path)
    with DaskProcesses(tmp_path, 1, ["--preload", worker_faults.__file__], env, group.command) as started:
        yield started


def test_a_block_that_needs_too_much_memory_is_named(group, cluster, dataset, model, tmp_path):
    out = tmp_path / "out.zarr"
    with (
        cluster.revived(),
        pytest.raises(IncompleteError, match=r"rows 900 to 999\. .*ran out of memory .*--block-rows"),
    ):
        bigkpca.transform(model, dataset, out, block_rows=100, scheduler=cluster.address)
    assert group.kills() == 4
    assert not out.exists()
    (tmp_path / "fault").unlink()
    bigkpca.transform(model, dataset, out, block_rows=100)
    bigkpca.verify(out)


def test_a_block_that_needs_too_much_memory_is_made_by_a_worker_that_has_more(group, cluster, dataset, model, tmp_path):
    cluster.start_worker(within=[])
    cluster.wait_for_workers()
    out, clean = tmp_path / "out.zarr", tmp_path / "clean.zarr"
    bigkpca.transform(model, dataset, out, block_rows=100, scheduler=cluster.address)
    bigkpca.transform(model, dataset, clean, block_rows=100)
    assert group.kills() <= 1  # it depends on who gets the block
    assert tree_bytes(out) == tree_bytes(clean)
