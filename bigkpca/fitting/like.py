"""Fit rows with the features of a model that was fitted to others, so that both models add up (`merge`)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from bigkpca.data.rows import Rows, anonymous
from bigkpca.errors import SpecError
from bigkpca.execution.blas import single_threaded_blas
from bigkpca.execution.engine import Engine
from bigkpca.execution.passes import read_rows
from bigkpca.execution.progress import Progress
from bigkpca.execution.projection import check_columns
from bigkpca.fitting.choose_features import ChosenFeatures, choices_info, kept_choices
from bigkpca.fitting.memory_limits import check_fits
from bigkpca.fitting.outcome import fit_outcome
from bigkpca.fitting.preimage import check_extensible, with_decoder
from bigkpca.fitting.reference import with_reference
from bigkpca.fitting.sample import unseen_row_numbers
from bigkpca.fitting.warnings import warn_if_beyond_tolerance, warn_if_not_uniform, warn_of
from bigkpca.numerics import growth
from bigkpca.numerics.certificates import spectral
from bigkpca.numerics.drift import REFERENCE_ROWS
from bigkpca.numerics.growth import PAIRED_ROWS
from bigkpca.numerics.kernels import Kernel
from bigkpca.numerics.model import Model
from bigkpca.numerics.random_streams import FEW, SAMPLE, random_stream
from bigkpca.spec import FitSpec, ResolvedFit, resolve

MAY_CHANGE = ("noise",)  # fields of a spec that may differ where features stay; the rounding of each component adds up
NO_SUMS = (
    "a model of the exact method, of products with the Gram matrix, or of the randomized solver cannot take more rows: "
    "fit it again on all of them, or use nystroem"
)


def spec_like(model: Model, options: Mapping[str, Any]) -> FitSpec:
    """The spec of a model, with the options (fields of a FitSpec) that differ from the defaults.

    Raises SpecError where the model has no sums, for options that its features do not allow, and for pre-images that
    are trained, since such models do not add up.
    """
    if model.sums is None:
        raise SpecError(NO_SUMS)
    before, defaults = FitSpec.of(model), FitSpec()
    given = {name: value for name, value in options.items() if not _equal(value, getattr(defaults, name))}
    spec = FitSpec.checked(**{name: getattr(before, name) for name in FitSpec.model_fields} | given)
    check_same_problem(spec, before)
    check_extensible(spec)
    return spec


def resolve_like(model: Model, rows: Rows, spec: FitSpec) -> ResolvedFit:
    """What the spec of `spec_like` means for these rows."""
    return resolve(spec, rows).with_features(model.features.size, model.features.dtype)


def _equal(one: Any, other: Any) -> bool:
    return type(one) is type(other) and bool(np.all(one == other))


def check_same_problem(spec: FitSpec, before: FitSpec, may_change: Collection[str] = MAY_CHANGE) -> None:
    """Raise SpecError, naming the field, if the spec changes a field that must stay the same where features stay."""
    now, then = spec.to_dict(), before.to_dict()
    functions = isinstance(spec.kernel, Kernel) and not spec.kernel.savable  # to_dict does not tell functions apart
    changed = [key for key in now if now[key] != then[key] and key not in may_change]
    if functions and spec.kernel != before.kernel:
        changed = ["kernel", *changed]
    if changed:
        key = changed[0]
        name = "seed (random_state)" if key == "seed" else key
        raise SpecError(
            f"{name}={getattr(spec, key)!r}, but the model was fitted with {getattr(before, key)!r}, which "
            "must stay as it is: set it back, or fit again on all rows"
        )


def fit_like(
    rows: Rows,
    like: Model,
    spec: FitSpec,
    engine: Engine,
    limit: int | None,
    progress: Progress,
    identity: dict[str, Any] | None = None,
) -> Model:
    """Fit rows with the kernel, landmarks or frequencies, offset and scale of `like`; `spec` is that of `spec_like`.

    A small sample of the rows, which the certificate is from, and one pass; the pre-image as in a fit. The sums of the
    pass are about the same vector as those of `like`, so that they add up to those of a fit of all rows.

    Raises SpecError for rows of another width or other columns, MemoryLimitError before anything is read, RoundingError
    if the sums are impossible for real rows. Warns as a fit does, but not of a narrow kernel.
    """
    assert like.sums is not None
    check_columns(rows, like)
    fit = resolve_like(like, rows, spec)
    check_fits(rows, fit, engine, limit)
    chosen = _chosen(rows, like, fit, engine, progress)
    with single_threaded_blas, np.errstate(over="ignore", invalid="ignore"):
        found = fit_outcome(rows, chosen, fit, engine, progress)
    warn_of(found, like.features, "fit the first model with dtype='float64', or ")
    warn_if_beyond_tolerance(found, spec)
    warn_if_not_uniform(spec)
    kept = [
        {**choice, "reason": f"as in the first model: {choice['reason'].removeprefix('as in the first model: ')}"}
        for choice in kept_choices(like)
    ]
    provenance = {
        **{key: like.provenance[key] for key in ("spec", "column_names") if key in like.provenance},
        "identity": identity or anonymous(rows),
        "content": found.digest,
        "choices": kept + choices_info(found.choices),
    }
    provenance["spec"] = provenance["spec"] | {key: getattr(spec, key) for key in MAY_CHANGE}
    model = Model(like.features, found.solution, found.sums, found.certificate, provenance)
    model = with_decoder(model, rows, chosen.sample, spec, engine, progress, found.basis)
    return with_reference(model, chosen.reference, rows.shape[0], spec.seed, engine, spec)


def _chosen(rows: Rows, like: Model, fit: ResolvedFit, engine: Engine, progress: Progress) -> ChosenFeatures:
    """The features of a model, with the rows that their error on these rows is measured on."""
    assert like.sums is not None
    features, spec, n = like.features, fit.spec, fit.n
    unseen = unseen_row_numbers(fit)
    few = random_stream(spec.seed, FEW).choice(n, min(PAIRED_ROWS, n), replace=False)
    sample = np.empty(0, np.intp)
    if spec.keeps_sample:
        sample = np.sort(random_stream(spec.seed, SAMPLE).choice(n, fit.sample, replace=False))
    wanted = np.unique(np.concatenate([few, unseen, sample]))
    read = read_rows(rows, wanted, engine, progress)
    found_few, found_unseen, found_sample = (read[np.searchsorted(wanted, some)] for some in (few, unseen, sample))
    strata = like.certificate.strata
    return ChosenFeatures(
        features,
        like.sums.about,
        None if spec.method_value.landmarks else growth.kernel_error(features, found_few, spec.center),
        None,
        (),
        found_sample if spec.keeps_sample else None,
        found_few,
        found_unseen,
        found_unseen[:REFERENCE_ROWS] if len(unseen) else found_few[:REFERENCE_ROWS],
        None if strata is None else bool(spectral.from_array(strata)[0].triangular),
    )
