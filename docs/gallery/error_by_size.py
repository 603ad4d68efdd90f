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
    errors = np.array(
        [[error(seed, size=size, **options) for seed in range(3)] for size in sizes]
    )
    (line,) = ax.loglog(sizes, np.median(errors, axis=1), "o-")
    ax.fill_between(
        sizes, errors.min(axis=1), errors.max(axis=1), color=line.get_color(), alpha=0.2
    )
    end, color = (sizes[-1], np.median(errors[-1])), line.get_color()
    ax.annotate(name, end, (8, 0), textcoords="offset points", va="center", color=color)
ax.set(
    xlabel="landmarks or features",
    ylabel="error of 20 eigenvalues (%)",
    xticks=sizes,
    xticklabels=sizes,
)
ax.set(yticks=[1, 10], yticklabels=["1", "10"])
ax.minorticks_off()
