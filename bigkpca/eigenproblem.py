"""The small eigenproblem that a pass leaves: solution, certificate, and how many components where that is open."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bigkpca.choose import Choice
from bigkpca.errors import SpecError
from bigkpca.numerics import certificate
from bigkpca.numerics.certificate import Certificate
from bigkpca.numerics.features import FeatureMap, KernelRows
from bigkpca.numerics.landmarks import Uniform
from bigkpca.numerics.linalg import rank_tolerance
from bigkpca.numerics.moments import Moments
from bigkpca.numerics.solvers import Solution
from bigkpca.spec import FitSpec

Solved = tuple[Solution, Certificate, tuple[Choice, ...]]

_MOST_AUTOMATIC = 50  # components among which a gap is looked for


def solve(moments: Moments | None, features: FeatureMap, spec: FitSpec) -> Solved:
    """The solution of the method of `spec`, its certificate, and how many components were chosen where that was open.

    moments are None for the exact method alone.
    """

    def with_components(components: Any) -> tuple[Solution, Certificate]:
        tolerance = rank_tolerance(features.dtype)
        solution = spec.method_value.solve(moments, features, components, spec.center, tolerance)  # type: ignore[arg-type]
        return solution, certify(moments, features, solution, spec)

    return chosen_components(spec, with_components)


def chosen_components(spec: FitSpec, with_components: Callable[[Any], tuple[Solution, Certificate]]) -> Solved:
    """What `with_components(r)` solves, for r as the spec says, or by the largest gap among trustworthy components."""
    if spec.components != "auto":
        solution, certified = with_components(spec.components)
        return solution, certified, _share_reached(solution, spec)
    solution, certified = with_components(_MOST_AUTOMATIC + 1)
    if certified.trust is None:
        raise SpecError(
            f"components='auto' needs to know which are trustworthy, which {spec.method_value.name} cannot tell here"
        )
    sure = certificate.trustworthy(certified.trust)
    r, ratio = certificate.before_largest_gap(solution.eigenvalues[: sure + 1])
    reason = f"the largest gap, by a factor of {ratio:.3g}, behind one of the {sure} leading trustworthy components"
    if not sure:
        reason = "not even the first is trustworthy: give a larger size"
    # Solved again, so that asking for this number gives the same bits.
    return *with_components(r), (Choice("components", r, reason),)


def _share_reached(solution: Solution, spec: FitSpec) -> tuple[Choice, ...]:
    if not isinstance(spec.components, float):
        return ()
    r, share = len(solution.eigenvalues), float(solution.explained_variance_ratio.sum())
    enough = f"the fewest with {spec.components:.4g} of the variance" if share >= spec.components else "all there are"
    return (Choice("components", r, f"{enough}: at least {share:.4g} of it"),)


def certify(moments: Moments | None, features: FeatureMap, solution: Solution, spec: FitSpec) -> Certificate:
    """What the moments prove and suggest about the error; nothing for the randomized solver, which leaves none."""
    method, tolerance = spec.method_value, rank_tolerance(features.dtype)
    if spec.exact:
        return certificate.of_gram(solution)
    if moments is None:
        return Certificate()
    if isinstance(features, KernelRows):
        uniform = isinstance(spec.landmark_rule(), Uniform)
        return certificate.of_landmarks(
            method, moments, features, solution, center=spec.center, tolerance=tolerance, uniform=uniform
        )
    return certificate.of_random_features(method, moments, features, solution, center=spec.center, tolerance=tolerance)
