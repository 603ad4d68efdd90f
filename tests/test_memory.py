"""Peak resident memory of real processes: below the plan, and the same for few and many rows."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks import containers
from bigkpca import landmarks
from bigkpca.data.opening import open_rows
from bigkpca.execution.planning import plan_evaluate, plan_fit, plan_transform, sample_bytes
from bigkpca.spec import FitSpec, resolve
from bigkpca.storage.models import load_model
from tests.helpers.commands import peak_bytes, run_apart

ROWS, MORE, COLUMNS = 40_000, 200_000, 1000  # the fewer rows are enough blocks for what allocators keep to be there
of_linux = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs the high-water mark of Linux")


def peaks(n: int, folder: Path) -> dict[str, int]:
    """Of each command on n rows, in bytes; below the plan, and not far below it."""
    raw, dataset, model, scores = (folder / f"{n}{suffix}" for suffix in (".npy", ".zarr", ".model", ".scores"))
    np.save(raw, np.random.default_rng(0).integers(0, 255, (n, COLUMNS), np.uint8))
    found = {
        "ingest": peak_bytes("ingest", "-q", raw, dataset),
        "fit": peak_bytes("fit", "-q", dataset, model, "--size", 500),
        "transform": peak_bytes("transform", "-q", model, dataset, scores),
    }
    rows = open_rows(dataset)
    fit = plan_fit(rows, FitSpec.checked(size=500), 2).peak_bytes
    transform = plan_transform(rows, load_model(str(model)), None, 2).peak_bytes
    assert 0.6 * fit < found["fit"] <= fit
    assert 0.6 * transform < found["transform"] <= transform
    return found


@pytest.mark.alone
@of_linux
def test_peaks_stay_below_the_plan(tmp_path: Path) -> None:
    peaks(ROWS, tmp_path)


@pytest.mark.alone
@pytest.mark.slow
@of_linux
def test_peaks_do_not_grow_with_the_rows(tmp_path: Path) -> None:
    few, many = peaks(ROWS, tmp_path), peaks(MORE, tmp_path)
    for command, peak in many.items():
        assert peak < 1.1 * few[command], (few, many)


@pytest.mark.alone
@pytest.mark.slow
@of_linux
def test_peaks_of_evaluations_and_lengths_stay_below_their_plan(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    raw, model = tmp_path / "rows.npy", tmp_path / "model.zarr"
    X = rng.normal(size=(ROWS // 2, 10)) @ rng.normal(size=(10, 300)) + rng.normal(size=(ROWS // 2, 300))
    np.save(raw, X.astype(np.float32))
    peak_bytes("fit", "-q", raw, model, "--size", 1000)
    rows, fitted = open_rows(raw), load_model(str(model))
    for sample in (500, 2500):
        plan = plan_evaluate(rows, fitted, sample, 8 * sample, 2).peak_bytes
        assert 0.5 * plan < peak_bytes("evaluate", "-q", model, raw, "--sample", sample) <= plan
    for options, spec in (((), FitSpec()), (("--standardize",), FitSpec(standardize=True))):
        plan = sample_bytes(rows, resolve(spec, rows), 2)
        assert 0.5 * plan < peak_bytes("sigma", "-q", raw, *options) <= plan
    refused = run_apart("sigma", raw, "--cv", "--size", 400, "--memory", "1 MB").stderr
    planned = float(re.search(r"this needs (\d+) MB in a process, 1 MB are allowed", refused)[1]) * 1e6
    tried = ("--size", 400, "--components", "10,40")
    assert 0.3 * planned < peak_bytes("sigma", "-q", raw, "--cv", *tried) <= planned


_FIT = """
import sys
from bigkpca import KernelPCA, landmarks
options = eval(sys.argv[2])
KernelPCA(random_state=0, **options).fit(sys.argv[1])
print(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1])
"""


@pytest.mark.alone
@pytest.mark.slow
@of_linux
@pytest.mark.parametrize(
    "options",
    [
        "dict(size=500, standardize=True)",
        "dict(method='columns', size=500)",
        "dict(method='rff', size=2000)",
        "dict(method='rff-pca', size=2000)",
        "dict(method='rff', size=6000, solver='randomized')",
        "dict(method='rff-pca', size=6000, solver='randomized')",
        "dict(landmarks='rpcholesky', size=1000)",
        "dict(landmarks=landmarks.RPCholesky(over='all'), size=1000)",
        "dict(landmarks='leverage', size=1000)",
        "dict(landmarks='basic-patterns', size=1000)",
        "dict(method='rff', kernel='polynomial', size=2000)",
    ],
)
def test_peaks_of_every_method_stay_below_their_plan(options: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    # Of ten strong directions, as data are: of pure noise a Gram matrix is close to the identity.
    X = rng.normal(size=(ROWS, 10)) @ rng.normal(size=(10, 300)) + rng.normal(size=(ROWS, 300))
    np.save(tmp_path / "rows.npy", X.astype(np.float32))
    command = [sys.executable, "-c", _FIT, str(tmp_path / "rows.npy"), options]
    found = subprocess.run(command, capture_output=True, text=True, timeout=280, check=True).stdout
    parameters = eval(options, {"dict": dict, "landmarks": landmarks})
    plan = plan_fit(open_rows(tmp_path / "rows.npy"), FitSpec.checked(**parameters), 2)
    assert int(found) * 1024 <= plan.peak_bytes, (int(found) * 1024, plan.peak_bytes)


@pytest.mark.alone
@pytest.mark.slow
@of_linux
def test_every_container_is_streamed_in_the_memory_of_the_dask_array(tmp_path: Path) -> None:
    path = containers.made(tmp_path, 400_000)  # 320 MB
    peaks = {name: min(containers.peak(name, path, 500)[0] for _ in range(2)) for name in containers.CONTAINERS}
    for name, array in containers.REFERENCES.items():
        assert peaks[name] <= 1.2 * peaks[array], (name, peaks)
