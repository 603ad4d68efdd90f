"""
Eigenvalues and their bounds
============================

The :doc:`certificate </certificates>` of a fit with 150 landmarks. Its eigenvalues are
lower bounds. The exact ones lie in the bars with 95 % confidence. Each component is
rated solid, fair or doubtful.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_digits

from bigkpca import KernelPCA, plots

X = load_digits().data
kpca = KernelPCA(20, size=150, landmarks="uniform", random_state=0).fit(X)
exact = (
    KernelPCA(20, sigma=kpca.sigma_, method="exact").fit(X).explained_variance_ratio_
)

fig, ax = plt.subplots(figsize=(5, 4))
plots.spectrum(kpca, axes=ax)
ax.plot(range(1, 21), 100 * exact, "k.", markersize=3, label="exact")
ax.legend(fontsize=9)
