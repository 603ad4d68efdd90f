"""Files of bigkpca as somebody with bad intentions, or a broken disk, could hand them over; digests are made anew."""

import contextlib
import copy
import json
import os
import shutil
import sys
import tracemalloc
from functools import cache
from pathlib import Path

import numpy as np
import zarr
from hypothesis import strategies as st

from bigkpca import kernels
from bigkpca.errors import BigKPCAError
from bigkpca.storage import groups
from bigkpca.storage.models import _digest
from tests.helpers.disks import tree_bytes

GONE = object()
KINDS = {
    "landmarks": {"kernel": kernels.Gaussian(1.0) + 2 * kernels.Linear(), "landmarks": "uniform", "standardize": True},
    "waves": {"method": "rff", "preimage": "ridge:size=5"},
    "axes": {"method": "rff-pca", "preimage": "mds:rows=30"},
    "sketch": {"method": "rff", "kernel": "polynomial", "degree": 2, "preimage": "ridge:size=9"},
    "exact": {"method": "exact", "size": "auto", "dtype": "float32"},
    "given": {"method": "exact", "size": "auto", "kernel": "precomputed"},
}


def bounded(action, megabytes=5):
    """Run `action`, which must take little memory, NumPy's included."""
    tracemalloc.start()
    try:
        action()
    finally:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < megabytes * 1e6


def used(action, *named):
    """What `action` gives; None where it refuses with an error of bigkpca, whose message names all of `named`. Errors
    of other kinds are raised."""
    try:
        return action()
    except BigKPCAError as error:
        message = str(error)
    assert len(message) > 20
    assert all(str(each) in message for each in named)
    return None


def nested(depth):
    value = []
    for _ in range(depth):
        value = [value]
    return value


VALUES = st.sampled_from(
    [
        *(GONE, None, True, False, 0, -1, 1, 3, 2**31, 2**63, 10**30, 10**4000, 0.5, -0.0, 1e-320, 1e308),
        *(float("nan"), float("inf"), -float("inf"), "", "x", "gaussian", "precomputed", "linear", "rff", "fourier"),
        *("float32", "object", "|O8", "NaN", "Infinity", "../../x", "/etc/passwd", "a\0b", "s3://a/b", "é" * 9_000),
        *("os.system('true')", "__import__('os')", [], [[]], {}, [1, 2], ["a"], [None], {"name": "gaussian"}),
        *({"name": []}, {"name": "linear"}, {"name": "sum"}, {"name": "kmeans", "iterations": "many"}),
        {"name": "sum", "left": {"name": "linear"}, "right": {"name": "scaled", "kernel": {"name": "x"}, "factor": 1}},
        *({"name": "polynomial", "gamma": 1, "degree": 10**18}, {"name": "matern", "sigma": 1, "nu": 1e-300}),
        *([10**15, 3], [10**15], [-1, 3], [2**62, 2**62], [3, 10, 1], nested(150), nested(280)),
    ]
)
DRAWS = st.lists(st.tuples(st.integers(0, 10**6), VALUES), min_size=1, max_size=2)


def keys(value, above=()):
    """Where entries lie in nested JSON."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in pairs:
        yield (*above, key)
        yield from keys(part, (*above, key))


def changed(values, changes):
    """The JSON with some entries replaced or removed, counted in the order of `keys`."""
    values = copy.deepcopy(values)
    for number, new in changes:
        known = list(keys(values))
        if not known:
            break
        *above, last = known[number % len(known)]
        place = values
        for key in above:
            place = place[key]
        if new is GONE:
            del place[last]
        else:
            place[last] = copy.deepcopy(new)
    return values


def put(folder, content):
    """A folder with these files and no others."""
    shutil.rmtree(folder, ignore_errors=True)
    for name, data in content.items():
        path = Path(folder, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return str(folder)


def attribute(path):
    return json.loads(Path(path, "zarr.json").read_text())["attributes"]["bigkpca"]


def set_attribute(path, about):
    file = Path(path, "zarr.json")
    metadata = json.loads(file.read_text())
    metadata["attributes"]["bigkpca"] = about
    file.write_text(json.dumps(metadata))


def forge(path, about=None):
    """Give a model this attribute, or that it has, and the digest that goes with it."""
    about = attribute(path) if about is None else about
    if isinstance(about, dict) and "digest" in about:
        # No digest saves a file that has none.
        with contextlib.suppress(OSError, TypeError, KeyError, ValueError, RecursionError):
            known = {key: value for key, value in about.items() if key not in ("digest", "format_version")}
            arrays = {name: _array(Path(path, name)) for name in known["arrays"]}
            about = {**about, "digest": _digest(known, arrays)}
    set_attribute(path, about)


_DECODED = {}  # since most models differ by one array at most


def _array(path):
    """The values of an array."""
    content = tuple(tree_bytes(path).items())
    if content not in _DECODED:
        _DECODED[content] = zarr.open_array(str(path), mode="r")[...]
    return np.asarray(_DECODED[content])


def set_array(path, name, values):
    """Replace an array of a model, and forge its digest."""
    shutil.rmtree(Path(path, name), ignore_errors=True)
    new = groups.NewArray(values.dtype, values.shape[1:])
    groups.create_array(f"{path}/{name}", new, len(values), len(values))[...] = values
    forge(path)


_SEEN = []  # a list of events for the action that is watched
_RUNS = {"exec", "compile", "import", "subprocess.Popen", "os.system", "os.exec", "pickle.find_class", "marshal.loads"}


@cache
def _listen():
    def hook(event, args):
        # `asyncio` of Zarr only wakes its own thread: no socket is made, bound or connected.
        if _SEEN and (event in _RUNS or event == "open" or event.startswith("socket.")):
            _SEEN[0].append((event, args))

    sys.addaudithook(hook)  # which no Python takes off again


def watched(action):
    """What `action` executes, and the files that it opens."""
    _listen()
    _SEEN.append(seen := [])
    try:
        action()
    finally:
        _SEEN.clear()
    opened = {os.path.realpath(args[0]) for event, args in seen if event == "open" and isinstance(args[0], str)}
    return [f"{event} {args!r:.200}" for event, args in seen if event != "open"], opened
