"""Models with the same features fitted to different rows: fit such models, add rows, and merge them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from functools import reduce
from typing import Any

import numpy as np

from bigkpca.data.devices import CPU
from bigkpca.data.rows import ArrayRows, Rows, identity_of
from bigkpca.errors import FarRowsWarning, SpecError, warn
from bigkpca.execution.blas import single_threaded_blas
from bigkpca.execution.engine import Engine
from bigkpca.execution.passes import BlockSums, read_rows, read_sets, sums_of
from bigkpca.execution.projection import check_columns
from bigkpca.fitting.calibration import (
    calibrated,
    calibration_rows_with,
    joint_calibration_rows,
    without_calibration,
)
from bigkpca.fitting.features import ChosenFeatures, kept_choices
from bigkpca.fitting.fit import of_devices
from bigkpca.fitting.memory_limits import check_fits, make_room
from bigkpca.fitting.preimage import extend_decoder, with_decoder
from bigkpca.fitting.sample import FEW_ROWS, drawn_numbers, weights_of
from bigkpca.fitting.solve import draw_of, measure_like, rounding_of, solve, solve_rows, span_basis
from bigkpca.fitting.warnings import (
    far_from_landmarks,
    warn_if_beyond_tolerance,
    warn_if_fewer,
    warn_if_not_uniform,
    warn_of,
)
from bigkpca.numerics import eigenpairs, precision
from bigkpca.numerics.calibration import Calibration
from bigkpca.numerics.kernels import Kernel
from bigkpca.numerics.model import Model, Provenance
from bigkpca.numerics.preimages.base import spread
from bigkpca.numerics.random_streams import FEW, PROBES, SAMPLE
from bigkpca.spec import FitSpec, ResolvedFit, randomized, resolve, resolve_shape

MAY_CHANGE = ("noise",)  # fields of a spec that may differ where features stay
NO_SUMS = (
    "a model of the exact method, of products with the Gram matrix, or of the randomized solver cannot take more rows: "
    "fit it again on all of them, or use nystroem"
)


def spec_like(model: Model, options: Mapping[str, Any]) -> FitSpec:
    """The spec of a model, with those options (fields of a FitSpec) that differ from the defaults. Raises SpecError if
    the model has no sums, and for options that its features do not allow."""
    if model.sums is None:
        raise SpecError(NO_SUMS)
    before, defaults = FitSpec.of(model), FitSpec()
    given = {}
    for name, value in options.items():
        default = getattr(defaults, name)
        if type(value) is not type(default) or not np.all(value == default):
            given[name] = value
    spec = FitSpec.checked(**{name: getattr(before, name) for name in FitSpec.model_fields} | given)
    check_same_problem(spec, model)
    return spec


def check_same_problem(spec: FitSpec, model: Model, may_change: Collection[str] = MAY_CHANGE) -> None:
    """Raise SpecError, naming the field, if the spec changes a field that must stay the same when the features stay."""
    before = FitSpec.of(model)
    now, then = spec.to_dict(), before.to_dict()
    if "column_weights" in now and _weights(spec, model) == _weights(before, model):  # which may be typed in other ways
        now["column_weights"] = then.get("column_weights")
    functions = isinstance(spec.kernel, Kernel) and not spec.kernel.savable  # to_dict does not distinguish functions
    changed = [key for key in type(spec).model_fields if now.get(key) != then.get(key) and key not in may_change]
    if functions and spec.kernel != before.kernel:
        changed = ["kernel", *changed]
    if changed:
        key = changed[0]
        raise SpecError(
            f"{key}={getattr(spec, key)!r}, but the model was fitted with {getattr(before, key)!r}, which must not "
            "change: set it back, or fit again on all rows"
        )


def _weights(spec: FitSpec, model: Model) -> Any:
    """One weight for each column of a model, or the weights as typed if it has no names of columns."""
    if model.names is None or spec.column_weights is None:
        return spec.column_weights
    columns = ArrayRows(np.empty((0, model.columns)), names=model.names, one_hot=model.one_hot, where="the model")
    return spec.for_rows(columns).column_weights


def fit_like(
    rows: Rows,
    like: Model,
    spec: FitSpec,
    engine: Engine,
    limit: int | None,
    identity: dict[str, Any] | None = None,
) -> Model:
    """Fit rows with the kernel, landmarks or frequencies, offset and scale of `like`; `spec` is that of `spec_like`.

    Reads a small sample of the rows, from which the certificate comes, and makes one pass; the pre-image is made as in
    a fit. The sums of the pass are about the same vector as those of `like`, so they add up to those of a fit of all
    rows.

    Raises SpecError for rows of another width or other columns, MemoryLimitError before anything is read, RoundingError
    if the sums are impossible for real rows. Warns as a fit does, but not of a narrow kernel.
    """
    assert like.sums is not None
    check_columns(rows, like)
    identity = identity or identity_of(rows, stamped=False)
    rows, apart = without_calibration(rows, spec, engine)
    fit = replace(resolve_shape(spec, *rows.shape, rows.dtype), apart=apart)
    fit = fit.with_features(like.features.size, like.features.dtype)
    check_fits(rows, fit, engine, limit)
    make_room(engine.kept, rows, fit, limit)
    with single_threaded_blas, np.errstate(over="ignore", invalid="ignore"):  # the pass names rows that overflow
        chosen = _chosen(rows, like, fit, engine)
        _, found = solve_rows(rows, chosen, fit, engine)
    warn_of(found, like.features, "fit the first model with dtype='float64', or ")
    warn_if_beyond_tolerance(found, spec)
    warn_if_not_uniform(spec)
    kept = [
        {**choice, "reason": f"as in the first model: {choice['reason'].removeprefix('as in the first model: ')}"}
        for choice in kept_choices(like)
    ]
    provenance: Provenance = {
        "spec": like.provenance["spec"] | {key: getattr(spec, key) for key in MAY_CHANGE},
        "identity": identity,
        "content": found.digest,
        "choices": [*kept, *found.choices],
        **columns_of(like),
        **of_devices(engine.devices or [CPU]),
    }
    model = found.model(like.features, provenance)
    warn_if_fewer(model, fit, engine.progress)
    model = with_decoder(model, chosen.sample, spec, found.span)
    return calibrated(model, chosen.apart, chosen.weight, engine) if spec.calibration_rows else model


def columns_of(model: Model) -> Provenance:
    """What a model records about its columns."""
    found: Provenance = {}
    for key in ("column_names", "one_hot"):
        if key in model.provenance:
            found[key] = model.provenance[key]
    return found


def _chosen(rows: Rows, like: Model, fit: ResolvedFit, engine: Engine) -> ChosenFeatures:
    """The features of a model, with the rows that their error on these rows is measured on."""
    assert like.sums is not None
    features, spec = like.features, fit.spec
    few, weight = drawn_numbers(rows, FEW_ROWS, spec.random_state, FEW, engine)
    sample = np.empty(0, np.intp)
    if spec.keeps_sample:
        drawn = np.sort(drawn_numbers(rows, fit.sample, spec.random_state, SAMPLE, engine).numbers)
        sample = spread(drawn, spec.preimage_rows(fit.sample))
    found_few, found_sample, apart = read_sets(rows, engine, few, sample, fit.apart)
    return ChosenFeatures(
        features,
        like.sums.about,
        (),
        found_sample if spec.keeps_sample else None,
        found_few,
        weights_of(rows, few),
        apart,
        weight,
        like.drawn,
    )


def merge(models: Iterable[Model], engine: Engine) -> Model:
    """The model of the rows of all `models` (at least two, with the same features). Reads no rows.

    Sums are added pairwise, like those of blocks in a pass: ((a + b) + (c + d)) + ... If the sums of all models are
    about one vector c (see `fit_like`), the result equals the sums of a fit of all rows: to the bit if every model but
    the last has the same number of blocks, a power of two, and blocks have the same number of rows; otherwise up to
    rounding. Options, column names, pre-image and signs follow the first model. Models are read one at a time.

    Raises SpecError for fewer than two models, and for models without sums, with different features, or of the same
    rows. Warns as a fit does, and UniformLandmarksWarning.
    """
    first: Model | None = None
    weights: list[tuple[float, Calibration | None]] = []
    devices: list[str] = []  # that computed the models
    added: list[dict[str, Any]] = []  # identities of all rows, in the form that `partial_fit` records
    numbers: dict[str, int] = {}  # numbers of the models, by the digests of their rows
    nodes: list[tuple[int, BlockSums]] = []  # of the binary tree of sums, levels descending: at most log2
    for number, model in enumerate(models, 1):
        if first is None:
            first = model
        _check_same_features(first, model, number)
        assert model.sums is not None
        found = model.provenance
        own = [{**found.get("identity", {}), "sha256": found.get("content")}, *found.get("added", [])]
        digests = [each["sha256"] for each in own if each.get("sha256") is not None]
        for digest in digests:
            if digest in numbers:
                raise SpecError(
                    f"model {number} has the same rows as model {numbers[digest]}, which would count twice: leave one "
                    "of them out"
                )
        numbers.update(dict.fromkeys(digests, number))
        added += own
        devices += _devices(model)
        weights.append((model.sums.weight, model.calibration))
        level, value = 0, BlockSums(model.sums, (), model.drawn)
        while nodes and nodes[-1][0] == level:
            value = nodes.pop()[1] + value
            level += 1
        nodes.append((level, value))
    if first is None or len(weights) < 2:
        raise SpecError(f"{len(weights)} models were given: merging needs at least two")
    joined = reduce(lambda right, left: left + right, (value for _, value in reversed(nodes)))
    spec = FitSpec.of(first)
    merged = _with_sums(first, joined, spec, added[1:], devices, first.provenance["spec"])
    apart = joint_calibration_rows(weights, spec.random_state)
    return merged if apart is None else calibrated(merged, apart, joined.sums.weight, engine)


def _with_sums(
    model: Model,
    joined: BlockSums,
    spec: FitSpec,
    added: list[dict[str, Any]],
    devices: list[str],
    recorded: dict[str, Any],
) -> Model:
    """A model with the same features and signs but other sums and drawn rows, `added` rows, the `devices` that computed
    and the `recorded` spec."""
    features, drawn = model.features, joined.drawn
    assert drawn is not None  # a pass draws some
    with single_threaded_blas, np.errstate(over="ignore", invalid="ignore"):
        few = drawn.X[: precision.MEASURED_ROWS]
        found = solve(joined.sums, features, spec, drawn, span_basis(features), few)
        solution = eigenpairs.aligned(found.solution, model.solution, features.gram())
    found = replace(found, solution=solution, span=None)
    warn_if_beyond_tolerance(found, spec)
    warn_of(found, features)
    warn_if_not_uniform(spec)
    changed: Provenance = {"added": added, "choices": [*kept_choices(model), *found.choices], **of_devices(devices)}
    larger = found.model(features, {**model.provenance, **changed, "spec": recorded})
    return extend_decoder(larger, model, spec)


def _devices(model: Model) -> list[str]:
    """The devices that computed a model."""
    return model.provenance.get("devices", [CPU])


def _check_same_features(first: Model, model: Model, number: int) -> None:
    """Raise SpecError unless model `number`, counted from 1, has sums of the features of the first."""
    if model.sums is None:
        raise SpecError(f"model {number}: {NO_SUMS}")
    ours, theirs = first.features, model.features
    one, other = ours.arrays(), theirs.arrays()
    same = (
        ours.parameters() == theirs.parameters()
        and ours.kernel == theirs.kernel
        and one.keys() == other.keys()
        and all(one[name].dtype == other[name].dtype and np.array_equal(one[name], other[name]) for name in one)
    )
    if not same:
        raise SpecError(
            f"model {number} has different features from the first one (kernel, landmarks or frequencies, offset, "
            "scale or precision), so they do not add up: fit it with like= (--like) set to the first one"
        )
    if first.names != model.names:
        raise SpecError(f"model {number} has different column names from the first one")
    spec, other_spec = FitSpec.of(first), FitSpec.of(model)
    for name in ("method", "center", "n_components"):
        if getattr(spec, name) != getattr(other_spec, name):
            raise SpecError(
                f"model {number} was fitted with {name}={getattr(other_spec, name)!r}, the first one with "
                f"{getattr(spec, name)!r}: fit it again with the same value"
            )


_MAY_CHANGE = ("n_components", "noise")


def check_supports_partial_fit(spec: FitSpec) -> None:
    """Raise SpecError if no rows can be added to any model of this spec."""
    sketched = spec.solver == "randomized" or (isinstance(spec.size, int) and randomized(spec, spec.size))
    if spec.exact or spec.refine or sketched:
        raise SpecError(NO_SUMS)


_LEAST_ROWS = 5  # of a first batch, for each landmark


def of_first_batch(spec: FitSpec, rows: Rows) -> FitSpec:
    """The spec of a first batch to which other rows are added: an open number of landmarks is at most a fifth of it.
    Raises SpecError if it has fewer than five rows for each landmark, or component, that was asked for."""
    n = rows.shape[0]
    if not spec.method_value.landmarks or spec.own_landmarks is not None or spec.tol is not None:
        return spec
    asked = spec.size if isinstance(spec.size, int) else spec.n_components
    if isinstance(asked, int) and n < _LEAST_ROWS * asked:
        raise SpecError(
            f"the first batch has {n:,} rows, too few to choose {asked:,} landmarks that also suit later rows: give it "
            f"at least {_LEAST_ROWS * asked:,} rows, or use a smaller size and n_components"
        )
    return spec if isinstance(spec.size, int) else spec.at(min(resolve(spec, rows).size, max(n // _LEAST_ROWS, 1)))


def extend(model: Model, rows: Rows, spec: FitSpec, engine: Engine, limit: int | None = None) -> Model:
    """Add rows to a model: a bounded sample of the new rows, one pass over them, added moments, and a new solution.

    Kernel, landmarks, frequencies, offset and scale stay the same; the signs of components follow the old model.
    `n_components` and `noise` of `spec` may differ from those of the fit, and are recorded in the new model.

    Raises SpecError if other fields differ, and for models without moments (exact ones and those of the randomized
    solver); MemoryLimitError as in a fit with `limit`; RoundingError if the sums are impossible for
    real rows. Warns IndefiniteKernelWarning and RoundingWarning as a fit does, UniformLandmarksWarning, and
    FarRowsWarning.
    """
    if model.sums is None or model.drawn is None:
        raise SpecError(NO_SUMS)
    check_columns(rows, model)
    check_same_problem(spec, model, _MAY_CHANGE)
    fit = resolve_shape(spec, *rows.shape, rows.dtype)
    check_fits(rows, fit, engine, limit)
    identity = identity_of(rows, stamped=False)
    rows, apart = calibration_rows_with(model, rows, fit.spec.random_state, engine, last=spec.calibration == "last")
    features, seed = model.features, fit.spec.random_state
    numbers, weight = drawn_numbers(rows, precision.MEASURED_ROWS, seed, PROBES, engine)
    few = read_rows(rows, np.sort(numbers), engine)[np.argsort(np.argsort(numbers))]
    with single_threaded_blas, np.errstate(over="ignore", invalid="ignore"):
        measure = measure_like(features, model.drawn)
        rounding = rounding_of(features, few, model.sums.about, engine)
        draw = draw_of(features, measure, few, weights_of(rows, numbers), weight, fit)
        draw = replace(draw, before=model.drawn.count)
        far = far_from_landmarks(model, measure, few, rows.where)
    more = sums_of(rows, features, model.sums.about, rounding, model.block_rows, engine, draw=draw)
    if far is not None:
        warn(far, FarRowsWarning)
    added = [*model.provenance.get("added", []), identity | {"sha256": more.content}]
    recorded = model.provenance["spec"] | {key: getattr(fit.spec, key) for key in _MAY_CHANGE}
    joined = BlockSums(model.sums, (), model.drawn) + more
    devices = [*_devices(model), *(engine.devices or [CPU])]
    larger = _with_sums(model, joined, fit.spec, added, devices, recorded)
    return larger if apart is None else calibrated(larger, apart, joined.sums.weight, engine)
