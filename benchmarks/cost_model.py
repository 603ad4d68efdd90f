"""The expected time of a plan: coefficients from measured fits, and errors for other fits.

Coefficients are fitted to CPU seconds, which other programs change little; the seconds of two threads beside them mean
something on an otherwise idle machine only. It takes about ten minutes on two cores. --rows and --size bound the
settings.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from scipy.optimize import lsq_linear
from scipy.sparse import csr_array

from benchmarks.common import arguments, covertype, mnist, repeated_dataset, seconds_of, some_rows, usps
from benchmarks.flights import with_hour
from benchmarks.landmarks import dataset
from benchmarks.results import Results, Table, Target, table
from bigkpca.data.opening import open_rows
from bigkpca.data.rows import Rows
from bigkpca.errors import Array
from bigkpca.execution.duration import COEFFICIENTS, measured_speed, terms
from bigkpca.execution.engine import Engine
from bigkpca.execution.planning import plan_resolved
from bigkpca.fitting.fit import fit_rows
from bigkpca.ingesting import ingest
from bigkpca.numerics import span
from bigkpca.numerics.model import Model
from bigkpca.spec import FitSpec, ResolvedFit, resolve
from bigkpca.workflows.fit import save

KMEANS, UNIFORM = {"landmarks": "kmeans"}, {"landmarks": "uniform"}
RANDOM, COLUMNS = {"method": "rff"}, {"method": "columns"}
DOUBLE = {"dtype": "float64"}  # which rows of covertype need: told beforehand, they are not fitted twice
SCALED = {"standardize": True}
WORDS, OF_A_ROW, TOPICS = 2000, 40, 30
_PRODUCTS = 0.9  # the least coefficient of products


def stored(load: Callable[[], Array]) -> Callable[[int, Path], str]:
    """Rows as a compressed dataset, which is made once."""
    return lambda rows, path: dataset(some_rows(load(), rows), path)


def words(rows: int, path: Path) -> Any:
    """A sparse matrix of counts of words, each row about one of several topics."""
    rng = np.random.default_rng(0)
    shares = rng.dirichlet(np.full(WORDS, 0.02), TOPICS)
    drawn = [rng.choice(WORDS, OF_A_ROW, p=shares[topic]) for topic in rng.integers(0, TOPICS, rows)]
    counts = np.ones(rows * OF_A_ROW, np.float32), (np.repeat(np.arange(rows), OF_A_ROW), np.concatenate(drawn))
    return csr_array(counts, shape=(rows, WORDS))


def text(rows: int, path: Path) -> str:
    """Flights with the codes of airports as columns of 0 and 1, as a dataset, which is made once."""
    if not path.exists():
        ingest([with_hour(path.with_suffix(".csv"), rows)], path, categories="one-hot")
    return str(path)


DATA: dict[str, Callable[[int, Path], Any]] = {
    "mnist": stored(mnist),
    "usps": stored(usps),
    "covertype": stored(covertype),
    "repeated mnist": lambda rows, path: repeated_dataset(path.parent, rows),
    "mnist in memory": lambda rows, path: some_rows(mnist(), rows).astype(np.float32),
    "sparse mnist": lambda rows, path: csr_array(some_rows(mnist(), rows).astype(np.float32)),
    "sparse words": words,
    "text of flights": text,
}


@dataclass(frozen=True)
class Setting:
    """A fit that is measured."""

    data: str
    rows: int
    size: int
    threads: int
    options: dict[str, Any] = field(hash=False)
    held_out: bool = False

    @property
    def name(self) -> str:
        """Its options in words."""
        return ", ".join(str(value) if value is not True else key for key, value in self.options.items())


@dataclass(frozen=True)
class Timed:
    """What a fit took, and the terms of its expected time."""

    setting: Setting
    cpu: float
    seconds: float
    work: dict[str, float]  # the terms of one thread, whose sum is that of all
    terms: dict[str, float]
    detour: bool  # whether values of the rows asked for steps that no plan knows

    def error(self, coefficients: dict[str, float]) -> float:
        """The relative error of the expected CPU time."""
        return _sum(coefficients, self.work) / self.cpu - 1

    @property
    def error_of_seconds(self) -> float:
        """The relative error of the expected time, with the coefficients that are built in."""
        return _sum(COEFFICIENTS, self.terms) / self.seconds - 1


def _sum(coefficients: dict[str, float], terms: dict[str, float]) -> float:
    return sum(coefficients[name] * seconds for name, seconds in terms.items())


def settings() -> Iterable[Setting]:
    """Those that coefficients are fitted to, then those that are held out: other sizes, numbers of rows and data."""
    for rows, sizes in ((5000, (100, 1000)), (20_000, (300, 2000)), (60_000, (100, 1000))):
        yield from (Setting("mnist", rows, size, 1, KMEANS) for size in sizes)
    yield Setting("mnist", 20_000, 4000, 2, KMEANS)
    yield Setting("mnist", 20_000, 1000, 2, KMEANS | DOUBLE)
    yield Setting("mnist", 20_000, 1000, 1, UNIFORM)
    yield Setting("mnist", 30_000, 3000, 2, UNIFORM)
    yield Setting("mnist", 20_000, 500, 1, RANDOM)
    yield Setting("mnist", 60_000, 2000, 2, RANDOM)
    yield Setting("mnist", 60_000, 1000, 1, COLUMNS)
    yield Setting("mnist", 20_000, 2000, 2, COLUMNS)
    yield Setting("mnist in memory", 60_000, 300, 2, KMEANS)
    yield Setting("sparse mnist", 60_000, 300, 1, KMEANS)
    yield Setting("sparse words", 20_000, 1000, 2, KMEANS)
    yield Setting("covertype", 92_962, 100, 1, KMEANS | SCALED)
    yield Setting("covertype", 92_962, 1000, 2, RANDOM)
    yield Setting("text of flights", 100_000, 300, 1, KMEANS | SCALED)
    yield Setting("text of flights", 200_000, 100, 2, KMEANS)

    yield from (Setting("usps", 9298, size, 2, KMEANS, True) for size in (100, 300, 1000))
    yield Setting("usps", 9298, 500, 1, COLUMNS, True)
    yield Setting("usps", 9298, 2000, 2, RANDOM, True)
    yield Setting("mnist", 10_000, 1500, 1, KMEANS, True)
    yield Setting("mnist", 40_000, 3000, 2, KMEANS, True)
    yield Setting("mnist", 40_000, 1500, 2, UNIFORM, True)
    yield Setting("mnist", 40_000, 1500, 1, RANDOM, True)
    yield Setting("mnist", 40_000, 700, 2, COLUMNS, True)
    yield Setting("mnist in memory", 30_000, 1000, 2, KMEANS, True)
    yield Setting("sparse mnist", 30_000, 700, 2, KMEANS, True)
    yield Setting("sparse words", 50_000, 500, 1, KMEANS, True)
    yield Setting("repeated mnist", 180_000, 500, 2, KMEANS, True)
    yield Setting("covertype", 50_000, 700, 2, RANDOM, True)
    yield Setting("covertype", 60_000, 700, 1, KMEANS | SCALED, True)
    yield Setting("text of flights", 200_000, 500, 2, KMEANS | SCALED, True)


def bounded(most_rows: int, most_size: int) -> list[Setting]:
    """The settings, each once, with at most so many rows and so large a size."""
    found = (replace(each, rows=min(each.rows, most_rows), size=min(each.size, most_size)) for each in settings())
    return list({(each, each.name): each for each in found}.values())


def rows_of(setting: Setting, folder: Path) -> Rows:
    """The rows of a setting."""
    folder.mkdir(parents=True, exist_ok=True)
    return open_rows(DATA[setting.data](setting.rows, folder / f"cost-{setting.data}-{setting.rows}.zarr"))


def measured(setting: Setting, given: argparse.Namespace) -> Timed:
    """Fit and save a model as the command does, beside a probe of the machine."""
    rows, out = rows_of(setting, given.folder), given.folder / "cost-model.zarr"
    spec, threads = FitSpec.checked(size=setting.size, **setting.options), setting.threads
    fit, models = resolve(spec, rows), list[Model]()

    def fitted() -> None:
        models[:] = [fit_rows(rows, spec, Engine(threads=threads))]
        save(models[0], out, overwrite=True)

    def seconds_and_cpu() -> tuple[float, float]:
        started = time.process_time()
        return seconds_of(fitted), time.process_time() - started

    speed = measured_speed()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # how good these models are does not matter here
        with mock.patch.object(span, "eigenvector_basis", wraps=span.eigenvector_basis) as by_eigenvectors:
            runs = [seconds_and_cpu() for _ in range(given.repeats)]
    cpu, seconds = min(cpu for _, cpu in runs), statistics.median(seconds for seconds, _ in runs)
    shutil.rmtree(out)
    work, shared = (terms(fit, plan_resolved(rows, fit, each), speed, each, each) for each in (1, threads))
    print(f"{setting}: {cpu:.2f} s of CPU", flush=True)
    return Timed(setting, cpu, seconds, work, shared, by_eigenvectors.called or _took_a_detour(models[0], fit))


def _took_a_detour(model: Model, fit: ResolvedFit) -> bool:
    """Whether the fit was repeated in float64, or solved by eigenvectors as Cholesky's factor was not accurate."""
    return model.features.dtype != fit.dtype or (model.drawn is not None and model.drawn.eigenvectors)


def fitted_coefficients(runs: Sequence[Timed]) -> dict[str, float]:
    """Coefficients for which the relative errors of these runs have the least squares, none of them negative, and
    products of matrices not much faster than those of the probe."""
    shares = np.array([[seconds / run.cpu for seconds in run.work.values()] for run in runs])
    names = list(runs[0].work)
    least = np.array([_PRODUCTS if name == "products" else 0.0 for name in names])
    found = lsq_linear(shares, np.ones(len(runs)), (least, np.inf))
    return dict(zip(names, map(float, found.x), strict=True))


def _errors(title: str, runs: Sequence[Timed], coefficients: dict[str, float]) -> Table:
    rows = [
        [
            run.setting.data,
            run.setting.rows,
            run.setting.size,
            run.setting.threads,
            run.setting.name,
            run.cpu,
            f"{run.error(COEFFICIENTS):+.0%}",
            f"{run.error(coefficients):+.0%}",
            run.seconds,
            f"{run.error_of_seconds:+.0%}",
            "detour" if run.detour else "",
        ]
        for run in runs
    ]
    header = ["data", "rows", "size", "threads", "options", "CPU, s", "built in", "fitted", "seconds", "built in", ""]
    return table(title, header, rows)


def _summary(held_out: Sequence[Timed], coefficients: dict[str, float]) -> Table:
    rows = []
    for name, used in (("built in", COEFFICIENTS), ("fitted", coefficients)):
        errors = [abs(run.error(used)) for run in held_out]
        plain = [abs(run.error(used)) for run in held_out if not run.detour]
        rows.append(
            [name, *(f"{each:.0%}" for each in (statistics.median(errors), max(errors), max(plain, default=0)))]
        )
    return table(
        "Errors of CPU times for settings held out",
        ["coefficients", "median", "largest", "largest without detours"],
        rows,
    )


def main(argv: Sequence[str] | None = None) -> Results:
    given = arguments(__doc__ or "", argv, rows=180_000, size=4000, repeats=3)
    runs = [measured(setting, given) for setting in bounded(given.rows, given.size)]
    fitted, held_out = ([run for run in runs if run.setting.held_out == held] for held in (False, True))
    coefficients = fitted_coefficients([run for run in fitted if not run.detour])
    tables = (
        _errors("Settings used to fit the coefficients", fitted, coefficients),
        _errors("Settings held out", held_out, coefficients),
        _summary(held_out, coefficients),
        table(
            "Coefficients", ["term", "built in", "fitted"], [[k, COEFFICIENTS[k], v] for k, v in coefficients.items()]
        ),
    )
    found = []
    for what, errors in (
        ("CPU time", [run.error(COEFFICIENTS) for run in held_out if not run.detour]),
        ("time", [run.error_of_seconds for run in held_out if not run.detour]),
    ):
        target = Target(f"expected {what} of a fit: largest error, settings held out, without detours", "less", 30, "%")
        found.append(target.measured(100 * max(map(abs, errors)) if errors else None))
    return Results(tables, tuple(found))


if __name__ == "__main__":
    main()
