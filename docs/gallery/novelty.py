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
    residuals = kpca.residual(rows)
    (line,) = ax.step(np.sort(residuals), np.linspace(0, 100, len(rows)))
    side, height = (1, 30) if name == "8 and 9" else (-1, 70)
    place, color = (np.percentile(residuals, height), height), line.get_color()
    ha = "left" if side > 0 else "right"
    ax.annotate(
        name,
        place,
        (8 * side, 0),
        textcoords="offset points",
        ha=ha,
        va="center",
        color=color,
    )
ax.set(
    xlabel="residual |φ(x) − φ̂(x)|² (no unit)",
    ylabel="rows with at most this residual (%)",
)
ax.set(
    xscale="log",
    xlim=(0.02, 1.4),
    ylim=(0, 100),
    xticks=[0.02, 0.1, 0.5, 1],
    xticklabels=["0.02", "0.1", "0.5", "1"],
)
