"""The benchmarks at toy size, so that they do not rot; what they measure is not looked at."""

from __future__ import annotations

import csv
import re
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmarks import scheduling
from benchmarks.sources import __main__ as sources
from tests.helpers.files import ROOT, shared_file

SIZES = {  # rows, landmarks or features
    "accuracy": (3000, 120),
    "against_sklearn": (3000, 120),
    "automatic_size": (1000, 120),
    "certificate": (3000, 120),
    "chaos": (1000, 120),
    "checkpoints": (3000, 120),
    "comparison": (1000, 120),
    "denoise": (1000, 300),
    "drift": (500, 120),
    "exact": (3000, 120),
    "exact_held": (2200, 120),
    "fit_pass": (3000, 120),
    "landmarks": (500, 100),
    "memory": (3000, 120),
    "processors": (400, 60),
    "random_features": (500, 2000),
}
OWN = {"chaos": ("--kills", "4")}  # options
SOURCES = {  # rows
    "basic_patterns": 200,
    "complexity": 400,
    "contours": 40,
    "denoising": 200,
    "dna_similarities": 200,
    "example1": 400,
    "example2": 200,
    "explicit_maps": 200,
    "low_rank_image": 70,
    "nearest_mean": 200,
    "polynomial_toy": 30,
    "principal_axes": 200,
    "usps_preimages": 200,
    "usps_scatter": 200,
}
NEEDED = {  # shared data
    "basic_patterns": ("usps", "mnist"),
    "denoising": ("usps",),
    "dna_similarities": ("promoters",),
    "example2": ("usps",),
    "nearest_mean": ("usps",),
    "usps_preimages": ("usps",),
    "usps_scatter": ("usps",),
}
QUICK = ("contours",)


def test_names_that_benchmarks_import_exist_also_in_the_programs_that_they_start() -> None:
    for path in sorted((ROOT / "benchmarks").rglob("*.py")):
        for module, names in re.findall(
            r"^from (bigkpca[\w.]*) import ([\w, ]+)", path.read_text(encoding="utf-8"), re.M
        ):
            for name in (part.split(" as ")[0].strip() for part in names.split(",")):
                home = import_module(module)
                found = hasattr(home, name) or (hasattr(home, "__path__") and find_spec(f"{module}.{name}"))
                assert found, f"{path.name} imports {name} from {module}"


@pytest.mark.slow
@pytest.mark.parametrize("name", SIZES)
def test_a_benchmark_prints_its_table(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shared_file("mnist", "train-images-idx3-ubyte.gz")
    if name in ("automatic_size", "denoise", "drift", "landmarks", "random_features"):
        shared_file("usps", "usps_int16.npz")
    if name in ("automatic_size", "drift", "landmarks"):
        shared_file("covertype", "covtype_93k.npz")
    rows, size = SIZES[name]
    toy = ["--rows", str(rows), "--size", str(size), "--repeats", "1", "--folder", str(tmp_path)]
    import_module(f"benchmarks.{name}").main([*toy, *OWN.get(name, ())])
    printed = capsys.readouterr().out
    assert str(rows) in printed
    assert "nan" not in printed


@pytest.mark.slow
@pytest.mark.cluster
def test_scheduling_prints_the_cost_of_a_block(capsys: pytest.CaptureFixture[str]) -> None:
    scheduling.main(["--blocks", "100", "300", "--repeats", "1"])
    assert re.search(r"^300 +19660800 +", capsys.readouterr().out, re.M)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in SOURCES]
)
def test_a_script_of_the_sources_writes_its_figure_and_table(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for data in NEEDED.get(name, ()):
        shared_file(data)
    toy = ["--rows", str(SOURCES[name]), "--repeats", "1", "--folder", str(tmp_path)]
    import_module(f"benchmarks.sources.{name}").main(toy)
    printed = capsys.readouterr().out
    written = (tmp_path / f"{name}.csv").read_text()
    assert all(name in printed for name in next(csv.reader(written.splitlines())))
    assert "nan" not in printed + written
    assert (tmp_path / f"{name}.svg").read_text().rstrip().endswith("</svg>")


def test_one_command_runs_every_script_of_the_sources(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ran: list[tuple[str, list[str]]] = []

    def imported(name: str) -> SimpleNamespace:
        return SimpleNamespace(main=lambda argv: ran.append((name, argv)))

    monkeypatch.setattr(sources, "import_module", imported)
    (tmp_path / "contours.svg").touch()
    sources.main(["--rows", "30", "--folder", str(tmp_path)])
    files = Path(sources.__file__).parent.glob("[!_]*.py")
    scripts = {path.stem for path in files if "\ndef main(" in path.read_text()}
    assert [name for name, _ in ran] == [f"benchmarks.sources.{name}" for name in sources.SCRIPTS]
    assert scripts
    assert scripts == set(sources.SCRIPTS)
    assert all(argv == ["--rows", "30", "--folder", str(tmp_path)] for _, argv in ran)
    assert str(tmp_path / "contours.svg") in capsys.readouterr().out
