"""Scores of rows where a model serves: an estimator without Dask and Zarr, and ONNX."""

from __future__ import annotations

from bigkpca.serving.fitted import FittedKernelPCA
from bigkpca.serving.onnx import onnx_model

__all__ = ["FittedKernelPCA", "onnx_model"]
