"""
Denoising
=========

Images that the fit did not see, with normal noise. PCA has 15 components, its best
number here. Errors are root mean squares over all 297 images, in grey values from 0 to
16.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA

from bigkpca import KernelPCA, preimages

X, y = load_digits(return_X_y=True)
fitted, shown = X[:1500], X[1500:]  # those that are shown were not fitted
noisy = shown + np.random.default_rng(0).normal(0, 4, shown.shape)

pca = PCA(15).fit(fitted)
kpca = KernelPCA(100, random_state=0, preimage=preimages.Denoising(noise=4)).fit(fitted)
pictures = {
    "clean": shown,
    "noise of 4\ngrey values": noisy,
    "PCA": pca.inverse_transform(pca.transform(noisy)),
    "kernel PCA": kpca.denoise(noisy),
}

first = [int(np.flatnonzero(y[1500:] == digit)[0]) for digit in range(0, 10, 2)]
fig, axes = plt.subplots(4, 5, figsize=(5, 3.9))
for (name, rows), row in zip(pictures.items(), axes, strict=True):
    error = np.sqrt(np.mean((rows - shown) ** 2))
    for i, ax in zip(first, row, strict=True):
        ax.imshow(rows[i].reshape(8, 8), vmin=0, vmax=16)
        ax.set(xticks=[], yticks=[])
        ax.spines[:].set_visible(False)
    label = name if name == "clean" else f"{name}\nRMS error {error:.1f}"
    row[0].set_ylabel(label, rotation=0, ha="right", va="center", fontsize=10)
