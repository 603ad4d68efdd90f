"""The benchmarks at toy size, so that they do not rot; what they measure is not looked at."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest
from conftest import shared_file

SIZES = {  # rows, landmarks or features
    "accuracy": (3000, 120),
    "against_sklearn": (3000, 120),
    "automatic_size": (1000, 120),
    "certificate": (3000, 120),
    "comparison": (1000, 120),
    "denoise": (400, 60),
    "exact": (3000, 120),
    "fit_pass": (3000, 120),
    "landmarks": (500, 100),
    "memory": (3000, 120),
    "random_features": (500, 2000),
    "thesis_example1": (400, 120),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SIZES)
def test_a_benchmark_prints_its_table(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if name != "thesis_example1":
        shared_file("mnist", "train-images-idx3-ubyte.gz")
    if name in ("automatic_size", "denoise", "landmarks", "random_features"):
        shared_file("usps", "usps_int16.npz")
    if name in ("automatic_size", "landmarks"):
        shared_file("covertype", "covtype_93k.npz")
    rows, size = SIZES[name]
    toy = ["--rows", str(rows), "--size", str(size), "--repeats", "1", "--folder", str(tmp_path)]
    import_module(f"benchmarks.{name}").main(toy)
    printed = capsys.readouterr().out
    assert str(rows) in printed
    assert "nan" not in printed
