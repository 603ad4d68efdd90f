"""Models with the same features fitted to different rows: fit such models, add rows, and merge them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np

from bigkpca.data.devices import CPU
from bigkpca.data.rows import ArrayRows, Rows, identity_of
from bigkpca.errors import Array, SpecError
from bigkpca.execution.blas import single_threaded_blas
from bigkpca.execution.engine import Engine
from bigkpca.execution.passes import compute_of, read_rows, read_sets, sums_of
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
from bigkpca.fitting.preimage import check_extensible, extend_decoder, with_decoder
from bigkpca.fitting.reference import with_reference
from bigkpca.fitting.sample import drawn_numbers, reference_row_numbers, weights_of
from bigkpca.fitting.solve import Checks, draw_of, first_basis, rounding_of, solve, solve_rows, some_of
from bigkpca.fitting.warnings import (
    far_from_landmarks,
    warn_if_beyond_tolerance,
    warn_if_fewer,
    warn_if_not_uniform,
    warn_of,
)
from bigkpca.numerics import eigenpairs, growth, rounding
from bigkpca.numerics.certificates.sampling import DrawnRows, Residuals
from bigkpca.numerics.drift import REFERENCE_ROWS
from bigkpca.numerics.features import FeatureMap
from bigkpca.numerics.growth import PAIRED_ROWS
from bigkpca.numerics.kernels import Kernel
from bigkpca.numerics.linalg import Map
from bigkpca.numerics.model import Model, Provenance
from bigkpca.numerics.moments import ShiftedSums
from bigkpca.numerics.outliers import Calibration
from bigkpca.numerics.preimages.base import spread
from bigkpca.numerics.random_streams import FEW, PROBES, SAMPLE
from bigkpca.spec import FitSpec, ResolvedFit, randomized, resolve, resolve_shape

MAY_CHANGE = ("noise",)  # fields of a spec that may differ where features stay; the rounding of each component adds up
NO_SUMS = (
    "a model of the exact method, of products with the Gram matrix, or of the randomized solver cannot take more rows: "
    "fit it again on all of them, or use nystroem"
)


def spec_like(model: Model, options: Mapping[str, Any]) -> FitSpec:
    """The spec of a model, with those options (fields of a FitSpec) that differ from the defaults. Raises SpecError if
    the model has no sums, for options that its features do not allow, and for trained pre-images, which do not add
    up."""
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
    check_extensible(spec)
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
        found = solve_rows(rows, chosen, fit, engine)
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
    model = with_decoder(model, rows, chosen.sample, spec, engine, found.span)
    assert model.sums is not None
    model = with_reference(
        model,
        chosen.reference,
        model.sums.count,
        spec.random_state,
        engine,
        spec,
        found.span,
        chosen.reference_weights,
        chosen.weight,
    )
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
    reference = reference_row_numbers(rows, fit, engine)
    few, weight = drawn_numbers(rows, PAIRED_ROWS, spec.random_state, FEW, engine)
    sample = np.empty(0, np.intp)
    if spec.keeps_sample:
        drawn = np.sort(drawn_numbers(rows, fit.sample, spec.random_state, SAMPLE, engine).numbers)
        sample = spread(drawn, spec.preimage_rows(fit.sample))
    found_few, found_reference, found_sample, apart = read_sets(rows, engine, few, reference, sample, fit.apart)
    return ChosenFeatures(
        features,
        like.sums.about,
        None if spec.method_value.landmarks else growth.kernel_error(features, found_few, spec.center),
        None,
        (),
        found_sample if spec.keeps_sample else None,
        found_few,
        found_reference if fit.reference_rows else found_few[:REFERENCE_ROWS],
        weights_of(rows, reference if fit.reference_rows else few[:REFERENCE_ROWS]),
        weights_of(rows, few),
        apart,
        weight,
        like.drawn,
    )


_ALIKE = ("directions", "cholesky", "eigenvectors", "most")  # of drawn rows that can be joined


@dataclass(frozen=True)
class _Part:
    """What merging needs of one of the models, besides its sums."""

    weight: float
    rounded: tuple[float, float]  # see `Checks`
    sample: Array | None
    calibration: Calibration | None


def merge(models: Iterable[Model], engine: Engine) -> Model:
    """The model of the rows of all `models` (at least two, with the same features). Reads no rows.

    Sums are added pairwise, like those of blocks in a pass: ((a + b) + (c + d)) + ... If the sums of all models are
    about one vector c (see `fit_like`), the result equals the sums of a fit of all rows: to the bit if every model but
    the last has the same number of blocks, a power of two, and blocks have the same number of rows; otherwise up to
    rounding. Options, column names, pre-image and signs follow the first model. Models are read one at a time.

    Raises SpecError for fewer than two models, and for models without sums, with different features, of the same rows,
    or with trained pre-images. Warns as a fit does, and UniformLandmarksWarning.
    """
    first: Model | None = None
    parts: list[_Part] = []
    devices: list[str] = []  # that computed the models
    added: list[dict[str, Any]] = []  # identities of all rows, in the form that `partial_fit` records
    numbers: dict[str, int] = {}  # numbers of the models, by the digests of their rows
    drawn: DrawnRows | None = None
    nodes: list[tuple[int, ShiftedSums]] = []  # of the binary tree of sums, levels descending: at most log2
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
        drawn = _joined(drawn, model.drawn) if parts else model.drawn
        parts.append(_Part(model.sums.weight, rounding_of(model), model.certificate.sample, model.calibration))
        level, value = 0, model.sums
        while nodes and nodes[-1][0] == level:
            value = nodes.pop()[1] + value
            level += 1
        nodes.append((level, value))
    if first is None or len(parts) < 2:
        raise SpecError(f"{len(parts)} models were given: merging needs at least two")
    sums = reduce(lambda right, left: left + right, (value for _, value in reversed(nodes)))
    if drawn is None and first.drawn is not None:
        engine.progress.note(
            "no bound with 95 % confidence: the models were fitted with different options, or share some rows"
        )
    fit = resolve_shape(FitSpec.of(first), sums.count, first.features.columns, first.features.dtype)
    joined = _with_sums(first, sums, fit, _joint_checks(first, sums, parts, drawn), engine, added[1:], devices)
    apart = joint_calibration_rows([(part.weight, part.calibration) for part in parts], fit.spec.random_state)
    return joined if apart is None else calibrated(joined, apart, sums.weight, engine)


def _with_sums(
    model: Model,
    sums: ShiftedSums,
    fit: ResolvedFit,
    checks: Checks,
    engine: Engine,
    added: list[dict[str, Any]],
    devices: list[str],
    recorded: dict[str, Any] | None = None,
    far: str | None = None,
) -> Model:
    """A model with the same features and signs but other sums, `added` rows, the `devices` that computed and, if given,
    another `recorded` spec; `far` is a sentence if these rows are far from all landmarks."""
    features = model.features
    with single_threaded_blas, np.errstate(over="ignore", invalid="ignore"):
        with engine.small_work() as in_order:
            if checks.basis is None:
                checks = with_basis(features, checks, in_order)
            found = solve(sums.moments, features, fit, checks, in_order)
        solution = eigenpairs.aligned(found.solution, model.solution, features.gram())
    found = replace(found, solution=solution, sums=sums, span=None)
    beyond = warn_if_beyond_tolerance(found, fit.spec)
    warn_of(found, features, far=None if beyond else far)
    warn_if_not_uniform(fit.spec)
    changed: Provenance = {"added": added, "choices": [*kept_choices(model), *found.choices], **of_devices(devices)}
    if recorded is not None:
        changed["spec"] = recorded
    larger = found.model(features, {**model.provenance, **changed})
    return extend_decoder(larger, model, fit.spec)


def _devices(model: Model) -> list[str]:
    """The devices that computed a model."""
    return model.provenance.get("devices", [CPU])


def _joined(ours: DrawnRows | None, theirs: DrawnRows | None) -> DrawnRows | None:
    """The rows that two models keep, together; None if one has none, if they were drawn in other directions, or with
    the same random numbers, as for the same rows."""
    if ours is None or theirs is None or np.isin(theirs.uniform, ours.uniform).any():
        return None
    if any(getattr(ours, name) != getattr(theirs, name) for name in _ALIKE):
        return None
    return replace(ours + theirs, kept=min(ours.kept, theirs.kept))


def _joint_checks(first: Model, sums: ShiftedSums, parts: list[_Part], drawn: DrawnRows | None) -> Checks:
    """The evidence of all parts: drawn rows and rounding; landmarks and sampled rows measure the rounding again."""
    seed, total, sample = FitSpec.of(first).random_state, sum(part.weight for part in parts), None
    if all(part.sample is not None for part in parts):  # in proportion to their weights
        counts = [max(1, int(rounding.MEASURED_ROWS * part.weight // total)) for part in parts]
        some = [some_of(p.sample, count, seed) for p, count in zip(parts, counts, strict=True) if p.sample is not None]
        sample = np.concatenate(some)
    landmarks = first.features.landmarks_in_user_units()
    rows = [first.features.offset[None], *(each.astype(np.float64) for each in (landmarks, sample) if each is not None)]
    few = np.concatenate([each[: rounding.MEASURED_ROWS] for each in rows])
    of_trace, of_values = (float(sum(part.rounded[i] for part in parts)) for i in range(2))
    return Checks(few, sums.about, 0, sample, None, drawn=drawn, like=drawn, rounded=(of_trace, of_values))


def _check_same_features(first: Model, model: Model, number: int) -> None:
    """Raise SpecError unless model `number`, counted from 1, has sums of the features of the first."""
    if model.sums is None:
        raise SpecError(f"model {number}: {NO_SUMS}")
    check_extensible(FitSpec.of(model))
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
    # The certificate adds up the rounding of each part, which was measured for the components of that part.
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
    check_extensible(spec)


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

    Raises SpecError if other fields differ, for models without moments (exact ones and those of the randomized solver),
    and for trained pre-images; MemoryLimitError as in a fit with `limit`; RoundingError if the sums are impossible for
    real rows. Warns IndefiniteKernelWarning, RoundingWarning and UnseenClusterWarning as a fit does,
    UniformLandmarksWarning, and FarRowsWarning unless another warning says the same.
    """
    if model.sums is None:
        raise SpecError(NO_SUMS)
    check_columns(rows, model)
    check_extensible(spec)
    check_same_problem(spec, model, _MAY_CHANGE)
    fit = resolve_shape(spec, *rows.shape, rows.dtype)
    check_fits(rows, fit, engine, limit)
    identity = identity_of(rows, stamped=False)
    rows, apart = calibration_rows_with(model, rows, fit.spec.random_state, engine)
    like, draw, far, features = model.drawn, None, None, model.features
    checks, some = _checks_of_new_rows(model, model.sums, rows, fit, engine)
    checks = replace(checks, compute=compute_of(features, engine))
    if like is not None:
        with single_threaded_blas, engine.small_work() as in_order:
            checks = with_basis(features, replace(checks, like=like), in_order)
            draw = draw_of(features, fit, checks, like, like.count)
            if checks.basis is not None:
                far = far_from_landmarks(model, checks.basis, some, rows.where, in_order)
    more = sums_of(rows, features, model.sums.about, model.block_rows, engine, draw=draw)
    drawn = None if like is None or more.drawn is None else like + more.drawn
    checks = replace(checks, far=more.far, drawn=drawn, weight=more.sums.weight)
    added = [*model.provenance.get("added", []), identity | {"sha256": more.content}]
    recorded = model.provenance["spec"] | {key: getattr(fit.spec, key) for key in _MAY_CHANGE}
    sums = model.sums + more.sums
    devices = [*_devices(model), *(engine.devices or [CPU])]
    larger = _with_sums(model, sums, fit, checks, engine, added, devices, recorded, far)
    return larger if apart is None else calibrated(larger, apart, sums.weight, engine)


def _checks_of_new_rows(
    model: Model, before: ShiftedSums, rows: Rows, fit: ResolvedFit, engine: Engine
) -> tuple[Checks, Array]:
    """Rows that measure the error of a model with the sums `before`, to which rows are added: some of the new rows,
    with landmarks representing the old ones. Also returns those of the new rows alone."""
    features = model.features
    few, weight = drawn_numbers(rows, rounding.MEASURED_ROWS, fit.spec.random_state, PROBES, engine)
    wanted = np.sort(few)
    found = read_rows(rows, wanted, engine)
    some = new = found[np.searchsorted(wanted, few)]
    earlier, sample = model.certificate.sample, None
    if earlier is not None:  # old and new rows in proportion to their weights
        kept = int(rounding.MEASURED_ROWS * before.weight // (before.weight + weight))
        fresh = some[: rounding.MEASURED_ROWS - kept]
        sample = np.concatenate([some_of(earlier, kept, fit.spec.random_state), fresh])
    landmarks, weights = features.landmarks_in_user_units(), weights_of(rows, few)
    if landmarks is not None:
        landmarks = landmarks[: rounding.MEASURED_ROWS]
        some = np.concatenate([some.astype(np.float64), landmarks])
        usual = before.weight / before.count  # of the rows that landmarks represent
        weights = None if weights is None else np.append(weights, np.full(len(landmarks), usual))
    return Checks(some, before.about, weight, sample, None, rounded=rounding_of(model), few_weights=weights), new


def with_basis(features: FeatureMap, checks: Checks, in_order: Map) -> Checks:
    """The checks with the basis of the span of the landmarks, and the residuals by which rows were drawn."""
    like = checks.like
    basis = first_basis(features, like, in_order)
    residuals = None if basis is None or like is None else Residuals.of(basis, features.dtype, like.directions)
    return replace(checks, basis=basis, residuals=residuals)
