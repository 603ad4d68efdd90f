"""PyTorch tensors, CuPy arrays and array_api_strict arrays as rows, and results of the same type. All are called
tensors here."""

from __future__ import annotations

from typing import Any

import numpy as np

from bigkpca.data.frames import is_of
from bigkpca.data.rows import ArrayRows, DeviceRows, check_shape
from bigkpca.errors import DataError, SpecError, check_numeric
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
    """The dtype of a tensor, as NumPy's. Raises SpecError for tensors without an array of values, or that record
    operations for a gradient, and DataError for values that are not numbers of NumPy."""
    if is_of_torch(data):
        if data.is_nested:
            raise SpecError(f"{where} is a nested tensor, whose rows differ in length: rows must have the same columns")
        if (layout := str(data.layout).removeprefix("torch.")) != "strided":
            raise SpecError(
                f"{where} is a tensor with the layout {layout}: pass X.to_dense() or, to keep rows sparse, a sparse "
                "array of SciPy"
            )
        if data.is_meta:
            raise SpecError(f"{where} is on the device 'meta', on which tensors have no values")
        if data.requires_grad:
            raise SpecError(f"{where} requires a gradient, which kernel PCA does not compute: pass X.detach()")
    try:
        dtype = dtype_of(data)
    except TypeError as error:
        raise DataError(
            f"{where} holds {data.dtype} values, a dtype that NumPy does not have: convert them first, as in X.float()"
        ) from error
    check_numeric(dtype, where)
    return dtype
