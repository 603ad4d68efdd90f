import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

from bigkpca import KernelPCA

X = load_digits().data
kpca = KernelPCA(20, size=150, landmarks="uniform", random_state=0).fit(X)
exact = KernelPCA(20, sigma=kpca.sigma_, method="exact").fit(X)
known, j = kpca.certificate_, np.arange(1, 21)

fig, ax = plt.subplots(figsize=(5, 4))
ax.fill_between(
    j, known.eigenvalue_lower, known.eigenvalue_upper, color="0.9", step="mid"
)
ax.fill_between(
    j, known.eigenvalue_lower, known.eigenvalue_likely_upper, color="0.75", step="mid"
)
ax.plot(j, exact.eigenvalues_, "_", color="black", markersize=9)
for trust, marker in {"solid": "o", "fair": "^", "doubtful": "x"}.items():
    those = np.array(known.trust) == trust
    (drawn,) = ax.plot(j[those], kpca.eigenvalues_[those], marker, linestyle="")
    third = np.flatnonzero(those)[2]
    place, color = (third + 1, kpca.eigenvalues_[third]), drawn.get_color()
    ax.annotate(
        trust,
        place,
        (0, -10),
        textcoords="offset points",
        ha="right",
        va="top",
        color=color,
    )
ax.text(9, 60, "proven", color="0.35")
ax.annotate(
    "95 % confidence",
    (12, 22),
    (13, 33),
    color="0.35",
    arrowprops={"arrowstyle": "-", "color": "0.35"},
)
ax.annotate(
    "exact",
    (20, exact.eigenvalues_[19]),
    (6, 0),
    textcoords="offset points",
    va="center",
)
ax.set(
    xlabel="component",
    ylabel="eigenvalue of the Gram matrix",
    yscale="log",
    xticks=[1, 5, 10, 15, 20],
)
