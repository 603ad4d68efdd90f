"""PyTorch tensors, CuPy arrays and array_api_strict arrays as rows, and results of the same type. All are called
tensors here."""

from __future__ import annotations

from typing import Any

import numpy as np

from bigkpca.data.frames import is_of
from bigkpca.data.rows import ArrayRows, DeviceRows, check_shape
from bigkpca.errors import SpecError, check_numeric
from bigkpca.numerics.array_api import dtype_of


def is_of_torch(data: Any) -> bool:
    """Whether `data` is a PyTorch tensor, which is not imported for this."""
    return is_of(data, "torch", "Tensor")


def is_of_cupy(data: Any) -> bool:
    """Whether `data` is a CuPy array, which is not imported for this."""
    return is_of(data, "cupy", "ndarray")


def is_tensor(data: Any) -> bool:
    """Whether `data` is an array of one of these libraries."""
    return is_of_torch(data) or is_of_cupy(data) or is_of(data, "array_api_strict._array_object", "Array")


def tensor_rows(data: Any) -> ArrayRows:
    """Rows of a tensor: of the same memory, or on its device. Raises the errors of `check_tensor`."""
    where = "the array"
    check_tensor(data, where)
    check_shape(tuple(data.shape), where)
    if is_of_torch(data) and data.device.type == "cpu":
        return ArrayRows(data.numpy(force=True), where=where)  # copies only values with a lazy sign
    rows = DeviceRows(data, where=where)
    rows.device.finish()  # what computes the tensor: passes do not wait for other streams
    return rows


def check_tensor(data: Any, where: str) -> np.dtype[Any]:
    """The dtype of a tensor, as NumPy's. Raises SpecError for tensors that cannot become arrays of NumPy, e.g. since
    they are sparse or record operations for a gradient, and DataError for values that are not numbers."""
    if is_of_torch(data) and (data.is_nested or str(data.layout) != "torch.strided"):
        raise SpecError(
            f"{where} is a nested or sparse tensor: pass one with the same columns in all rows, as X.to_dense() gives, "
            "or a sparse array of SciPy"
        )
    try:
        if is_of_torch(data):
            data[:0].resolve_conj().resolve_neg().cpu().numpy()
        dtype = dtype_of(data)
    except (IndexError, RuntimeError, TypeError) as error:
        raise SpecError(f"{where} cannot be read as an array of NumPy: {error}") from error
    check_numeric(dtype, where)
    return dtype
