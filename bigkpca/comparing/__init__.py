"""Error against time for every method, on the user's own data: each fit in a process of its own.

process     a process of its own, and what it took
grid        what is tried
reference   what the others are measured against
trial       one fit, its cost and its errors
summary     medians over seeds, and one sentence of advice
folder      what lies in the output folder, so that a comparison can go on
figure      error against time
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path as File
from time import monotonic
from typing import Any

import numpy as np

from bigkpca.comparing import figure
from bigkpca.comparing.folder import FIGURE, Folder
from bigkpca.comparing.grid import Candidate, MethodVariant, all_variants, candidates, default_sizes, parse_variants
from bigkpca.comparing.process import ProcessDiedError, ProcessRunner
from bigkpca.comparing.reference import Reference, exact_reference, sampled_reference, sampled_size, why_not_exact
from bigkpca.comparing.summary import TrialGroup, advice, group_trials
from bigkpca.comparing.trial import TrialResult, run_trial
from bigkpca.data.opening import open_rows
from bigkpca.data.rows import Rows
from bigkpca.errors import MemoryLimitError, SpecError
from bigkpca.execution.engine import Engine
from bigkpca.execution.planning import plan_fit
from bigkpca.execution.progress import Progress, Silent
from bigkpca.execution.units import parse_bytes, parse_seconds
from bigkpca.numerics.display import Summary, Told
from bigkpca.numerics.methods import Exact
from bigkpca.reporting import INSTALL
from bigkpca.spec import VARIED, FitSpec
from bigkpca.storage import durable, locks, paths


@dataclass(frozen=True, repr=False)
class Comparison(Told):
    """What a comparison found: the trials of compare.csv, their medians, advice in a sentence, and what the errors are
    measured against. `missing` trials were left for the next time, when the time was over."""

    path: str
    trials: tuple[TrialResult, ...]
    groups: tuple[TrialGroup, ...]
    advice: str
    reference: str
    missing: int

    def summary(self) -> Summary:
        """Where it lies, and its advice."""
        fits = f"{len(self.trials):,}" + (f", {self.missing:,} were left for the next time" if self.missing else "")
        facts = {"path": self.path, "fits": fits, "errors against": self.reference, "advice": self.advice}
        return Summary("Comparison", facts)


def compare(
    data: Any,
    out: str | os.PathLike[str],
    *,
    methods: str | Sequence[str] | None = None,
    sizes: Sequence[int] | None = None,
    seeds: int = 3,
    time_budget: str | float = "10 min",
    memory: str | int | None = None,
    array: str | None = None,
    overwrite: bool = False,
    progress: Progress = Silent(),
    **options: Any,
) -> Comparison:
    """Fit `data` by every method, at every size, for every seed, and write what each costs and how wrong it is to the
    folder `out`: compare.csv, and compare.svg where matplotlib is installed.

    `methods` are names as "rff", "nystroem" (with each landmark rule) or "nystroem/kmeans", or such names with commas
    between them; `sizes` by default an
    eighth, a quarter, half and all of the size that a fit would take. `options` are fields of FitSpec that all fits
    share: components, kernel, sigma, ... A median sigma is that of the first seed, for all.

    Errors are measured against exact kernel PCA, from the Gram matrix up to 8192 rows and by products with it while
    those take a minute or so and `memory` allows it; else against the best approximation at hand, corrected by sampled
    exact rows, and `reference` says so. Each fit has a process of its own, with the threads of this machine. No fit
    starts when `time_budget` is over; the same call goes on with what is missing.

    Raises SpecError for what does not fit together, and for a folder with anything else in it.
    """
    spec, deadline = _spec(options), monotonic() + parse_seconds(time_budget)
    methods = methods.split(",") if isinstance(methods, str) else methods
    rows = open_rows(data, array)
    chosen = all_variants() if methods is None else parse_variants(methods)
    sizes = _checked(sizes, seeds) or default_sizes(spec, rows)
    limit = None if memory is None else parse_bytes(memory)
    record = {"input": rows.fingerprint(), "spec": spec.to_dict()}
    out = paths.output_path(out, record["input"]["path"])
    folder = Folder(File(out))
    grid = _allowed(candidates(chosen, sizes, seeds, rows.shape[0]), rows, spec, limit, methods, progress)
    with locks.lock(out), durable.room_on_disk(out), ProcessRunner() as processes:
        folder.claim(record, overwrite=overwrite)
        if not figure.can_draw():
            progress.note(f"there will be no {FIGURE}: {INSTALL}, and run this again")
        work = _ComparisonRun(rows, spec, folder, processes, progress)
        reference = work.reference(max(sizes), limit)
        trials, missing = work.trials(reference, grid, deadline)
        groups = group_trials(trials)
        if figure.can_draw():
            folder.write_figure(figure.comparison_svg(groups, os.path.basename(rows.where), reference.about))
    return Comparison(out, tuple(trials), groups, advice(groups), reference.about, missing)


def _spec(options: dict[str, Any]) -> FitSpec:
    """The spec that all fits share. Raises SpecError for fields in which they differ."""
    if varied := [key for key in VARIED if key in options]:
        raise SpecError(f"{varied[0]} is what a comparison varies: leave it out, or use methods, sizes and seeds")
    spec = FitSpec.checked(**options)
    if not isinstance(spec.components, int):
        raise SpecError(f"components={spec.components}: a comparison needs a number of components")
    return spec


def _checked(sizes: Any, seeds: int) -> Sequence[int] | None:
    if seeds < 1:
        raise SpecError(f"seeds={seeds}: at least one is needed")
    if sizes is None:
        return None
    found = list(sizes) if isinstance(sizes, Iterable) else [sizes]
    if not found or not all(isinstance(size, int | np.integer) and size > 1 for size in found):
        raise SpecError(f"sizes={sizes!r}: give numbers of landmarks or random features in a list, at least 2 each")
    return found


def _allowed(
    grid: Iterator[Candidate],
    rows: Rows,
    spec: FitSpec,
    limit: int | None,
    asked: Sequence[str] | None,
    progress: Progress,
) -> list[tuple[Candidate, FitSpec]]:
    """The candidates that suit the kernel and the memory limit; each way that does not is told once.

    Raises SpecError where a way that does not suit was asked for by name.
    """
    found: list[tuple[Candidate, FitSpec]] = []
    told: set[tuple[MethodVariant, int]] = set()
    for candidate in grid:
        try:
            own = candidate.variant.spec(spec, candidate.size, candidate.seed)
            plan_fit(rows, own, Engine().threads).check(limit, f"{candidate.variant} is left out at {candidate.size:,}")
            found.append((candidate, own))
        except MemoryLimitError as error:
            _tell(told, candidate.variant, candidate.size, str(error), progress)
        except SpecError as error:
            if asked is not None:
                raise
            _tell(told, candidate.variant, 0, f"{candidate.variant} is left out: {error}", progress)
    if not found:
        raise SpecError("nothing is left to compare: allow more memory, or ask for smaller sizes")
    return found


def _tell(
    told: set[tuple[MethodVariant, int]], variant: MethodVariant, size: int, message: str, progress: Progress
) -> None:
    if (variant, size) not in told:
        progress.note(message)
    told.add((variant, size))


@dataclass(frozen=True)
class _ComparisonRun:
    """What all fits of a comparison share."""

    rows: Rows
    spec: FitSpec
    folder: Folder
    processes: ProcessRunner
    progress: Progress

    def reference(self, largest: int, limit: int | None) -> Reference:
        """The reference of the folder, or a new one."""
        if there := self.folder.reference():
            return there
        threads = Engine().threads
        reason = why_not_exact(self.rows, self.spec, limit, threads)
        found: Reference
        if reason is None:
            self.progress.note("fitting the exact reference")
            found = self.processes.run(exact_reference, self.rows, self.spec)
        else:
            self.progress.note(f"{reason}: using a sampled reference")
            size = sampled_size(self.rows, self.spec, largest, limit, threads)
            found = self.processes.run(sampled_reference, self.rows, self.spec, size)
        self.folder.write_reference(found)
        return found

    def trials(
        self, reference: Reference, grid: Sequence[tuple[Candidate, FitSpec]], deadline: float
    ) -> tuple[list[TrialResult], int]:
        """All trials of the folder once those that are missing have been run, and how many are missing still."""
        trials = self.folder.trials() or _of_reference(reference, self.rows.shape[0])
        done = {Candidate(MethodVariant(trial.method, trial.landmarks), trial.size, trial.seed) for trial in trials}
        missing = [(candidate, spec) for candidate, spec in grid if candidate not in done]
        if len(missing) < len(grid):
            self.progress.note(f"going on: {len(grid) - len(missing)} of {len(grid)} fits were made before")
        self.folder.write_trials(trials)
        left = 0
        for number, (candidate, spec) in enumerate(missing):
            if monotonic() > deadline:
                left += len(missing) - number
                self.progress.note(f"the time is over with {left} of {len(grid)} fits left: the same command goes on")
                break
            try:
                trial = self.processes.run(run_trial, self.rows, reference.with_same_sigma(spec), candidate, reference)
            except ProcessDiedError as error:
                self.progress.note(f"{candidate.variant} with size {candidate.size:,} is left out: {error}")
                left += 1
                continue
            trials.append(trial)
            self.folder.write_trials(trials)
            self.progress.note(_progress_line(trial, len(grid) - len(missing) + number + 1, len(grid)))
        return trials, left


def _of_reference(reference: Reference, n: int) -> list[TrialResult]:
    if reference.seconds is None or reference.peak_mb is None:
        return []
    return [TrialResult(Exact.name, "", n, 0, reference.seconds, reference.peak_mb)]


def _progress_line(trial: TrialResult, number: int, count: int) -> str:
    variant = MethodVariant(trial.method, trial.landmarks)
    return f"{number} of {count}: {variant}, size {trial.size:,}, seed {trial.seed}: {trial.seconds:.2f} s"
