"""Add up models with the same features that were fitted to different rows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np

from bigkpca.errors import Array, SpecError
from bigkpca.execution.blas import single_threaded_blas
from bigkpca.execution.engine import Engine
from bigkpca.fitting.choose_features import choices_info, kept_choices
from bigkpca.fitting.like import NO_SUMS
from bigkpca.fitting.outcome import FitOutcome
from bigkpca.fitting.preimage import check_extensible, extend_decoder
from bigkpca.fitting.solve import Checks, rounding_of, solve, some_of
from bigkpca.fitting.warnings import warn_if_beyond_tolerance, warn_if_not_uniform, warn_of
from bigkpca.numerics import eigenpairs, rounding
from bigkpca.numerics.certificates import spectral
from bigkpca.numerics.certificates.spectral import Stratum
from bigkpca.numerics.model import Model
from bigkpca.numerics.moments import ShiftedSums
from bigkpca.spec import FitSpec
from bigkpca.spec.resolved import resolve_shape


@dataclass(frozen=True)
class _Part:
    """What the sum of models needs of one of them, beside its sums."""

    count: int
    strata: tuple[Stratum, ...]
    rounded: tuple[float, float]  # see `Checks`
    sample: Array | None
    added: list[dict[str, Any]]  # identities of its rows, as `partial_fit` records them


def merge(models: Iterable[Model], engine: Engine) -> Model:
    """The model of the rows of all `models`, at least two, which have the same features. Reads no rows.

    Sums are added up pairwise, as those of blocks in a pass: ((a + b) + (c + d)) + ... Sums of all models about one
    vector c (see `fit_like`) make those of a fit of all rows: to the bit where every model but the last has the same
    number of blocks, a power of two, and blocks have the same number of rows; else to rounding. Options, names of
    columns, pre-image and signs follow the first model. Models are taken one at a time.

    Raises SpecError for fewer than two models, for models without sums, with different features, of the same rows, or
    with pre-images that are trained. Warns as a fit does, and UniformLandmarksWarning.
    """
    first: Model | None = None
    parts: list[_Part] = []
    sums = _PairwiseSum()
    for number, model in enumerate(models, 1):
        if first is None:
            first = model
        _check_same_features(first, model, number)
        part = _part(model)
        _check_other_rows(parts, part, number)
        parts.append(part)
        assert model.sums is not None
        sums.add(model.sums)
    if first is None or len(parts) < 2:
        raise SpecError(f"{len(parts)} models were given: merging takes two or more")
    return _solved(first, sums.total(), parts, engine)


class _PairwiseSum:
    """A sum in the order of a binary tree, of parts that come one after the other: at most log2 of them are held."""

    def __init__(self) -> None:
        self._nodes: list[tuple[int, ShiftedSums]] = []  # levels descend

    def add(self, value: ShiftedSums) -> None:
        """Take in the next part."""
        level = 0
        while self._nodes and self._nodes[-1][0] == level:
            value = self._nodes.pop()[1] + value
            level += 1
        self._nodes.append((level, value))

    def total(self) -> ShiftedSums:
        """The sum of all parts."""
        return reduce(lambda right, left: left + right, (value for _, value in reversed(self._nodes)))


def _part(model: Model) -> _Part:
    assert model.sums is not None
    found, strata = model.provenance, model.certificate.strata
    own = {**found.get("identity", {}), "sha256": found.get("content")}
    return _Part(
        model.sums.count,
        () if strata is None else spectral.from_array(strata),
        rounding_of(model),
        model.certificate.sample,
        [own, *found.get("added", [])],
    )


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
            f"model {number} has other features than the first one (kernel, landmarks or frequencies, offset, scale or "
            "precision), so that they do not add up: fit it with like=, or --like, the first one"
        )
    if first.names != model.names:
        raise SpecError(f"model {number} has other names of columns than the first one")
    spec, other_spec = FitSpec.of(first), FitSpec.of(model)
    # The certificate adds up rounding of each part, which was measured for the components that it has.
    for name in ("method", "center", "components"):
        if getattr(spec, name) != getattr(other_spec, name):
            raise SpecError(
                f"model {number} was fitted with {name}={getattr(other_spec, name)!r}, the first one with "
                f"{getattr(spec, name)!r}: fit it again with the same"
            )


def _check_other_rows(parts: list[_Part], part: _Part, number: int) -> None:
    """Raise SpecError where rows of a model were counted before."""
    before = {each.get("sha256"): i for i, one in enumerate(parts, 1) for each in one.added}
    for digest in (each.get("sha256") for each in part.added):
        if digest is not None and digest in before:
            raise SpecError(
                f"model {number} holds the same rows as model {before[digest]}, which would count twice: leave one of "
                "them out"
            )


def _solved(first: Model, sums: ShiftedSums, parts: list[_Part], engine: Engine) -> Model:
    """The model of these sums."""
    features, spec = first.features, FitSpec.of(first)
    fit = resolve_shape(spec, sums.count, features.columns, features.dtype)
    moments = sums.moments
    with single_threaded_blas, np.errstate(over="ignore", invalid="ignore"):
        with engine.small_work() as in_order:
            found, certified, choices, _ = solve(moments, features, fit, _checks(first, sums, parts), in_order)
        solution = eigenpairs.aligned(found, first.solution, features.gram())
    outcome = FitOutcome(solution, certified, sums, "", choices)
    warn_of(outcome, features)
    warn_if_beyond_tolerance(outcome, spec)
    warn_if_not_uniform(spec)
    _, *added = (each for part in parts for each in part.added)
    changed = {"added": added, "choices": kept_choices(first) + choices_info(choices)}
    merged = Model(features, solution, sums, certified, {**first.provenance, **changed})
    return extend_decoder(merged, first, spec)


def _checks(first: Model, sums: ShiftedSums, parts: list[_Part]) -> Checks:
    """The evidence of all parts: their strata and rounding; landmarks and sampled rows measure the rounding again."""
    landmarks, sample = first.features.landmarks_in_user_units(), _joint_sample(parts, FitSpec.of(first).seed)
    rows = [first.features.offset[None], *(each.astype(np.float64) for each in (landmarks, sample) if each is not None)]
    few = np.concatenate([each[: rounding.MEASURED_ROWS] for each in rows])
    kinds = {stratum.triangular for part in parts for stratum in part.strata}
    # Without strata of every part, or with strata in different bases, nothing is known of what landmarks missed.
    known = all(part.strata for part in parts) and len(kinds) == 1
    before = tuple(stratum for part in parts for stratum in part.strata) if known else ()
    of_trace, of_values = (float(sum(part.rounded[i] for part in parts)) for i in range(2))
    triangular = bool(kinds.pop()) if known else None
    return Checks(few, sums.about, few[:0], 0, sample, before, (of_trace, of_values), triangular)


def _joint_sample(parts: list[_Part], seed: int) -> Array | None:
    """Sampled rows of all parts, in proportion to their numbers of rows; None where one has none."""
    total, samples = sum(part.count for part in parts), [part.sample for part in parts]
    found = [
        some_of(sample, max(1, rounding.MEASURED_ROWS * part.count // total), seed)
        for part, sample in zip(parts, samples, strict=True)
        if sample is not None
    ]
    return np.concatenate(found) if len(found) == len(parts) else None
