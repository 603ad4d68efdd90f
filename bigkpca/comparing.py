"""Compare methods on the user's own rows: error against seconds, one fit after the other in this process."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby, product
from statistics import median
from time import perf_counter
from typing import Any, NamedTuple, Unpack

import numpy as np

from bigkpca.data.blocks import sample_rows
from bigkpca.data.opening import open_rows
from bigkpca.data.rows import ArrayRows, Rows
from bigkpca.data.stores import AnyPath, store_of
from bigkpca.errors import Array, SpecError, unknown_name
from bigkpca.execution.blas import single_threaded_blas
from bigkpca.execution.engine import Engine
from bigkpca.execution.options import RunOptions, of_fit
from bigkpca.execution.passes import read_rows
from bigkpca.execution.plan import plan_fit
from bigkpca.execution.progress import Progress
from bigkpca.execution.projection import score_rows
from bigkpca.fitting.fit import fit_rows
from bigkpca.numerics import landmarks, measures, methods
from bigkpca.numerics.display import share_at_most
from bigkpca.numerics.kernels import Kernel
from bigkpca.numerics.model import Model
from bigkpca.numerics.random_streams import PROBES, random_stream
from bigkpca.plots import comparison
from bigkpca.plots.style import INSTALL, installed
from bigkpca.reporting.svg import figure_of, svg_of
from bigkpca.spec import EXACT_MOST_ROWS, VARIED, FitSpec, ProblemOptions, resolve
from bigkpca.spec.units import SEEDS
from bigkpca.storage import output

_GOOD = 0.05  # error of the scores up to which an approximation is good
_LITTLE_LONGER = 1.5  # among good fits that take at most this times the fastest, the most accurate is recommended
_COMPARED_ROWS = 4096  # at which scores are compared: fewer of them change an error by about 1 %
_MOST_WORK = 4e12  # n² d up to which the reference is exact by products with the Gram matrix: a minute on two cores
_MOST_LANDMARKS = 4000  # of a sampled reference
_SHARES = (8, 4, 2, 1)  # of the default size of a fit


def all_methods() -> list[str]:
    """The methods that can be compared: Nyström with each landmark rule, and the other approximate ones."""
    nystroem, exact = methods.Nystroem.name, methods.Exact.name
    others = [name for name in methods.METHODS if name not in (nystroem, exact)]
    return [*(f"{nystroem}/{rule}" for rule in landmarks.RULES), *others]


class Trial(NamedTuple):
    """Cost and errors of one fit, a row of compare.csv.

    Attributes
    ----------
    method : str
        The method, for Nyström with its landmark rule: "nystroem/kmeans".
    size, seed : int
        Number of landmarks or features, and the seed of the fit.
    seconds, planned_mb : float
        Time of the fit, and the memory that its arrays need by its plan.
    unexplained : float
        The share of the variance that may be left out, proven by the certificate of the fit; 1 if nothing is proven.
    eigenvalue_error, cosine, score_error : float
        As `eigenvalue_error`, `subspace_cosine` and `score_error` of `bigkpca.measures` compute them.
    """

    method: str
    size: int
    seed: int
    seconds: float
    planned_mb: float
    unexplained: float
    eigenvalue_error: float
    cosine: float
    score_error: float

    def __str__(self) -> str:
        return f"{self.method} with size {self.size:,}"


@dataclass(frozen=True, repr=False)
class Comparison:
    """Result of a comparison: the output folder, what errors are measured against, and the rows of compare.csv. The
    first one is the reference, if that is exact."""

    path: str
    reference: str
    trials: tuple[Trial, ...]

    @property
    def medians(self) -> tuple[Trial, ...]:
        """The medians over seeds of each method and size, whose `seed` is the number of seeds."""
        fits = groupby(sorted(self.trials), key=lambda each: each[:2])
        columns = ((fit, [*zip(*trials, strict=True)]) for fit, trials in fits)
        return tuple(Trial._make([*fit, len(each[0]), *map(median, each[3:])]) for fit, each in columns)

    @property
    def advice(self) -> str:
        """What to use: among good fits, the most accurate that takes little longer than the fastest; otherwise the
        most accurate of all."""
        good = [each for each in self.medians if each.score_error <= _GOOD]
        time = _LITTLE_LONGER * min((each.seconds for each in good), default=math.inf)
        best = min((each for each in good or self.medians if each.seconds <= time), key=lambda each: each.score_error)
        why = "the most accurate of the fastest fits within" if good else "try larger sizes: no fit is within"
        return (
            f"Use {best}: scores are off by {best.score_error:.2%}, eigenvalues by {best.eigenvalue_error:.2%}, in "
            f"{best.seconds:.3g} s ({why} {_GOOD:.0%})."
        )

    def __repr__(self) -> str:
        """The medians as a table, and the advice."""
        titles = "seconds", "planned MB", "scores", "eigenvalues", "cosine", "proven"
        lines = [f"errors against {self.reference}; medians over seeds"]
        lines.append(f"{'method':<25}{'size':>7}" + "".join(f"{title:>12}" for title in titles))
        for each in self.medians:
            cost = f"{each.seconds:>12.2f}{each.planned_mb:>12.0f}"
            errors = f"{each.score_error:>12.2%}{each.eigenvalue_error:>12.2%}{each.cosine:>12.4f}"
            lines.append(f"{each.method:<25}{each.size:>7,}{cost}{errors}{share_at_most(each.unexplained):>12}")
        return "\n".join([*lines, self.advice, f"path  {self.path}"])


class CompareOptions(ProblemOptions, total=False):
    progress: Progress | bool
    overwrite: bool


def compare(
    data: Any,
    out: AnyPath,
    *,
    methods: str | Sequence[str] = (),
    sizes: Sequence[int] = (),
    seeds: int = SEEDS,
    n_components: int = 50,
    **options: Unpack[CompareOptions],
) -> Comparison:
    """Fit data with every method, size and seed, one after the other, and measure time and errors of each fit.

    Written to the folder `out` are compare.csv and, if Matplotlib is installed, compare.svg, whole or not at all.

    Parameters
    ----------
    data : str, path or array_like of shape (n, d)
        The rows: anything that `bigkpca.fit` accepts.
    out : str or path
        The output folder.
    methods : str or sequence of str, optional
        Methods to fit, as a list or separated by commas: "columns", "rff", "rff-pca", "nystroem" (with every landmark
        rule), or "nystroem/kmeans" (with one rule). By default, all that suit the kernel.
    sizes : sequence of int, optional
        Numbers of landmarks or random features, each at least 2. By default, an eighth, a quarter, half and all of the
        default size of a fit.
    seeds : int, default=3
        Number of fits per method and size, with seeds 0, 1, ...
    n_components : int, default=50
        Number of components.
    **options
        What all fits share, as in `KernelPCA`: kernel, sigma, gamma, degree, coef0, center, standardize,
        column_weights, dtype, residual_tol, preimage, noise, calibration_rows, calibration and block_rows. And progress
        and overwrite, as in `fit`.

    Raises
    ------
    SpecError, DataError
        As in `fit`; if no method suits the kernel; and if `out` holds other files of these names.

    Notes
    -----
    Errors are measured at up to 4096 rows against exact kernel PCA or, if that would take hours, Nyström with twice the
    landmarks of any fit. All fits have the same kernel. Source: `docs/numerics.md`, section 19.
    """
    shared, others = of_fit(options)
    run = RunOptions.of(CompareOptions, others)
    if varied := [key for key in VARIED if key in shared]:
        raise SpecError(f"a comparison varies {varied[0]}: leave it out, or use methods, sizes and seeds")
    spec = FitSpec.checked(n_components=n_components, **shared)
    if not isinstance(spec.n_components, int):
        raise SpecError(f"n_components={spec.n_components}: a comparison needs a number of components")
    rows, note = open_rows(data), run.progress.note
    folder = output.output_path(out, rows.fingerprint()["path"])
    store, table, chart = store_of(folder), f"{folder}/compare.csv", f"{folder}/compare.svg"
    if store.exists(folder):
        output.check_file(table, "bigkpca compare", "method,size,seed,")
        output.check_file(chart, "bigkpca compare", 'id="compare-title"')
    if store.exists(table) and not run.overwrite:
        raise SpecError(
            f"{folder} already holds a comparison: choose another folder, or replace it with --overwrite "
            "(overwrite=True in Python)"
        )
    fits = _fits(rows, spec.for_rows(rows), methods, sizes, seeds)
    store.make_folder(folder)
    note("fitting the reference")
    reference, trials = _reference(rows, spec.for_rows(rows), max(size for _, size, _ in fits))
    for number, (fit, own) in enumerate(fits.items(), 1):
        model, *cost = _timed(rows, own.model_copy(update={"kernel": reference.kernel, "gamma": None}))
        trials.append(Trial(*fit, *cost, *reference.errors(model)))
        note(f"{number} of {len(fits)}: {trials[-1]}, seed {trials[-1].seed}, in {cost[0]:.2f} s")
    found = Comparison(folder, reference.description, tuple(trials))
    if installed():
        with figure_of(8, 5) as figure:
            axes = comparison(found, axes=figure.add_subplot())
            axes.legend().remove()  # which would take a third of the chart
            figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=4)
            svg = svg_of(figure, "compare", f"Error of the scores against time. {found.advice}")
        store.write(chart, svg.encode())
    else:
        store.remove_file(chart)  # of an earlier comparison
        note(f"compare.svg is not drawn: {INSTALL}")
    text = "".join(",".join(map(str, line)) + "\n" for line in (Trial._fields, *trials))
    store.write(table, text.encode())  # last: where it is, the comparison is complete
    return found


def _fits(
    rows: Rows, spec: FitSpec, asked: str | Sequence[str], sizes: Sequence[int], seeds: int
) -> dict[tuple[str, int, int], FitSpec]:
    """The fits by method, size and seed. Raises SpecError for methods that do not suit the kernel, if these are asked
    for; without any, all others are fitted."""
    known, names = all_methods(), list[str]()
    for name in map(str.strip, asked.split(",") if isinstance(asked, str) else asked or known):
        found = [each for each in known if name in (each, each.partition("/")[0])]
        if not found:
            raise unknown_name("method to compare", name, known)
        names += found
    most = resolve(FitSpec(n_components=spec.n_components), rows).size
    tried: list[Any] = sorted(sizes if len(sizes) else {max(most // share, 2) for share in _SHARES})
    if not all(isinstance(size, int | np.integer) and size > 1 for size in tried) or seeds < 1:
        raise SpecError(f"sizes={tried}, seeds={seeds}: give sizes of at least 2, and at least one seed")
    shared: dict[str, Any] = {key: getattr(spec, key) for key in FitSpec.model_fields if key not in VARIED}
    fits: dict[tuple[str, int, int], FitSpec] = {}
    for name, wanted, seed in product(dict.fromkeys(names), tried, range(seeds)):
        method, _, rule = name.partition("/")
        kind = methods.named(method)
        size = min(wanted, rows.shape[0]) if kind.landmarks else wanted + wanted % 2 * kind.pairs
        own = {"method": method, "landmarks": rule or "auto", "size": size, "random_state": seed}
        try:
            fits[name, size, seed] = FitSpec.checked(**shared, **own)
        except SpecError:
            if len(asked):
                raise
    if not fits:
        raise SpecError("no method suits this kernel and these options: name one in methods to see why")
    return fits


class _Reference(NamedTuple):
    """What errors are measured against, in words; sampled rows (m, d), their scores (m, r), the eigenvalues (r,), and
    the kernel."""

    description: str
    rows: Array
    scores: Array
    eigenvalues: Array
    kernel: Kernel

    def errors(self, model: Model) -> tuple[float, ...]:
        """The errors of a model, in the order of a trial."""
        Y, exact = _scores(model, self.rows), self.scores
        with single_threaded_blas:
            return (
                model.certificate.unexplained,
                measures.eigenvalue_error(self.eigenvalues, model.solution.eigenvalues),
                # With fewer components, an exact direction is outside their span.
                measures.subspace_cosine(exact, Y) if Y.shape[1] >= exact.shape[1] else 0.0,
                measures.score_error(exact, Y),
            )


def _reference(rows: Rows, spec: FitSpec, largest: int) -> tuple[_Reference, list[Trial]]:
    """Exact kernel PCA and its trial, or Nyström of twice the `largest` size if products would take hours."""
    n, d = rows.shape
    exact, size = n <= EXACT_MOST_ROWS or n * n * d <= _MOST_WORK, min(2 * largest, _MOST_LANDMARKS, n)
    model, *cost = _timed(rows, spec.model_copy(update={"method": "exact"}) if exact else spec.at(size))
    values, known, words = model.solution.eigenvalues, model.certificate.estimate, f"exact kernel PCA of {n:,} rows"
    if not exact:
        values = np.where(np.isnan(known), values, known)
        words = f"Nyström with {size:,} landmarks, as {words} would take hours; eigenvalues are its estimates"
    numbers = random_stream(0, PROBES).choice(n, min(_COMPARED_ROWS, sample_rows(n, d, 0)), replace=False)
    X = read_rows(rows, np.sort(numbers), Engine())
    found = _Reference(words, X, _scores(model, X), values, model.features.kernel)
    return found, [Trial(methods.Exact.name, n, 0, *cost, *found.errors(model))] if exact else []


def _timed(rows: Rows, spec: FitSpec) -> tuple[Model, float, float]:
    """A fit without its progress and warnings, since errors are measured here; its seconds and planned megabytes."""
    engine = Engine()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        started = perf_counter()
        model = fit_rows(rows, spec, engine)
    return model, perf_counter() - started, plan_fit(rows, spec, engine.threads).array_bytes / 1e6


def _scores(model: Model, X: Array) -> Array:
    """Scores (m, r), float64, of rows X (m, d) in memory."""
    return score_rows(ArrayRows(X), model, Engine()).astype(np.float64)
