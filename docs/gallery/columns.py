"""
What scores explain of columns
==============================

A table of 178 wines and 13 columns with different units. The bars are shares of the
variance of each column that a linear function of three scores explains, in rows that
the fit did not see; the marks are those of linear PCA. The report of any
:doc:`table </tables>` has this figure.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_wine

from bigkpca import KernelPCA, plots

wine = load_wine(as_frame=True).data  # 178 wines, 13 columns of different units
kpca = KernelPCA(3, standardize=True, calibration_rows=80, random_state=0).fit(wine)

fig, ax = plt.subplots(figsize=(5, 4.8))
plots.columns(kpca, axes=ax)
