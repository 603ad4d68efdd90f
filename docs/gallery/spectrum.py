"""
Eigenvalues and their bounds
============================

The :doc:`certificate </certificates>` of a fit with 150 landmarks. Its eigenvalues are
lower bounds. The exact ones lie in the dark band with 95 % confidence, and in the light
band for certain. Each component is rated solid, fair or doubtful.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

from bigkpca import KernelPCA

X = load_digits().data
kpca = KernelPCA(20, size=150, landmarks="uniform", random_state=0).fit(X)
exact = KernelPCA(20, sigma=kpca.sigma_, method="exact").fit(X).eigenvalues_
known, j, found = kpca.certificate_, np.arange(1, 21), kpca.eigenvalues_
least, most = known.eigenvalue_lower, known.eigenvalue_upper

fig, ax = plt.subplots(figsize=(5, 4))
ax.fill_between(j, least, most, color="0.9", step="mid")
ax.fill_between(j, least, known.eigenvalue_likely_upper, color="0.75", step="mid")
ax.plot(j, exact, "_", color="black", markersize=9)
for trust, marker in {"solid": "o", "fair": "^", "doubtful": "x"}.items():
    those = np.flatnonzero(np.array(known.trust) == trust)
    (drawn,) = ax.plot(j[those], found[those], marker, linestyle="")
    third = those[2]
    below = {"ha": "right", "va": "top", "color": drawn.get_color()}
    ax.text(j[third] - 0.2, 0.9 * found[third], trust, **below)
ax.text(9, 60, "proven", color="0.35")
line = {"arrowstyle": "-", "color": "0.35"}
ax.annotate("95 % confidence", (12, 22), (13, 33), color="0.35", arrowprops=line)
ax.text(20.5, exact[19], "exact", va="center")
ax.set(xlabel="component", xticks=[1, 5, 10, 15, 20])
ax.set(ylabel="eigenvalue of the Gram matrix", yscale="log")
