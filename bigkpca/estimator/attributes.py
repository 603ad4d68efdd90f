"""Attributes of a fitted KernelPCA."""

from __future__ import annotations

from bigkpca.errors import Array
from bigkpca.numerics.certificates.certificate import Certificate
from bigkpca.numerics.kernels import Kernel
from bigkpca.numerics.model import Model


class FittedAttributes:
    """Attributes of an estimator that keeps its model as `model_`. Raise AttributeError before the fit."""

    model_: Model

    @property
    def eigenvalues_(self) -> Array:
        """Eigenvalues of the (centred) Gram matrix, (r,)."""
        return self.model_.solution.eigenvalues

    @property
    def explained_variance_ratio_(self) -> Array:
        """eigenvalues_ / an upper bound on the trace, (r,).

        Never too large for Nyström with a positive semidefinite kernel; an estimate for columns, random features and
        other kernels.
        """
        return self.model_.solution.explained_variance_ratio

    @property
    def certificate_(self) -> Certificate:
        """How wrong the fit can be: bounds, estimates, and one word of trust for each component."""
        return self.model_.certificate

    @property
    def n_components_(self) -> int:
        """Number of components kept."""
        return self.model_.components

    @property
    def landmarks_(self) -> Array | None:
        """Landmarks in the units of the data, (l, d); None for random features."""
        return self.model_.features.landmarks_in_user_units()

    @property
    def kernel_(self) -> Kernel:
        """The kernel with its parameters."""
        return self.model_.features.kernel

    @property
    def sigma_(self) -> float | None:
        """Length of the kernel, None if it has none."""
        return getattr(self.kernel_, "sigma", None)

    @property
    def _n_features_out(self) -> int:
        return self.n_components_

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_")
