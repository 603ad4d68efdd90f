"""The devices on which tests compute in place of the processor: of array_api_strict, and of torch where it is
installed."""

from importlib.util import find_spec

import numpy as np
import pytest

from bigkpca.data.devices import Device
from bigkpca.numerics.array_api import on_host

NAMES = ("array_api_strict", *(["torch:cpu"] if find_spec("torch") else []))
every_device = pytest.mark.parametrize("device", NAMES)
TOLERANCES = {"float32": 1e-5, "float64": 1e-12}
every_dtype = pytest.mark.parametrize("dtype", TOLERANCES)


def place(device):
    """The function that moves an array of NumPy to the device of this name."""
    return Device.named(device).place


def agree(found, expected, dtype, **message):
    """Assert that an array of any library has the values of NumPy's, but for rounding of this dtype beside the largest
    of them; infinities are the same."""
    found, expected = on_host(found), np.asarray(expected)
    size = np.abs(expected[np.isfinite(expected)]).max(initial=0)
    np.testing.assert_allclose(found, expected, rtol=0, atol=TOLERANCES[np.dtype(dtype).name] * size, **message)
