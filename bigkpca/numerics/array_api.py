"""One formula for NumPy arrays and for those of other libraries that follow the array API standard, such as PyTorch.

Formulas are written as for NumPy, with results in place (`out=`), and take their functions from `functions_of` an
array: for NumPy its own, so nothing is slower and no bit differs. Values that prepare or control a computation
(weights, shifts, row numbers) stay in host memory; `moved` brings them to the device of an array.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Literal, TypeGuard

import numpy as np

from bigkpca.errors import Array

Distance = Literal["sqeuclidean", "cityblock"]


def in_numpy(X: Any) -> TypeGuard[Array]:
    """Whether an array is NumPy's."""
    return isinstance(X, np.ndarray)


def functions_of(X: Any) -> Any:
    """The functions of the library of X under the names of the array API standard; all of them accept `out`."""
    return np if in_numpy(X) else _functions(_namespace(X))


def _namespace(X: Any) -> Any:
    from array_api_compat import array_namespace  # imports nothing, but only computation on devices needs it

    return array_namespace(X)


def _device(X: Any) -> Any:
    from array_api_compat import device

    return device(X)


class _Functions:
    """Functions of a namespace of the standard, which has no `out`, with this argument."""

    def __init__(self, namespace: Any) -> None:
        self._namespace = namespace

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._namespace, name)
        if not callable(found):
            return found

        def function(*arguments: Any, out: Any = None, **others: Any) -> Any:
            result = found(*arguments, **others)
            if out is None:
                return result
            out[...] = self._namespace.astype(result, out.dtype, copy=False)
            return out

        setattr(self, name, function)  # the next call finds it at once
        return function


_functions = lru_cache(_Functions)


def dtype_of(X: Any) -> np.dtype[Any]:
    """The dtype of X, as NumPy's."""
    return X.dtype if in_numpy(X) else np.dtype(str(X.dtype).rpartition(".")[2])


def astype(X: Any, dtype: Any) -> Any:
    """X in a NumPy dtype; X itself if it has this dtype."""
    if in_numpy(X):
        return X.astype(dtype, copy=False)
    xp = _namespace(X)
    return xp.astype(X, getattr(xp, np.dtype(dtype).name), copy=False)


def empty(shape: tuple[int, ...], like: Any, dtype: Any = None) -> Any:
    """An array of this shape on the device of `like`, in its dtype or this one of NumPy, with arbitrary values."""
    if in_numpy(like):
        return np.empty(shape, like.dtype if dtype is None else dtype)
    xp = _namespace(like)
    of_library = like.dtype if dtype is None else getattr(xp, np.dtype(dtype).name)
    return xp.empty(shape, dtype=of_library, device=_device(like))


def moved(X: Any, like: Any) -> Any:
    """A NumPy array on the device of `like`, with its own dtype; X itself if it is of the library of `like`."""
    return X if not in_numpy(X) or in_numpy(like) else sent(X, _namespace(like), _device(like))


def sent(X: Array, namespace: Any, device: Any) -> Any:
    """A copy of a NumPy array in the library of a namespace of the standard, on one of its devices."""
    if not X.flags.c_contiguous or min(X.strides, default=0) < 0:  # an axis of length 1 may have a negative stride
        X = np.array(X, order="C")
    return namespace.asarray(X, device=device, copy=True)


def on_host(X: Any) -> Array:
    """X as a NumPy array; X itself if it is one."""
    if in_numpy(X):
        return X
    from array_api_compat import is_cupy_array, is_torch_array

    if is_torch_array(X):
        return X.detach().cpu().numpy()
    return X.get() if is_cupy_array(X) else np.asarray(X)


def contiguous(X: Any) -> Any:
    """X in C order, with which NumPy multiplies faster; X itself if it is of another library."""
    return np.ascontiguousarray(X) if in_numpy(X) else X


def subtract(X: Any, y: Any, dtype: Any, out: Any = None) -> Any:
    """X - y, computed in a NumPy dtype."""
    if in_numpy(X):
        return np.subtract(X, y, out=out, dtype=dtype, casting="same_kind")
    return functions_of(X).subtract(astype(X, dtype), y, out=out)


def inner_products(A: Any, B: Any, dtype: Any = None, axis: int = 1) -> Any:
    """<a_i, b_i> of the rows of A and B (b, d), (b,), or of their columns with axis=0; added up in a NumPy dtype, by
    default that of A and B."""
    if in_numpy(A):
        return np.einsum("ij,ij->i" if axis else "ij,ij->j", A, B, **({} if dtype is None else {"dtype": dtype}))
    if dtype is not None:
        A, B = astype(A, dtype), astype(B, dtype)
    return functions_of(A).sum(A * B, axis=axis)


def rows_of(X: Any, numbers: Array) -> Any:
    """The rows of X (b, d) with these numbers in host memory, (m, d), where X is."""
    return X[numbers] if in_numpy(X) else functions_of(X).take(X, moved(numbers, X), axis=0)


def columns_of(X: Any, numbers: Array) -> Any:
    """The columns of X (b, d) with these numbers in host memory, (b, m), where X is."""
    return X[:, numbers] if in_numpy(X) else functions_of(X).take(X, moved(numbers, X), axis=1)


def set_columns(out: Any, numbers: Array, values: Any) -> None:
    """out[:, numbers] = values (b, c)."""
    if in_numpy(out):
        out[:, numbers] = values
        return
    # The standard has no assignment to several numbers.
    xp, order = functions_of(out), np.arange(out.shape[1])
    order[numbers] = out.shape[1] + np.arange(len(numbers))
    out[:, :] = columns_of(xp.concat([out, astype(values, dtype_of(out))], axis=1), order)


_DIFFERENCES = 2**24  # numbers that are held at once on a device


@np.errstate(over="ignore")  # as for cdist, which has no warning of infinite distances
def distances(X: Any, Y: Any, metric: Distance, out: Any = None) -> Any:
    """|x_i - y_j|² or, for "cityblock", |x_i - y_j|_1 of rows X (b, d) and Y (l, d), (b, l), float64, from
    differences: accurate also for rows that are near each other and far from the origin."""
    if in_numpy(X):
        from scipy.spatial.distance import cdist  # slow to import, and rarely needed

        return cdist(X, Y, metric, out=out)
    xp = functions_of(X)
    X, Y = astype(X, np.float64), astype(Y, np.float64)
    found = empty((X.shape[0], Y.shape[0]), X) if out is None else out
    step = max(1, _DIFFERENCES // max(1, X.shape[0] * X.shape[1]))
    for start in range(0, Y.shape[0], step):
        own = slice(start, min(start + step, Y.shape[0]))
        D = X[:, None, :] - Y[None, own, :]
        found[:, own] = xp.sum(xp.abs(D) if metric == "cityblock" else D * D, axis=2)
    return found
