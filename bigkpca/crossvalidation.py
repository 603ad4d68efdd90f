"""Settings chosen by how well pre-images restore held-out rows: sigma, components and the ridge of learned ways."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from bigkpca.blocks import Block, split
from bigkpca.choose import FOLDS, draw_sample, random_stream, sample_lengths
from bigkpca.decoding import learned, with_decoder
from bigkpca.engine import Engine, Progress, Silent, Task, shared, single_threaded_blas
from bigkpca.errors import Array, DataError, NarrowKernelWarning, SpecError
from bigkpca.fitting import fit_rows
from bigkpca.numerics.display import Summary, Told
from bigkpca.numerics.model import Model
from bigkpca.scoring import preimage_error
from bigkpca.sources import ArrayRows, Rows
from bigkpca.spec import FitSpec

MOST_ROWS = 6000
MOST_SCORED = 500  # of a fold: enough for a standard error of a percent, and iterations take their time
LENGTHS = (0.5, 0.71, 1.0, 1.41, 2.0)  # in median lengths
COMPONENTS = (10, 25, 50, 100, 200, 400)
RIDGES = (0.01, 0.1, 1.0, 10.0)


@dataclass(frozen=True)
class Setting:
    """What was tried, and the mean squared error of its pre-images of held-out rows, with its standard error over
    folds. ridge is None where nothing is learned."""

    sigma: float
    components: int
    ridge: float | None
    error: float
    standard_error: float


@dataclass(frozen=True, repr=False)
class CrossValidation(Told):
    """Every setting that was tried, in order of sigma, components and ridge; from `rows` sampled rows."""

    settings: tuple[Setting, ...]
    rows: int
    folds: int

    def summary(self) -> Summary:
        """How many settings there are, and the best of them."""
        return Summary(
            f"CrossValidation of {len(self.settings):,} settings, {self.folds} folds of {self.rows:,} rows",
            {"best": repr(self.best)},
        )

    @property
    def best(self) -> Setting:
        """The one of the smallest error."""
        return min(self.settings, key=lambda setting: setting.error)

    def curve(self) -> tuple[Setting, ...]:
        """For each sigma and number of components, the best ridge."""
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
    progress: Progress = Silent(),
    *,
    sigmas: Sequence[float] | None = None,
    components: Sequence[int] | None = None,
    folds: int = 3,
) -> CrossValidation:
    """Fit on all folds but one, score pre-images of 500 rows of that one, for every setting; on 6000 sampled rows.

    With `spec.noise` they are pre-images of rows with such noise added, against the rows themselves. sigmas are by
    default multiples of the median length, components those below the size. Raises SpecError for kernels without a
    length or a way back, and for fewer rows than folds. Passes: the sample.
    """
    _ = spec.distance  # which says so where a kernel has no length
    if sigmas is None:
        median = sample_lengths(rows, spec, engine, progress)["median"].sigma
        sigmas = [factor * median for factor in LENGTHS]
    X = draw_sample(rows, spec, engine, progress).sample
    rng = random_stream(spec.seed, FOLDS)
    X = X[rng.permutation(len(X))[:MOST_ROWS]]
    if len(X) < 2 * folds:
        raise SpecError(f"{rows.where} has {len(X)} rows: too few for {folds} folds")
    parts = split(len(X), -(-len(X) // folds))
    most = spec.feature_count(len(X) - len(parts[0]), X.shape[1])
    wanted = [r for r in components or COMPONENTS if r <= most] or [most]
    given = shared(X)
    tasks = [
        Task(
            _errors,
            (given, part, spec.model_copy(update={"sigma": sigma, "gamma": None, "components": max(wanted)}), wanted),
            len(X),
        )
        for sigma, part in product(sigmas, parts)
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NarrowKernelWarning)  # lengths that are too short lose by themselves
        found = iter(engine.each("cross-validating", tasks, progress))
    settings: list[Setting] = []
    for sigma in sigmas:
        errors = [next(found) for _ in parts]
        for r, ridge in errors[0]:
            each = np.array([fold[r, ridge] for fold in errors])
            spread = each.std(ddof=1) if np.isfinite(each).all() else np.inf
            settings.append(Setting(sigma, r, ridge, float(each.mean()), float(spread / np.sqrt(folds))))
    return CrossValidation(tuple(settings), len(X), folds)


def _errors(X: Array, part: Block, spec: FitSpec, components: list[int]) -> dict[tuple[int, float | None], float]:
    """The error of each number of components and ridge, fitted outside a part and scored inside.

    Numbers above the rank of a fit have the error of the rank: folds may differ in it. Where scores are too much alike
    to learn anything from, the error is infinite.
    """
    here = Engine(threads=1)
    train = ArrayRows(np.concatenate([X[: part.start], X[part.stop :]]))
    held_out = ArrayRows(X[part.start : part.stop][:MOST_SCORED])
    plain = spec.model_copy(update={"preimage": "linear"})
    model = fit_rows(train, plain, here, Silent())
    errors: dict[tuple[int, float | None], float] = {}
    for r in components:
        try:
            for ridge, model_r in _with_ways_back(model.leading(r), train, spec, here):
                errors[r, ridge] = preimage_error(model_r, held_out, spec.noise, here, Silent())
        except DataError:
            errors |= {(r, ridge): np.inf for ridge in RIDGES}
    return errors


def _with_ways_back(model: Model, train: Rows, spec: FitSpec, engine: Engine) -> Iterator[tuple[float | None, Model]]:
    assert isinstance(train, ArrayRows)
    if not spec.preimage_value.trained:
        yield None, with_decoder(model, train, train.values, spec, engine, Silent())
        return
    training, sums = learned(model, train, train.values, spec, engine, Silent())
    for ridge in RIDGES:
        with single_threaded_blas:
            yield ridge, replace(model, decoder=replace(training, ridge=ridge).decoder(sums))
