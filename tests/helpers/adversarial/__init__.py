"""Hard data for kernel PCA, and what a fit says of itself held against float64 truth.

A seed makes a case, a case makes rows and a fit. The truth is the Gram matrix of the rows as stored, from differences
and in long doubles. Kinds of problems:

* false proven bound: a lower bound, a residual or what is proven to be unexplained does not hold, or a Nyström share of
  variance of a positive kernel is too large, by more than the certificate's own `rounding`. Not counted where
  IndefiniteKernelWarning said that the kernel is outside the proofs.
* silent wrong spectrum: one of the five leading eigenvalues is off by more than 5 %, nothing was warned of, and it is
  not told either: by bounds on both sides that hold the true one; where there are none, by a trust below solid, or by
  `missed` and `rounding` that are as large. A likely bound that misses is counted as such, not here too.
* likely bound missed: at most one for each fit, since all its bounds hold together as often as it says.
* solid or fair without cosine: the scores of a component have cosine < 0.99 (solid) or < 0.9 (fair) with the true
  eigenvectors of its rank.
* nan; unexpected error: any exception or warning that is not of bigkpca.errors.
"""
