"""Each script of `benchmarks/sources` still finds what `docs/sources.md` says.

A script runs as the page describes, or with fewer repeats or settings where that takes too long, and figures of its
tables are compared with sentences of the page. Tolerances are half of the last digit that the page shows, or more where
fewer seeds are used; what is zero up to rounding has a bound. Seconds are not compared.
"""

import csv
import re
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from benchmarks.sources import __main__ as sources
from benchmarks.sources import basic_patterns as patterns
from benchmarks.sources import complexity
from tests.helpers.files import ROOT, shared_file

approx = pytest.approx
ZERO = approx(0, abs=1e-11)


class Script(NamedTuple):
    """Sentences of the page, divided by " ... ", the figures that they are about, and what the script is run with.

    A figure is found by the cells with which its line of NAME.csv begins, divided by "|", and by its place after these;
    "_suffix: " before the cells names another table, NAME_suffix.csv.
    """

    says: str
    figures: Mapping[str, Mapping[int, Any]]
    options: Mapping[str, int] = {}
    settings: Mapping[str, Any] = {}  # constants of the script, fewer than its own
    data: str | None = None  # a folder of the shared data


ONE = {"repeats": 1}
SCRIPTS = {
    "low_rank_image": Script(
        "SVD to 3e-13 ... 5.7 % at 60", {"flower, few edges|60": {0: approx(0.057, abs=0.0005), 2: ZERO}}
    ),
    "contours": Script("A median of 6 rows is on the wrong side at σ = 0.2", {"0.2": {1: 6}, "median": {2: 0}}),
    "usps_scatter": Script(
        "42 %, 88 %, 95 %; silhouette −0.32, 0.23, 0.53. PCA: 95 %, 0.56",
        {"σ = 5": {0: approx(0.23, abs=0.0055), 1: approx(0.88, abs=0.0055)}},
        data="usps",
    ),
    "usps_preimages": Script(
        "0.1295 (98 %, 49 %) ... 0.1171 (98 %)",
        {"10|13": {0: approx(0.1295, abs=6e-5), 1: 0.98}, "PCA|13": {0: approx(0.1171, abs=6e-5), 1: 0.98}},
        settings={"SIGMAS": (10.0,), "COMPONENTS": (13,)},
        data="usps",
    ),
    "preimage_starts": Script(
        "the update keeps 35, 38, 48, 43 and 39 % of the digits ... for σ = 20, 32 % of the rows converge",
        {
            "20|centred, 5 starts": {0: approx(0.32, abs=0.011), 1: approx(0.43, abs=0.011)},
            "20|K not centred, 5": {1: approx(1, abs=0.011)},
        },
        settings={"SIGMAS": (20.0,), "WAYS": {"centred, 5 starts": (True, 5), "K not centred, 5": (False, 5)}},
        data="usps",
    ),
    "complexity": Script("n l (d + l) + l³ gives 1.00, 1.96, 0.66", {}, {"rows": 400, "repeats": 1}, {"COMPONENTS": 5}),
    "error_bounds": Script(
        "| 120 | 2305 | 25,280 | ... | 0.179 | | 0.543 | ... from l = 2958 on",
        {  # one of the page's three data sets: errors of Nyström differ a little between them, features hardly
            "100|Nyström, |E|_F": {0: approx(120, rel=0.02), 1: approx(2305, rel=0.02), 2: approx(25_280, abs=10)},
            "100|RFF, a pair, (54)": {0: approx(0.179, abs=0.0005), 2: approx(0.543, abs=0.0005)},
            "_least: RFF, a pair, (54)|0.1": {0: 2958},
        },
        ONE,
        {"SHARES": (0.02,)},
    ),
    "example1": Script(
        "is 103.8 ... | columns | 32.1 | 0.7636 |",
        {  # one of the page's 30 data sets
            "_exact: |K - K_60|_F": {0: approx(103.8, abs=0.2)},
            "100|columns": {0: approx(32.1, rel=0.03), 1: approx(0.7636, rel=0.03)},
        },
        ONE,
        {"SHARES": (0.02,)},
    ),
    "example2": Script(
        "exact kernel PCA | 0.0 | 0.0918 | ... | Nyström (thesis form) | 35.3 | ... | Nyström, orthogonalised | 13.7 |",
        {  # one of the page's five seeds; what is exact has none
            "exact kernel PCA": {3: approx(0.0918, abs=6e-5)},
            "Nyström (thesis form)": {1: approx(35.3, rel=0.04)},
            "Nyström, orthogonalised": {1: approx(13.7, rel=0.04)},
        },
        ONE,
        {"SHARES": (0.03, 0.05), "SEVERAL_AXES": (50,)},
        "usps",
    ),
    "side_claims": Script(
        "columns (26) have the smaller error, 48.0 at rank 60 and 32.5 at rank 100",
        {
            "_forms: columns, projection (26)|60": {0: approx(48.0, abs=0.05)},
            "_forms: columns, projection (26)|100": {0: approx(32.5, abs=0.05)},
            "ridge rewrite (12), F 60 x 60, H 40 x 40|largest difference": {0: ZERO},
            "d > n: 60 rows of 3000 columns|scores by 60 x 60 and by PCA": {0: ZERO},
        },
        {"repeats": 3},
    ),
    "polynomial_toy": Script(
        ".726, .274, 0 for degree 1 ... keeps 50, the largest 1190",
        {
            "degree 1": {1: approx(0.726, abs=0.0005), 2: approx(0.274, abs=0.0005)},
            "_listing: listing": {0: approx(50, abs=5), 1: approx(1190, abs=5)},
        },
    ),
    "denoising": Script(
        "PCA 0.1060 (93.2 %, 64 components) ... with 64, 0.0784 ... with 64, 0.2205",
        {
            "Gaussian|PCA|64": {0: approx(0.106, abs=0.0002)},
            "Gaussian|denoising|64": {0: approx(0.0784, abs=0.0002)},
            "speckle|denoising|64": {0: approx(0.2205, abs=0.0002)},
        },
        settings={"COMPONENTS": (64,)},
        data="usps",
    ),
    "nearest_mean": Script(
        "52 % with ⟨x, y⟩, 100 % with ⟨x, y⟩² ... pixels 81.4 %, σ = 11 82.0 %, degree 5 82.7 %",
        {
            "_situations: means coincide, <x, y>": {0: 0.52},
            "_situations: the same, <x, y>²": {0: 1},
            "Gaussian, σ = 11": {0: approx(0.820, abs=0.0005)},
            "_equality: Gaussian, σ = 11": {0: 599, 1: ZERO},
        },
        data="usps",
    ),
    "basic_patterns": Script(
        "finds 231 patterns of USPS ... 95.02 %, 90.83 % with all 7291 rows, 94.82 %, 90.93 % with 400 patterns",
        {
            "_thresholds: USPS|0.7": {0: 231},
            "USPS|all rows, exact|7291": {0: approx(0.9502, abs=6e-4)},
            "USPS|basic-patterns|400": {0: approx(0.9482, abs=2e-3)},
        },
        ONE,
        {
            "DATA": {"USPS": patterns.usps_digits},
            "RULES": ("basic-patterns",),
            "SIZES": (400,),
            "THRESHOLDS": (0.7,),
            "RUNS": 1,
        },
        "usps",
    ),
    "explicit_maps": Script(
        "before, 100 % after; the circle has 3 components of 4",
        {
            "(x1, x2, x1² + x2²)": {1: 3, 2: ZERO, 5: approx(1, abs=0.005)},
            "(x², x, y, y²), the circle": {0: 4, 1: 3},
            "weighted monomials, <x, y>³": {2: ZERO},
        },
    ),
    "principal_axes": Script(
        "shoes (made up): 97.9 % ... eigenvalues 305, 26.3, 0.143",
        {
            "eigenvalues of the covariance": {-1: approx(305, rel=0.0035)},
            "shoes: variance of the first component": {-1: approx(0.979)},
            "shoes: largest difference to PCA's projection, cm": {-1: ZERO},
        },
    ),
    "dna_similarities": Script(
        "Nearest mean: 91.5 % from two components",
        {"the lecture's words|2": {0: ZERO}, "equal letters|2": {0: ZERO, 3: approx(0.915, abs=0.0005)}},
        data="promoters",
    ),
    "random_draws": Script(
        "(8) leaves 6.7 % of the picture ... that of the Frobenius norm is 62.2, where (72) allows 70.7",
        {  # one of the page's ten seeds
            "scores|exact, (18) and (20)": {0: ZERO},
            "scores|columns, 3.2.3": {0: ZERO},
            "scores|Nyström, 3.3.3": {0: ZERO},
            "scores|RFF, PCA of Z (24)": {0: ZERO},
            "scores|K of rank 10, Theorem 1": {0: ZERO},
            "forms of a picture|error of the picture: (8)": {0: approx(0.067, abs=0.003)},
            "50 of 500 rows|(72), mean of the Frobenius norm": {0: approx(62.2, abs=0.5), 1: approx(70.7, abs=0.5)},
        },
        ONE,
    ),
    "regression": Script(
        "R² is 0.474 with x, 0.996 with x and x² ... two give 0.894",
        {
            "y ~ x": {0: approx(0.474, abs=0.002)},
            "Gaussian, 2 components": {0: approx(0.894, abs=0.002)},
            "(1 + <x, y>)², 2 components": {-1: ZERO},
        },
    ),
    "large_sizes": Script(
        "| columns | 0.0624 (68) | 0.0597 (44) |", {"columns": {0: approx(0.0624, abs=0.0005)}}, ONE, {"SHARES": (0.1,)}
    ),
}


def line(path: Path, begins: str) -> list[float | str]:
    """The cells after those that begin the line of a table: the numbers with which they begin, where they do."""
    with open(path, newline="", encoding="utf-8") as file:
        lines = [*csv.reader(file)]
    counts = range(1, len(lines[0]))
    (found,) = [cells[k:] for cells in lines for k in counts if "|".join(cells[:k]) == begins]
    numbers = [re.match(r"(-?[\d.]+(?:e[+-]?\d+)?)(%?)", cell) for cell in found]
    return [
        float(number[1]) / (100 if number[2] else 1) if number else cell
        for number, cell in zip(numbers, found, strict=True)
    ]


@pytest.mark.full
@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_of_the_sources_finds_what_the_page_says(name, tmp_path, monkeypatch, capsys):
    asked = SCRIPTS[name]
    if asked.data:
        shared_file(asked.data)
    page = (ROOT / "docs" / "sources.md").read_text(encoding="utf-8")
    assert [text for text in asked.says.split(" ... ") if text not in page] == []
    script = import_module(f"benchmarks.sources.{name}")
    for constant, value in asked.settings.items():
        monkeypatch.setattr(script, constant, value)
    sources.run(name, tmp_path, **asked.options)
    printed = capsys.readouterr().out
    written = (tmp_path / f"{name}.csv").read_text(encoding="utf-8")
    assert all(name in printed for name in next(csv.reader(written.splitlines())))
    assert "nan" not in printed + written
    assert all(path.read_text(encoding="utf-8").rstrip().endswith("</svg>") for path in tmp_path.glob("*.svg"))
    for where, cells in asked.figures.items():
        suffix, begins = re.fullmatch(r"(?:(_\w+): )?(.*)", where).groups("")
        found = line(tmp_path / f"{name}{suffix}.csv", begins)
        assert {place: found[place] for place in cells} == cells


def test_counts_of_operations_grow_as_the_page_says():
    for varies, expected in {"n": 1.00, "l": 1.96, "d": 0.66}.items():
        sizes = complexity.grid("nystroem", 2_048_000)[varies]
        counts = [complexity.counted("nystroem", each) for each in sizes]
        found = complexity.exponent([getattr(each, varies) for each in sizes], counts)
        assert found == approx(expected, abs=0.005)


def test_one_command_runs_every_script_of_the_sources_or_those_that_are_named(tmp_path, monkeypatch, capsys):
    ran, argv, given = [], ["--rows", "30", "--folder", str(tmp_path)], {"rows": 30, "folder": tmp_path}

    def imported(name):
        return SimpleNamespace(main=lambda folder, rows=1: ran.append((name, {"rows": rows, "folder": folder})) or [])

    monkeypatch.setattr(sources, "import_module", imported)
    (tmp_path / "contours.svg").touch()
    sources.main(argv)
    assert ran == [(f"benchmarks.sources.{name}", given) for name in sources.SCRIPTS]
    files = Path(sources.__file__).parent.glob("[!_]*.py")
    assert {path.stem for path in files if "\ndef main(" in path.read_text()} == {*sources.SCRIPTS} == {*SCRIPTS}
    assert str(tmp_path / "contours.svg") in capsys.readouterr().out
    ran.clear()
    sources.main(["regression", *argv])
    assert ran == [("benchmarks.sources.regression", given)]
    with pytest.raises(SystemExit, match="2"):
        sources.main(["regresion"])
    assert "no script regresion" in capsys.readouterr().err
