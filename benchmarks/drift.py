"""The drift of rows like those of the fit, which should be 0, and of others: by data and features."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.ndimage import zoom

from benchmarks.common import arguments, covertype, covertype_labels, mnist, mnist_labels, usps, usps_labels
from benchmarks.results import Results, table
from bigkpca.data.opening import open_rows
from bigkpca.errors import Array
from bigkpca.execution.engine import Engine
from bigkpca.fitting.fit import fit_rows
from bigkpca.numerics.calibration import CALIBRATION_ROWS
from bigkpca.numerics.model import Model
from bigkpca.spec import FitSpec

NIGHTS, NEW_ROWS, FEW = 30, 2000, 100
FRESH = 10_000  # rows that nights are drawn from, at most
SHARES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0)  # of noisy rows in a night
METHODS: dict[str, dict[str, Any]] = {
    "kmeans": {"landmarks": "kmeans"},
    "uniform": {"landmarks": "uniform"},
    "rff": {"method": "rff"},
}


@dataclass(frozen=True)
class Data:
    """Rows with their classes, rows of the same width from elsewhere, and the standard deviation of pixels."""

    rows: Array
    classes: Array
    others: Array | None
    deviation: Array | np.floating[Any]
    standardize: bool = False


def resized(X: Array, side: int) -> Array:
    """Square images (n, s²) as images of another side, (n, side²)."""
    s = int(np.sqrt(X.shape[1]))
    return zoom(X.reshape(-1, s, s).astype(np.float32), (1, side / s, side / s), order=1).reshape(len(X), side**2)


def all_data() -> Iterator[tuple[str, Data]]:
    of_mnist, of_usps = np.concatenate([mnist(), mnist("t10k")]), usps()
    images, labels = of_mnist.astype(np.float32), np.concatenate([mnist_labels(), mnist_labels("t10k")])
    yield "MNIST", Data(images, labels, (resized(of_usps[:NEW_ROWS], 28) + 1) * 127.5, np.std(images[:1000]))
    small = resized(of_mnist[:NEW_ROWS], 16) / 127.5 - 1
    yield "USPS", Data(of_usps, usps_labels(), small, np.std(of_usps))
    plots = covertype().astype(np.float32)
    yield "covertype", Data(plots, covertype_labels(), None, plots.std(axis=0), standardize=True)


def scored(model: Model, X: Array) -> Array:
    """Scores of rows, and in the last column their residuals, (m, r + 1)."""
    tiles = (X[start : start + 500] for start in range(0, len(X), 500))
    pairs = map(model.scoring(min(len(X), 500), model.expansion()), tiles)
    return np.concatenate([np.column_stack(pair) for pair in pairs])


def figure(model: Model, rows: Array) -> float:
    """The drift of scored rows."""
    calibration = model.check_calibrated()
    return calibration.drift(calibration.counted(rows[:, :-1], rows[:, -1])).figure


def one_seed(data: Data, n: int, options: dict[str, Any], seed: int) -> dict[str, Any]:
    """Figures of nights of rows like those of the fit, and of nights of others."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(data.rows))
    spec = FitSpec.checked(
        random_state=seed, standardize=data.standardize, calibration_rows=CALIBRATION_ROWS, **options
    )
    model = fit_rows(open_rows(data.rows[np.sort(order[:n])]), spec, Engine(threads=2))
    own = scored(model, data.rows[order[n:][:FRESH]])

    def nights(rows: int) -> list[float]:
        m = len(own)
        return [figure(model, own[rng.choice(m, rows, replace=rows > m)]) for _ in range(NIGHTS)]

    def of(X: Array) -> float:
        return figure(model, scored(model, X))

    some, last = data.rows[order[n:][:NEW_ROWS]], order[n:][data.classes[order[n:]] == data.classes.max()]
    noise = rng.standard_normal(some.shape, np.float32) * data.deviation
    noisy = scored(model, some + noise)
    numbers = {p: int(p * NEW_ROWS) for p in SHARES}
    mixed = {p: figure(model, np.concatenate([noisy[:m], own[m:NEW_ROWS]])) for p, m in numbers.items()}
    return {
        "same": nights(NEW_ROWS),
        "few": nights(FEW),
        "noisy": figure(model, noisy),
        "scaled": of(1.5 * some),
        "shuffled": of(some[:, rng.permutation(some.shape[1])]),
        "one class": of(data.rows[last[:NEW_ROWS]]),
        "others": np.nan if data.others is None else of(data.others),
        "alarm": next((p for p, found in mixed.items() if found > 0.2), np.inf),
    }


def line(found: list[dict[str, Any]]) -> list[Any]:
    """The cells of one setting: the worst of all seeds."""
    same, few = (np.concatenate([each[key] for each in found]) for key in ("same", "few"))
    others = [min(each[key] for each in found) for key in ("noisy", "scaled", "shuffled", "one class", "others")]
    cells = ["-" if np.isnan(value) else f"{value:.2f}" for value in (*others, max(each["alarm"] for each in found))]
    return [f"{same.max():.3f}", f"{np.mean(same == 0):.1%}", f"{few.max():.3f}", *cells]


def main(argv: Sequence[str] | None = None) -> Results:
    given = arguments(__doc__ or "", argv, rows=20_000)
    lines = []
    for name, data in all_data():
        n = min(given.rows, len(data.rows) - NEW_ROWS)
        for method, options in METHODS.items():
            sized = options if method == "rff" else {**options, "size": min(n // 2, given.size)}
            found = [one_seed(data, n, {**sized, "n_components": 50}, seed) for seed in range(given.repeats)]
            lines.append([name, n, method, *line(found)])
            print(*lines[-1], sep="\t", flush=True)
    shown = table(
        f"Drift of nights of {NEW_ROWS} rows, and of {FEW}, {NIGHTS} nights for each of {given.repeats} seeds; "
        "largest figures of rows like those of the fit; smallest of others; least share of noisy rows above 0.2",
        [
            *("data", "n", "features", "same", "of them 0", f"same, {FEW} rows"),
            *("noisy", "scaled", "shuffled", "one class", "other data", "share > 0.2"),
        ],
        lines,
    )
    return Results((shown,))


if __name__ == "__main__":
    main()
