"""A fit, its pass, scores and products with the Gram matrix on each device, beside the bare products of its library.

Devices are NumPy on two threads, PyTorch on the processor if it is installed, and the GPUs
that PyTorch and CuPy find. Rows are float32 in host memory and, for a GPU, also in its own. The bare
products of a pass are two matrix products and an exponential for each tile, written plainly for arrays of the library,
with one tile that stays on the device: no reading, no shift, no sums in float64. They are an estimate of the most that
a device can do; timings of a busy machine can exceed it. Those of scores and of products with the Gram matrix (of
20,000 rows) are made in the same way. cuML, if it is installed, computes kernels with the same landmarks, and their
PCA. Operations (FLOP) are those of matrix products, and bytes those of a row and of its scores. This benchmark has not
yet been run on a GPU.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np

from benchmarks.common import (
    MEDIAN_DISTANCE,
    arguments,
    interleaved,
    median_ratio,
    mnist,
    seconds_of,
    some_rows,
    spread,
)
from benchmarks.results import Measured, Results, Target, table
from bigkpca.data.blocks import tile_rows
from bigkpca.data.devices import CPU, TALLER, Device
from bigkpca.data.opening import open_rows
from bigkpca.data.rows import Rows
from bigkpca.execution.blas import single_threaded_blas
from bigkpca.execution.engine import Engine
from bigkpca.execution.passes import gram_product, sums_of
from bigkpca.execution.projection import score_rows
from bigkpca.fitting.fit import fit_rows
from bigkpca.numerics.array_api import functions_of, on_host
from bigkpca.numerics.features import KernelRows
from bigkpca.numerics.model import Model
from bigkpca.numerics.moments import Rounding
from bigkpca.spec import FitSpec

COMPONENTS = 50
_PASS, _FIT, _EXACT = "pass of a fit", "fit", "exact fit"
_BARE = ", bare products"
_MULTIPLIED = COMPONENTS + 10  # columns of a block that the exact method multiplies
_STRIP = 2048  # columns of a tile of the Gram matrix
_MOST_MULTIPLIED = 20_000  # rows


@dataclass(frozen=True)
class Work:
    """Something to compute with so many rows. `operations` and `moved` bytes are those of a row; `bare` continues with
    the kernels V (b, l) of a tile and random numbers, and `kernels` are those of all rows."""

    name: str
    rows: int
    run: Callable[[Rows, Engine], Any]
    operations: int = 0
    moved: int = 0
    kernels: int = 0
    width: int = 0  # l
    bare: Callable[[Any, Any], Any] | None = None


@dataclass(frozen=True)
class Side:
    """What is timed on a device; `own` if it is done by bigkpca."""

    name: str
    place: Device | None
    seconds: Callable[[], float]
    own: bool = True


def works_of(rows: Rows, model: Model, spec: FitSpec) -> list[Work]:
    """All that every device does with the rows of a model."""
    (n, d), size, r = rows.shape, model.features.size, model.components
    assert model.sums is not None
    shift, columns = model.sums.about, model.features.as_columns()
    m, rounding = min(n, _MOST_MULTIPLIED), Rounding.unknown(size)
    B = np.random.default_rng(0).normal(size=(m, _MULTIPLIED))

    def one_pass(given: Rows, engine: Engine) -> Any:
        return sums_of(given, model.features, shift, rounding, None, engine)

    def product(given: Rows, engine: Engine) -> Any:
        some = given.part(0, m)
        assert isinstance(some, Rows)
        return gram_product(some, columns, B, engine, "multiplying")

    def both_halves(V: Any, numbers: Any) -> Any:
        return (V @ numbers[: V.shape[1], :])[:1, :] + (V.T @ numbers[: V.shape[0], :])[:1, :]

    return [
        Work(_PASS, n, one_pass, 2 * size * (d + size), 4 * d, n * size, size, lambda V, numbers: V.T @ V),
        Work(_FIT, n, lambda given, engine: fit_rows(given, spec, engine)),
        Work(
            "scores",
            n,
            lambda given, engine: score_rows(given, model, engine),
            2 * size * (d + r),
            4 * (d + r),
            n * size,
            size,
            lambda V, numbers: V @ numbers[:size, :r],
        ),
        Work("Gram product", m, product, m * (d + 2 * _MULTIPLIED), 0, m * m // 2, _STRIP, both_halves),
    ]


def bare_products(work: Work, d: int, place: Device | None) -> float:
    """Seconds of the bare products of some work, on a device or on two threads of the processor."""
    assert work.bare is not None
    continued, rng = work.bare, np.random.default_rng(0)
    height = tile_rows(d, work.width, 4) * (1 if place is None else TALLER)
    shapes = (height, d), (d, work.width), (max(height, work.width), _MULTIPLIED)
    made = [rng.random(shape, np.float32) / np.float32(d) for shape in shapes]
    X, Y, numbers = made if place is None else map(place.place, made)
    xp, tiles = functions_of(X), -(-work.kernels // (height * work.width))

    def compute(count: int) -> None:
        for number in range(count):
            found = continued(xp.exp(X @ Y), numbers)
            if number == count - 1:
                on_host(found[:1, :])  # a device computes later than it is asked to

    if place is not None:
        return seconds_of(lambda: place.computing(lambda: compute(tiles)))
    with single_threaded_blas, ThreadPoolExecutor(2) as pool:
        return seconds_of(lambda: list(pool.map(compute, [tiles // 2, tiles - tiles // 2])))


def kernels_and_pca(rows: Rows, model: Model) -> float:
    """Seconds that cuML takes for the kernels of all rows with the landmarks, and for the scores of their PCA."""
    kernels, PCA = import_module("cuml.metrics").pairwise_kernels, import_module("cuml.decomposition").PCA
    features = model.features
    assert isinstance(features, KernelRows)
    X, landmarks = rows.block(0, rows.shape[0]), features.unshifted(features.landmarks).astype(np.float32)

    def compute() -> None:
        V = kernels(X, landmarks, metric="rbf", gamma=0.5 / MEDIAN_DISTANCE**2)
        PCA(n_components=COMPONENTS).fit_transform(V)

    return seconds_of(compute)


def accelerators() -> list[Device]:
    """The GPUs here."""
    found = []
    if find_spec("torch") is not None:
        torch = import_module("torch")
        counts = {kind: getattr(torch, kind).device_count() for kind in ("cuda", "xpu")}
        found = [Device("torch", f"{kind}:{number}") for kind, count in counts.items() for number in range(count)]
    if find_spec("cupy") is not None and import_module("cupy").is_available():
        found += [
            Device("cupy", f"cuda:{number}") for number in range(import_module("cupy").cuda.runtime.getDeviceCount())
        ]
    return found


def hardware(place: Device | None) -> str:
    """What computes."""
    if place is None or place.name == CPU:
        return "processor"
    kind, _, number = place.name.partition(":")
    if place.library == "torch":
        return str(getattr(import_module("torch"), kind).get_device_name(place.name))
    return str(import_module("cupy").cuda.runtime.getDeviceProperties(int(number or 0))["name"].decode())


def sides_of(work: Work, model: Model, place: Device | None, sources: Mapping[str, Rows]) -> list[Side]:
    """All that is timed of some work on a device, with rows of these sources."""
    engine = Engine(threads=2) if place is None else Engine().on_device(place)

    def timed(rows: Rows) -> Callable[[], float]:
        return lambda: seconds_of(lambda: work.run(rows, engine))

    found = [Side(work.name + where, place, timed(rows)) for where, rows in sources.items()]
    if work.bare is not None:
        d = model.features.columns
        found.append(Side(work.name + _BARE, place, lambda: bare_products(work, d, place), own=False))
    if work.name == _FIT and place in accelerators() and find_spec("cuml") is not None:
        found.append(Side("kernels and PCA of cuML", place, lambda: kernels_and_pca(sources[""], model), own=False))
    return found


def measured(work: Work, sides: Sequence[Side], repeats: int) -> tuple[list[list[Any]], list[Measured]]:
    """The lines of some work, and figures beside targets for a GPU."""
    seconds = interleaved(repeats, **{f"{side.place} {side.name}": side.seconds for side in sides})
    lines: list[list[Any]] = []
    found: list[Measured] = []
    for side in sides:
        took, bare, on_two_cores = (
            seconds.get(key)
            for key in (f"{side.place} {side.name}", f"{side.place} {work.name}{_BARE}", f"None {work.name}")
        )
        assert took is not None
        middle = statistics.median(took)
        share = 100 * median_ratio(bare, took) if bare and side.own else None
        times = median_ratio(on_two_cores, took) if on_two_cores and side.own else None
        name = "NumPy, two threads" if side.place is None else str(side.place)
        rates = round(work.rows / middle), work.moved or "", work.operations / 1e6 or ""
        speed = work.operations * work.rows / middle / 1e9 or ""
        ends = ("" if value is None else round(value, 2) for value in (share, times))
        lines.append([side.name, name, hardware(side.place), middle, spread(took), *rates, speed, *ends])
        if side.place in accelerators() and side.name == work.name:
            found += _beside_targets(work, f"on {hardware(side.place)}", middle, share, times)
    return lines, found


def _beside_targets(work: Work, on: str, seconds: float, share: float | None, times: float | None) -> list[Measured]:
    if work.name == _PASS:
        return [
            Target(f"bare products / the pass of a fit {on}, d = 784", "more", 60.0, "%").measured(share),
            Target(f"the pass of a fit on two cores / {on}, d = 784", "more", 20.0, "times").measured(times),
        ]
    if work.name == _EXACT:
        return [Target(f"exact kernel PCA of MNIST {on}, 50 components", "less", 5.0, "s").measured(seconds)]
    return []


def main(argv: Sequence[str] | None = None) -> Results:
    given = arguments(__doc__ or "", argv, rows=60_000, repeats=3)
    X = some_rows(mnist(), given.rows).astype(np.float32)
    rows, common = open_rows(X), {"n_components": COMPONENTS, "sigma": MEDIAN_DISTANCE}
    spec, exact = FitSpec.checked(size=given.size, **common), FitSpec.checked(method="exact", **common)
    model = fit_rows(rows, spec, Engine(threads=2))
    sources: dict[Device | None, dict[str, Rows]] = {None: {"": rows}}
    if find_spec("torch") is not None:
        sources[Device("torch", CPU)] = {"": rows}
    for device in accelerators():
        sources[device] = {"": rows, ", rows there": open_rows(device.place(X))}
    for place in [*sources][1:]:  # imports, and what a library prepares at its first call
        fit_rows(open_rows(X[: max(given.rows // 5, given.size)]), spec, Engine().on_device(place))
    lines: list[list[Any]] = []
    found: list[Measured] = []
    exactly = Work(_EXACT, given.rows, lambda rows, engine: fit_rows(rows, exact, engine))
    for work in [*works_of(rows, model, spec), exactly]:
        places = accelerators() if work.name == _EXACT else sources  # slow on a processor: see `benchmarks.exact`
        sides = [side for place in places for side in sides_of(work, model, place, sources[place])]
        some, figures = measured(work, sides, given.repeats)
        lines, found = [*lines, *some], [*found, *figures]
    title = f"MNIST, {given.rows} rows, {given.size} landmarks, {COMPONENTS} components; medians of {given.repeats}"
    header = ["what", "device", "hardware", "seconds", "least to most", "rows/s", "bytes/row", "MFLOP/row", "GFLOP/s"]
    return Results((table(title, [*header, "% of bare products", "times two cores"], lines),), tuple(found))


if __name__ == "__main__":
    main()
