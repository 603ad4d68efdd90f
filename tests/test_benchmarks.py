"""The benchmarks at toy size, so that they do not rot; what they measure is not looked at."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest
from conftest import shared_file


@pytest.mark.slow
@pytest.mark.parametrize("name", ["accuracy", "against_sklearn", "fit_pass", "memory"])
def test_a_benchmark_prints_its_table(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shared_file("mnist", "train-images-idx3-ubyte.gz")
    toy = ["--rows", "3000", "--size", "120", "--repeats", "1", "--folder", str(tmp_path)]
    import_module(f"benchmarks.{name}").main(toy)
    assert "MNIST" in (printed := capsys.readouterr().out) or "rows" in printed
