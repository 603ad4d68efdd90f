"""A disk that fills up at any moment."""

import subprocess

import pytest

from bigkpca.errors import IncompleteError
from tests.helpers.disks import tree_bytes
from tests.storage.outputs import WRITES


@pytest.mark.parametrize("every", [5, pytest.param(1, marks=pytest.mark.long)])  # of how many sizes one is tried
@pytest.mark.parametrize("limit", ["size", "nr_inodes"])
@pytest.mark.parametrize("write", WRITES)
def test_a_disk_that_fills_up_at_any_moment_stops_a_command_that_then_goes_on(write, limit, every, home, mounted):
    WRITES[write]("wanted.zarr")
    wanted, messages = tree_bytes(home / "wanted.zarr"), []
    for many in range(2, 100, every):
        amount = f"{4 * many}k" if limit == "size" else str(many)
        disk = mounted(f"{limit}={amount}")
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
    assert all("the disk is full while writing" in message for message in messages)
