"""
Columns behind the components
=============================

A table of 178 wines and 13 columns with different units: flavanoids and phenols go with
component 1, the colour with component 2. The report draws such correlations for any
:doc:`table </tables>`.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_wine

from bigkpca import KernelPCA

wine = load_wine()  # 178 wines of three growers, 13 columns of different units
scores = KernelPCA(3, standardize=True, random_state=0).fit_transform(wine.data)
correlations = np.corrcoef(wine.data.T, scores.T)[:13, 13:]
order = np.argsort(-correlations[:, 0])

fig, ax = plt.subplots(figsize=(5, 4.8))
ax.imshow(correlations[order], cmap="PuOr", vmin=-1, vmax=1, aspect="auto")
for (i, j), value in np.ndenumerate(correlations[order]):
    color = "white" if abs(value) > 0.6 else "black"
    ax.text(j, i, f"{value:+.2f}", ha="center", va="center", color=color)
ax.set_yticks(range(13), [wine.feature_names[i].replace("_", " ") for i in order])
ax.set_xticks(range(3), ["1", "2", "3"])
ax.set(xlabel="component", title="correlation of columns with scores")
ax.tick_params(length=0)
ax.spines[:].set_visible(False)
