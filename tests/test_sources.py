"""Each script of `benchmarks/sources` still finds what `docs/sources.md` says.

A script runs as the page describes, or with fewer repeats or settings where that takes too long, and figures of its
tables are compared with sentences of the page. Tolerances are half of the last digit that the page shows; what is zero
up to rounding has a bound. Seconds are not compared.
"""

import csv
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.sources import __main__ as sources
from benchmarks.sources import basic_patterns as patterns
from benchmarks.sources import complexity
from tests.helpers.files import ROOT, shared_file

ROUNDING = 1e-11


class Tables:
    """What a script printed, and wrote into a folder as NAME.csv."""

    def __init__(self, folder: Path, printed: str) -> None:
        self.folder, self.printed = folder, printed

    def line(self, name: str, *begins: Any) -> list[Any]:
        """The cells after those that begin the line of NAME.csv, numbers where they are; 95% is 0.95."""
        wanted = [*map(str, begins)]
        with open(self.folder / f"{name}.csv", newline="", encoding="utf-8") as file:
            (found,) = [line for line in csv.reader(file) if line[: len(wanted)] == wanted]
        return [number(cell) for cell in found[len(wanted) :]]


def number(cell: str) -> float | str:
    try:
        return float(cell.removesuffix("%")) / (100 if cell.endswith("%") else 1)
    except ValueError:
        return cell


def check_low_rank_image(tables: Tables) -> None:
    for rank, percent in ((200, 0.9), (60, 5.7), (10, 17)):
        _, found, best, apart = tables.line("low_rank_image", "flower, few edges", rank)
        assert 100 * found == pytest.approx(percent, abs=0.05 if rank > 10 else 0.5)
        assert found == pytest.approx(best, rel=ROUNDING)
        assert apart < ROUNDING
    assert tables.line("low_rank_image", "flower, few edges", 70)[1] < 0.05
    assert tables.line("low_rank_image", "temple, many edges", 158)[1] < 0.05


def check_contours(tables: Tables) -> None:
    wrong = {sigma: tables.line("contours", sigma)[2:4] for sigma in ("0.1", "0.2", "0.5", "1.0", "median", "5.0")}
    assert [wrong[sigma][0] for sigma in ("0.1", "0.2")] == [44, 6]
    assert [wrong[sigma][1] for sigma in ("0.5", "1.0", "median", "5.0")] == [0] * 4
    assert tables.line("contours", "5.0")[-1] == pytest.approx(1, abs=0.005)


def check_usps_scatter(tables: Tables) -> None:
    for name, silhouette, nearest in (
        ("σ = 1", -0.32, 0.42),
        ("σ = 5", 0.23, 0.88),
        ("σ = 10", 0.53, 0.95),
        ("PCA", 0.56, 0.95),
    ):
        assert tables.line("usps_scatter", name)[:2] == pytest.approx([silhouette, nearest], abs=0.0055)
    assert "median length of these digits 9.48, of all training digits 11.0" in tables.printed


def check_usps_preimages(tables: Tables) -> None:
    assert tables.line("usps_preimages", "10", 13)[:2] == pytest.approx([0.1295, 0.98], abs=6e-5)
    assert tables.line("usps_preimages", "PCA", 13)[:2] == pytest.approx([0.1171, 0.98], abs=6e-5)
    random, of_row, theirs, _ = (float(cell.split("%")[0]) for cell in tables.line("usps_preimages_starts", "10"))
    assert (random, of_row) == (100, 100)
    assert theirs == pytest.approx(42, abs=2)


def check_preimage_starts(tables: Tables) -> None:
    for components, way, kept, converged in (
        (51, "centred, 5 starts", 0.43, 0.32),
        (51, "K not centred, 5", 1.00, 1.00),
        (13, "centred, 5 starts", 0.45, 0.33),
        (13, "K not centred, 5", 0.98, 1.00),
    ):
        assert tables.line("preimage_starts", "20", components, way)[:2] == pytest.approx([converged, kept], abs=0.011)


def check_complexity(tables: Tables) -> None:
    """The counts at the sizes of the page; what a toy takes is not compared."""
    for varies, expected in {"n": 1.00, "l": 1.96, "d": 0.66}.items():
        sizes = complexity.grid("nystroem", 2_048_000)[varies]
        counts = [complexity.counted("nystroem", each) for each in sizes]
        found = complexity.exponent([getattr(each, varies) for each in sizes], counts)
        assert found == pytest.approx(expected, abs=0.005)


def check_error_bounds(tables: Tables) -> None:
    """One of the page's three data sets: errors of Nyström differ a little between them, features hardly."""
    found, certificate, bound, *_ = tables.line("error_bounds", 100, "Nyström, |E|_F")
    assert (found, certificate) == pytest.approx((120, 2305), rel=0.02)
    assert bound == pytest.approx(25_280, abs=10)
    found, _, bound, *_ = tables.line("error_bounds", 100, "RFF, a pair, (54)")
    assert (found, bound) == pytest.approx((0.179, 0.543), abs=0.0005)
    found, _, bound, *_ = tables.line("error_bounds", 100, "RFF, all pairs, (54) for each")
    assert (found, bound) == pytest.approx((0.494, 1.27), abs=0.005)
    assert tables.line("error_bounds_least", "RFF, a pair, (54)", "0.1") == [2958]


def check_example1(tables: Tables) -> None:
    """One of the page's 30 data sets."""
    of_exact = {what: tables.line("example1_exact", what)[0] for what in ("lambda_1", "lambda_2", "|K - K_60|_F")}
    assert 1848.4 <= of_exact["lambda_1"] <= 1856.4
    assert 63.8 <= of_exact["lambda_2"] <= 67.1
    assert of_exact["|K - K_60|_F"] == pytest.approx(103.8, abs=0.2)
    for method, error, accuracy in (
        ("Nyström (thesis)", 31.4, 0.7682),
        ("columns", 32.1, 0.7636),
        ("Nyström, orthogonalised", 29.3, 0.7800),
    ):
        assert tables.line("example1", 100, method)[:2] == pytest.approx([error, accuracy], rel=0.03)
    second = {method: tables.line("example1", 100, method)[3] for method in ("Nyström, orthogonalised", "columns")}
    assert [*second.values()] == pytest.approx([0.9814, 0.9594], abs=0.006)


def check_example2(tables: Tables) -> None:
    """One of the page's five seeds; what is exact has none."""
    assert tables.line("example2", "exact kernel PCA")[3:] == pytest.approx([0.0918, 1.0], abs=6e-5)
    for method, distance in (
        ("Nyström (thesis form)", 35.3),
        ("columns", 16.1),
        ("RFF (cos+phase)", 32.3),
        ("RFF-PCA, 50 axes", 27.0),
        ("Nyström, orthogonalised", 13.7),
        ("Nyström, own pre-image", 12.5),
        ("RFF, own pre-image", 45.3),
    ):
        assert tables.line("example2", method)[1] == pytest.approx(distance, rel=0.04)
    assert "zeros that come back as zeros: 19 of 20, by the thesis's form 6\n" in tables.printed


def check_side_claims(tables: Tables) -> None:
    for form, rank, error in (
        ("columns, projection (26)", 60, 48.0),
        ("columns, projection (26)", 100, 32.5),
        ("Nyström, projection (40)", 60, 218),
        ("Nyström, projection (40)", 100, 295),
        ("columns, spectral (25), corrected", 100, 47.6),
        ("Nyström, spectral (39)", 100, 49.3),
    ):
        assert tables.line("side_claims_forms", form, rank)[0] == pytest.approx(error, abs=0.5 if error > 100 else 0.05)
    for claim in (
        ("ridge rewrite (12), F 60 x 60, H 40 x 40", "largest difference"),
        ("representer theorem, 165 cubic features, 40 rows", "part of the minimum outside their span"),
        ("d > n: 60 rows of 3000 columns", "scores by 60 x 60 and by PCA"),
        ("unitary invariance", "5 eigenvalues of turned rows, Nyström, random rows"),
    ):
        assert tables.line("side_claims", *claim)[0] < ROUNDING
    for degree in (1, 3):
        assert ", 3 of 3, " in tables.line("side_claims", f"first component, degree {degree}")[-1]


def check_polynomial_toy(tables: Tables) -> None:
    for degree, shares in {1: (0.726, 0.274, 0), 2: (0.628, 0.334, 0.037), 4: (0.603, 0.371, 0.019)}.items():
        assert tables.line("polynomial_toy", f"degree {degree}")[1:] == pytest.approx(shares, abs=0.0005)
    assert tables.line("polynomial_toy_listing", "centred right") == pytest.approx([2, 0.340, 0.0925], abs=0.0005)
    kept, largest, _ = tables.line("polynomial_toy_listing", "listing")
    assert (kept, largest) == pytest.approx((50, 1190), abs=5)


def check_denoising(tables: Tables) -> None:
    for noise, way, error in (
        ("Gaussian", "PCA", 0.1060),
        ("Gaussian", "fixed-point", 0.1449),
        ("Gaussian", "denoising", 0.0784),
        ("speckle", "denoising", 0.2205),
    ):
        assert tables.line("denoising", noise, way, 64)[0] == pytest.approx(error, abs=0.0002)


def check_nearest_mean(tables: Tables) -> None:
    assert tables.line("nearest_mean_situations", "means coincide, <x, y>") == [0.52]
    assert tables.line("nearest_mean_situations", "the same, <x, y>²") == [1.0]
    for way, share in (
        ("pixels", 0.814),
        ("kernels, Gaussian, σ = 11", 0.820),
        ("kernels, polynomial, degree 5", 0.827),
    ):
        assert tables.line("nearest_mean", way)[-1] == pytest.approx(share, abs=0.0005)
    for kernel in ("Gaussian, σ = 11", "polynomial, degree 5"):
        components, apart, by_kernels, by_scores, _ = tables.line("nearest_mean_equality", kernel)
        assert (components, by_kernels) == (599, by_scores)
        assert apart < ROUNDING


def check_basic_patterns(tables: Tables) -> None:
    assert tables.line("basic_patterns_thresholds", "USPS", "0.7")[0] == 231
    exact = tables.line("basic_patterns", "USPS", "all rows, exact", 7291)
    assert exact[:2] == pytest.approx([0.9502, 0.9083], abs=6e-4)
    assert tables.line("basic_patterns", "USPS", "basic-patterns", 400)[0] == pytest.approx(0.9482, abs=2e-3)


def check_explicit_maps(tables: Tables) -> None:
    paraboloid, circle, cubic, weighted = (
        tables.line("explicit_maps", name)
        for name in (
            "(x1, x2, x1² + x2²)",
            "(x², x, y, y²), the circle",
            "cubic monomials, <x, y>³",
            "weighted monomials, <x, y>³",
        )
    )
    assert paraboloid[1] == 3
    assert max(paraboloid[2:4]) < ROUNDING
    assert paraboloid[4:] == pytest.approx([0.55, 1.0], abs=0.005)
    assert circle[:2] == [4, 3]
    assert 1 + cubic[2] == pytest.approx(4.4, abs=0.05)
    assert weighted[2] < ROUNDING


def check_principal_axes(tables: Tables) -> None:
    def numbers(what: str) -> list[float]:
        return [float(text) for text in tables.line("principal_axes", what)[-1].split(", ")]

    correlations = numbers("correlation of height, yield; height, leaves; yield, leaves")
    assert correlations == pytest.approx([0.903, 0.855, 0.808], abs=0.0005)
    assert numbers("eigenvalues of the covariance") == pytest.approx([305, 26.3, 0.143], rel=0.0035)
    assert tables.line("principal_axes", "shoes: variance of the first component")[-1] == pytest.approx(0.979)
    assert tables.line("principal_axes", "shoes: largest difference to PCA's projection, cm")[-1] < ROUNDING
    assert tables.line("principal_axes", "components of 200 trees, linear and Gaussian")[-1] == "3; 199"


def check_random_draws(tables: Tables) -> None:
    """One of the page's ten seeds."""

    def found(what: str, measured: str) -> float:
        return float(tables.line("random_draws", what, measured)[0])

    for formula in ("exact, (18) and (20)", "columns, 3.2.3", "Nyström, 3.3.3", "RFF, PCA of Z (24)"):
        assert found("scores", formula) < ROUNDING
    assert found("scores", "K of rank 10, Theorem 1") < ROUNDING
    for form in ("three forms, exact vectors", "(6) and (8), drawn rows", "scores ZZ' and (8)"):
        assert found("forms of a picture", form) < ROUNDING
    assert found("forms of a picture", "error of the picture: (8)") == pytest.approx(0.067, abs=0.003)
    assert found("forms of a picture", "error of K: (7)") == pytest.approx(0.43, abs=0.05)
    for change, value, bound in (
        ("(72), mean of the norm", 35.0, 70.7),
        ("(72), mean of the Frobenius norm", 62.2, 70.7),
    ):
        assert tables.line("random_draws", "50 of 500 rows", change) == pytest.approx([value, bound], abs=0.5)
    assert found("Theorem 7", "mean of zeros and ones: least bound / tail") == pytest.approx(2.14, abs=0.01)
    errors = {
        name: float(tables.line("random_draws", "choice of columns", f"100 of 1797 digits, {name}")[0].split()[1][:-1])
        for name in ("uniform", "greedy (Farahat et al.)", "k-means")
    }
    assert errors["greedy (Farahat et al.)"] == pytest.approx(0.073, abs=0.0005)
    assert errors["k-means"] < errors["uniform"] / 4


def check_regression(tables: Tables) -> None:
    for regressors, share in (
        ("y ~ x", 0.474),
        ("y ~ x + x²", 0.996),
        ("(1 + <x, y>)², 1 component", 0.458),
        ("Gaussian, 2 components", 0.894),
    ):
        assert tables.line("regression", regressors)[0] == pytest.approx(share, abs=0.002)
    assert tables.line("regression", "(1 + <x, y>)², 2 components")[-1] < ROUNDING


def check_large_sizes(tables: Tables) -> None:
    """One of the page's three data sets, and half of its sizes."""

    def errors(method: str) -> list[float]:
        return [float(str(cell).split(",")[0]) for cell in tables.line("large_sizes", method)]

    assert errors("columns") == pytest.approx([0.0624, 0.0597, 0.0558], abs=0.0005)
    features, axes = errors("RFF (thesis)"), errors("RFF-PCA (thesis)")
    assert (features[-1], axes[-1]) == pytest.approx((0.0558, 0.0915), abs=0.0002)
    assert features[1] < axes[1]


def check_dna_similarities(tables: Tables) -> None:
    assert tables.line("dna_similarities", "the lecture's words", 2)[0] < ROUNDING
    apart, _, _, mean = tables.line("dna_similarities", "equal letters", 2)
    assert apart < ROUNDING
    assert mean == pytest.approx(0.915, abs=0.0005)
    assert tables.line("dna_similarities", "words of three", 2)[-1] == pytest.approx(0.774, abs=0.0005)
    assert tables.line("dna_similarities", "words of three", 5)[-2] == pytest.approx(0.887, abs=0.0005)


@dataclass(frozen=True)
class Script:
    """What a script is run with, the sentences of the page that hold the figures, and whether its tables agree."""

    agrees: Callable[[Tables], None]
    says: tuple[str, ...]
    arguments: tuple[str, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)  # constants of the script, fewer than its own
    data: tuple[str, ...] = ()  # folders of the shared data


SCRIPTS = {
    "low_rank_image": Script(
        check_low_rank_image, ("SVD to 3e-13", "0.9 % at rank 200, 5.7 % at 60, 17 % at 10", "rank 70 and 158")
    ),
    "contours": Script(
        check_contours, ("in 30 of 30 data sets of 200 rows. A median of 6 rows is on the wrong side at σ = 0.2",)
    ),
    "usps_scatter": Script(
        check_usps_scatter, ("42 %, 88 %, 95 %; silhouette −0.32, 0.23, 0.53. PCA: 95 %, 0.56",), data=("usps",)
    ),
    "usps_preimages": Script(
        check_usps_preimages,
        ("0.117 against 0.130 for σ = 10", "0.1295 (98 %, 49 %)", "0.1171 (98 %)"),
        settings={"SIGMAS": (10.0,), "COMPONENTS": (13,)},
        data=("usps",),
    ),
    "preimage_starts": Script(
        check_preimage_starts,
        ("| 20 | 43 % (32 %) | 43 % (32 %) | 100 % (100 %) | 45 % (33 %) | 98 % (100 %) |",),
        settings={"SIGMAS": (20.0,), "COMPONENTS": (51, 13), "MORE": {}},
        data=("usps",),
    ),
    "complexity": Script(
        check_complexity,
        ("n l (d + l) + l³ gives 1.00, 1.96, 0.66",),
        ("--rows", "400", "--repeats", "1"),
        {"COMPONENTS": 5},
    ),
    "error_bounds": Script(
        check_error_bounds,
        ("| 100 | 120 | 2305 | 25,280 |", "| 100 | 0.179 | | 0.543 |", "| 100 | 0.494 | | 1.27 |", "from l = 2958 on"),
        ("--repeats", "1"),
        settings={"SHARES": (0.02,)},
    ),
    "example1": Script(
        check_example1,
        ("(1848.4 to 1856.4 over 30 data sets)", "(63.8 to 67.1)", "is 103.8", "| 100 | columns | 32.1 | 0.7636 |"),
        ("--repeats", "1"),
        {"SHARES": (0.02,)},
    ),
    "example2": Script(
        check_example2,
        (
            "exact pre-image 35.3, columns 16.1, RFF 32.3, RFF-PCA 27.0",
            "13.7, and 12.5",
            "19 of 20, with the thesis's form 6",
        ),
        ("--repeats", "1"),
        {"SHARES": (0.03, 0.05), "SEVERAL_AXES": (50,), "BEYOND": 0.05},
        ("usps",),
    ),
    "side_claims": Script(check_side_claims, ("columns by projection (26) | 48.0 | 32.5 |",), ("--repeats", "3")),
    "polynomial_toy": Script(check_polynomial_toy, (".726, .274, 0 for degree 1", "keeps 50, the largest 1190")),
    "denoising": Script(
        check_denoising,
        ("PCA 0.106 (64 components)", "0.1449 (87.6 %)", "0.0784 (91.4 %)", "0.2205 (86.6 %)"),
        settings={"COMPONENTS": (64,)},
        data=("usps",),
    ),
    "nearest_mean": Script(
        check_nearest_mean,
        ("52 % with ⟨x, y⟩, 100 % with ⟨x, y⟩²", "pixels 81.4 %, σ = 11 82.0 %, degree 5 82.7 %"),
        settings={"METHODS": {"columns": {"method": "columns"}}},
        data=("usps",),
    ),
    "basic_patterns": Script(
        check_basic_patterns,
        ("finds 231 patterns of USPS", "all 7291, exactly | 95.02 %, 90.83 %", "| USPS | 400 | 94.82 %, 90.93 %"),
        ("--repeats", "1"),
        {
            "DATA": {"USPS": patterns.usps_digits},
            "RULES": ("basic-patterns",),
            "SIZES": (400,),
            "THRESHOLDS": (0.7,),
            "RUNS": 1,
        },
        ("usps",),
    ),
    "explicit_maps": Script(
        check_explicit_maps, ("before, 100 % after; the circle has 3 components of 4", "up to 4.4")
    ),
    "principal_axes": Script(
        check_principal_axes, ("shoes (made up): 97.9 %", "eigenvalues 305, 26.3, 0.143", "3 and 199")
    ),
    "dna_similarities": Script(
        check_dna_similarities,
        ("Nearest mean: 91.5 % from two components", "77.4 % from two components", "with five of the latter, 88.7 %"),
        data=("promoters",),
    ),
    "random_draws": Script(
        check_random_draws,
        ("(8) leaves 6.7 % of the picture", "norm | 62.2 | 70.7 |", "| greedy (needs K) | 0.073 |"),
        ("--repeats", "1"),
    ),
    "regression": Script(
        check_regression, ("| x | 0.474 |", "| x, x² | 0.996 |", "| Gaussian, 2 components | 0.894 |")
    ),
    "large_sizes": Script(
        check_large_sizes,
        ("| columns | 0.0624 (68) | 0.0597 (44) |", "RFF has the smaller error of K from l = 1000 on"),
        ("--repeats", "1"),
        {"SHARES": (0.1, 0.2)},
    ),
}


@pytest.mark.full
@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_of_the_sources_finds_what_the_page_says(name, tmp_path, monkeypatch, capsys):
    asked = SCRIPTS[name]
    for data in asked.data:
        shared_file(data)
    page = (ROOT / "docs" / "sources.md").read_text(encoding="utf-8")
    assert [text for text in asked.says if text not in page] == []
    script = import_module(f"benchmarks.sources.{name}")
    for constant, value in asked.settings.items():
        monkeypatch.setattr(script, constant, value)
    script.main([*asked.arguments, "--folder", str(tmp_path)])
    printed = capsys.readouterr().out
    written = (tmp_path / f"{name}.csv").read_text(encoding="utf-8")
    assert all(name in printed for name in next(csv.reader(written.splitlines())))
    assert "nan" not in printed + written
    assert (tmp_path / f"{name}.svg").read_text(encoding="utf-8").rstrip().endswith("</svg>")
    asked.agrees(Tables(tmp_path, printed))


def test_one_command_runs_every_script_of_the_sources(tmp_path, monkeypatch, capsys):
    ran, argv = [], ["--rows", "30", "--folder", str(tmp_path)]

    def imported(name):
        return SimpleNamespace(main=lambda given: ran.append((name, given)))

    monkeypatch.setattr(sources, "import_module", imported)
    (tmp_path / "contours.svg").touch()
    sources.main(argv)
    assert ran == [(f"benchmarks.sources.{name}", argv) for name in sources.SCRIPTS]
    files = Path(sources.__file__).parent.glob("[!_]*.py")
    assert {path.stem for path in files if "\ndef main(" in path.read_text()} == {*sources.SCRIPTS} == {*SCRIPTS}
    assert str(tmp_path / "contours.svg") in capsys.readouterr().out
