"""
Error against size
==================

Three approximations against exact kernel PCA: medians and ranges over three seeds.
With k-means landmarks the error is several times smaller than with uniformly drawn
rows. :doc:`/choosing` has more measurements.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

from bigkpca import KernelPCA, measures

X = load_digits().data
exact = KernelPCA(20, method="exact").fit(X)


def error(seed, **options):
    """Mean relative error of the 20 leading eigenvalues, in percent."""
    fitted = KernelPCA(20, sigma=exact.sigma_, random_state=seed, **options).fit(X)
    return 100 * measures.eigenvalue_error(exact.eigenvalues_, fitted.eigenvalues_)


variants = {
    "random\nfeatures": {"method": "rff"},
    "Nyström,\nuniform rows": {"landmarks": "uniform"},
    "Nyström,\nk-means": {"landmarks": "kmeans"},
}
sizes = [50, 100, 200, 400]
fig, ax = plt.subplots()
for name, options in variants.items():
    of_size = [
        [error(seed, size=size, **options) for seed in range(3)] for size in sizes
    ]
    least, median, most = np.sort(of_size).T
    (line,) = ax.loglog(sizes, median, "o-")
    ax.fill_between(sizes, least, most, color=line.get_color(), alpha=0.2)
    ax.text(1.1 * sizes[-1], median[-1], name, va="center", color=line.get_color())
ax.set(xlabel="landmarks or features", xticks=sizes, xticklabels=sizes)
ax.set(ylabel="error of 20 eigenvalues (%)", yticks=[1, 10], yticklabels=["1", "10"])
ax.minorticks_off()
