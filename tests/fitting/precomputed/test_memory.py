"""Plans for a given matrix, and the peaks that they bound."""

import subprocess
import sys
from pathlib import Path

import dask.array as da
import numpy as np
import pytest
from numpy.testing import assert_allclose

import bigkpca.estimator  # noqa: F401
from bigkpca import kernels
from bigkpca.data import matrix_tiles
from bigkpca.data.opening import open_rows
from bigkpca.errors import MemoryLimitError
from bigkpca.execution.plan import plan_fit
from bigkpca.spec import FitSpec
from tests.fitting.precomputed.matrices import OPTIONS, N, estimator, planned
from tests.helpers.stores import as_npy, as_zarr


def test_a_plan_counts_the_matrix_where_it_is_held_and_pieces_above():
    held, above, far = planned(8192), planned(8193), planned(60_000, (1000, 1000))
    assert held.array_bytes > 2 * 8 * 8192**2
    assert above.array_bytes < held.array_bytes / 3
    assert far.array_bytes < 4 * 60_000**2 / 8
    assert held.bytes_read == 4 * 8192**2
    assert (held.passes, above.passes) == (1, 3)
    assert_allclose(far.bytes_read, 2 * 4 * 60_000**2, rtol=0.02)  # the start, and two halves
    assert planned(60_000, (100, 60_000)).bytes_read == 3 * 4 * 60_000**2
    assert planned(60_000, (8000, 8000)).array_bytes >= far.array_bytes + 2 * 3 * 4 * (8000**2 - 2 * 1000**2)
    assert planned(60_000, n_components=200).array_bytes > planned(60_000).array_bytes
    assert far.result_bytes >= 8 * 60_000 * 21
    zeros = open_rows(da.zeros((20_000, 20_000), chunks=(1000, 1000), dtype=np.float32))
    of_dask = plan_fit(zeros, FitSpec.checked(n_components=20, **OPTIONS), 2)  # what travels to tasks counts as well
    assert of_dask.array_bytes > planned(20_000, (1000, 1000)).array_bytes + 2 * matrix_tiles.PART_BYTES


def test_what_does_not_fit_is_refused_before_it_is_read(path):
    with pytest.raises(MemoryLimitError, match="100 MB are allowed: store the matrix in smaller chunks"):
        estimator(memory_limit="100 MB").fit(np.full((N, N), np.nan))


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
        *(
            pytest.param(*case, marks=pytest.mark.long)
            for case in ((12_000, (1000, 1000), 10), (12_000, (100, 12_000), 20), (12_000, "npy", 100),
                         (12_000, "dask", 20), (3000, (500, 500), 3000))
        ),
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
