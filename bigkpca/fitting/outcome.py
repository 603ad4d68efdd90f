"""Run the passes of a fit and solve its eigenproblem."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace

import numpy as np

from bigkpca.data.rows import Rows
from bigkpca.errors import Array
from bigkpca.execution.engine import Engine
from bigkpca.execution.passes import action_of, sums_of
from bigkpca.execution.progress import Progress
from bigkpca.fitting.choose_features import Choice, ChosenFeatures
from bigkpca.fitting.solve import Checks, solve
from bigkpca.numerics import eigenpairs, rounding
from bigkpca.numerics.certificates.certificate import Certificate
from bigkpca.numerics.eigenpairs import Solution
from bigkpca.numerics.features import FeatureMap, has_landmarks
from bigkpca.numerics.linalg import rank_tolerance
from bigkpca.numerics.moments import ShiftedSums
from bigkpca.numerics.random_streams import SKETCH, random_stream
from bigkpca.numerics.sketch import OVERSAMPLING, Action, leading_eigenpairs, starting_block
from bigkpca.numerics.span import Basis
from bigkpca.spec import FitSpec, ResolvedFit


@dataclass(frozen=True)
class FitOutcome:
    """Solution, certificate and sums of a fit, with the digest of its rows."""

    solution: Solution
    certificate: Certificate
    sums: ShiftedSums | None
    digest: str  # SHA-256 of the rows
    choices: tuple[Choice, ...]
    basis: Basis | None = None  # of the span of the landmarks


def fit_outcome(rows: Rows, chosen: ChosenFeatures, fit: ResolvedFit, engine: Engine, progress: Progress) -> FitOutcome:
    """Run the passes of a fit and solve its eigenproblem."""
    features, spec, basis = chosen.features, fit.spec, None
    sums, far = None, None
    choices: tuple[Choice, ...] = ()
    if not spec.exact and fit.randomized(features.size):
        solution, digest = _solve_by_sketch(rows, features, chosen.near_mean, spec, engine, progress)
        certified = Certificate()
    else:
        if spec.exact:
            assert has_landmarks(features)
            digest = hashlib.sha256(features.landmarks.tobytes()).hexdigest()  # the landmarks are the rows
        else:
            found = sums_of(rows, features, chosen.near_mean, spec.block_rows, engine, progress, kept=engine.kept)
            sums, digest, far = found.sums, found.content, found.far
        few = chosen.few[: rounding.MEASURED_ROWS]
        unseen, count = chosen.unseen, rows.shape[0]
        checks = Checks(few, chosen.near_mean, unseen, count, few, far=far, triangular=chosen.triangular)
        moments = None if sums is None else sums.moments
        with engine.small_work() as in_order:
            solution, certified, choices, basis = solve(moments, features, fit, checks, in_order)
    if chosen.kernel_error:
        certified = replace(certified, kernel_error=chosen.kernel_error.value)
    return FitOutcome(solution, certified, sums, digest, choices, basis)


def _solve_by_sketch(
    rows: Rows, features: FeatureMap, near_mean: Array, spec: FitSpec, engine: Engine, progress: Progress
) -> tuple[Solution, str]:
    """Leading eigenpairs of the scatter of the features from `sketch.PASSES` passes, without the D × D matrix."""
    assert isinstance(spec.components, int)  # the spec checks
    actions: list[tuple[Action, str]] = []

    def apply(Q: Array) -> Array:
        actions[:] = [action_of(rows, features, near_mean, Q, spec.block_rows, engine, progress)]
        return actions[0][0].applied(Q, near_mean, spec.center)

    D, count = features.size, min(spec.components, features.size)
    start = starting_block(D, min(D, count + OVERSAMPLING), random_stream(spec.seed, SKETCH))
    found = leading_eigenpairs(apply, start, count)
    ((action, digest),) = actions
    unexplained = features.unexplained(action.squares_about_zero(near_mean), action.count)
    mean = action.mean(near_mean) if spec.center else np.zeros(features.size)
    tolerance = rank_tolerance(features.dtype)
    solution = eigenpairs.spectrum(
        found.values, found.vectors, mean, action.count, action.trace, spec.components, unexplained, tolerance
    )
    return solution, digest
