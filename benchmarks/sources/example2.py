"""The thesis's Example 2, Figures 20 to 23: pre-images of USPS digits from approximate scores, sigma = 11.

As in the thesis, approximate scores and eigenvectors are expanded over all 7291 rows and followed back with the exact
kernel, but with the mean in feature space. Its measure is |x^ - x^_exact|_1. All methods have the same random starts.
"Own pre-image" is `inverse_transform` of the method with its defaults.
"""

from collections.abc import Generator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.sources.common import Lines, Table, Tables, save_panels
from benchmarks.sources.digits import (
    THESIS_FORM,
    TRAINING_ROWS,
    first_of_each,
    row_errors,
    same_digit,
    thesis_start,
    training_digits,
    until_converged,
)
from bigkpca import KernelPCA, methods, preimages
from bigkpca.errors import Array

SIGMA, COMPONENTS, SHARE, RANK, AXES = 11.0, 50, 0.02, 100, 50
FEWER, SHARES, SEVERAL_AXES, ZEROS = 20, (0.03, 0.05, 0.1, 0.2, 0.4), (50, 20), 20  # no figure has more than 20 %
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


def part_one(reference: Reference, labels: Array, repeats: int) -> Generator[Table, None, dict[str, Array]]:
    """Table and pictures of Figure 22; the distances of all seeds, by method."""
    X = reference.X
    rows, size = first_of_each(labels, 10), max(2 * round(SHARE * len(X) / 2), FEWER)
    start = thesis_start(X, len(rows), np.random.default_rng(0))
    exact = reference.of_exact(rows, start, COMPONENTS).rows

    def own_way(seed: int) -> Array:
        fit = KernelPCA(COMPONENTS, sigma=SIGMA, size=size, preimage=FIXED_POINT, random_state=seed).fit(X)
        return fit.inverse_transform(fit.transform(X[rows]))

    found = {"exact kernel PCA": [exact]}
    for name, options in METHODS.items():
        found[name] = [reference.of(options, size, COMPONENTS, seed, rows, start) for seed in range(repeats)]
    found["Nyström, own pre-image"] = [own_way(seed) for seed in range(repeats)]
    lines, far = [], {}
    for name, all_seeds in found.items():
        far[name] = np.array([distances(each, exact) for each in all_seeds])
        errors = [row_errors(each, X[rows]).mean() for each in all_seeds]
        kept = [same_digit(each, labels[rows], X, labels).mean() for each in all_seeds]
        quartiles = (f"{value:.1f}" for value in np.percentile(far[name], [25, 50, 75]))
        lines.append([name, *quartiles, f"{np.mean(errors):.4f}", f"{np.mean(kept):.1%}"])
    header = ["method", "|x^ - x^_exact|_1, lower quartile", "median", "upper", "mean squared error", "digit kept"]
    yield Table(f"l = {size} of {len(X)} rows, {COMPONENTS} components, {repeats} seeds", header, lines)
    return far


def part_two(
    reference: Reference, labels: Array, repeats: int, folder: Path
) -> Generator[Table, None, dict[tuple[float, str], Array]]:
    """Table and box plots of Figure 23; distances of all seeds and rows, by share and method."""
    zeros = np.flatnonzero(labels == 0)
    rows = np.sort(np.random.default_rng(0).choice(zeros, min(ZEROS, len(zeros)), replace=False))
    start = thesis_start(reference.X, len(rows), np.random.default_rng(0))
    exact = reference.of_exact(rows, start, FEWER).rows
    several: dict[str, dict[str, Any]] = {"RFF": {"method": THESIS_RFF}}
    several |= {f"d* = {axes}": {"method": THESIS_RFF_PCA, "n_directions": axes} for axes in SEVERAL_AXES}
    found: dict[tuple[float, str], Array] = {}
    for share in SHARES:
        size = max(round(share * len(reference.X)), FEWER)
        for name in several:
            all_seeds = [reference.of(several[name], size, FEWER, seed, rows, start) for seed in range(repeats)]
            found[share, name] = np.array([distances(each, exact) for each in all_seeds])
    lines = [
        [f"{share:.0%}", name, str(len(far)), *(f"{v:.1f}" for v in [*np.percentile(far, [25, 50, 75]), far.max()])]
        for (share, name), far in found.items()
    ]
    header = ["l", "method", "seeds", "lower quartile", "median", "upper quartile", "largest"]
    title = f"|x^ - x^_exact|_1 of {len(rows)} zeros, {FEWER} components, {len(reference.X)} rows"
    yield Table(title, header, lines, "rff")
    shown = {name: (SHARES, [np.median(found[share, name]) for share in SHARES]) for name in several}
    save_panels({"distance to the exact pre-image": shown}, folder, "example2", xlabel="l / n")
    back = {way.mean_term: _from_anywhere(reference, rows, way) for way in (FIXED_POINT, THESIS_FORM)}
    kept = {mean: same_digit(each.rows, labels[rows], reference.X, labels).sum() for mean, each in back.items()}
    print(f"zeros that come back as zeros: {kept[True]} of {len(rows)}, by the thesis's form {kept[False]}")
    return found


def _from_anywhere(reference: Reference, rows: Array, way: preimages.FixedPoint) -> preimages.Preimages:
    """Pre-images of exact scores from random starts, as many as are needed."""

    def decode(numbers: Array, start: Array) -> preimages.Preimages:
        return reference.of_exact(rows[numbers], start, FEWER, way)

    return until_converged(decode, reference.X, len(rows))


def orderings(found: dict[Any, Array], pairs: Sequence[tuple[Any, Any]]) -> Lines:
    """For each pair its medians, and the number of seeds in which that of the first is smaller."""
    for pair in pairs:
        first, second = (found[key] for key in pair)
        seeds = np.sum(np.median(first, axis=1) < np.median(second, axis=1))
        names = [key if isinstance(key, str) else f"{key[1]}, l = {key[0]:.0%}" for key in pair]
        yield [*names, f"{np.median(first):.1f}", f"{np.median(second):.1f}", f"{seeds} of {len(first)}"]


def main(folder: Path, rows: int = TRAINING_ROWS, repeats: int = 5) -> Tables:
    X, labels = training_digits(rows)
    reference = Reference(X, folder)
    one = yield from part_one(reference, labels, repeats)
    two = yield from part_two(reference, labels, repeats, folder)
    names = list(METHODS)[:4]
    of_one = orderings(one, [*((name, names[0]) for name in names[1:]), (names[3], names[2])])
    of_two = orderings(two, [((share, name), (share, "RFF")) for share, name in two if name != "RFF"])
    header = ["nearer", "farther", "median", "median of the farther", "seeds in which it is nearer"]
    yield Table("Orderings", header, [*of_one, *of_two], "orderings")
