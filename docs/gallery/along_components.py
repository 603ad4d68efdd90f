"""
What a component means
======================

Images along the axis of one component, from two standard deviations below the mean to
two above. They are :doc:`pre-images </preimages>`, learned by ridge regression. For
example, component 1 leads from a four to a three.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

from bigkpca import KernelPCA

X = load_digits().data
kpca = KernelPCA(20, random_state=0, preimage="ridge").fit(X)
deviations = kpca.transform(X).std(axis=0)
steps = {"−2 SD": -2, "−1 SD": -1, "mean": 0, "+1 SD": 1, "+2 SD": 2}

fig, axes = plt.subplots(4, 5, figsize=(5, 4.3))
for component, row in enumerate(axes):
    scores = np.zeros((5, 20))
    scores[:, component] = deviations[component] * np.array(list(steps.values()))
    pictures = kpca.inverse_transform(scores)
    for picture, name, ax in zip(pictures, steps, row, strict=True):
        ax.imshow(picture.reshape(8, 8), vmin=0, vmax=16)
        ax.set(xticks=[], yticks=[])
        ax.spines[:].set_visible(False)
        if component == 0:
            ax.set_title(name, loc="center")
    row[0].set_ylabel(f"component {component + 1}", fontsize=10)
