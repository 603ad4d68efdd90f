"""A fit, its pass, and scores on each device, beside bare products of its library.

Devices are NumPy on two threads, PyTorch on the processor if it is installed, and the GPUs that PyTorch and CuPy find,
which also fit the exact method. Rows are float32 in host memory and, for a GPU, also in its own. The bare products of a
pass are two matrix products and an exponential for each tile, of one tile that stays on the device: an estimate of the
most that a device can do. This benchmark has not yet been run on a GPU.
"""

import statistics
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np

from benchmarks.data import MEDIAN_DISTANCE, mnist, some_rows
from benchmarks.results import Found, Table, Target
from benchmarks.timing import interleaved, median_ratio, seconds_of, spread
from bigkpca.data.blocks import tile_rows
from bigkpca.data.devices import CPU, TALLER, Device
from bigkpca.data.opening import open_rows
from bigkpca.data.rows import Rows
from bigkpca.execution.engine import Engine
from bigkpca.execution.passes import sums_of
from bigkpca.execution.projection import score_rows
from bigkpca.fitting.fit import fit_rows
from bigkpca.numerics.array_api import functions_of, on_host
from bigkpca.numerics.moments import Rounding
from bigkpca.spec import FitSpec

COMPONENTS = 50
_HERE, _PASS, _EXACT = "NumPy, two threads", "pass of a fit", "exact fit"


def accelerators() -> Iterator[Device]:
    """The GPUs of this machine."""
    if find_spec("torch") is not None:
        torch = import_module("torch")
        for kind in ("cuda", "xpu"):
            yield from (Device("torch", f"{kind}:{number}") for number in range(getattr(torch, kind).device_count()))
    if find_spec("cupy") is not None and import_module("cupy").is_available():
        count = import_module("cupy").cuda.runtime.getDeviceCount()
        yield from (Device("cupy", f"cuda:{number}") for number in range(count))


def bare_products(n: int, d: int, size: int, place: Device) -> float:
    """Seconds of the bare products of a pass."""
    rng, height = np.random.default_rng(0), tile_rows(d, size, 4) * TALLER
    X, Y = (place.place(rng.random(shape, np.float32) / np.float32(d)) for shape in ((height, d), (d, size)))
    xp = functions_of(X)

    def compute() -> None:
        for _ in range(-(-n // height)):
            V = xp.exp(X @ Y)
            found = V.T @ V
        on_host(found[:1, :])  # a device computes later than it is asked to

    return seconds_of(lambda: place.computing(compute))


def works_of(rows: Rows, size: int) -> dict[str, Callable[[Rows, Engine], Any]]:
    """What devices do with the rows."""
    options: dict[str, Any] = {"n_components": COMPONENTS, "sigma": MEDIAN_DISTANCE}
    spec, exact = FitSpec.checked(size=size, **options), FitSpec.checked(method="exact", **options)
    model = fit_rows(rows, spec, Engine(threads=2))
    assert model.sums is not None
    shift, rounding = model.sums.about, Rounding.unknown(size)
    return {
        _PASS: lambda given, engine: sums_of(given, model.features, shift, rounding, None, engine),
        "fit": lambda given, engine: fit_rows(given, spec, engine),
        "scores": lambda given, engine: score_rows(given, model, engine),
        _EXACT: lambda given, engine: fit_rows(given, exact, engine),
    }


def main(rows: int = 60_000, size: int = 1000, repeats: int = 3) -> Found:
    X, gpus = some_rows(mnist(), rows).astype(np.float32), [*accelerators()]
    places: list[tuple[str, Device | None, Rows]] = [(_HERE, None, open_rows(X))]
    if find_spec("torch") is not None:
        places.append(("PyTorch, processor", Device("torch", CPU), open_rows(X)))
    for gpu in gpus:
        places += [(str(gpu), gpu, open_rows(X)), (f"{gpu}, rows there", gpu, open_rows(gpu.place(X)))]
    lines: list[list[Any]] = []
    for name, work in works_of(open_rows(X), size).items():
        sides: dict[str, Callable[[], float]] = {}
        for label, place, placed in places:
            if name == _EXACT and place not in gpus:  # slow on a processor: see `benchmarks.exact`
                continue
            engine = Engine(threads=2) if place is None else Engine().on_device(place)
            sides[label] = partial(seconds_of, partial(work, placed, engine))
            if name == _PASS and place is not None:
                sides[f"{label}: bare"] = partial(bare_products, len(X), X.shape[1], size, place)
        for side in sides.values():
            side()  # imports, and what a library prepares at its first call
        took = interleaved(repeats, **sides)
        first = next(iter(took.values()), [])
        for label, seconds in took.items():
            lines.append([name, label, statistics.median(seconds), spread(seconds), median_ratio(first, seconds)])
        for label in map(str, gpus):
            if name == _PASS:
                share = 100 * median_ratio(took[f"{label}: bare"], took[label])
                times = median_ratio(took[_HERE], took[label])
                yield Target(f"bare products / the pass of a fit on {label}", share, "at least", 60.0, "%")
                yield Target(f"the pass of a fit on two cores / {label}", times, "at least", 20.0)
            if name == _EXACT:
                middle = statistics.median(took[label])
                yield Target(f"exact fit of {rows} rows on {label}", middle, "at most", 5.0, "s")
    title = f"MNIST, {rows} rows, {size} landmarks, {COMPONENTS} components; medians of {repeats}"
    header = ["what", "device", "seconds", "least to most", "times as fast as the first"]
    yield Table(title, header, lines)
