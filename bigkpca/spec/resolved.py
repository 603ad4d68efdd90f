"""The meaning of the options of a fit for given rows, resolved once: size, landmark rule, dtype, solver."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bigkpca.data.blocks import sample_rows
from bigkpca.data.rows import Rows
from bigkpca.errors import SpecError
from bigkpca.numerics import landmarks, subspace
from bigkpca.numerics.drawn_rows import DRAWN_ROWS
from bigkpca.numerics.kernels import Kernel
from bigkpca.numerics.kernels.base import SimpleKernel
from bigkpca.numerics.landmarks import LandmarkRule
from bigkpca.numerics.solvers import OVERSAMPLING
from bigkpca.spec.fit_spec import FitSpec

EXACT_MOST_ROWS = 8192  # 0.5 GB of float64 Gram matrix
DENSE_MOST_FEATURES = 8192  # the same, for the D x D moments of random features
RANDOM_FEATURES = 2048
_PER_COMPONENT, _LEAST_LANDMARKS, _MOST_LANDMARKS = 20, 500, 2000
SIZE_RULE = f"{_PER_COMPONENT} per component, at least {_LEAST_LANDMARKS} and at most {_MOST_LANDMARKS}"
_DRAWN_BYTES, _LEAST_DRAWN = 16_000_000, 128
_MOST_GROWN = 8192  # landmarks or random features that a size grows to: their square matrices take 0.5 GB


@dataclass(frozen=True)
class ResolvedFit:
    """A fit of n rows of d columns, in which only what depends on the values of the rows is still open.

    `spec` holds what does not depend on rows. size is D: all rows, the size that was given, or the most that a
    tolerance may need; by default 2048 random features, or min(max(20 r, 500), 2000) landmarks, but at least r and at
    most n. sample is the number of rows of the bounded sample, and most_drawn about the most rows that passes draw to
    judge the fit: 2048, or 16 MB as float32 but at least 128; 0 for the exact method. matrix_free says that eigenpairs
    come from products with the Gram matrix.
    """

    spec: FitSpec
    n: int
    d: int
    stored: np.dtype[Any]  # of the rows
    dtype: np.dtype[Any]  # of block work
    size: int
    size_reason: str
    sample: int
    most_drawn: int
    matrix_free: bool
    rule: LandmarkRule | None  # None for random features and the exact method, which choose no rows
    rule_reason: str

    def at(self, size: int) -> ResolvedFit:
        """The same fit with that size, and no tolerance."""
        return self.changed(size=size, tol=None)

    def start(self) -> ResolvedFit:
        """The approximate fit from which products with the Gram matrix start: a few more components."""
        assert isinstance(self.spec.n_components, int)  # `matrix_free` makes sure
        changed: dict[str, Any] = {"n_components": self.spec.n_components + OVERSAMPLING, "refine": 0}
        return self.changed(**changed | ({"method": "nystroem"} if self.spec.exact else {}))

    def with_features(self, size: int, dtype: np.dtype[Any]) -> ResolvedFit:
        """The same fit with existing features, whose number is not limited by the rows: no row is chosen."""
        spec = self.spec.model_copy(update={"tol": None})
        return replace(self, spec=spec, size=size, dtype=dtype, rule=None, rule_reason="")

    @property
    def most_axes(self) -> int:
        """The most axes of a principal subspace in which the landmarks may lie; 0 if they are whole rows."""
        rule = self.rule
        if not isinstance(rule, landmarks.KMeans) or not (rule.subspace and rule.iterations):
            return 0
        kernel = self.kernel(1.0)
        if not (kernel.isotropic and kernel.positive):
            return 0
        return subspace.most_axes(self.n, min(self.sample, rule.most_rows(self.size)), self.d, self.size)

    def changed(self, **fields: Any) -> ResolvedFit:
        """The fit of the same rows with other fields of the spec."""
        return resolve_shape(self.spec.model_copy(update=fields), self.n, self.d, self.stored)

    def kernel(self, measured: float | None) -> Kernel:
        """The kernel; `measured` is the value from the sample, if the spec asks for one: see `FitSpec.kernel_value`."""
        return self.spec.kernel_value(self.d, measured)

    def randomized(self, D: int) -> bool:
        """Whether eigenpairs of D random features come from a sketch, which never holds a D x D matrix."""
        return randomized(self.spec, D)


def resolve(spec: FitSpec, rows: Rows) -> ResolvedFit:
    """The meaning of the spec for these rows. Raises SpecError if it needs a number of components and has none, and if
    column weights do not fit the rows."""
    return resolve_shape(spec.for_rows(rows), *rows.shape, rows.dtype)


def resolve_shape(spec: FitSpec, n: int, d: int, stored: np.dtype[Any]) -> ResolvedFit:
    """The meaning of the spec for n rows of d columns, stored in that dtype. Raises SpecError as `resolve` does."""
    method, large = spec.method_value, spec.exact and not spec.precomputed and n > EXACT_MOST_ROWS
    if large and not isinstance(spec.n_components, int):
        raise SpecError(
            f"method='exact' above {EXACT_MOST_ROWS} rows needs a number of components, not {spec.n_components}"
        )
    size, size_reason = _size(spec, n, d)
    rule, rule_reason = _rule(spec) if method.landmarks and not spec.exact else (None, "")
    most_drawn = 0
    if not spec.exact:
        most_drawn = min(DRAWN_ROWS, max(_LEAST_DRAWN, _DRAWN_BYTES // (4 * d)))
    widest = np.dtype(np.float64)  # long doubles gain nothing in a matrix product
    return ResolvedFit(
        spec=spec,
        n=n,
        d=d,
        stored=stored,
        dtype=np.dtype(spec.dtype) if spec.dtype else min(np.result_type(stored, np.float32), widest),
        size=size,
        size_reason=size_reason,
        sample=sample_rows(n, d, size if method.landmarks else 0),
        most_drawn=most_drawn,
        matrix_free=large or spec.refine > 0,
        rule=rule,
        rule_reason=rule_reason,
    )


def _size(spec: FitSpec, n: int, d: int) -> tuple[int, str]:
    """D, and the reason for it."""
    of_landmarks = spec.method_value.landmarks
    if spec.exact:
        return n, "every row is a landmark"
    if spec.given_landmarks is not None:
        return spec.given_landmarks, "the landmarks that were given"
    if spec.size != "auto":
        return (min(spec.size, n) if of_landmarks else spec.size), "the size that was given"
    if spec.tol is not None:
        most = min(_MOST_GROWN, sample_rows(n, d, 0), n) if of_landmarks else _MOST_GROWN
        return most, "the largest size that a fit grows to"
    if not of_landmarks:
        return RANDOM_FEATURES, "the default number of random features"
    kept = spec.n_components if isinstance(spec.n_components, int) else 50
    wanted = min(max(_PER_COMPONENT * kept, _LEAST_LANDMARKS), max(_MOST_LANDMARKS, kept))
    if n <= wanted:
        return n, "all rows, since there are no more"
    return wanted, "one for each component" if kept > _MOST_LANDMARKS else SIZE_RULE


def _rule(spec: FitSpec) -> tuple[LandmarkRule, str]:
    """The landmark rule with its options, and why it suits the method and kernel."""
    if not isinstance(spec.landmarks, str):
        rule: LandmarkRule = spec.landmarks
        return rule, "the rule that was given"
    if spec.landmarks != "auto":
        return landmarks.named(spec.landmarks), "the rule that was given"
    if spec.method_value.uniform:
        return landmarks.Uniform(), "the formulas of the method assume rows drawn uniformly"
    if spec.stationary:
        return landmarks.KMeans(), "the kernel depends on x - y, so means of rows can stand for rows"
    kernel = spec.kernel_value(1, 1.0)
    if isinstance(kernel, SimpleKernel) and not kernel.positive:
        return landmarks.Uniform(), "the kernel is not positive semidefinite, as other rules require"
    return landmarks.RPCholesky(), "the kernel has no length, so landmarks are rows that others do not explain yet"


def randomized(spec: FitSpec, D: int) -> bool:
    """Whether eigenpairs of D random features come from a sketch. Raises SpecError if it needs a number."""
    chosen = spec.solver == "randomized" or (
        spec.solver == "auto" and D > DENSE_MOST_FEATURES and not spec.method_value.landmarks
    )
    if chosen and not isinstance(spec.n_components, int):
        raise SpecError(
            f"the randomized solver, used above {DENSE_MOST_FEATURES} random features or when asked for, needs a "
            f"number of components, not {spec.n_components}: give one, or solver='dense'"
        )
    return chosen
