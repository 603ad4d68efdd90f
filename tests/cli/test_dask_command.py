"""The commands as those of Dask: `dask bigkpca ...`."""

import subprocess
import sys
from importlib.metadata import entry_points


def test_commands_are_found_below_dask_with_their_exit_codes():
    assert "bigkpca" in entry_points(group="dask_cli").names
    command = [sys.executable, "-m", "dask", "bigkpca", "info", "/nowhere.zarr"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert (done.returncode, done.stderr) == (2, "bigkpca: /nowhere.zarr does not exist\n")
