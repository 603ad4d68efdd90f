"""Models with the same features fitted to different rows: fit such models, add rows, and merge them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from functools import reduce
from typing import Any

import numpy as np

from bigkpca.data.devices import CPU
from bigkpca.data.rows import Rows, identity_of
from bigkpca.errors import Array, FarRowsWarning, SpecError, ToleranceWarning, UniformLandmarksWarning, warn
from bigkpca.execution.blas import single_threaded_blas
from bigkpca.execution.engine import Engine
from bigkpca.execution.passes import BlockSums, read_sets, sums_of
from bigkpca.execution.projection import check_columns
from bigkpca.fitting.calibration import calibrated, calibration_rows_with, joint_calibration_rows, without_calibration
from bigkpca.fitting.fit import columns_recorded, devices_recorded
from bigkpca.fitting.memory_limits import check_fits, make_room
from bigkpca.fitting.messages import warn_if_fewer, warn_of
from bigkpca.fitting.preimage import extend_decoder, with_decoder
from bigkpca.fitting.sample import NO_ROWS, drawn_numbers, weights_of
from bigkpca.fitting.solve import draw_of, rounding_of, solve, span_basis
from bigkpca.numerics import eigenpairs, precision
from bigkpca.numerics.calibration import Calibration
from bigkpca.numerics.drawn_rows import DrawnRows, Measure
from bigkpca.numerics.features import has_landmarks
from bigkpca.numerics.kernels import Kernel
from bigkpca.numerics.model import Model, Provenance
from bigkpca.numerics.moments import ShiftedSums
from bigkpca.numerics.preimages.base import spread
from bigkpca.numerics.random_streams import PROBES, SAMPLE
from bigkpca.numerics.span import Span
from bigkpca.spec import FitSpec, ResolvedFit, randomized, resolve, resolve_shape

_MAY_CHANGE = ("noise",)  # fields of a spec that may differ where features stay
_MAY_CHANGE_IN_PARTS = ("n_components", "noise")  # where rows are added
_LEAST_ROWS = 5  # of a first batch, for each landmark
_MORE = 2  # times what landmarks leave of earlier rows
_LEAST_FAR = 0.1  # share of Σ k(x, x)
_NO_SUMS = (
    "a model of the exact method, of products with the Gram matrix, or of the randomized solver cannot take more rows: "
    "fit it again on all of them, or use nystroem"
)


def spec_like(model: Model, options: Mapping[str, Any]) -> FitSpec:
    """The spec of a model, with those options (fields of a FitSpec) that differ from the defaults. Raises SpecError if
    the model has no sums, and for options that its features do not allow."""
    if model.sums is None:
        raise SpecError(_NO_SUMS)
    before, defaults, given = FitSpec.of(model), FitSpec(), {}
    for name, value in options.items():
        default = getattr(defaults, name)
        if type(value) is not type(default) or not np.all(value == default):
            given[name] = value
    spec = FitSpec.checked(**{name: getattr(before, name) for name in FitSpec.model_fields} | given)
    _check_same_problem(spec, model, _MAY_CHANGE)
    return spec


def _check_same_problem(spec: FitSpec, model: Model, may_change: Collection[str]) -> None:
    """Raise SpecError, naming the field, if the spec changes a field that must stay the same when the features stay."""
    before = FitSpec.of(model)
    now, then = spec.to_dict(), before.to_dict()
    changed = [key for key in type(spec).model_fields if now.get(key) != then.get(key) and key not in may_change]
    functions = isinstance(spec.kernel, Kernel) and not spec.kernel.savable  # to_dict does not distinguish functions
    if functions and spec.kernel != before.kernel:
        changed = ["kernel", *changed]
    if changed:
        key = changed[0]
        raise SpecError(
            f"{key}={getattr(spec, key)!r}, but the model was fitted with {getattr(before, key)!r}, which must not "
            "change: set it back, or fit again on all rows"
        )


def fit_like(
    rows: Rows, like: Model, spec: FitSpec, engine: Engine, limit: int | None, identity: dict[str, Any] | None = None
) -> Model:
    """Fit rows with the features of `like`, in one pass; `spec` is that of `spec_like`. The sums are about the same
    vector as those of `like`, so they add up to those of a fit of all rows. Raises and warns as a fit does."""
    check_columns(rows, like)
    identity = identity or identity_of(rows, stamped=False)
    rows, set_aside = without_calibration(rows, spec, engine)
    fit = resolve_shape(spec, *rows.shape, rows.dtype).with_features(like.features.size, like.features.dtype)
    check_fits(rows, fit, engine, limit)
    make_room(engine.kept, rows, fit, limit)
    sample = NO_ROWS
    if spec.keeps_sample:
        numbers, _ = drawn_numbers(rows, fit.sample, spec.random_state, SAMPLE, engine)
        sample = spread(np.sort(numbers), spec.preimage_rows(fit.sample))
    found, probes, weight, (restored, judging) = _pass_like(rows, like, fit, engine, sample, set_aside)
    model, span = _solved(found, like, spec, probes)
    warn_of(model)
    provenance: Provenance = {
        "spec": like.provenance["spec"] | {key: getattr(spec, key) for key in _MAY_CHANGE},
        "identity": identity,
        "content": found.sums.digest,
        "choices": model.provenance["choices"],
        **columns_recorded(like),
        **devices_recorded(engine.devices or [CPU]),
    }
    model = replace(model, provenance=provenance)
    warn_if_fewer(model, fit, engine.progress)
    model = with_decoder(model, restored if spec.keeps_sample else None, spec, span)
    return calibrated(model, judging, weight, engine) if spec.calibration_rows else model


def _pass_like(
    rows: Rows, like: Model, fit: ResolvedFit, engine: Engine, *sets: Array, before: int = 0
) -> tuple[BlockSums, Array, float, list[Array]]:
    """Sums of rows with the features of a model, about the same vector, and rows drawn by the same measure: they can be
    added to those of the model. Also a few rows by which rounding is measured, the weight of all rows, and the rows
    of these sets of numbers. `before` is the number of rows that a sum before them has."""
    (sums, drawn), features, seed = _sums_of(like), like.features, fit.spec.random_state
    measure = Measure.of_rows()
    numbers, weight = drawn_numbers(rows, precision.MEASURED_ROWS, seed, PROBES, engine)
    probes, *others = read_sets(rows, engine, numbers, *sets)
    with single_threaded_blas, np.errstate(over="ignore", invalid="ignore"):  # the pass names rows that overflow
        rounding = rounding_of(features, probes, sums.about, engine).of(features.dtype)
        if len(drawn.landmarks):
            assert has_landmarks(features)
            measure = Measure.of_landmarks(features.gram(), drawn.landmarks, features.dtype)
        draw = draw_of(features, measure, probes, weights_of(rows, numbers), weight, fit)
    draw = replace(draw, before=before)
    found = sums_of(rows, features, sums.about, rounding, like.block_rows, engine, draw)
    return found, probes, weight, others


def _solved(found: BlockSums, like: Model, spec: FitSpec, probes: Array) -> tuple[Model, Span | None]:
    """The model of these sums, with the choices of `like` for its features, and the span of its landmarks."""
    with single_threaded_blas, np.errstate(over="ignore", invalid="ignore"):
        model, span = solve(found, like.features, spec, span_basis(like.features), probes, [])
    error = model.certificate.error
    if spec.tol is not None and error > spec.tol:
        warn(
            f"tol={spec.tol} is not met: the features were chosen for the rows fitted first, and leave an error of "
            f"{error:.3g} on all rows; fit again on all of them",
            ToleranceWarning,
        )
    if spec.method_value.uniform:
        warn(
            f"{spec.method_value} assumes that landmarks are drawn uniformly from all rows, but these are from some of "
            "them: its eigenvalues may be far off; use method='nystroem', or fit again on all rows",
            UniformLandmarksWarning,
        )
    of_features = [each for each in like.provenance["choices"] if each["option"] not in ("n_components", "directions")]
    choices = [*of_features, *model.provenance["choices"]]
    return replace(model, provenance={**model.provenance, "choices": choices}), span


def merge(models: Iterable[Model], engine: Engine) -> Model:
    """The model of the rows of all `models`, which are read one at a time; see `bigkpca.merge`. Reads no rows.

    Sums are added pairwise, like those of blocks in a pass: ((a + b) + (c + d)) + ... So they equal those of a fit of
    all rows to the bit if every model but the last has the same number of blocks, a power of two, and blocks have the
    same number of rows.
    """
    first: Model | None = None
    parts: list[tuple[float, Calibration | None]] = []
    added: list[dict[str, Any]] = []  # identities of all rows, in the form that `partial_fit` records
    seen: dict[Any, int] = {}  # numbers of the models, by the marks of their rows
    devices: list[str] = []  # that computed the models
    nodes: list[tuple[int, BlockSums]] = []  # of the binary tree of sums, levels descending: at most log2
    for number, model in enumerate(models, 1):
        first = first or model
        _check_same_features(first, model, number)
        known = model.provenance
        own = [{**known.get("identity", {}), "content": known.get("content")}, *known.get("added", [])]
        for mark in [mark for each in own for mark in _marks(each)]:
            if seen.setdefault(mark, number) != number:
                raise SpecError(
                    f"model {number} has the same rows as model {seen[mark]}, which would count twice: leave one of "
                    "them out"
                )
        added += own
        devices += known.get("devices", [CPU])
        sums, drawn = _sums_of(model)
        parts.append((sums.weight, model.calibration))
        level, value = 0, BlockSums(sums, drawn)
        while nodes and nodes[-1][0] == level:
            value = nodes.pop()[1] + value
            level += 1
        nodes.append((level, value))
    if first is None or len(parts) < 2:
        raise SpecError(f"{len(parts)} models were given: merging needs at least two")
    joined = reduce(lambda right, left: left + right, (value for _, value in reversed(nodes)))
    changed: Provenance = {"added": added[1:], **devices_recorded(devices)}
    spec = FitSpec.of(first)
    merged = _with_sums(first, joined, spec, changed)
    judging = joint_calibration_rows(parts, spec.random_state)
    return merged if judging is None else calibrated(merged, judging, joined.sums.weight, engine)


def _marks(identity: dict[str, Any]) -> list[Any]:
    """What is the same for the same rows: the digest of their sums, unless they come from another processor, and what
    identifies their files and weights."""
    found = [identity["content"]] if identity.get("content") else []
    return [*found, tuple(map(identity.get, ("path", "stamp", "weights")))] if identity.get("stamp") else found


def _with_sums(model: Model, joined: BlockSums, spec: FitSpec, changed: Provenance) -> Model:
    """A model with the same features and signs but other sums and drawn rows, and this changed provenance."""
    assert joined.drawn is not None  # a pass draws some
    larger, _ = _solved(joined, model, spec, joined.drawn.X[: precision.MEASURED_ROWS])
    warn_of(larger)
    with single_threaded_blas:
        solution = eigenpairs.aligned(larger.solution, model.solution, model.features.gram())
    provenance: Provenance = {**model.provenance, **changed, "choices": larger.provenance["choices"]}
    return extend_decoder(replace(larger, solution=solution, provenance=provenance), model, spec)


def _sums_of(model: Model) -> tuple[ShiftedSums, DrawnRows]:
    """The sums of a model, and the rows that its passes drew. Raises SpecError if there were no such passes."""
    if model.sums is None or model.drawn is None:
        raise SpecError(_NO_SUMS)
    return model.sums, model.drawn


def _check_same_features(first: Model, model: Model, number: int) -> None:
    """Raise SpecError unless model `number`, counted from 1, has sums of the features of the first."""
    if model.sums is None or model.drawn is None:
        raise SpecError(f"model {number}: {_NO_SUMS}")
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


def check_supports_partial_fit(spec: FitSpec) -> None:
    """Raise SpecError if no rows can be added to any model of this spec."""
    sketched = spec.solver == "randomized" or (isinstance(spec.size, int) and randomized(spec, spec.size))
    if spec.exact or spec.refine or sketched:
        raise SpecError(_NO_SUMS)


def of_first_batch(spec: FitSpec, rows: Rows) -> FitSpec:
    """The spec of a first batch to which other rows are added: an open number of landmarks is at most a fifth of it.
    Raises SpecError if it has fewer than five rows for each landmark, or component, that was asked for."""
    n = rows.shape[0]
    if not spec.method_value.landmarks or spec.given_landmarks is not None or spec.tol is not None:
        return spec
    asked = spec.size if isinstance(spec.size, int) else spec.n_components
    if isinstance(asked, int) and n < _LEAST_ROWS * asked:
        raise SpecError(
            f"the first batch has {n:,} rows, too few to choose {asked:,} landmarks that also suit later rows: give it "
            f"at least {_LEAST_ROWS * asked:,} rows, or use a smaller size and n_components"
        )
    return spec if isinstance(spec.size, int) else spec.at(min(resolve(spec, rows).size, max(n // _LEAST_ROWS, 1)))


def extend(model: Model, rows: Rows, spec: FitSpec, engine: Engine, limit: int | None = None) -> Model:
    """Add rows to a model: one pass over them, added moments, and a new solution with the signs of the old one.

    Features stay the same. `n_components` and `noise` of `spec` may differ from those of the fit, and are recorded.
    Raises SpecError if other fields differ, and for models without sums.
    """
    sums, drawn = _sums_of(model)
    check_columns(rows, model)
    _check_same_problem(spec, model, _MAY_CHANGE_IN_PARTS)
    fit = resolve_shape(spec, *rows.shape, rows.dtype)
    check_fits(rows, fit, engine, limit)
    identity = identity_of(rows, stamped=False)
    last = spec.calibration == "last"
    rows, judging = calibration_rows_with(model, rows, spec.random_state, engine, last=last)
    more, *_ = _pass_like(rows, model, fit, engine, before=drawn.count)
    _warn_if_far(drawn.total / sums.trace, more, rows.where)
    recorded = model.provenance["spec"] | {key: getattr(spec, key) for key in _MAY_CHANGE_IN_PARTS}
    added = [*model.provenance.get("added", []), identity | {"content": more.sums.digest}]
    changed: Provenance = {"spec": recorded, "added": added}
    changed |= devices_recorded([*model.provenance.get("devices", [CPU]), *(engine.devices or [CPU])])
    joined = BlockSums(sums, drawn) + more
    larger = _with_sums(model, joined, spec, changed)
    return larger if judging is None else calibrated(larger, judging, joined.sums.weight, engine)


def _warn_if_far(earlier: float, more: BlockSums, where: str) -> None:
    """Warn if a part of the landmarks leaves more of added rows than the share that it left of `earlier` rows."""
    drawn, trace = more.drawn, more.sums.trace
    assert drawn is not None  # a pass draws some
    if len(drawn.landmarks) and drawn.total > max(_MORE * earlier, _LEAST_FAR) * trace:
        warn(
            f"{where}: these rows are far from all landmarks: a part of these leaves {drawn.total / trace:.1%} of "
            f"their Σ k(x, x), compared with {earlier:.1%} for earlier rows. Adding rows does not change the "
            "landmarks, so components of these rows are missing: fit again on a dataset with all rows, or add rows in "
            "random order",
            FarRowsWarning,
        )
