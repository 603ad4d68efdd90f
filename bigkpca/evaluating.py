"""The error of a model: from exact kernels of sampled rows, from pre-images, and from cross-validation."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from itertools import pairwise, product
from typing import Any

import numpy as np

from bigkpca.data.blocks import Block, sample_rows, tile_rows
from bigkpca.data.rows import ArrayRows, Rows, tiles
from bigkpca.errors import (
    Array,
    DataError,
    DominantVariableWarning,
    FewerComponentsWarning,
    NarrowKernelWarning,
    SpecError,
)
from bigkpca.execution.blas import single_threaded_blas
from bigkpca.execution.engine import Engine, sum_by_block
from bigkpca.execution.passes import block_evaluation, read_rows
from bigkpca.execution.plan import Plan, check_arrays, check_plans, plan_evaluate, plan_fit, sample_bytes
from bigkpca.execution.projection import check_columns, prepare_preimages
from bigkpca.execution.tasks import Carried, Task
from bigkpca.fitting.fit import fit_rows
from bigkpca.fitting.others import Judged, judged_without
from bigkpca.fitting.preimage import train_preimage, with_decoder
from bigkpca.fitting.sample import draw_sample, sample_lengths, scale_of
from bigkpca.numerics import evaluation
from bigkpca.numerics.display import ShowsSummary, Summary
from bigkpca.numerics.evaluation import Evaluation
from bigkpca.numerics.features import shifted_rows
from bigkpca.numerics.linalg import rank_tolerance
from bigkpca.numerics.linear_pca import (
    MOST_RESTORED,
    MOST_VALUES,
    Captured,
    LinearPCA,
    Lost,
    Reconstruction,
    captured,
    held_out_rows,
    reconstruction,
    some_held_out,
    spread,
)
from bigkpca.numerics.model import Model
from bigkpca.numerics.moments import OneHot, column_moments
from bigkpca.numerics.preimages import Noise, iteration_bytes
from bigkpca.numerics.random_streams import FOLDS, PROBES, SCORING, random_stream
from bigkpca.spec import EXACT_MOST_ROWS, FitSpec, resolve

_REMEDY = "ask for a smaller --sample, or fit a model with fewer landmarks"
_POOL_FACTOR = 8  # rows read for each row that is compared with all rows


def evaluate_rows(
    model: Model, rows: Rows, sample: int, seed: int, engine: Engine, limit: int | None = None
) -> Evaluation:
    """Estimate the error of a model from `sample` exact rows.

    Reads eight times as many rows, draws the sample from them, and makes one pass over all rows.

    Raises SpecError for rows of the wrong width, a sample larger than the data, models of precomputed kernels, and
    models that keep more than 8192 rows (the last two have residuals in their certificates). Raises MemoryLimitError,
    before anything is read, if the plan needs more than `limit` bytes in a process or than workers may use.
    """
    check_columns(rows, model)
    spec = FitSpec.of(model)
    if spec.precomputed:
        raise SpecError(
            f"evaluate needs rows, but {rows.where} is a kernel matrix: see the residual of every component in the "
            "certificate of the model"
        )
    n = rows.shape[0]
    if not 1 < sample <= n:
        raise SpecError(f"sample={sample}: {rows.where} has {n} rows; sample between 2 and all of them")
    features = model.features
    if model.method.landmarks and features.size > EXACT_MOST_ROWS:
        raise SpecError(
            f"evaluate holds the Gram matrix of at most {EXACT_MOST_ROWS} landmarks, but this model keeps "
            f"{features.size} rows: see the residual of every component in its certificate"
        )
    rng, center = random_stream(seed, PROBES), spec.center
    pooled = min(_POOL_FACTOR * sample, sample_rows(n, rows.shape[1], sample))

    def plan(threads: int) -> Plan:
        return plan_evaluate(rows, model, sample, pooled, threads, engine.device)

    check_plans(plan, engine, limit, _REMEDY)
    pooled_numbers = np.sort(rng.choice(n, pooled, replace=False))
    X = read_rows(rows, pooled_numbers, engine)
    with single_threaded_blas, np.errstate(over="ignore", invalid="ignore"):
        P = model.factor(rank_tolerance(features.dtype))
        height = tile_rows(model.columns, features.size, 8)
        tiles_of_pool = (X[start : start + height] for start in range(0, len(X), height))
        pool = evaluation.pool(features, model.solution, tiles_of_pool, P, min(height, len(X)))
        sizes = evaluation.sizes(pool, center=center)
        numbers, drawn = evaluation.draw(sizes, sample, n, rng)
        given = evaluation.probes(features, model.solution, X[numbers], P, drawn)
        some = spread(len(X), max(1, MOST_VALUES // model.columns))
        found, lost = _judged(model, X[some], pool.Y[some], pooled_numbers[some], rows, engine)
    sums = sum_by_block("evaluating", block_evaluation, rows, (engine.placed(model), given), model.block_rows, engine)
    result = evaluation.evaluation(sums, given, P, center=center)
    return replace(result, captured=found, lost=lost)


def _judged(
    model: Model, X: Array, Y: Array, numbers: Array, rows: Rows, engine: Engine
) -> tuple[Captured | None, Lost | None]:
    """What scores Y (m, r) capture of sampled rows X (m, d), and what pre-images lose of them, beside linear PCA.

    If these are the rows of the fit, with these numbers, the rows that are judged are left out of kernel PCA, too.
    """
    own, judged, spec = fitted_to(model, rows.fingerprint), held_out_rows(len(X)), FitSpec.of(model)
    of_scores = of_preimages = Judged(model, Y, own)
    if own:
        kept = numbers if spec.exact or spec.refine else None
        with engine.small_work() as in_order:
            of_scores, of_preimages = judged_without(of_scores, X, judged, kept, spec, in_order)
    found = captured(model.features, X, of_scores.scores, seen=of_scores.seen)
    if found is None:
        return None, None
    restored = reconstructed(of_preimages.model, X, of_preimages.scores, seen=of_preimages.seen)
    return found, None if restored is None else restored.lost


def fitted_to(model: Model, fingerprint: Callable[[], dict[str, Any]]) -> bool | None:
    """True if a model was fitted to the rows with this fingerprint; None if that is not known, since other files may
    have the same rows."""
    own = model.provenance.get("identity", {}).get("stamp")
    return True if own is not None and fingerprint()["stamp"] == own else None


_LEAST_RESTORED = 8  # rows whose pre-images are compared with linear PCA
_RESTORED_PRODUCTS = 1_000_000_000  # rows x features x columns


def reconstructed(model: Model, X: Array, Y: Array, *, seen: bool | None = True) -> Reconstruction | None:
    """Up to 500 of the held-out rows of X (m, d), from their scores Y (m, s), s >= r, beside linear PCA of the others.

    None for models without pre-images, and for rows that do not vary.
    """
    if model.decoder is None:
        return None
    numbers = some_held_out(len(X), _most_restored(model.features.size, model.columns))
    if not len(numbers):
        return None
    restored = model.reconstructing(len(numbers))(Y[numbers, : model.components], None).rows
    return reconstruction(model.features, X, numbers, restored, model.components, seen=seen)


def _most_restored(size: int, columns: int) -> int:
    """The largest number of rows that are restored."""
    return max(_LEAST_RESTORED, min(MOST_RESTORED, _RESTORED_PRODUCTS // (size * columns)))


def preimage_error(
    model: Model,
    rows: Rows,
    noise: float | None,
    engine: Engine,
    units: Array | None = None,
) -> float:
    """Mean over all entries of (x - x^)², where x^ is the pre-image of the scores of x, in one pass.

    Entries are divided by `units` (d,), by default the scale of the model: in standard deviations of the columns if it
    standardises, and times their weights. With `noise`, a standard deviation in the units of the data, x^ is the
    pre-image of x plus noise, where the noise is a function of the row number, and iterations start at the noisy row.
    Raises SpecError for models without pre-images.
    """
    prepare_preimages(model)
    added = None if noise is None else _noise(noise)
    given = model, added, model.features.scale if units is None else units
    total, count = sum_by_block("scoring", _squared_error, rows, given, model.block_rows, engine)
    return float(total / count)


def _noise(deviation: float) -> Noise:
    """The noise of a score, the same for each model."""
    return Noise(deviation, np.random.SeedSequence(0, spawn_key=(SCORING,)).generate_state(2, np.uint64), 1)


def _squared_error(rows: Rows, block: Block, model: Model, noise: Noise | None, units: Array | None) -> Array:
    """Sum of the squared errors of the entries of one block, and the number of entries, (2,)."""
    height = tile_rows(model.columns, model.features.size, 8)
    most_rows = min(height, len(block))
    errors = np.empty((most_rows, model.columns))
    decode = model.reconstructing(most_rows)
    total, first = 0.0, block.start
    for X in tiles(rows, block.start, block.stop, height):
        given = X if noise is None else noise.added(X, first, 0)
        (Y,) = model.project([given], most_rows)
        found = decode(Y, None if noise is None else given)
        shifted_rows(X.astype(np.float64), found.rows, units, errors[: len(X)])
        total += float(np.sum(errors[: len(X)] ** 2))
        first += len(X)
    return np.array([total, len(block) * model.columns])


MAX_ROWS = 6000
MAX_SCORED_ROWS = 500  # per fold: enough for a standard error of one percent; iterative pre-images are slow
LENGTHS = (0.5, 0.71, 1.0, 1.41, 2.0)  # sigmas to try, in units of the median length
COMPONENTS = (10, 25, 50, 100, 200, 400)
RIDGES = (0.01, 0.1, 1.0, 10.0)


@dataclass(frozen=True)
class Setting:
    """One combination of parameters, with the mean squared error of its pre-images of held-out rows.

    Attributes
    ----------
    sigma : float
        Length of the kernel, in the units of the columns.
    components : int
        Number of components.
    ridge : float or None
        None for pre-images without a ridge.
    error, standard_error : float
        Mean over folds, and its standard error, in the squared units of the columns.
    """

    sigma: float
    components: int
    ridge: float | None
    error: float
    standard_error: float


@dataclass(frozen=True)
class PCASetting:
    """Linear PCA with this number of components, with the mean squared error of its reconstruction of held-out rows.

    Attributes
    ----------
    components : int
        Number of components.
    error, standard_error : float
        As in `Setting`, of the same rows.
    """

    components: int
    error: float
    standard_error: float


@dataclass(frozen=True, repr=False)
class CrossValidation(ShowsSummary):
    """Result of a cross-validation.

    Attributes
    ----------
    settings : tuple of Setting
        All settings that were tried, in order of sigma, components and ridge.
    rows, folds : int
        Number of sampled rows, and number of parts that they were split into.
    size : int
        Number of landmarks of each fit, or fewer if there were fewer rows.
    standardized : bool
        Whether errors are in standard deviations of each column, rather than in the units of the data.
    weighted : bool
        Whether errors of columns are multiplied by their weights.
    pca : tuple of PCASetting
        Linear PCA with each number of components, fitted to and scored on the same rows.
    """

    settings: tuple[Setting, ...]
    rows: int
    folds: int
    size: int
    standardized: bool
    weighted: bool = False
    pca: tuple[PCASetting, ...] = ()

    def summary(self) -> Summary:
        """The number of settings, the best setting, and linear PCA with as many components; the best settings."""
        of_pca = {f"PCA of {one.components}": repr(one) for one in self.pca if one.components == self.best.components}
        ranked = sorted(self.curve(), key=lambda one: one.error)
        return Summary(
            f"CrossValidation of {len(self.settings):,} settings, {self.folds} folds of {self.rows:,} rows",
            {"best": repr(self.best)} | of_pca,
            {part.name: [getattr(one, part.name) for one in ranked] for part in fields(Setting)},
            ("rank", [str(j + 1) for j in range(len(ranked))]),
        )

    @property
    def pca_note(self) -> str | None:
        """The numbers of components with which linear PCA has a smaller error than every setting; None if none."""
        least = {one.components: math.inf for one in self.pca}
        for setting in self.settings:
            if setting.components in least:
                least[setting.components] = min(least[setting.components], setting.error)
        better = [
            f"{one.components} ({one.error:.5g}, the best setting {least[one.components]:.5g})"
            for one in self.pca
            if one.error < least[one.components]
        ]
        if not better:
            return None
        return f"linear PCA is better than every setting with as many components: {', '.join(better)}"

    @property
    def best(self) -> Setting:
        """The setting with the smallest error."""
        return min(self.settings, key=lambda setting: setting.error)

    @property
    def edge_notes(self) -> tuple[str, ...]:
        """A note for each parameter whose best value is the smallest or largest of several tried values."""
        found, best = [], self.best
        for name, less, more, value in (
            ("sigma", "shorter ones", "longer ones", best.sigma),
            ("number of components", "fewer", "more", best.components),
            ("ridge", "smaller ones", "larger ones", best.ridge),
        ):
            tried = sorted({getattr(one, name.rpartition(" ")[2]) for one in self.settings})
            if value is not None and len(tried) > 1 and value in (tried[0], tried[-1]):
                end, beyond = ("smallest", less) if value == tried[0] else ("largest", more)
                found.append(f"the best {name} is the {end} that was tried: {beyond} could be better still")
        return tuple(found)

    def curve(self) -> tuple[Setting, ...]:
        """The setting with the best ridge for each sigma and number of components."""
        best: dict[tuple[float, int], Setting] = {}
        for setting in self.settings:
            key = setting.sigma, setting.components
            if key not in best or setting.error < best[key].error:
                best[key] = setting
        return tuple(best.values())


def cross_validate(
    rows: Rows,
    spec: FitSpec,
    engine: Engine,
    *,
    sigmas: Sequence[float] | None = None,
    n_components: Sequence[int] | None = None,
    folds: int = 3,
    limit: int | None = None,
) -> CrossValidation:
    """Cross-validate sigma, components and ridge by the error of pre-images, on at most 6000 sampled rows.

    Each setting is fitted on all folds but one, and scored on up to 500 rows of that one. By default, `sigmas` are
    multiples of the median length, rounded to six digits, and `n_components` are values of a fixed list up to the size.
    With `spec.noise`, pre-images of noisy rows are compared with the rows themselves; with `spec.standardize` and
    weights, errors are those of the standardised and weighted columns. Passes: the sample.

    Raises SpecError for kernels without a length or pre-images, for fewer than two folds or two rows per fold, and for
    more components than a fit can have. Raises MemoryLimitError if the plan needs more than `limit` bytes in a process,
    or than workers allow.
    """
    if folds < 2:
        raise SpecError(f"folds={folds}: give 2 or more, since each part of the rows is scored by a fit of the others")
    _ = spec.distance  # raises SpecError for a kernel without a length
    spec = spec.for_rows(rows)
    asked = spec.model_copy(update={"n_components": max(n_components or COMPONENTS)})
    check_arrays(partial(_array_bytes, rows, asked, folds), engine, limit, "ask for a smaller --size")
    fit = resolve(spec, rows)
    if sigmas is None:
        median = sample_lengths(rows, fit, engine)["median"].sigma
        sigmas = [float(f"{factor * median:.6g}") for factor in LENGTHS]
    X = draw_sample(rows, fit, engine).sample
    X = X[random_stream(spec.random_state, FOLDS).permutation(len(X))[:MAX_ROWS]]
    if len(X) < 2 * folds:
        raise SpecError(f"{rows.where} has {len(X)} rows: too few for {folds} folds")
    pieces = np.array_split(np.arange(len(X)), folds)
    parts = [Block(number, int(piece[0]), int(piece[-1]) + 1) for number, piece in enumerate(pieces)]
    train = X[len(parts[0]) :]  # the smallest training set
    most = resolve(asked, ArrayRows(train)).size
    counts = [r for r in COMPONENTS if r <= most] or [most]
    if n_components is not None:
        counts = list(n_components)
        if max(counts) > most:
            raise SpecError(
                f"n_components={max(counts)}: fits of {len(train)} rows with {most} landmarks have at most {most} "
                "components; use fewer components, or a larger size"
            )
    tasks = _tasks(ArrayRows(X, one_hot=rows.one_hot), parts, sigmas, counts, asked)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NarrowKernelWarning)  # a sigma that is too short has a large error anyway
        warnings.simplefilter("ignore", DominantVariableWarning)  # as for every sigma
        warnings.simplefilter("ignore", FewerComponentsWarning)  # the fit already has fewer components
        title = f"cross-validating, {len(sigmas) * folds} fits"
        errors = iter(engine.each(title, tasks))
    settings: list[Setting] = []
    for sigma in sigmas:
        of_folds = [next(errors) for _ in parts]
        settings += [Setting(sigma, r, ridge, *_mean_of(of_folds, (r, ridge))) for r, ridge in of_folds[0]]
    of_folds = [next(errors) for _ in parts]
    pca = tuple(PCASetting(r, *_mean_of(of_folds, r)) for r in of_folds[0])
    weighted = spec.column_weights is not None
    return CrossValidation(tuple(settings), len(X), folds, resolve(asked, rows).size, spec.standardize, weighted, pca)


def _mean_of(of_folds: Sequence[dict[Any, float]], key: Any) -> tuple[float, float]:
    """The mean error over folds, and its standard error."""
    each = np.array([errors[key] for errors in of_folds])
    deviation = each.std(ddof=1) if np.isfinite(each).all() else np.inf
    return float(each.mean()), float(deviation / np.sqrt(len(each)))


def _tasks(
    X: ArrayRows, parts: Sequence[Block], sigmas: Sequence[float], counts: list[int], spec: FitSpec
) -> list[Task]:
    """One task for each sigma and held-out part, and one of linear PCA for each part; together they report n rows of
    progress."""
    units = Carried(scale_of(X, spec, column_moments(X.values) if spec.standardize else None))
    rows, n = Carried(X.values), len(X.values)
    fits = list(product(sigmas, parts))
    done = np.linspace(0, n, len(fits) + len(parts) + 1).astype(int).tolist()
    progress = [stop - start for start, stop in pairwise(done)]
    specs = {
        sigma: spec.model_copy(update={"sigma": sigma, "gamma": None, "n_components": max(counts)}) for sigma in sigmas
    }
    return [
        *(
            Task(
                _fold_errors, (rows, X.one_hot, part, units, specs[sigma], counts), size, f"the fit of sigma {sigma:g}"
            )
            for (sigma, part), size in zip(fits, progress[: len(fits)], strict=True)
        ),
        *(
            Task(_pca_errors, (rows, part, units, spec.noise, counts), size, "linear PCA")
            for part, size in zip(parts, progress[len(fits) :], strict=True)
        ),
    ]


def _array_bytes(rows: Rows, spec: FitSpec, folds: int, threads: int) -> int:
    """Arrays of a process: the sample and, in each thread, a fit with the pre-images of a tile."""
    d = rows.shape[1]
    m = min(MAX_ROWS, sample_rows(*rows.shape, 0))
    train = ArrayRows(np.broadcast_to(np.zeros(1, rows.dtype), (m - m // folds, d)))
    fit = plan_fit(train, spec, 1)
    tile = iteration_bytes(fit.size, d, min(MAX_SCORED_ROWS, tile_rows(d, fit.size, 8)))
    drawn = m * d * rows.dtype.itemsize
    one = fit.array_bytes + tile + drawn + fit.result_bytes
    pca = 8 * (3 * train.values.size + 4 * min(train.shape) ** 2)
    return max(sample_bytes(rows, resolve(spec, rows), threads), 2 * drawn + threads * max(one, pca))


def _split(X: Array, part: Block) -> tuple[Array, Array]:
    """The rows outside one part of X, and up to 500 rows inside it."""
    return np.concatenate([X[: part.start], X[part.stop :]]), X[part.start : part.stop][:MAX_SCORED_ROWS]


def _pca_errors(
    X: Array, part: Block, units: Array | None, noise: float | None, components: list[int]
) -> dict[int, float]:
    """The error of linear PCA for each number of components, of the rows and with the noise of `_fold_errors`."""
    scale = 1.0 if units is None else units
    train, held_out = _split(X, part)
    given = held_out if noise is None else _noise(noise).added(held_out, 0, 0)
    with single_threaded_blas:
        pca = LinearPCA.of(train / scale, max(components))
        restored = {r: pca.leading(r).reconstruct(given / scale) for r in components}
    return {r: float(np.mean((held_out / scale - found) ** 2)) for r, found in restored.items()}


def _fold_errors(
    X: Array, one_hot: tuple[OneHot, ...], part: Block, units: Array | None, spec: FitSpec, components: list[int]
) -> dict[tuple[int, float | None], float]:
    """The error for each number of components (above the rank of a fit, that at the rank) and ridge, fitted outside one
    part of X and scored inside it; infinite if the scores are too similar to train a pre-image on."""
    here = Engine(threads=1)
    train, held_out = (ArrayRows(each, one_hot=one_hot) for each in _split(X, part))
    plain = spec.model_copy(update={"preimage": "linear"})
    model = fit_rows(train, plain, here)
    errors: dict[tuple[int, float | None], float] = {}
    ridges = RIDGES if spec.preimage_value.trained else (None,)

    def score(r: int, ridge: float | None, decoding: Model) -> None:
        errors[r, ridge] = preimage_error(decoding, held_out, spec.noise, here, units)

    for r in components:
        try:
            leading = model.leading(r)
            if not spec.preimage_value.trained:
                score(r, None, with_decoder(leading, train, train.values, spec, here))
                continue
            training, sums = train_preimage(leading, train, train.values, spec, here)
            for ridge in RIDGES:
                with single_threaded_blas:
                    decoder = replace(training, ridge=ridge).decoder(sums)
                score(r, ridge, replace(leading, decoder=decoder))
        except DataError:
            errors |= {(r, ridge): np.inf for ridge in ridges}
    return errors
