"""KernelPCA, an estimator with the interface of scikit-learn."""

from __future__ import annotations

from bigkpca.estimator.kernel_pca import KernelPCA

__all__ = ["KernelPCA"]
