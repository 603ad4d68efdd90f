"""Build the feature map of a fit for any size; whatever does not depend on the size is computed once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bigkpca.execution.engine import Engine
from bigkpca.execution.progress import Progress
from bigkpca.fitting.landmarks import choose_landmarks
from bigkpca.fitting.random_features import principal_axes, principal_features, random_features
from bigkpca.fitting.sample import PreparedSample
from bigkpca.numerics.features import FeatureMap, KernelRows
from bigkpca.spec import ResolvedFit

FeatureMapFactory = Callable[[ResolvedFit], FeatureMap]  # the same fit at different sizes


def feature_map_factory(
    prepared: PreparedSample, fit: ResolvedFit, engine: Engine, progress: Progress
) -> FeatureMapFactory:
    """A function that builds the feature map of a fit of any size.

    One pass for the principal axes of rff-pca. The returned function makes no pass, except with RPCholesky over all
    rows.
    """
    method: Any = fit.spec.method_value
    columns = prepared.columns
    if method.principal:
        principal = principal_axes(prepared, fit.spec, engine, progress)
        return lambda sized: principal_features(prepared, principal, method, sized)
    if not method.landmarks:
        return lambda sized: random_features(prepared, method, sized)

    def kernel_rows(sized: ResolvedFit) -> KernelRows:
        if sized.spec.exact:
            chosen = columns.shifted(prepared.sampled.sample)
        else:
            chosen = choose_landmarks(prepared, sized, engine, progress)
        return KernelRows(columns.kernel, columns.offset, chosen, scale=columns.scale)

    return kernel_rows
