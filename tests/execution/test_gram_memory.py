"""Plans of fits from products with the Gram matrix, and the peaks that they bound."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import bigkpca.estimator  # noqa: F401
from bigkpca.data.numpy_rows import ArrayRows
from bigkpca.data.opening import open_rows
from bigkpca.execution import freed_memory
from bigkpca.execution.engine import Engine
from bigkpca.execution.planning import plan_fit
from bigkpca.spec import FitSpec


def test_a_plan_counts_the_rows_in_memory_and_blocks_but_no_gram_matrix():
    def plan(n, **options):
        rows = ArrayRows(np.broadcast_to(np.zeros(1, np.float32), (n, 100)))
        return plan_fit(rows, FitSpec.checked(components=20, **options), 2)

    start, exact, refined = plan(10**5), plan(10**5, method="exact"), plan(10**5, refine=2)
    assert exact.size == refined.size == 10**5
    assert exact.passes == refined.passes == start.passes + 2
    assert exact.bytes_read > start.bytes_read
    assert exact.peak_bytes < 8 * 10**10 / 50
    assert plan(10**6, method="exact").peak_bytes > 10**6 * (100 * 4 + 8 * 8 * 30)


_FIT = """
import sys
from bigkpca import KernelPCA
KernelPCA(random_state=0, **eval(sys.argv[2])).fit(sys.argv[1])
print(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1])
"""


@pytest.mark.alone
@pytest.mark.long
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs the high-water mark of Linux")
@pytest.mark.parametrize(
    "options",
    [
        "dict(n_components=30, method='exact', size=500)",
        "dict(n_components=100, refine=5, residual_tol=1e-9, size=500)",
        "dict(n_components=10, refine=2, residual_tol=1e-9, method='rff', size=500, standardize=True)",
    ],
)
def test_peaks_stay_below_the_plan(options, tmp_path, monkeypatch):
    monkeypatch.setattr(freed_memory, "_set", [False])  # as in the process that is measured
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20_000, 10)) @ rng.normal(size=(10, 300)) + rng.normal(size=(20_000, 300))
    np.save(tmp_path / "rows.npy", X.astype(np.float32))
    command = [sys.executable, "-c", _FIT, str(tmp_path / "rows.npy"), options]
    found = subprocess.run(command, capture_output=True, text=True, timeout=280, check=True).stdout
    given = eval(options)
    parameters = {"components" if key == "n_components" else key: value for key, value in given.items()}
    plan = plan_fit(open_rows(tmp_path / "rows.npy"), FitSpec.checked(**parameters), Engine().threads)
    assert int(found) * 1024 <= plan.peak_bytes, (int(found) * 1024, plan.peak_bytes)
