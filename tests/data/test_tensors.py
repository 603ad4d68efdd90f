"""Rows of tensors are those of the same array of NumPy, and stay on their device where a pass computes there."""

import builtins
import hashlib
import pickle
from importlib.util import find_spec
from unittest.mock import Mock

import array_api_strict
import dask
import dask.array as da
import numpy as np
import pytest

from bigkpca.data import rows as rows_module
from bigkpca.data.blocks import Block
from bigkpca.data.devices import Device
from bigkpca.data.frames import is_tensor
from bigkpca.data.opening import in_memory, open_rows, open_uncounted
from bigkpca.data.rows import ArrayRows, digest_of_rows, take, tiles
from bigkpca.errors import DataError, SpecError
from bigkpca.numerics.array_api import on_host
from tests.data.cases import refused

needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")
X = np.random.default_rng(0).normal(size=(103, 7))


class OnDevice(ArrayRows):
    """Rows of torch on the processor, treated as on another device."""

    device = Device("torch", "cpu")


def of_torch(values):
    import torch

    return torch.from_numpy(values.copy())


KINDS = {
    "array_api_strict": lambda values: open_rows(array_api_strict.asarray(values)),
    "torch in host memory": lambda values: open_rows(of_torch(values)),
    "torch on a device": lambda values: OnDevice(of_torch(values)),
}
every_kind = pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=needs_torch if "torch" in kind else ()) for kind in KINDS]
)


@pytest.fixture
def copied(monkeypatch):
    """The numbers of rows of all copies that rows on a device make in host memory."""
    counts = []
    monkeypatch.setattr(rows_module, "on_host", lambda values: (counts.append(values.shape[0]), on_host(values))[1])
    return counts


@every_kind
@pytest.mark.parametrize("dtype", ["f8", "f4", "i8", "u1", "?"])
def test_tensors_are_the_same_rows_as_arrays_and_arrays_in_another_process(kind, dtype):
    values = np.abs(10 * X).astype(dtype)
    rows, plain = KINDS[kind](values), ArrayRows(values)
    assert in_memory(rows)
    assert (rows.shape, rows.dtype, rows.held_bytes) == (values.shape, values.dtype, values.nbytes)
    assert rows.fingerprint() == plain.fingerprint()
    numbers = np.array([0, 1, 9, 10, 33, 102])
    np.testing.assert_array_equal(take(rows, numbers), values[numbers])
    np.testing.assert_array_equal(rows.block(20, 55), values[20:55])
    part = rows.part(20, 60)  # which counts rows as the whole does
    np.testing.assert_array_equal(part.block(30, 40), values[30:40])
    np.testing.assert_array_equal(take(part, np.array([20, 59])), values[[20, 59]])
    sent = pickle.loads(pickle.dumps(part))
    assert type(sent) is ArrayRows
    np.testing.assert_array_equal(sent.block(30, 40), values[30:40])
    assert digest_of_rows(rows.part(20, 60), Block(0, 20, 60)) == hashlib.sha256(values[20:60].tobytes()).hexdigest()
    for tile, other in zip(tiles(rows, 10, 103, 16), tiles(plain, 10, 103, 16), strict=True):
        assert type(tile) is np.ndarray
        np.testing.assert_array_equal(tile, other)


@needs_torch
def test_a_tensor_in_host_memory_is_not_copied():
    import torch

    tensor = of_torch(X)
    rows = open_rows(tensor)
    assert rows.device is None
    assert np.shares_memory(rows.values, tensor.numpy())
    assert not np.shares_memory(rows.values, X)
    assert open_rows(tensor.half()).dtype == np.float16
    np.testing.assert_array_equal(open_rows(torch.complex(tensor, tensor).conj().imag).block(0, 103), -X)  # lazy sign


def test_only_what_is_read_is_copied_from_a_device(copied, monkeypatch):
    monkeypatch.setattr(rows_module, "READ_BYTES", 8 * 7 * 8)
    rows = open_rows(array_api_strict.asarray(X))
    assert not copied
    rows.fingerprint()
    assert sum(copied) == 103
    assert max(copied) == 8
    copied.clear()
    rows.part(20, 60).block(30, 40)
    take(rows, np.array([3, 50, 51]))
    assert copied == [10, 3]
    copied.clear()
    pickle.dumps(rows.part(20, 60))
    assert copied == [40]


@pytest.mark.parametrize("kind", ["array_api_strict", pytest.param("torch on a device", marks=needs_torch)])
def test_tiles_stay_on_the_device_that_computes(kind, copied):
    rows = KINDS[kind](X.astype("f4"))
    device, plain = rows.device, ArrayRows(X.astype("f4"))
    found = list(tiles(rows, 10, 103, 16, device=device))
    assert not copied
    assert all(is_tensor(tile) for tile in found)
    digests = hashlib.sha256(), hashlib.sha256()
    again = list(tiles(rows, 10, 103, 16, digests[0], device=device))
    for tile, same, other in zip(found, again, tiles(plain, 10, 103, 16, digests[1], device=device), strict=True):
        assert type(other) is np.ndarray
        np.testing.assert_array_equal(on_host(tile), other)
        np.testing.assert_array_equal(on_host(same), other)
    assert digests[0].digest() == digests[1].digest()
    assert type(next(tiles(rows, 0, 103, 16, device=Device("cupy", "cuda:0")))) is np.ndarray


@every_kind
@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_a_number_that_is_not_finite_is_named(kind, wrong):
    values = X.copy()
    values[57, 3] = wrong
    rows = KINDS[kind](values)
    for digest in (None, hashlib.sha256()):
        for device in (None, rows.device):
            found = tiles(rows, 0, 103, 16, digest, device=device)
            refused(list, (found, DataError, r"the array: row 57, column 3 is (NaN|inf)"))
    refused(take, (rows, np.array([3, 57]), DataError, "row 57, column 3"))


@needs_torch
def test_tensors_without_an_array_of_numbers_are_refused():
    import torch

    T = of_torch(X)
    nested = torch.nested.nested_tensor([T[:2], T[:3]], layout=torch.jagged)
    advice = r"a nested or sparse tensor: pass .* X\.to_dense\(\) .* a sparse array of"
    refused(
        open_rows,
        (T.clone().requires_grad_(), SpecError, r"^the array .*requires grad\. Use tensor\.detach\(\)"),
        (torch.nn.Parameter(T), SpecError, r"^the array .*requires grad\. Use tensor\.detach\(\)"),
        (T.to_sparse(), SpecError, f"^the array .*{advice}"),
        (nested, SpecError, "^the array .*a nested or sparse tensor"),
        (T.to("meta"), SpecError, "^the array .*Cannot copy out of meta tensor"),
        (T.bfloat16(), SpecError, "^the array .*cannot be read as an array of NumPy: .* ScalarType BFloat16"),
        (T.to(torch.complex64), DataError, "^the array .*complex64 values: rows must be real numbers"),
        (T[:, 0], DataError, r"^the array .*shape \(103,\): rows must be two-dimensional"),
        (T[:0], DataError, "^the array .*is empty"),
    )
    assert type(open_rows(torch.nn.Parameter(T, requires_grad=False))) is ArrayRows


def in_dask(values, make, *, meta):
    """A Dask array of tensors, in chunks of 17 rows, with their own meta or, as most users leave it, NumPy's."""
    return da.from_array(values, chunks=(17, 7)).map_blocks(
        make, **({} if meta else {"dtype": values.dtype, "meta": np.empty((0, 0), values.dtype)})
    )


@pytest.mark.parametrize("make", [array_api_strict.asarray, pytest.param(of_torch, marks=needs_torch)])
def test_dask_arrays_of_tensors_are_rows(make):
    rows = open_rows(in_dask(X, make, meta=True))
    assert (rows.shape, rows.dtype, rows.device) == (X.shape, X.dtype, None)
    np.testing.assert_array_equal(rows.block(20, 55), X[20:55])
    (part,) = dask.compute(rows.part(20, 60), scheduler="synchronous")
    np.testing.assert_array_equal(part.block(30, 40), X[30:40])
    rows = open_uncounted(in_dask(X, make, meta=False))
    np.testing.assert_array_equal(rows.block(20, 30), X[20:30])  # of one chunk
    (part,) = dask.compute(rows.part(20, 30), scheduler="synchronous")
    assert part.where == "the dask array"
    assert part.device == (Device("array_api_strict", "cpu") if make is array_api_strict.asarray else None)
    np.testing.assert_array_equal(part.block(22, 27), X[22:27])


def test_no_library_is_imported_to_recognize_its_arrays(monkeypatch):
    imported = Mock(side_effect=builtins.__import__)
    monkeypatch.setattr(builtins, "__import__", imported)
    assert not is_tensor(X)
    open_rows(X)
    open_rows(X.tolist())
    monkeypatch.undo()
    names = {call.args[0].partition(".")[0] for call in imported.mock_calls}
    assert not names & {"torch", "cupy", "array_api_strict", "array_api_compat"}
