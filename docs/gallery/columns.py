"""
Columns behind the components
=============================

A table of 178 wines and 13 columns with different units: flavanoids and phenols go with
component 1, the colour with component 2. The report shows such correlations for any
:doc:`table </tables>`.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_wine

from bigkpca import KernelPCA, plots

wine = load_wine(as_frame=True).data  # 178 wines, 13 columns of different units
kpca = KernelPCA(3, standardize=True, random_state=0).fit(wine)

fig, ax = plt.subplots(figsize=(5, 4.8))
plots.columns(kpca, wine, axes=ax)
