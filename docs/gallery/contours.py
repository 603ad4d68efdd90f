"""
Contours of components
======================

Two rings, and the scores of the first two components over the plane. Along the thick
lines the score is 0: the first component separates the rings, which no line does.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import make_circles

from bigkpca import KernelPCA, plots

X, _ = make_circles(400, factor=0.3, noise=0.06, random_state=0)
kpca = KernelPCA(2, sigma=0.3, random_state=0).fit(X)

fig, axes = plt.subplots(1, 2, figsize=(7, 2.8))
for number, ax in enumerate(axes, 1):
    plots.contours(kpca, X, number, axes=ax)
