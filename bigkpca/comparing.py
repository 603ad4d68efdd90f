"""Compare methods on the user's own rows: error against seconds, one fit after the other in this process."""

from __future__ import annotations

import csv
import io
import json
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from itertools import product
from statistics import median
from time import perf_counter
from typing import Any, NamedTuple, Unpack

import numpy as np

from bigkpca.data.blocks import sample_rows
from bigkpca.data.opening import open_rows
from bigkpca.data.rows import ArrayRows, Rows
from bigkpca.data.stores import AnyPath, last_name, read_record, store_of, write_json
from bigkpca.data.stores.base import PARTIAL
from bigkpca.errors import Array, CorruptionError, MemoryLimitError, SpecError, unknown_name
from bigkpca.execution.blas import single_threaded_blas
from bigkpca.execution.engine import Engine
from bigkpca.execution.options import RunOptions, of_fit
from bigkpca.execution.passes import read_rows
from bigkpca.execution.plan import check_peak, plan_fit
from bigkpca.execution.progress import Progress, shown_pass
from bigkpca.execution.projection import score_rows
from bigkpca.fitting.fit import fit_rows
from bigkpca.fitting.sample import sample_lengths
from bigkpca.numerics import landmarks, measures, methods
from bigkpca.numerics.display import ShowsSummary, Summary, counted
from bigkpca.numerics.linear_pca import restored_by_pca, share_lost, some_held_out
from bigkpca.numerics.model import Model
from bigkpca.numerics.random_streams import PROBES, random_stream
from bigkpca.plots import comparison
from bigkpca.plots.style import INSTALL, installed
from bigkpca.reporting.drawing import figure_of, svg_of
from bigkpca.spec import EXACT_MOST_ROWS, VARIED, FitSpec, ProblemOptions, resolve
from bigkpca.spec.units import SEEDS
from bigkpca.storage import output

GOOD = 0.05  # error of the scores below which an approximation is good
_LITTLE_LONGER = 1.5  # among good fits that take at most this times the fastest, the most accurate is recommended
_COMPARED_ROWS = 4096  # at which scores are compared: fewer of them change an error by about 1 %
_RECONSTRUCTED_ROWS = 256
_MOST_WORK = 4e12  # n² d up to which the reference is exact by products with the Gram matrix: a minute on two cores
_MOST_LANDMARKS = 4000  # of a sampled reference
_SHARES = (8, 4, 2, 1)  # of the default size of a fit


def all_methods() -> list[str]:
    """The methods that can be compared: Nyström with each landmark rule, and the other approximate ones."""
    nystroem, exact = methods.Nystroem.name, methods.Exact.name
    others = [name for name in methods.METHODS if name not in (nystroem, exact)]
    return [*(f"{nystroem}/{rule}" for rule in landmarks.RULES), *others]


@dataclass(frozen=True)
class Trial:
    """Cost and errors of one fit, a row of compare.csv; NaN where an error is unknown, and for the exact reference.

    Attributes
    ----------
    method : str
        The method, for Nyström with its landmark rule: "nystroem/kmeans".
    size, seed : int
        Number of landmarks or features, and the seed of the fit.
    seconds, planned_mb : float
        Time of the fit, and the memory that its arrays need by its plan.
    unexplained : float
        The share of the variance that may be left out, proven by the certificate of the fit.
    eigenvalue_error : float
        Mean over components of |lambda_j^ - lambda_j| / lambda_j.
    cosine : float
        Cosine of the largest angle between the column spaces of both score matrices.
    score_error : float
        |Y - Y^ B|_F / |Y|_F with the best B: the part that no linear map of the scores restores.
    preimage_error : float
        Squared distance of pre-images from up to 256 rows, over that of these rows from the mean of others.
    """

    method: str
    size: int
    seed: int
    seconds: float
    planned_mb: float
    unexplained: float = math.nan
    eigenvalue_error: float = math.nan
    cosine: float = math.nan
    score_error: float = math.nan
    preimage_error: float = math.nan

    def __str__(self) -> str:
        return f"{self.method} with size {self.size:,}"

    @property
    def exact(self) -> bool:
        """Whether this is the exact reference."""
        return self.method == methods.Exact.name


_NUMBERS = {part.name: {"int": int, "float": float}[str(part.type)] for part in fields(Trial)[1:]}


class Reference(NamedTuple):
    """Eigenvalues (r,), and scores (m, r) of sampled rows (m, d), from which errors are measured; how they were
    computed; the length of the kernel if it is the median one; the exact fit, if there was one."""

    eigenvalues: Array
    scores: Array
    rows: Array
    description: str
    length: dict[str, float]
    trials: list[Trial]
    pca_error: float


@dataclass(frozen=True, repr=False)
class Comparison(ShowsSummary):
    """Result of a comparison.

    Attributes
    ----------
    path : str
        The output folder.
    trials : tuple of Trial
        The rows of compare.csv.
    reference : str
        What errors are measured against.
    components : int
        Number of components.
    pca_error : float
        The error of reconstruction by linear PCA, measured as `preimage_error` of the trials; NaN if it is not known.
    """

    path: str
    trials: tuple[Trial, ...]
    reference: str
    components: int
    pca_error: float

    @property
    def medians(self) -> tuple[Trial, ...]:
        """The medians over seeds of each method and size, whose `seed` is the number of seeds."""
        order = {name: at for at, name in enumerate(all_methods())}
        fits, found = {(each.method, each.size) for each in self.trials}, list[Trial]()
        for method, size in sorted(fits, key=lambda fit: (order.get(fit[0], len(order)), fit[1])):
            own = [each for each in self.trials if (each.method, each.size) == (method, size)]
            values = (median(getattr(each, name) for each in own) for name in [*_NUMBERS][2:])
            found.append(Trial(method, size, len(own), *values))
        return tuple(found)

    @property
    def advice(self) -> str:
        """What to use: among good fits, the most accurate that takes little longer than the fastest; otherwise the
        most accurate of all; the exact method if it takes no longer."""
        found = [each for each in self.medians if not each.exact]
        if not found:
            return "Nothing was compared."
        good = [each for each in found if each.score_error <= GOOD]
        why = f"the most accurate of the fastest fits within {GOOD:.0%}"
        if not good:
            why = f"the most accurate, but none is within {GOOD:.0%}; try larger sizes"
        time = _LITTLE_LONGER * min((each.seconds for each in good), default=math.inf)
        best = min((each for each in good or found if each.seconds <= time), key=lambda each: each.score_error)
        for exact in (each for each in self.medians if each.exact):
            why += f"; exact took {exact.seconds:.3g} s"
            if exact.seconds <= best.seconds:
                return f"Use the exact method: it took {exact.seconds:.3g} s, no longer than {best}."
        return (
            f"Use {best}: scores are off by {best.score_error:.2%}, eigenvalues by {best.eigenvalue_error:.2%}, in "
            f"{best.seconds:.3g} s and {best.planned_mb:.0f} MB ({why})."
        )

    @property
    def pca_note(self) -> str:
        """The error of linear PCA with as many components, beside that of the best pre-images; empty if not known."""
        if math.isnan(self.pca_error):
            return ""
        text = f"Linear PCA with {self.components} components: the error of reconstruction is {self.pca_error:.2%}"
        known = [each for each in self.medians if not math.isnan(each.preimage_error)]
        best = min(known, key=lambda each: each.preimage_error, default=None)
        return f"{text}." if best is None else f"{text}, of the best pre-images {best.preimage_error:.2%} ({best})."

    def summary(self) -> Summary:
        """The advice, and how many fits it comes from."""
        facts = {"path": self.path, "fits": f"{len(self.trials):,}", "errors against": self.reference}
        return Summary("Comparison", facts | {"advice": self.advice, "linear PCA": self.pca_note})


class CompareOptions(ProblemOptions, total=False):
    array: str | None
    memory: str | int | None
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
    **options
        What all fits share, as in `KernelPCA`: kernel, sigma, gamma, degree, coef0, center, standardize,
        column_weights, dtype, residual_tol, preimage, noise, calibration_rows, calibration and block_rows. And array,
        memory, progress and overwrite, as in `fit`.

    Returns
    -------
    Comparison
        Trials, medians over seeds, advice, and what errors are measured against.

    Raises
    ------
    SpecError
        If options conflict, if no fit suits the kernel and memory, or if `out` holds anything else.
    CorruptionError
        If files in `out` were changed by hand.
    DataError
        If the rows hold NaN, infinity or constant data.
    LockedError
        If another process is writing to `out`.

    Notes
    -----
    Errors are measured at up to 4096 rows against exact kernel PCA: from the whole Gram matrix up to 8192 rows, and
    above from products with it while n² d <= 4e12 and `memory` allows. Otherwise the reference is a Nyström model of
    twice the largest size, with the eigenvalues that its certificate estimates. A median sigma is computed once.

    Fits run one after the other, each with its usual passes over the data. Written to `out` are compare.csv,
    compare.json and, if Matplotlib is installed, compare.svg. The same call again fits what is missing.
    """
    shared, others = of_fit(options)
    run = RunOptions.of(CompareOptions, others)
    if varied := [key for key in VARIED if key in shared]:
        raise SpecError(f"a comparison varies {varied[0]}: leave it out, or use methods, sizes and seeds")
    spec = FitSpec.checked(n_components=n_components, **shared)
    if spec.needs_variance:
        raise SpecError("gamma='scale' depends on the sample of each fit: give a number, the same for all fits")
    if not isinstance(spec.n_components, int):
        raise SpecError(f"n_components={spec.n_components}: a comparison needs a number of components")
    rows = open_rows(data, run.array)
    spec = spec.for_rows(rows)
    names = _named(methods.split(",") if isinstance(methods, str) else methods)
    if seeds < 1:
        raise SpecError(f"seeds={seeds}: at least one is needed")
    asked = [*product(_checked_sizes(rows, spec, sizes), range(seeds), names)]
    about: dict[str, Any] = {"format": "comparison", "format_version": 2}
    about |= {"input": rows.fingerprint(), "spec": spec.to_dict()}
    folder = output.output_path(out, about["input"]["path"])
    output.check_local(folder)
    store = store_of(folder)
    with run.engine() as engine:
        grid = _grid(rows, spec, asked, run.memory_limit, engine, strict=len(methods) > 0)
        with store.writer(folder):
            found = _begun(folder, about, n_components, overwrite=run.overwrite)
            done = {(trial.method, trial.size, trial.seed) for trial in found.trials}
            if missing := {fit: own for fit, own in grid.items() if fit not in done}:
                reference = _reference(rows, spec, max(size for _, size, _ in grid), run.memory_limit, engine)
                known = found.trials or tuple(reference.trials)
                found = Comparison(folder, known, reference.description, n_components, reference.pca_error)
                for trial in _fitted(rows, missing, reference, len(grid), engine):
                    found = replace(found, trials=(*found.trials, trial))
                    _save(found, about)
            if installed():
                store.write(f"{folder}/compare.svg", _drawn(found, last_name(rows.where)).encode())
            else:
                run.progress.note(f"compare.svg is not drawn: {INSTALL}, and run this again")
    return found


def _named(names: Sequence[str]) -> list[str]:
    """The methods with these names, by default all; "nystroem" is that with every rule. Raises SpecError for others."""
    known, found = all_methods(), list[str]()
    for name in map(str.strip, names or known):
        chosen = [each for each in known if name in (each, each.partition("/")[0])]
        if not chosen:
            raise unknown_name("method to compare", name, known)
        found += chosen
    return list(dict.fromkeys(found))


def _checked_sizes(rows: Rows, spec: FitSpec, sizes: Sequence[int]) -> list[int]:
    most = resolve(FitSpec(n_components=spec.n_components), rows).size
    found: list[Any] = sorted(sizes if len(sizes) else {max(most // share, 2) for share in _SHARES})
    if not all(isinstance(size, int | np.integer) and size > 1 for size in found):
        raise SpecError(f"sizes={sizes!r}: give a list of numbers of landmarks or random features, each at least 2")
    return found


def _grid(
    rows: Rows, spec: FitSpec, asked: Sequence[tuple[int, int, str]], limit: int | None, engine: Engine, *, strict: bool
) -> dict[tuple[str, int, int], FitSpec]:
    """The fits of these sizes, seeds and methods that suit the kernel and the memory limit, by method, size and seed;
    notes the others. Raises SpecError if none is left and, if `strict`, for a method that does not suit the kernel."""
    base: dict[str, Any] = {key: getattr(spec, key) for key in FitSpec.model_fields if key not in VARIED}
    found: dict[tuple[str, int, int], FitSpec] = {}
    notes = list[str]()
    for size, seed, name in asked:
        method, _, rule = name.partition("/")
        kind = methods.named(method)
        own = min(size, rows.shape[0]) if kind.landmarks else size + size % 2 * kind.pairs
        ruled = {"landmarks": rule} if rule else {}
        try:
            fit = FitSpec.checked(**base, method=method, size=own, random_state=seed, **ruled)
            check_peak(plan_fit(rows, fit, engine.threads).peak_bytes, limit, f"{name} is left out at {own:,}")
            found[name, own, seed] = fit
        except MemoryLimitError as error:
            notes.append(str(error))
        except SpecError as error:
            if strict:
                raise
            notes.append(f"{name} is left out: {error}")
    for note in dict.fromkeys(notes):
        engine.progress.note(note)
    if not found:
        raise SpecError("nothing is left to compare: allow more memory, or use smaller sizes")
    return found


def _begun(folder: str, about: Mapping[str, Any], r: int, *, overwrite: bool) -> Comparison:
    """What the folder holds of this comparison of r components. Raises SpecError for a folder with anything else, and
    for another comparison unless it is to be overwritten."""
    store, record = store_of(folder), f"{folder}/compare.json"
    advice = f"remove {folder}, and run the same again"
    known = read_record(record, advice)
    if known is None:
        unfinished = {"compare.json" + PARTIAL}
        if store.exists(folder) and not (store.is_folder(folder) and set(store.names(folder)) <= unfinished):
            raise SpecError(
                f"{folder} is not an empty folder and was not made by bigkpca compare: choose another folder, or move "
                "this one away"
            )
        store.make_folder(folder)
    elif {key: known.get(key) for key in about} != json.loads(json.dumps(about)):
        if not overwrite:
            raise SpecError(
                f"{folder} already holds {output.other(known, about)}: choose another folder, or replace it with "
                "--overwrite (overwrite=True in Python)"
            )
        known = None
    if known is None:
        found = Comparison(folder, (), "", r, math.nan)
        _save(found, about)
        return found
    try:
        words = known["trials"]
        trials = [Trial(each["method"], *(kind(each[name]) for name, kind in _NUMBERS.items())) for each in words]
        return Comparison(folder, tuple(trials), str(known["reference"]), r, float(known["pca_error"]))
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptionError(f"{record} is not the record of a comparison ({error!r}); {advice}") from error


def _save(found: Comparison, about: Mapping[str, Any]) -> None:
    """Write what is known of a comparison: the record, from which it can go on, and the table for readers."""
    trials = [asdict(each) for each in found.trials]
    known = {"reference": found.reference, "pca_error": found.pca_error, "trials": trials}
    write_json(f"{found.path}/compare.json", {**about, **known})
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, ["method", *_NUMBERS], lineterminator="\n")
    writer.writeheader()
    writer.writerows(trials)
    store_of(found.path).write(f"{found.path}/compare.csv", text.getvalue().encode())


def _timed(rows: Rows, spec: FitSpec, engine: Engine) -> tuple[Model, dict[str, Any]]:
    """A fit without its progress and warnings, since errors are measured here, and its cost."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        started = perf_counter()
        model = fit_rows(rows, spec, replace(engine, progress=Progress()))
    seconds, planned = perf_counter() - started, plan_fit(rows, spec, engine.threads).array_bytes / 1e6
    return model, {"seconds": seconds, "planned_mb": planned}


def _reference(rows: Rows, spec: FitSpec, largest: int, limit: int | None, engine: Engine) -> Reference:
    """Exact kernel PCA, or Nyström of twice the `largest` size if that is not feasible."""
    (n, d), note, length = rows.shape, engine.progress.note, dict[str, float]()
    if spec.needs_median:
        lengths = sample_lengths(rows, resolve(spec, rows), replace(engine, progress=Progress()))
        length = {"sigma": spec.length(lengths["median"].sigma)}
    exact, why = spec.model_copy(update={**length, "method": "exact"}), ""
    needed = plan_fit(rows, exact, engine.threads).peak_bytes
    if n > EXACT_MOST_ROWS and n * n * d > _MOST_WORK:
        why = f"products with the Gram matrix of {n:,} rows would take hours"
    elif limit is not None and needed > limit:
        why = f"an exact fit needs {needed / 1e6:.0f} MB, {limit / 1e6:.0f} MB are allowed"
    note(f"{why}: using a sampled reference" if why else "fitting the exact reference")
    chosen = spec.model_copy(update=length).at(min(2 * largest, _MOST_LANDMARKS, n)) if why else exact
    with shown_pass(engine.progress, "fitting the reference"):
        model, cost = _timed(rows, chosen, engine)
    numbers = random_stream(0, PROBES).choice(n, min(_COMPARED_ROWS, sample_rows(n, d, 0)), replace=False)
    X, known, values = read_rows(rows, np.sort(numbers), Engine()), model.certificate, model.solution.eigenvalues
    how = "the whole Gram matrix"
    if known.of_products:
        how = f"by products, residuals at most {known.residuals.max():.1g}"
    description = f"exact kernel PCA of {n:,} rows ({how})"
    if why:
        values = np.where(np.isnan(known.estimate), values, known.estimate)
        description = (
            f"a sampled reference, since {why}: Nyström with {chosen.size:,} landmarks, with the eigenvalues that its "
            f"certificate estimates; trust in its components: {counted(known.trust)}"
        )
    trials = [] if why else [Trial("exact", n, 0, **cost)]
    return Reference(values, _scores(model, X), X, description, length, trials, _pca_error(model, X, len(values)))


def _scores(model: Model, X: Array) -> Array:
    """Scores (m, r), float64, of rows X (m, d) in memory."""
    return score_rows(ArrayRows(X), model, Engine()).astype(np.float64)


def _fitted(
    rows: Rows, missing: Mapping[tuple[str, int, int], FitSpec], reference: Reference, count: int, engine: Engine
) -> Iterator[Trial]:
    """The fits that are missing, of `count` in all, compared with the reference."""
    for number, ((method, size, seed), spec) in enumerate(missing.items(), count - len(missing) + 1):
        with shown_pass(engine.progress, f"fitting {method}, size {size:,}"):
            model, cost = _timed(rows, spec.model_copy(update=reference.length), engine)
        Y, r = _scores(model, reference.rows), reference.scores.shape[1]
        with single_threaded_blas:
            # With fewer components, an exact direction is outside their span.
            cosine = measures.subspace_cosine(reference.scores, Y) if Y.shape[1] >= r else 0.0
            yield Trial(
                method,
                size,
                seed,
                **cost,
                unexplained=model.certificate.unexplained if model.certificate.proven else math.nan,
                eigenvalue_error=measures.eigenvalue_error(reference.eigenvalues, model.solution.eigenvalues),
                cosine=cosine,
                score_error=measures.score_error(reference.scores, Y),
                preimage_error=_preimage_error(model, reference.rows, Y),
            )
        engine.progress.note(f"{number} of {count}: {method}, size {size:,}, seed {seed}")


def _preimage_error(model: Model, X: Array, Y: Array) -> float:
    """The error of pre-images of some of the rows X (m, d), from their scores Y (m, r); NaN without pre-images."""
    numbers = some_held_out(len(X), _RECONSTRUCTED_ROWS)
    if model.decoder is None or not len(numbers):
        return math.nan
    restored = model.reconstructing(len(numbers))(Y[numbers].astype(model.features.dtype), None).rows
    lost = share_lost(model.features, X, numbers, restored)
    return math.nan if lost is None else lost


def _pca_error(model: Model, X: Array, r: int) -> float:
    """The same of linear PCA with r components of the other rows of X (m, d); NaN for rows that are not vectors or do
    not vary, and if there are too few others."""
    if not model.features.kernel.on_vectors or model.features.precomputed:
        return math.nan
    numbers = some_held_out(len(X), _RECONSTRUCTED_ROWS)
    with single_threaded_blas:
        restored = restored_by_pca(model.features, X, numbers, r)
    lost = None if restored is None else share_lost(model.features, X, numbers, restored)
    return math.nan if lost is None else lost


def _drawn(found: Comparison, data: str) -> str:
    """An SVG file of the errors of scores and eigenvalues against the time of the fit."""
    with figure_of(10, 5) as figure:
        for axes, error in zip(figure.subplots(1, 2), ("score_error", "eigenvalue_error"), strict=True):
            comparison(found, error, axes=axes).legend().remove()  # one for both follows
        figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=4)
        against = found.reference.partition(" (")[0].partition(", since")[0]
        figure.suptitle(f"{data}; errors against {against}", fontsize=11)
        return svg_of(figure, "compare", f"Error of the scores and of the eigenvalues against time. {found.advice}")
