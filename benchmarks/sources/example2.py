"""The thesis's Example 2, Figures 20 to 23: pre-images of USPS digits from approximate scores, sigma = 11.

The thesis takes scores and eigenvectors that a method approximates, expands them over all 7291 rows, and follows them
back with the exact kernel. Its measure is the distance |x^ - x^_exact|_1 to the pre-image of exact kernel PCA. So it is
here, with the mean in feature space; starts are the thesis's random ones, the same for all methods. Lines that say
"own pre-image" are fixed points by `inverse_transform` of the method as it is by default: k-means landmarks, pairs of
sines and cosines with orthogonal frequencies, the pointwise correction.

Part one: l = 2 % of the rows, rank 100, 50 components, 10 rows of every digit. Part two: RFF against RFF-PCA with
200, 100, 50 and 20 axes, l = 3, 5, 10 and 20 % of the rows, 20 components, 20 zeros.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.sources.common import arguments, save_figure, save_table
from benchmarks.sources.digits import (
    THESIS_FORM,
    TRAINING_ROWS,
    first_of_each,
    mosaic,
    row_errors,
    same_digit,
    thesis_start,
    training_digits,
    until_converged,
)
from bigkpca import KernelPCA, methods, preimages
from bigkpca.errors import Array

SIGMA, COMPONENTS, SHARE, RANK, AXES = 11.0, 50, 0.02, 100, 50
FEWER, SHARES, SEVERAL_AXES, ZEROS = 20, (0.03, 0.05, 0.1, 0.2), (200, 100, 50, 20), 20
BEYOND, TRIED_BEYOND = 0.4, ("RFF", "d* = 50", "d* = 20")  # of more than 20 % the thesis speaks without a figure
FIXED_POINT = preimages.FixedPoint()
THESIS_RFF = methods.RandomFeatures(form="phase")
THESIS_RFF_PCA = methods.PrincipalFeatures(correction="sampled-alpha", form="phase")
METHODS: dict[str, dict[str, Any]] = {
    "Nyström (thesis form)": {"method": methods.Nystroem(form="thesis", rank=RANK), "landmarks": "uniform"},
    "columns": {"method": "columns"},
    "RFF (cos+phase)": {"method": THESIS_RFF},
    f"RFF-PCA, {AXES} axes": {"method": THESIS_RFF_PCA, "n_directions": AXES},
    "Nyström, orthogonalised": {"landmarks": "uniform"},
}
OWN_WAY: dict[str, dict[str, Any]] = {
    "Nyström": {},
    "RFF": {"method": "rff"},
    "RFF-PCA": {"method": "rff-pca", "n_directions": AXES},
}


class Reference:
    """Exact kernel PCA of all rows, and pre-images of any scores over those rows."""

    def __init__(self, X: Array, folder: Path) -> None:
        kept = folder / f"example2-exact-{len(X)}.zarr"
        if not kept.exists():
            KernelPCA(COMPONENTS, sigma=SIGMA, method="exact").fit(X).save(kept)
        self.X, self.exact = X, KernelPCA.load(kept)
        self.scores = self.exact.transform(X)
        ways = (FIXED_POINT, THESIS_FORM)
        self._decoders = {way: way.decoder(self.exact.model_.fitted, X[:0]) for way in ways}

    def back(
        self, Y: Array, eigenvalues: Array, rows: Array, start: Array, way: preimages.FixedPoint = FIXED_POINT
    ) -> preimages.Preimages:
        """Pre-images of some rows, from scores Y (n, r) of all rows and their eigenvalues (r,)."""
        base, model = self._decoders[way], self.exact.model_
        weights = Y.astype(np.float64) / eigenvalues
        origin = np.full(len(self.X), 1 / len(self.X))
        given = preimages.Expansion(origin, weights, base.constant, weights.T @ model.solution.mean)
        used = given if way.mean_term else given.without_mean()
        decoder = replace(base, origin=used.origin, map=used.map, linear=used.linear)
        return preimages.reconstructing(decoder, model.features, model.solution, len(rows))(Y[rows], start)

    def of_exact(
        self, rows: Array, start: Array, components: int, way: preimages.FixedPoint = FIXED_POINT
    ) -> preimages.Preimages:
        """Pre-images of some rows, from exact scores."""
        return self.back(self.scores[:, :components], self.exact.eigenvalues_[:components], rows, start, way)

    def of(self, options: dict[str, Any], size: int, components: int, seed: int, rows: Array, start: Array) -> Array:
        """Pre-images of some rows, from scores that a method approximates."""
        most_axes = min(self.X.shape) - 1
        axes = {"n_directions": min(options["n_directions"], most_axes)} if "n_directions" in options else {}
        fit = KernelPCA(components, sigma=SIGMA, size=size, random_state=seed, **(options | axes)).fit(self.X)
        return self.back(fit.transform(self.X), fit.eigenvalues_, rows, start).rows


def distances(found: Array, exact: Array) -> Array:
    """The thesis's measure, |x^ - x^_exact|_1 of each row."""
    return np.asarray(np.abs(found.astype(np.float64) - exact).sum(axis=1))


def part_one(reference: Reference, labels: Array, repeats: int, folder: Path) -> dict[str, Array]:
    """Table and pictures of Figure 22; the distances of all seeds, by method."""
    X = reference.X
    rows, size = first_of_each(labels, 10), max(2 * round(SHARE * len(X) / 2), FEWER)
    shown = first_of_each(labels[rows], 1)
    start = thesis_start(X, len(rows), np.random.default_rng(0))
    exact = reference.of_exact(rows, start, COMPONENTS).rows

    def own_way(options: dict[str, Any], seed: int) -> Array:
        fit = KernelPCA(COMPONENTS, sigma=SIGMA, size=size, preimage=FIXED_POINT, random_state=seed, **options).fit(X)
        return fit.inverse_transform(fit.transform(X[rows]))

    found = {
        name: [reference.of(options, size, COMPONENTS, seed, rows, start) for seed in range(repeats)]
        for name, options in METHODS.items()
    }
    found |= {
        f"{name}, own pre-image": [own_way(options, seed) for seed in range(repeats)]
        for name, options in OWN_WAY.items()
    }
    lines = []
    for name, all_seeds in {"exact kernel PCA": [exact], **found}.items():
        far = np.array([distances(each, exact) for each in all_seeds])
        errors = [row_errors(each, X[rows]).mean() for each in all_seeds]
        kept = [same_digit(each, labels[rows], X, labels).mean() for each in all_seeds]
        quartiles = np.percentile(far, [25, 50, 75])
        lines.append([name, *(f"{value:.1f}" for value in quartiles), f"{np.mean(errors):.4f}", f"{np.mean(kept):.1%}"])
    header = ["method", "|x^ - x^_exact|_1, lower quartile", "median", "upper", "mean squared error", "digit kept"]
    title = f"l = {size} of {len(X)} rows, {COMPONENTS} components, {repeats} seeds"
    save_table(title, header, lines, folder, "example2")
    _draw_pictures(
        {"row": X[rows], "exact kernel PCA": exact, **{name: each[0] for name, each in found.items()}}, shown, folder
    )
    return {name: np.array([distances(each, exact) for each in all_seeds]) for name, all_seeds in found.items()}


def _draw_pictures(found: dict[str, Array], shown: Array, folder: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.5, 0.52 * len(found)), layout="constrained")
    mosaic(figure.subplots(), [rows[shown] for rows in found.values()], list(found))
    save_figure(figure, folder, "example2")


def part_two(reference: Reference, labels: Array, repeats: int, folder: Path) -> dict[tuple[float, str], Array]:
    """Table and box plots of Figure 23; distances of all seeds and rows, by share and method."""
    zeros = np.flatnonzero(labels == 0)
    rows = np.sort(np.random.default_rng(0).choice(zeros, min(ZEROS, len(zeros)), replace=False))
    start = thesis_start(reference.X, len(rows), np.random.default_rng(0))
    exact = reference.of_exact(rows, start, FEWER).rows
    several: dict[str, dict[str, Any]] = {"RFF": {"method": THESIS_RFF}}
    several |= {f"d* = {axes}": {"method": THESIS_RFF_PCA, "n_directions": axes} for axes in SEVERAL_AXES}
    found: dict[tuple[float, str], Array] = {}
    started = time.perf_counter()
    for share in (*SHARES, BEYOND):
        tried = several if share in SHARES else TRIED_BEYOND
        size = max(round(share * len(reference.X)), FEWER)
        for name in tried:
            all_seeds = [reference.of(several[name], size, FEWER, seed, rows, start) for seed in range(repeats)]
            found[share, name] = np.array([distances(each, exact) for each in all_seeds])
        print(f"{share:.0%} of the rows: {time.perf_counter() - started:.0f} s", file=sys.stderr)
    lines = [
        [f"{share:.0%}", name, str(len(far)), *(f"{v:.1f}" for v in [*np.percentile(far, [25, 50, 75]), far.max()])]
        for (share, name), far in found.items()
    ]
    header = ["l", "method", "seeds", "lower quartile", "median", "upper quartile", "largest"]
    title = f"|x^ - x^_exact|_1 of {len(rows)} zeros, {FEWER} components, {len(reference.X)} rows"
    save_table(title, header, lines, folder, "example2_rff")
    _draw_boxes(found, list(several), folder)
    back = {way.mean_term: _from_anywhere(reference, rows, way) for way in (FIXED_POINT, THESIS_FORM)}
    kept = {mean: same_digit(each.rows, labels[rows], reference.X, labels).sum() for mean, each in back.items()}
    print(f"zeros that come back as zeros: {kept[True]} of {len(rows)}, by the thesis's form {kept[False]}")
    return found


def _from_anywhere(reference: Reference, rows: Array, way: preimages.FixedPoint) -> preimages.Preimages:
    """Pre-images of exact scores from random starts, as many as are needed."""

    def decode(numbers: Array, start: Array) -> preimages.Preimages:
        return reference.of_exact(rows[numbers], start, FEWER, way)

    return until_converged(decode, reference.X, len(rows))


def _draw_boxes(found: dict[tuple[float, str], Array], names: list[str], folder: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.2), layout="constrained")
    for axis, share in zip(figure.subplots(1, len(SHARES), sharey=True), SHARES, strict=True):
        axis.boxplot([found[share, name].ravel() for name in names], widths=0.6, flierprops={"markersize": 2})
        axis.set_xticks(range(1, len(names) + 1), [name.replace("d* = ", "") for name in names], fontsize=8)
        axis.set_title(f"l = {share:.0%} of the rows", fontsize=9)
        axis.set_xlabel("RFF, and RFF-PCA by d*", fontsize=8)
    figure.axes[0].set_ylabel("distance to the exact pre-image", fontsize=8)
    save_figure(figure, folder, "example2_rff")


Claim = tuple[str, bool, str]  # what the thesis says, whether it holds, and by which numbers


def claims_of_one(one: dict[str, Array]) -> list[Claim]:
    """What the thesis says of Figure 22, by medians over rows and seeds."""
    nystroem, columns, rff, rff_pca = (float(np.median(one[name])) for name in list(METHODS)[:4])
    numbers = f"Nyström {nystroem:.1f}, columns {columns:.1f}, RFF {rff:.1f}, RFF-PCA {rff_pca:.1f}"
    alike = max(columns, rff, rff_pca) < 4 / 3 * min(columns, rff, rff_pca)
    return [
        ("Nyström is worst of the four", nystroem > max(columns, rff, rff_pca), numbers),
        ("columns, RFF and RFF-PCA are similar (within a third)", alike, numbers),
        ("RFF-PCA is better than RFF at l = 2 %", rff_pca < rff, numbers),
    ]


def claims_of_two(two: dict[tuple[float, str], Array]) -> list[Claim]:
    """What it says of Figure 23."""
    medians = {key: float(np.median(far)) for key, far in two.items()}
    spread = {key: float(np.subtract(*np.percentile(far, [75, 25]))) for key, far in two.items()}
    largest = {key: float(far.max()) for key, far in two.items()}
    low, chosen = [share for share in SHARES if share < 0.1], f"d* = {AXES}"
    best = {s: min((medians[s, f"d* = {axes}"], f"d* = {axes}") for axes in SEVERAL_AXES)[1] for s in SHARES}
    falls = [medians[share, "RFF"] for share in SHARES]

    def both(values: dict[tuple[float, str], float], shares: Sequence[float], name: str = chosen) -> str:
        return "; ".join(f"{s:.0%}: RFF {values[s, 'RFF']:.1f}, {name} {values[s, name]:.1f}" for s in shares)

    def ahead(values: dict[tuple[float, str], float], shares: Sequence[float], name: str = chosen) -> bool:
        return all(values[s, name] < values[s, "RFF"] for s in shares)

    few = f"d* = {SEVERAL_AXES[-1]}"
    return [
        (f"{chosen} gains below 10 %", ahead(medians, low), both(medians, low)),
        ("the quartiles of RFF are further apart there", ahead(spread, low), both(spread, low)),
        ("the largest errors there are RFF's", ahead(largest, low), both(largest, low)),
        (f"{chosen} is best there", {best[s] for s in low} == {chosen}, both(medians, low, few)),
        ("RFF improves with l", falls == sorted(falls, reverse=True), ", ".join(f"{value:.1f}" for value in falls)),
        (f"above 20 % RFF beats {chosen}", not ahead(medians, [BEYOND]), both(medians, [BEYOND])),
        (f"above 20 % RFF beats {few}", not ahead(medians, [BEYOND], few), both(medians, [BEYOND], few)),
    ]


def with_seeds(claims: Callable[[dict[Any, Array]], list[Claim]], found: dict[Any, Array]) -> list[tuple[Claim, str]]:
    """Claims by the medians over all seeds, and in how many seeds each holds by that seed's medians alone."""
    seeds = len(next(iter(found.values())))
    alone = [claims({key: far[[seed]] for key, far in found.items()}) for seed in range(seeds)]
    counts = [f"{sum(holds for _, holds, _ in each)} of {seeds}" for each in zip(*alone, strict=True)]
    return list(zip(claims(found), counts, strict=True))


def main(argv: Sequence[str] | None = None) -> None:
    given = arguments(__doc__ or "", argv, rows=TRAINING_ROWS, repeats=5)
    X, labels = training_digits(given.rows)
    reference = Reference(X, given.folder)
    one = part_one(reference, labels, given.repeats, given.folder)
    two = part_two(reference, labels, given.repeats, given.folder)
    lines = []
    for claims in (with_seeds(claims_of_one, one), with_seeds(claims_of_two, two)):
        lines += [[claim, "yes" if holds else "no", of_seeds, numbers] for (claim, holds, numbers), of_seeds in claims]
    header = ["claim", "holds", "seeds in which it holds", "numbers"]
    save_table("The thesis's orderings", header, lines, given.folder, "example2_orderings")


if __name__ == "__main__":
    main()
