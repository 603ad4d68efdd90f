"""Peak resident memory of real processes: below the plan, and the same for few and many rows."""

import gzip
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks import memory
from bigkpca import kernels
from tests.helpers.commands import finished, peak_bytes, planned_bytes
from tests.helpers.files import shared_file

ROWS, MORE, COLUMNS = 40_000, 200_000, 1000  # the fewer rows are enough blocks for what allocators keep to be there
of_linux = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs the high-water mark of Linux")
pytestmark = [pytest.mark.alone, of_linux]


def some_rows(n):
    """Rows of ten strong directions, as data are: of pure noise a Gram matrix is close to the identity."""
    rng = np.random.default_rng(0)
    return (rng.normal(size=(n, 10)) @ rng.normal(size=(10, 300)) + rng.normal(size=(n, 300))).astype(np.float32)


def used_and_planned(*command):
    """Peak of a command and what it plans, in bytes: what it plans is never less, and at most twice as much."""
    planned = planned_bytes(*command)
    used = peak_bytes(*command, "-q")
    assert used <= planned, (command, used, planned)
    assert used < 200e6 or planned <= 2 * used, (command, used, planned)
    return used, planned


def peaks(n, folder):
    """Of each command on n rows, in bytes; below the plan, and not far below it."""
    raw, dataset, model, scores = (folder / f"{n}{suffix}" for suffix in (".npy", ".zarr", ".model", ".scores"))
    np.save(raw, np.random.default_rng(0).integers(0, 255, (n, COLUMNS), np.uint8))
    return {
        "ingest": peak_bytes("ingest", "-q", raw, dataset),
        "fit": used_and_planned("fit", dataset, model, "--size", 500, "--dtype", "float64")[0],  # as noise needs
        "transform": used_and_planned("transform", model, dataset, scores)[0],
    }


@pytest.mark.full
def test_peaks_stay_below_the_plan_and_near_it(tmp_path):
    peaks(ROWS, tmp_path)


@pytest.mark.long
def test_peaks_do_not_grow_with_the_rows(tmp_path):
    few, many = peaks(ROWS, tmp_path), peaks(MORE, tmp_path)
    for command, peak in many.items():
        assert peak < 1.1 * few[command], (few, many)


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_a_table_of_fifteen_times_the_rows_takes_at_most_a_fifth_more(tmp_path):
    with gzip.open(shared_file("flights", "flights_200k.csv.gz")) as file:
        header, rows = file.readline(), file.read()
    table, dataset, model = (tmp_path / name for name in ("flights.csv", "flights.zarr", "model.zarr"))
    found = []
    for times in (1, 15):
        table.write_bytes(header + times * rows)
        options = "--categorical", "origin,destination", "--missing", "mean", "--overwrite", "-q"
        ingested = peak_bytes("ingest", table, dataset, *options)
        fitted = peak_bytes("fit", dataset, model, "--standardize", "--components", 10, "--overwrite", "-q")
        found.append({"ingest": ingested, "fit": fitted})
    few, many = found
    assert all(many[command] <= 1.2 * few[command] for command in few), found


@pytest.mark.long
def test_every_command_uses_what_it_plans_to_a_factor(tmp_path):
    for threads, command, used, planned in memory.grid(tmp_path, 66_000, 1000):
        assert used <= planned, (threads, command, used, planned)
        assert used < memory.SMALL_MB or planned <= 2 * used, (threads, command, used, planned)


@pytest.mark.long
def test_the_peak_of_a_large_evaluation_stays_below_its_plan(tmp_path):
    raw, model = tmp_path / "rows.npy", tmp_path / "model.zarr"
    np.save(raw, some_rows(ROWS // 2))
    peak_bytes("fit", "-q", raw, model, "--size", 1000)
    used_and_planned("evaluate", model, raw, "--sample", 2500)


_FIT_TRANSFORM = """
import numpy as np
from bigkpca import KernelPCA
from bigkpca.data.rows import ArrayRows
from bigkpca.execution.engine import Engine
from bigkpca.execution.plan import plan_fit, process_bytes
from bigkpca.spec import FitSpec
rng = np.random.default_rng(0)
X = (rng.normal(size=(30_000, 10)).astype("f4") @ rng.normal(size=(10, 300)).astype("f4"))
X += rng.normal(size=X.shape).astype("f4")

def resident(key):
    return 1024 * int(next(line for line in open("/proc/self/status") if line.startswith(key)).split()[1])

KernelPCA(5, size=20).fit_transform(X[:2000])  # which imports
open("/proc/self/clear_refs", "w").write("5")  # a new high-water mark
before = resident("VmRSS")
options = {"size": 1000, "n_components": 20}
assert KernelPCA(random_state=0, **options).fit_transform(X).shape == (30_000, 20)
plan = plan_fit(ArrayRows(X), FitSpec.checked(size=1000, n_components=20), Engine().threads)
print(resident("VmHWM") - before, plan.peak_bytes - process_bytes(), 4 * 1000 * len(X))
"""


@pytest.mark.full
def test_features_that_fit_transform_keeps_come_on_top_of_what_a_fit_takes_and_no_more():
    used, working, kept = map(int, finished(sys.executable, "-c", _FIT_TRANSFORM).stdout.split())
    assert kept < used < working + kept, (used, working, kept)


_FIT = """
import sys
from bigkpca import KernelPCA, landmarks
from bigkpca.data.opening import open_rows
from bigkpca.execution.engine import Engine
from bigkpca.execution.plan import plan_fit
from bigkpca.spec import FitSpec
options = eval(sys.argv[2])
planned = plan_fit(open_rows(sys.argv[1]), FitSpec.checked(**options), Engine().threads).peak_bytes
KernelPCA(random_state=0, **options).fit(sys.argv[1])
print(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1])
print(planned)
"""


FULL = [
    "dict(size=500, standardize=True)",
    "dict(size=300, preimage='denoising', noise=1.0)",
    "dict(kernel='precomputed', n_components=20)",
]
LONG = [
    "dict(method='columns', size=500)",
    "dict(method='rff', size=2000)",
    "dict(landmarks='rpcholesky', size=1000)",
    "dict(method='rff-pca', size=6000, solver='randomized')",
    "dict(landmarks='basic-patterns', size=1000)",
    "dict(method='rff', kernel='polynomial', size=2000)",
    "dict(n_components=30, method='exact')",
    "dict(n_components=100, refine=5, residual_tol=1e-9, size=500)",
    "dict(n_components=10, refine=2, residual_tol=1e-9, method='rff', size=500, standardize=True)",
]
MARKED = [*(pytest.param(each, marks=pytest.mark.full) for each in FULL)]
MARKED += [pytest.param(each, marks=pytest.mark.long) for each in LONG]


@pytest.mark.parametrize("options", MARKED)
def test_peaks_of_fits_that_the_commands_leave_out_stay_below_their_plan(options, tmp_path):
    path = tmp_path / "rows.npy"
    rows = some_rows(ROWS // 2 if "exact" in options or "refine" in options else ROWS)
    np.save(path, kernels.Gaussian(30.0).gram(rows[:3000]) if "precomputed" in options else rows)
    used, planned = map(int, finished(sys.executable, "-c", _FIT, path, options).stdout.split())
    assert used * 1024 <= planned, (used * 1024, planned)
