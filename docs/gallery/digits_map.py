"""
Map of digits
=============

Two components of 1797 images of handwritten digits. Each point is drawn as the digit
that it shows; the fit did not see these labels. Zeros, fours and sixes form groups of
their own, while ones, sevens and eights overlap.
"""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.patheffects import withStroke
from sklearn.datasets import load_digits

from bigkpca import KernelPCA

X, digits = load_digits(return_X_y=True)  # 1797 pictures of 8 x 8 grey values
scores = KernelPCA(2, random_state=0).fit_transform(X)

fig, ax = plt.subplots(figsize=(5, 4.6))
halo = {"path_effects": [withStroke(linewidth=4, foreground="white")], "size": 18}
for digit in range(10):
    x, y = scores[digits == digit].T
    ax.scatter(x, y, marker=f"${digit}$", s=28, linewidths=0, alpha=0.7)
    ax.text(np.median(x), np.median(y), digit, **halo)
ax.set(xlabel="score of component 1 (no unit)", ylabel="score of component 2 (no unit)")
