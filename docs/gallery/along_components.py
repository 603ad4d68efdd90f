"""
What a component means
======================

Images along the axis of one component, from two standard deviations below the mean to
two above. They are :doc:`pre-images </preimages>`, made by ridge regression. For
example, component 1 leads from a four to a three.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_digits

from bigkpca import KernelPCA, plots

X = load_digits().data
kpca = KernelPCA(20, random_state=0, preimage="ridge").fit(X)

fig, axes = plt.subplots(4, figsize=(5, 5.6), sharex=True)
for number, ax in enumerate(axes, 1):
    plots.component(kpca, number, image_shape=(8, 8), cmap="gray_r", axes=ax)
