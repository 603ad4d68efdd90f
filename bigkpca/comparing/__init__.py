"""Compare methods on the user's data: error against time, one fit after the other.

trials      the grid, the reference that errors are measured against, and each fit with its cost and its errors
results     files of the output folder, from which a comparison resumes; medians over seeds, advice, the figure
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Any, Unpack

import numpy as np

from bigkpca.comparing import results
from bigkpca.comparing.results import FIGURE, Folder, TrialGroup, advice, group_trials, pca_note
from bigkpca.comparing.trials import (
    Candidate,
    MethodVariant,
    ReferenceSolution,
    TrialResult,
    all_variants,
    candidates,
    default_sizes,
    exact_reference,
    feasible_fits,
    parse_variants,
    run_trial,
    sampled_reference,
    sampled_size,
    why_not_exact,
    with_sigma,
)
from bigkpca.data.opening import open_rows
from bigkpca.data.rows import Rows
from bigkpca.data.stores import AnyPath, last_name, store_of
from bigkpca.errors import MemoryLimitError, SpecError
from bigkpca.execution.engine import Engine
from bigkpca.execution.options import DeviceOptions, RunOptions, WritingOptions, of_fit
from bigkpca.execution.progress import shown_pass
from bigkpca.numerics.display import ShowsSummary, Summary
from bigkpca.numerics.methods import Exact
from bigkpca.plots.style import INSTALL
from bigkpca.spec import VARIED, FitSpec, ProblemOptions
from bigkpca.spec.units import SEEDS, TIME_BUDGET
from bigkpca.storage import output

_SHOWN = {
    "seconds": "seconds",
    "planned MB": "planned_mb",
    "error of the scores": "score_error",
    "error of the eigenvalues": "eigenvalue_error",
    "error of pre-images": "preimage_error",
}


@dataclass(frozen=True, repr=False)
class Comparison(ShowsSummary):
    """Result of a comparison.

    Attributes
    ----------
    path : str
        The output folder.
    trials : tuple of TrialResult
        The rows of compare.csv.
    groups : tuple of TrialGroup
        Their spread over seeds.
    advice : str
        A recommendation in one sentence.
    reference : str
        The reference that errors are measured against.
    missing : int
        Number of fits left out because the time budget ran out.
    scheduler : str or None
        Address of the cluster where the fits ran.
    device : str or None
        The device that computed the passes of the fits.
    pca_error : float or None
        The error of reconstruction by linear PCA with as many components, measured as `preimage_error` of the trials;
        None if it is not known.
    pca_note : str or None
        A sentence that compares it with the best pre-images.
    """

    path: str
    trials: tuple[TrialResult, ...]
    groups: tuple[TrialGroup, ...]
    advice: str
    reference: str
    missing: int
    scheduler: str | None = None
    pca_error: float | None = None
    pca_note: str | None = None
    device: str | None = None

    def summary(self) -> Summary:
        """The output path, the number of fits, and the advice; the medians of each method and size."""
        fits = f"{len(self.trials):,}" + (f", {self.missing:,} more left to run" if self.missing else "")
        facts = {"path": self.path, "fits": fits, "errors against": self.reference, "advice": self.advice}
        if self.pca_note:
            facts["linear PCA"] = self.pca_note
        if self.scheduler:
            facts["fits on"] = self.scheduler
        if self.device:
            facts["passes on"] = self.device
        medians = {title: [group.median(name) for group in self.groups] for title, name in _SHOWN.items()}
        return Summary("Comparison", facts, medians, ("fit", [str(group) for group in self.groups]))


class CompareOptions(ProblemOptions, WritingOptions, DeviceOptions, total=False):
    pass


def compare(
    data: Any,
    out: AnyPath,
    *,
    methods: str | Sequence[str] | None = None,
    sizes: Sequence[int] | None = None,
    seeds: int = SEEDS,
    n_components: int = 50,
    time_budget: str | float | None = TIME_BUDGET,
    **options: Unpack[CompareOptions],
) -> Comparison:
    """Fit data with every method, size and seed, and record the time and errors of each fit.

    Parameters
    ----------
    data : str, path or array_like of shape (n, d)
        The rows: anything that `bigkpca.fit` accepts.
    out : str or path
        The output folder.
    methods : str or sequence of str, optional
        Methods to fit, as a list or separated by commas: "columns", "rff", "rff-pca", "nystroem" (with every landmark
        rule), or "nystroem/kmeans" (with one rule). By default, all methods.
    sizes : sequence of int, optional
        Numbers of landmarks or random features, each at least 2. By default, an eighth, a quarter, half and all of the
        default size of a fit.
    seeds : int, default=3
        Number of fits per method and size, with seeds 0, 1, ...
    n_components : int, default=50
        Number of components.
    time_budget : str or float, default="10 min"
        No fit starts after this time, e.g. "10 min", or seconds. None means no limit.
    **options
        What all fits share, as in `KernelPCA`: kernel, sigma, gamma, degree, coef0, center, standardize,
        column_weights, dtype, residual_tol, preimage, noise, calibration_rows, calibration and block_rows. And options
        of the runs, as in `fit`: array, scheduler, workers, device, memory, timeout, progress and overwrite.

    Returns
    -------
    Comparison
        Trials, medians over seeds, advice, and the reference that errors are measured against.

    Raises
    ------
    SpecError
        If options conflict, if no fit suits the kernel and memory, or if `out` holds anything else.
    CorruptionError
        If files in `out` were changed by hand.
    DataError
        If the rows hold NaN, infinity or constant data.
    IncompleteError
        If the disk is full, or the cluster is gone or hangs.
    LockedError
        If another process is writing to `out`.

    Notes
    -----
    Errors are measured at up to 4096 rows against exact kernel PCA: from the whole Gram matrix up to 8192
    rows, and above from products with it while n² d <= 4e12 and `memory` allows. Otherwise the reference is a Nyström
    model of twice the largest size, with eigenvalues corrected by exact rows, as noted in `reference` of the result. A
    median sigma is computed once, for all seeds. Pre-images and linear PCA are compared on up to 256 rows that are left
    out of both; pre-images that cannot be made again without these rows, such as those of landmarks among them, are
    judged as they are.

    Fits run one after the other, each with its usual passes over the data. Fits that need more than `memory` are left
    out. Written to `out` are compare.csv, compare.json, reference.npz and, if matplotlib is installed, compare.svg.
    Repeating the call resumes a comparison with the missing fits.
    """
    shared, others = of_fit(options)
    run = RunOptions.of(CompareOptions, others, time_budget=time_budget)
    if varied := [key for key in VARIED if key in shared]:
        raise SpecError(f"a comparison varies {varied[0]}: leave it out, or use methods, sizes and seeds")
    spec = FitSpec.checked(n_components=n_components, **shared)
    if spec.needs_variance:
        raise SpecError(
            "gamma='scale' depends on the sample of each fit, but all fits must have the same kernel: give a number, "
            "e.g. KernelPCA(gamma='scale').fit(X).gamma_"
        )
    if not isinstance(spec.n_components, int):
        raise SpecError(f"n_components={spec.n_components}: a comparison needs a number of components")
    methods = methods.split(",") if isinstance(methods, str) else methods
    rows = open_rows(data, run.array)
    run, spec = run.on(rows), spec.for_rows(rows)
    chosen = all_variants() if methods is None else parse_variants(methods)
    if seeds < 1:
        raise SpecError(f"seeds={seeds}: at least one is needed")
    asked: Any = default_sizes(spec, rows) if sizes is None else sizes
    given = list(asked) if isinstance(asked, Iterable) else [asked]
    if not given or not all(isinstance(size, int | np.integer) and size > 1 for size in given):
        raise SpecError(f"sizes={sizes!r}: give a list of numbers of landmarks or random features, each at least 2")
    every = candidates(chosen, given, seeds, rows.shape[0])
    with run.engine() as engine:
        # Times on a cluster, on a device and on this machine do not mix. The address of a cluster can change.
        on_cluster = engine.client is not None
        record: dict[str, Any] = {"input": rows.fingerprint(), "spec": spec.to_dict(), "on_cluster": on_cluster}
        record |= {} if run.device_value is None else {"device": str(run.device_value)}
        folder = Folder(output.output_path(out, record["input"]["path"]))
        output.check_local(folder.path)
        grid = feasible_fits(every, rows, spec, run.memory_limit, methods, engine)
        engine.check_paths(record["input"]["path"])
        with store_of(folder.path).writer(folder.path):
            folder.claim(record, overwrite=run.overwrite)
            if not results.can_draw():
                run.progress.note(f"{FIGURE} is not drawn: {INSTALL}, and run this again")
            reference = folder.reference()
            if reference is None:
                reference = _reference(rows, spec, max(given), run.memory_limit, engine)
                folder.write_reference(reference)
            trials, missing = _trials(rows, folder, reference, grid, run.deadline, engine)
            groups = group_trials(trials)
            if results.can_draw():
                folder.write_figure(results.comparison_svg(groups, last_name(rows.where), reference.description))
    pca = reference.pca_error
    return Comparison(
        folder.path,
        tuple(trials),
        groups,
        advice(groups),
        reference.description,
        missing,
        run.scheduler,
        pca,
        pca_note(groups, len(reference.eigenvalues), pca),
        record.get("device"),
    )


def _reference(rows: Rows, spec: FitSpec, largest: int, limit: int | None, engine: Engine) -> ReferenceSolution:
    """A new reference, for fits of at most the `largest` size."""
    reason = why_not_exact(rows, spec, limit, engine.threads)
    engine.progress.note("fitting the exact reference" if reason is None else f"{reason}: using a sampled reference")
    with shown_pass(engine.progress, "fitting the reference"):
        if reason is None:
            return exact_reference(rows, spec, engine)
        return sampled_reference(rows, spec, sampled_size(rows, spec, largest, limit, engine.threads), engine)


def _trials(
    rows: Rows,
    folder: Folder,
    reference: ReferenceSolution,
    grid: Sequence[tuple[Candidate, FitSpec]],
    deadline: float | None,
    engine: Engine,
) -> tuple[list[TrialResult], int]:
    """Run the missing fits until the deadline; return all trials so far, and the number of fits still missing."""
    trials = folder.trials()
    if not trials and reference.seconds is not None and reference.planned_mb is not None:  # an exact reference
        trials = [TrialResult(Exact.name, "", rows.shape[0], 0, reference.seconds, reference.planned_mb)]
    done = {Candidate(MethodVariant(trial.method, trial.landmarks), trial.size, trial.seed) for trial in trials}
    missing = [(candidate, spec) for candidate, spec in grid if candidate not in done]
    note = engine.progress.note
    if len(missing) < len(grid):
        note(f"continuing: {len(grid) - len(missing)} of {len(grid)} fits are already done")
    folder.write_trials(trials)
    left = 0
    for number, (candidate, spec) in enumerate(missing):
        if deadline is not None and monotonic() > deadline:
            left += len(missing) - number
            note(f"time budget used up, {left} of {len(grid)} fits left: rerun the same command to resume")
            break
        try:
            own = with_sigma(spec, reference.sigma)  # so that all seeds have the same kernel
            with shown_pass(engine.progress, f"fitting {candidate.variant}, size {candidate.size:,}"):
                trial = run_trial(rows, own, candidate, reference, engine)
        except MemoryLimitError as error:
            note(f"{candidate.variant} with size {candidate.size:,} is left out: {error}")
            left += 1
            continue
        trials.append(trial)
        folder.write_trials(trials)
        note(
            f"{len(grid) - len(missing) + number + 1} of {len(grid)}: {candidate.variant}, size {trial.size:,}, "
            f"seed {trial.seed}: {trial.seconds:.2f} s"
        )
    return trials, left
