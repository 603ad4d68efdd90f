"""The expected time of a plan: coefficients from measured fits, and errors for other fits.

Run it on an otherwise idle machine; it takes about ten minutes on two cores. --rows and --size bound the settings.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import nnls

from benchmarks.common import arguments, covertype, mnist, repeated_dataset, seconds_of, some_rows, usps
from benchmarks.results import Results, Table, Target, table
from bigkpca.data.opening import open_rows
from bigkpca.data.rows import Rows
from bigkpca.errors import Array, NarrowKernelWarning, UnseenClusterWarning
from bigkpca.execution.duration import COEFFICIENTS, measured_speed, terms
from bigkpca.execution.engine import Engine
from bigkpca.execution.planning import plan_resolved
from bigkpca.fitting.fit import fit_rows
from bigkpca.ingesting import ingest
from bigkpca.numerics.certificates import sample_of
from bigkpca.numerics.model import Model
from bigkpca.spec import FitSpec, ResolvedFit, resolve
from bigkpca.workflows.fit import save

KMEANS, UNIFORM = {"landmarks": "kmeans"}, {"landmarks": "uniform"}
RANDOM, COLUMNS = {"method": "rff"}, {"method": "columns"}
DOUBLE = {"dtype": "float64"}  # which rows of covertype need: told beforehand, they are not fitted twice
SCALED = {"standardize": True}
LOADERS: dict[str, Callable[[], Array]] = {"mnist": mnist, "usps": usps, "covertype": covertype}


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
    seconds: float
    terms: dict[str, float]
    detour: bool  # whether values of the rows asked for steps that no plan knows

    def error(self, coefficients: dict[str, float]) -> float:
        """The relative error of the expected time."""
        return sum(coefficients[name] * seconds for name, seconds in self.terms.items()) / self.seconds - 1


def settings() -> Iterable[Setting]:
    """Those that coefficients are fitted to, then those that are held out: other sizes, numbers of rows and data."""
    for rows, sizes in ((5000, (100, 1000)), (20_000, (300, 2000)), (60_000, (100, 1000))):
        yield from (Setting("mnist", rows, size, threads, KMEANS) for size in sizes for threads in (1, 2))
    yield Setting("mnist", 60_000, 2000, 2, KMEANS)
    yield Setting("mnist", 20_000, 4000, 2, KMEANS)
    yield Setting("mnist", 20_000, 1000, 2, KMEANS | DOUBLE)
    yield Setting("mnist", 5000, 2000, 2, UNIFORM)
    yield Setting("mnist", 20_000, 1000, 1, UNIFORM)
    yield Setting("mnist", 30_000, 3000, 1, UNIFORM)
    yield Setting("mnist", 60_000, 500, 2, UNIFORM)
    yield Setting("mnist", 20_000, 500, 1, RANDOM)
    yield from (Setting("mnist", 20_000, 2000, threads, RANDOM) for threads in (1, 2))
    yield Setting("mnist", 60_000, 1000, 2, RANDOM)
    yield Setting("mnist", 20_000, 4000, 2, RANDOM)
    yield Setting("mnist", 20_000, 1000, 1, RANDOM | DOUBLE)
    yield Setting("mnist", 20_000, 500, 2, COLUMNS)
    yield Setting("mnist", 60_000, 1000, 1, COLUMNS)
    yield Setting("mnist", 20_000, 2000, 2, COLUMNS)
    yield Setting("covertype", 92_962, 100, 1, KMEANS | SCALED)
    yield Setting("covertype", 92_962, 1000, 2, KMEANS | SCALED)
    yield Setting("covertype", 92_962, 500, 1, UNIFORM | DOUBLE)
    yield from (Setting("covertype", 92_962, 2000, threads, RANDOM) for threads in (1, 2))

    for size in (100, 300, 1000):
        yield from (Setting("usps", 9298, size, threads, KMEANS, True) for threads in (1, 2))
    yield Setting("usps", 9298, 2000, 2, KMEANS, True)
    yield Setting("usps", 9298, 500, 2, UNIFORM, True)
    yield Setting("usps", 9298, 500, 1, COLUMNS, True)
    yield from (Setting("usps", 9298, size, 2, RANDOM, True) for size in (1000, 2000))
    yield Setting("mnist", 10_000, 1500, 1, KMEANS, True)
    yield Setting("mnist", 40_000, 3000, 2, KMEANS, True)
    yield Setting("mnist", 40_000, 1500, 2, UNIFORM, True)
    yield from (Setting("mnist", 40_000, 1500, threads, RANDOM, True) for threads in (1, 2))
    yield Setting("mnist", 40_000, 700, 2, COLUMNS, True)
    yield from (Setting("repeated mnist", 180_000, 500, threads, KMEANS, True) for threads in (1, 2))
    yield Setting("repeated mnist", 180_000, 2000, 2, KMEANS, True)
    yield Setting("covertype", 50_000, 700, 2, RANDOM, True)
    yield Setting("covertype", 50_000, 700, 1, KMEANS | SCALED, True)
    yield Setting("covertype", 60_000, 1500, 2, KMEANS | DOUBLE, True)


def bounded(most_rows: int, most_size: int) -> list[Setting]:
    """The settings, each once, with at most so many rows and so large a size."""
    found = (replace(each, rows=min(each.rows, most_rows), size=min(each.size, most_size)) for each in settings())
    return list({(each, each.name): each for each in found}.values())


def rows_of(setting: Setting, folder: Path) -> Rows:
    """The rows of a setting, as a compressed dataset that is made once."""
    if setting.data == "repeated mnist":
        return open_rows(repeated_dataset(folder, setting.rows))
    target, raw = folder / f"cost-{setting.data}-{setting.rows}.zarr", folder / "cost.npy"
    if not target.exists():
        folder.mkdir(parents=True, exist_ok=True)
        np.save(raw, some_rows(LOADERS[setting.data](), setting.rows))
        ingest([raw], target)
        raw.unlink()
    return open_rows(str(target))


def measured(setting: Setting, given: argparse.Namespace) -> Timed:
    """Fit and save a model as the command does, beside a probe of the machine."""
    rows, out = rows_of(setting, given.folder), given.folder / "cost-model.zarr"
    spec = FitSpec.checked(size=setting.size, **setting.options)
    fit, models = resolve(spec, rows), list[Model]()

    def fitted() -> None:
        models.append(fit_rows(rows, spec, Engine(threads=setting.threads)))
        save(models[-1], out, overwrite=True)

    speed = measured_speed()
    with warnings.catch_warnings():
        for kind in (NarrowKernelWarning, UnseenClusterWarning):  # how good these models are does not matter here
            warnings.simplefilter("ignore", kind)
        seconds = statistics.median(seconds_of(fitted) for _ in range(given.repeats))
    shutil.rmtree(out)
    threads = setting.threads
    found = terms(fit, plan_resolved(rows, fit, threads), speed, threads, threads)
    return Timed(setting, seconds, found, _took_a_detour(models[-1], fit))


def _took_a_detour(model: Model, fit: ResolvedFit) -> bool:
    """Whether the fit was repeated in float64, or solved by eigenvectors as Cholesky's factor was not accurate."""
    kept = sample_of(model.certificate)
    return model.features.dtype != fit.dtype or (kept is not None and bool(kept[1].eigenvectors))


def fitted_coefficients(runs: Sequence[Timed]) -> dict[str, float]:
    """Coefficients for which the relative errors of these runs have the least squares, none of them negative."""
    shares = np.array([[seconds / run.seconds for seconds in run.terms.values()] for run in runs])
    return dict(zip(runs[0].terms, map(float, nnls(shares, np.ones(len(runs)))[0]), strict=True))


def _errors(title: str, runs: Sequence[Timed], coefficients: dict[str, float]) -> Table:
    rows = [
        [
            run.setting.data,
            run.setting.rows,
            run.setting.size,
            run.setting.threads,
            run.setting.name,
            run.seconds,
            f"{run.error(COEFFICIENTS):+.0%}",
            f"{run.error(coefficients):+.0%}",
            "detour" if run.detour else "",
        ]
        for run in runs
    ]
    return table(title, ["data", "rows", "size", "threads", "options", "seconds", "built in", "fitted", ""], rows)


def _summary(held_out: Sequence[Timed], coefficients: dict[str, float]) -> Table:
    rows = []
    for name, used in (("built in", COEFFICIENTS), ("fitted", coefficients)):
        errors = [abs(run.error(used)) for run in held_out]
        plain = [abs(run.error(used)) for run in held_out if not run.detour]
        rows.append(
            [name, *(f"{each:.0%}" for each in (statistics.median(errors), max(errors), max(plain, default=0)))]
        )
    return table("Errors for settings held out", ["coefficients", "median", "largest", "largest without detours"], rows)


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
    largest = max((abs(run.error(COEFFICIENTS)) for run in held_out if not run.detour), default=None)
    target = Target("expected time of a fit: largest error, settings held out, without detours", "less", 30, "%")
    return Results(tables, (target.measured(None if largest is None else 100 * largest),))


if __name__ == "__main__":
    main()
