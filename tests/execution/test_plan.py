"""Plans: what a run will cost, refused with both numbers where it does not fit."""

import os
import platform
import resource
import subprocess
import sys
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigkpca import execution
from bigkpca.data.rows import ArrayRows
from bigkpca.errors import MemoryLimitError
from bigkpca.execution.engine import Engine
from bigkpca.execution.plan import check_arrays, in_process, plan_fit, plan_transform, process_bytes, worker_bytes
from bigkpca.fitting.memory_limits import largest_size_that_fits
from bigkpca.numerics import eigenpairs, landmarks
from bigkpca.numerics.certificate import Certificate
from bigkpca.numerics.features import KernelRows
from bigkpca.numerics.kernels import Gaussian
from bigkpca.numerics.model import Model
from bigkpca.numerics.solvers import OVERSAMPLING
from bigkpca.spec import EXACT_MOST_ROWS, FitSpec, resolve


def rows(n, d=50, dtype=np.float32):
    """Rows of a shape, of one stored number."""
    return ArrayRows(np.broadcast_to(np.zeros(1, dtype), (n, d)))


def model(size=100):
    """Of rows with 50 columns, and with ten components."""
    features = KernelRows(Gaussian(1.0), np.zeros(50), np.zeros((size, 50), np.float32))
    return Model(
        features,
        eigenpairs.Solution(np.zeros(size), np.zeros((size, 10)), np.ones(10), 1.0),
        certificate=Certificate.of(10),
    )


def fit_bytes(n=10**6, d=50, dtype=np.float32, threads=2, **options):
    return plan_fit(rows(n, d, dtype), FitSpec.checked(**options), threads).array_bytes


def transform_bytes(n=10**6, threads=2, block_rows=None, size=100):
    return plan_transform(rows(n), model(size), block_rows, threads).array_bytes


def test_a_plan_says_what_will_be_read_and_done():
    plan = plan_fit(rows(600_000, 784), FitSpec.checked(size=1000, n_components=50), threads=2)
    assert (plan.rows, plan.columns, plan.size, plan.passes) == (600_000, 784, 1000, 2)
    assert plan.block_rows == 32_768
    assert plan.tasks == 38  # one pass for the axes of a subspace
    assert plan.bytes_read >= 600_000 * 784 * 4  # every row, and the sample
    assert plan.result_bytes >= 8 * 1000 * 1000 + 8 * 1000 * 50 + 4 * 1000 * 784
    assert plan.peak_bytes > process_bytes() + plan.array_bytes
    plan = plan_transform(rows(100_000), model(), None, threads=2)
    assert plan.result_bytes == 100_000 * 10 * 4
    assert plan.bytes_read == 100_000 * 50 * 4
    assert plan.tasks == -(-100_000 // plan.block_rows)


def test_peak_memory_grows_with_all_that_takes_memory_and_hardly_with_the_number_of_rows():
    for less, more in [({"threads": 1}, {"threads": 4}), ({"d": 50}, {"d": 5000}), ({}, {"dtype": np.float64})]:
        assert fit_bytes(**less) < fit_bytes(**more), more
    for less, more in [({"size": 100}, {"size": 1000}), ({"threads": 1}, {}), ({"block_rows": 2048}, {})]:
        assert transform_bytes(**less) < transform_bytes(**more), more
    for options in [
        *({"method": m} for m in ("rff", "rff-pca", "columns")),
        *({"landmarks": r} for r in landmarks.RULES),
    ]:
        peaks = [fit_bytes(**options, size=size) for size in (500, 1000, 2000, 4000)]
        assert peaks == sorted(set(peaks)), options
        assert "method" in options or peaks[2] >= fit_bytes(landmarks="uniform", size=2000), options
    # A thousand times the rows make the tree of sums ten levels deeper, five of them in the groups of each thread.
    more = fit_bytes(n=3 * 10**9, size=1000) - fit_bytes(n=3 * 10**6, size=1000)
    assert 0 <= more <= 15 * 8 * 1000**2
    assert transform_bytes(n=3 * 10**6) == transform_bytes(n=3 * 10**9)


def test_a_plan_above_the_limit_is_refused_with_both_numbers_and_what_to_do(monkeypatch):
    monkeypatch.setattr("bigkpca.execution.plan.in_process", lambda bytes_of_arrays: bytes_of_arrays)
    for limit in (None, 3_000_000):
        check_arrays(lambda threads: 3_000_000, Engine(), limit, "")
    with pytest.raises(MemoryLimitError, match="needs 3 MB in a process, but 2 MB are allowed: buy more"):
        check_arrays(lambda threads: 3_000_000, Engine(), 2_000_000, "buy more")


@given(limit=st.integers(0, 2 * 10**9), n=st.sampled_from([3000, 10**6]))
def test_the_suggested_size_fits(limit, n):
    data = rows(n)
    fit = resolve(FitSpec.checked(size=4000), data)
    size = largest_size_that_fits(fit, limit, lambda fit: plan_fit(data, fit.spec, 2).array_bytes)
    needed = {s: fit_bytes(n, size=s) for s in (10, size or 10)}
    if size is None:
        assert needed[10] > limit
    else:
        assert needed[size] <= limit
        assert size < min(4000, n)
        assert size == float(f"{size:.1e}")  # two digits


@pytest.mark.parametrize("n", [60_000, 10**6, 10**8])
def test_sizes_that_fit_into_memory_are_those_of_the_page_on_sizes(n, monkeypatch):
    monkeypatch.setattr(execution, "_set", [True])  # as in a command
    monkeypatch.setattr("bigkpca.execution.plan.process_bytes", lambda: 128 * 10**6)
    data = rows(n)
    assert all(85 <= in_process(fit_bytes(n, size=size)) / size**2 <= 90 for size in (10_000, 20_000))
    fit = resolve(FitSpec.checked(size=40_000), data)
    found = [
        largest_size_that_fits(fit, gigabytes * 10**9, lambda fit: plan_fit(data, fit.spec, 2).peak_bytes)
        for gigabytes in (8, 16, 24, 32, 64)
    ]
    assert found == [9500, 13_000, 16_000, 19_000, 27_000]


def test_the_exact_method_plans_for_its_gram_matrix_while_it_holds_it_and_reads_every_row_once():
    assert plan_fit(rows(8192), FitSpec.checked(method="exact"), 1).size == EXACT_MOST_ROWS == 8192
    assert fit_bytes(n=8193, method="exact", threads=1) < 16 * 8192**2 < fit_bytes(n=8192, method="exact", threads=1)
    plan = plan_fit(ArrayRows(np.zeros((1000, 5))), FitSpec.checked(method="exact"), 1)
    assert (plan.passes, plan.bytes_read) == (0, 1000 * 5 * 8)


def test_a_sketch_never_holds_the_square_of_the_features():
    options = {"method": "rff", "size": 8000}
    dense, sketch = (fit_bytes(**options, solver=solver) for solver in ("dense", "randomized"))
    assert sketch < dense / 3
    assert dense > 5 * 8 * 8000**2
    assert fit_bytes(method="rff", size=100_000) < 4 * 10**9  # of 80 GB: the features of 1024 rows
    result = plan_fit(rows(10**6), FitSpec.checked(**options, solver="randomized"), 2).result_bytes
    assert result < 8 * 8000 * (50 + 50 + OVERSAMPLING)


def test_a_worker_needs_what_its_passes_need_and_no_solver():
    many = rows(10**6)
    for options in ({"size": 3000}, {"method": "rff-pca", "size": 2000}, {"preimage": "ridge", "size": 2000}):
        fit = resolve(FitSpec.checked(**options), many)
        few, more = (worker_bytes(many, fit, threads) for threads in (1, 4))
        assert 100e6 + 8 * fit.size**2 // 2 < few < more
        assert few < plan_fit(many, fit.spec, 1).peak_bytes
    square = rows(3000, 3000)
    fit = resolve(FitSpec.checked(method="exact", kernel="precomputed"), square)
    assert worker_bytes(square, fit, 2) > plan_fit(square, fit.spec, 2).array_bytes


def test_what_the_process_holds_and_what_its_allocator_keeps_are_planned(monkeypatch):
    before = process_bytes()
    held = np.ones(10**7)
    assert process_bytes() >= before + 64_000_000 < before + held.nbytes
    with mock.patch("builtins.open", side_effect=FileNotFoundError):  # as on macOS
        assert 0 <= process_bytes() - resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < 64_000_000
    peaks = []
    for returned in (True, False):
        monkeypatch.setattr(execution, "_set", [returned])  # which a process sets once, and for good
        peaks.append(in_process(10**9) - in_process(0))
    assert 10**9 < peaks[0] < peaks[1] < 1.5 * 10**9


_CODE = """
import numpy as np
from bigkpca.execution import release_freed_memory

def resident_mb():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096 / 1e6

pieces = [np.ones(12_000) for _ in range(600)]  # 58 MB in pieces too small for a mapping of their own
last = pieces.pop()  # above them: without `release_freed_memory`, those below stay resident
del pieces
resident = []
for size in (0, 100, 1000):
    release_freed_memory(size)
    resident.append(resident_mb())
print(*resident)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs the C library that keeps freed memory")
def test_memory_below_what_is_in_use_returns_only_after_work_with_many_features():
    env = {key: value for key, value in os.environ.items() if not key.startswith("MALLOC_")}
    done = subprocess.run([sys.executable, "-c", _CODE], capture_output=True, text=True, check=True, env=env)
    before, few, many = map(float, done.stdout.split())
    assert abs(few - before) < 1  # a page more or less is the interpreter's own
    assert many < before - 30
