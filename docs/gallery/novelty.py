"""
Novelty
=======

The residual of a row is what its scores leave out. The fit saw digits from 0 to 7.
Digits that it never saw have larger residuals, and images turned by a quarter have the
largest.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

from bigkpca import KernelPCA

X, y = load_digits(return_X_y=True)
fitted = (y < 8) & (np.arange(len(X)) < 1000)
later = X[1000:][y[1000:] < 8]
kpca = KernelPCA(50, random_state=0).fit(X[fitted])  # has seen no 8 and no 9
groups = {
    "0 to 7,\nnot fitted": later,
    "8 and 9": X[y > 7],
    "0 to 7,\nturned": np.rot90(later.reshape(-1, 8, 8), axes=(1, 2)).reshape(-1, 64),
}

fig, ax = plt.subplots()
for name, rows in groups.items():
    residuals = np.sort(kpca.residual(rows))
    (line,) = ax.step(residuals, np.linspace(0, 100, len(rows)))
    height, factor, ha = (30, 1.1, "left") if name == "8 and 9" else (70, 0.9, "right")
    place = factor * np.percentile(residuals, height)
    ax.text(place, height, name, ha=ha, va="center", color=line.get_color())
ax.set(xlabel="residual |φ(x) − φ̂(x)|² (no unit)", xscale="log", xlim=(0.02, 1.4))
ax.set(xticks=[0.02, 0.1, 0.5, 1], xticklabels=["0.02", "0.1", "0.5", "1"])
ax.set(ylabel="rows with at most this residual (%)", ylim=(0, 100))
