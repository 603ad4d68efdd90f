"""Principal axes of the rows themselves, and how many of them RFF-PCA needs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bigkpca.errors import Array
from bigkpca.numerics.linalg import eigh_descending, signs

BIAS = 0.02  # root mean square of the relative bias of k(x, y) that leaving axes out may cause


@dataclass(frozen=True)
class PrincipalAxes:
    """Mean (d,), leading axes (d, q) in orthonormal columns, variances (q,) along them, and the sum of all d variances.

    Variances divide by n.
    """

    mean: Array
    axes: Array
    variances: Array
    total: float

    def residual(self, kept: int) -> float:
        """tr(Sigma_res): the variance outside the `kept` leading axes."""
        return max(self.total - float(self.variances[:kept].sum()), 0.0)

    def directions(self, sigma: float, components: int, frequencies: int) -> int:
        """The smallest d* for which |Sigma_res|_F / sigma² <= 0.02, but at least as many as components, at most q and
        as many as there are frequencies.

        Of axes that are not known, no variance exceeds the last that is, which bounds their part. A wide kernel's
        components are close to the principal axes, so fewer axes than components would lose the last: with 50
        components on MNIST their mean error is 0.8 % with 50 axes, 27 % with 30, 1.0 % with 200, at D = 2000. More axes
        than frequencies leave no complete block of orthogonal ones, whose errors largely cancel.
        """
        unknown = self.residual(len(self.variances)) * self.variances[-1]
        tails = np.sqrt(np.cumsum(self.variances[::-1] ** 2)[::-1] + unknown) / sigma**2
        return min(max(int(np.count_nonzero(tails > BIAS)), components), len(self.variances), frequencies)


def axes_of_covariance(mean: Array, scatter: Array, count: int) -> PrincipalAxes:
    """All principal axes, from the scatter matrix (d, d) of `count` rows, float64. Signs: largest entries positive."""
    variances, axes = eigh_descending(scatter / count)
    return PrincipalAxes(mean, axes * signs(axes), np.maximum(variances, 0), float(np.trace(scatter)) / count)
