import matplotlib.pyplot as plt
import numpy as np
from matplotlib.patheffects import withStroke
from sklearn.datasets import load_digits

from bigkpca import KernelPCA

X, y = load_digits(return_X_y=True)  # 1797 pictures of 8 x 8 grey values
scores = KernelPCA(2, random_state=0).fit_transform(X)

fig, ax = plt.subplots(figsize=(5, 4.6))
for digit in range(10):
    points = ax.scatter(
        *scores[y == digit].T, marker=f"${digit}$", s=28, linewidths=0, alpha=0.7
    )
    middle = np.median(scores[y == digit], axis=0)
    halo = [withStroke(linewidth=4, foreground="white")]
    ax.text(
        *middle, digit, size=18, color=points.get_facecolor()[0][:3], path_effects=halo
    )
ax.set(xlabel="score of component 1 (no unit)", ylabel="score of component 2 (no unit)")
