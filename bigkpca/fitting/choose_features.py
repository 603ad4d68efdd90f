"""Choose the feature map of a fit from a bounded sample: offset and scale, sigma, size, landmarks or frequencies.

Every automatic choice is recorded with its reason.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from bigkpca.data.rows import Rows
from bigkpca.errors import Array
from bigkpca.execution.engine import Engine
from bigkpca.execution.passes import mean_features
from bigkpca.execution.progress import Progress
from bigkpca.fitting.features import feature_map_factory
from bigkpca.fitting.sample import PreparedSample, prepare_sample
from bigkpca.fitting.size_search import GrownSize, SizeLimits, grow_size
from bigkpca.numerics import growth
from bigkpca.numerics.drift import REFERENCE_ROWS
from bigkpca.numerics.features import FeatureMap
from bigkpca.numerics.growth import PAIRED_ROWS, EstimatedError
from bigkpca.numerics.model import Model
from bigkpca.spec import FitSpec, ResolvedFit


@dataclass(frozen=True)
class Choice:
    """The value chosen for an option that was left open, with the reason; JSON-ready."""

    option: str
    value: Any
    reason: str


@dataclass(frozen=True)
class ChosenFeatures:
    """The feature map of a fit, with the statistics and rows of the sample that the later steps need."""

    features: FeatureMap
    near_mean: Array  # (D,), a fixed vector near the mean of v over all rows
    kernel_error: EstimatedError | None  # of random features only
    grown: GrownSize | None  # if the size was grown to a tolerance
    choices: tuple[Choice, ...]
    sample: Array | None  # (m, d), if the pre-image needs it
    few: Array  # (q, d) of the sample: the kernel is judged on these rows, and rounding is measured on the first
    unseen: Array  # (m, d), from which the error of the landmarks is bounded
    reference: Array  # (q, d) of all rows, whose scores and residuals the model keeps; a part of `unseen` or `few`
    triangular: bool | None = None  # the basis of the span of the landmarks, where strata of another model ask for it


def choose_features(
    rows: Rows, fit: ResolvedFit, size_limits: SizeLimits, engine: Engine, progress: Progress
) -> ChosenFeatures:
    """Choose the feature map of a fit from a bounded sample.

    Passes: the sample, which is freed before the main pass unless the pre-image needs it; one pass each for
    `standardize` and for the principal axes of rff-pca; and the passes of RPCholesky over all rows.

    Raises DataError for constant data, SpecError for options that do not fit these rows.
    """
    prepared, spec = prepare_sample(rows, fit, engine, progress), fit.spec
    make_features = feature_map_factory(prepared, fit, engine, progress)
    grown = None if spec.tol is None else grow_size(prepared, make_features, fit, size_limits, engine, progress)
    features = make_features(fit) if grown is None else grown.features
    few, unseen = prepared.sampled.few[:PAIRED_ROWS], prepared.sampled.unseen
    near_mean = np.zeros(features.size) if spec.exact else mean_features(features, few)
    near_mean = near_mean.astype(features.dtype).astype(np.float64)  # rounded as it is when subtracted from tiles
    return ChosenFeatures(
        features,
        near_mean,
        None if spec.method_value.landmarks else growth.kernel_error(features, few, spec.center),
        grown,
        tuple(_choices(prepared, fit, features, grown)),
        prepared.sampled.sample if spec.keeps_sample else None,
        few.copy(),  # a view would keep more of them in memory
        unseen,
        unseen[:REFERENCE_ROWS] if len(unseen) else prepared.sampled.few[:REFERENCE_ROWS],
    )


def _choices(
    prepared: PreparedSample, fit: ResolvedFit, features: FeatureMap, grown: GrownSize | None
) -> Iterator[Choice]:
    """The automatic choices of a fit, for options of the spec that were left open."""
    spec = fit.spec
    if spec.needs_median:
        sigma = getattr(prepared.columns.kernel, "sigma", None)
        yield Choice("sigma", sigma, "the median pair of sampled rows has k = exp(-1)")
    if spec.needs_variance:
        kernel = prepared.columns.kernel
        name = "sigma" if hasattr(kernel, "sigma") else "gamma"
        yield Choice(name, getattr(kernel, name), "gamma = 1 / (columns × variance of the sampled rows)")
    if fit.rule is not None and spec.landmarks == "auto":
        yield Choice("landmarks", fit.rule.name, fit.rule_reason)
    if spec.own_landmarks is not None and features.size < spec.own_landmarks:
        repeated = spec.own_landmarks - features.size
        reason = f"of {spec.own_landmarks} rows that are given; {repeated} of them repeat others"
        yield Choice("landmarks", features.size, reason)
    if grown is not None:
        yield Choice("size", grown.size, _reason(grown, spec))
    elif spec.size == "auto" and not spec.exact and spec.own_landmarks is None:
        yield Choice("size", features.size, fit.size_reason)
    if features.directions is not None and spec.n_directions == "auto":
        reason = "a relative bias of the kernel of at most 0.02, and an axis for each component"
        yield Choice("n_directions", features.directions, reason)


def _reason(grown: GrownSize, spec: FitSpec) -> str:
    """The reason for a size grown to a tolerance, with its estimated error."""
    error = f"an error of {grown.error.value:.3g} ± {grown.error.standard_error:.1g} on sampled rows"
    if grown.stopped:
        return f"{error}, above tol={spec.tol}: stopped by {grown.stopped}"
    return f"the smallest, to a tenth, with tol={spec.tol}: {error}"


def kept_choices(model: Model) -> list[dict[str, Any]]:
    """The choices of a model that hold for every model with its features."""
    solved_for = ("components", "directions")
    return [choice for choice in model.provenance["choices"] if choice["option"] not in solved_for]


def choices_info(choices: tuple[Choice, ...]) -> list[dict[str, Any]]:
    """The choices as JSON-ready dictionaries."""
    return [asdict(choice) for choice in choices]
