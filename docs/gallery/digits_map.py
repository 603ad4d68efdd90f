"""
Map of digits
=============

Two components of 1797 images of handwritten digits, coloured by digit; the fit did not
see these labels. Zeros, fours and sixes form groups of their own, while ones, sevens
and eights overlap.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_digits

from bigkpca import KernelPCA, plots

X, digits = load_digits(return_X_y=True)  # 1797 pictures of 8 x 8 grey values
kpca = KernelPCA(2, random_state=0).fit(X)

fig, ax = plt.subplots(figsize=(5, 4.2))
plots.scores(kpca, X, color=digits, axes=ax)
