"""Error measures of an approximation of kernel PCA, coherence and leverage.

K (n, n) is the Gram matrix and K^ its approximation. Where n is too large for whole matrices, the `sampled_*` measures
take the blocks of m rows that were sampled uniformly. Formulas: `docs/numerics.md`, section 12. *The thesis* is the
master's thesis on random approximations of kernel PCA that `docs/sources.md` repeats; its section 4.1 defines measures.

Examples
--------
>>> import numpy as np
>>> from bigkpca import kernels, measures
>>> X = np.linspace(0, 1, 6)[:, None]
>>> K = kernels.Gaussian(0.5).gram(X)
>>> measures.matrix_error(K, K, 1) < 0  # an approximation of full rank is better than the best of rank 1
True
>>> measures.relative_accuracy(K, measures.nystroem_projection(K, np.array([0, 2, 5])), 1) > 0
True
"""

from __future__ import annotations

from bigkpca.numerics.measures.components import (
    eigenvalue_difference,
    eigenvalue_error,
    score_error,
    subspace_cosine,
    vector_agreement,
)
from bigkpca.numerics.measures.leverages import (
    coherence,
    largest_coherence,
    leverage,
)
from bigkpca.numerics.measures.matrices import (
    best_error,
    column_projection,
    matrix_error,
    nystroem_projection,
    relative_accuracy,
)
from bigkpca.numerics.measures.sampled import (
    sampled_matrix_error,
    sampled_norm,
    sampled_relative_accuracy,
)

__all__ = [
    "best_error",
    "coherence",
    "column_projection",
    "eigenvalue_difference",
    "eigenvalue_error",
    "largest_coherence",
    "leverage",
    "matrix_error",
    "nystroem_projection",
    "relative_accuracy",
    "sampled_matrix_error",
    "sampled_norm",
    "sampled_relative_accuracy",
    "score_error",
    "subspace_cosine",
    "vector_agreement",
]
