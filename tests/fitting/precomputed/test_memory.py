"""Plans for a given matrix, and the peaks that they bound."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import bigkpca.estimator  # noqa: F401
from bigkpca import kernels
from bigkpca.errors import MemoryLimitError
from tests.fitting.precomputed.matrices import N, estimator, planned
from tests.helpers.stores import as_npy, as_zarr


def test_a_plan_counts_the_matrix_in_float64():
    held = planned(8192)
    assert held.array_bytes > 2 * 8 * 8192**2
    assert (held.bytes_read, held.passes) == (4 * 8192**2, 1)
    assert planned(8192, n_components=None).array_bytes > held.array_bytes


def test_what_does_not_fit_is_refused_before_it_is_read():
    with pytest.raises(MemoryLimitError, match="50 MB are allowed: request fewer components, or allow more"):
        estimator(memory_limit="50 MB").fit(np.full((N, N), np.nan))


_FIT = """
import sys
from bigkpca import KernelPCA
from bigkpca.data.opening import open_rows
from bigkpca.execution.engine import Engine
from bigkpca.execution.plan import plan_fit
from bigkpca.spec import FitSpec
import dask.array as da
data = da.from_zarr(sys.argv[1]) if sys.argv[2] == "dask" else sys.argv[1]
options = {"kernel": "precomputed", "method": "exact"}
planned = plan_fit(open_rows(data), FitSpec.checked(n_components=int(sys.argv[3]), **options), Engine().threads)
KernelPCA(int(sys.argv[3]), random_state=0, **options).fit(data)
print(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1], planned.peak_bytes)
"""


@pytest.mark.alone
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs the high-water mark of Linux")
@pytest.mark.parametrize(
    ("n", "kind", "components"),
    [
        pytest.param(3000, "npy", 20, marks=pytest.mark.full),
        pytest.param(9000, (1000, 1000), 20, marks=pytest.mark.long),
        pytest.param(3000, "dask", 3000, marks=pytest.mark.long),
    ],
    ids=str,
)  # fmt: skip
def test_peaks_stay_below_the_plan(n, kind, components, tmp_path):
    rows = np.random.default_rng(0).normal(size=(n, 10)).astype(np.float32)
    gram = kernels.Gaussian(3.0)(rows, rows)
    gram = (gram + gram.T) / 2
    np.fill_diagonal(gram, 1)
    chunks = (1000, 1000) if kind == "dask" else kind
    source = as_npy(tmp_path, gram) if kind == "npy" else as_zarr(tmp_path, gram, chunks)
    del gram
    command = [sys.executable, "-c", _FIT, source, str(kind), str(components)]
    found = subprocess.run(command, capture_output=True, text=True, timeout=280, check=True).stdout
    used, planned = map(int, found.split())
    assert used * 1024 <= planned, (used * 1024, planned)
