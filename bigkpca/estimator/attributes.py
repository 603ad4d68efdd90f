"""Attributes of a fitted KernelPCA."""

from __future__ import annotations

import numpy as np

from bigkpca.errors import Array
from bigkpca.numerics.certificates.certificate import Certificate
from bigkpca.numerics.features import has_landmarks
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
    def gamma_(self) -> float | None:
        """Inverse width of the kernel as in scikit-learn, None if it has none: 1 / (2 sigma²) of the Gaussian."""
        return getattr(self.kernel_, "gamma", None)

    @property
    def eigenvectors_(self) -> Array:
        """Unit eigenvectors of the (centred) Gram matrix of the fitted rows, (n, r), where the model keeps all of them:
        scores of the fitted rows are eigenvectors_ √eigenvalues_, as far as iterations have converged. No pass.

        Raises AttributeError for other models.
        """
        model = self.model_
        if model.sums is not None or not (has_landmarks(model.features) or model.features.precomputed):
            raise AttributeError(
                "eigenvectors_ are held by models of method='exact' and with refine; of others, scores of the fitted "
                "rows over sqrt(eigenvalues_) approximate them"
            )
        return model.solution.components * np.sqrt(model.solution.eigenvalues)

    @property
    def _n_features_out(self) -> int:
        return self.n_components_

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_")
