"""The paths of a job: made absolute, and apart from each other."""

from __future__ import annotations

from itertools import combinations, product

from bigkpca.data.stores import expanded, is_url, store_of
from bigkpca.errors import SpecError
from bigkpca.spec.job.check import Check
from bigkpca.spec.job.text import JobText
from bigkpca.spec.job.toml_lines import Key

_INPUT, _MODEL, _OUTPUT = ("input", "path"), ("model", "path"), ("output", "path")
_METRICS, _LANDMARKS = ("run", "metrics"), ("model", "landmarks")
_WRITTEN = (_MODEL, _OUTPUT, _METRICS)
_NO_PATH = "give a local path, or a URL that begins with s3://, gs:// or az://"
_NO_OUTPUT = "nothing can be written there: name a new folder"


def check_paths(check: Check, file: JobText) -> None:
    """Make the paths of a job absolute, and check that none is written where another is."""
    if is_url(check.values.get(_METRICS, "")):
        check.wrong("metrics are a file for the node exporter of this machine: give a local path", _METRICS)
    for key in (_INPUT, _MODEL, _OUTPUT, _METRICS, _LANDMARKS):
        if key in check.values and (key != _LANDMARKS or is_file(check.values[key])):
            _make_absolute(check, key, file.folder)
    for key in _WRITTEN:
        if key in check.values:
            _check_writable(check, key)
    _check_apart(check, file)


def _make_absolute(check: Check, key: Key, folder: str) -> None:
    try:
        check.values[key] = absolute(check.values[key], folder)
    except (SpecError, ValueError, OSError) as error:
        check.wrong(str(error), key, instead=_NO_PATH)


def absolute(path: str, folder: str) -> str:
    """The full path of what a job file in a folder names. Raises SpecError for what is no path."""
    if "\0" in path:
        raise SpecError("a path holds no zero character: leave it out")
    path = expanded(path)
    return store_of(path).absolute(path if is_url(path) or path.startswith("/") else f"{folder}/{path}")


def _check_writable(check: Check, key: Key) -> None:
    path = check.values[key]
    try:
        store_of(path).output_path(path, ())
    except (SpecError, OSError) as error:
        check.wrong(str(error), key, instead=_NO_OUTPUT)


def _check_apart(check: Check, file: JobText) -> None:
    """Note each pair of paths of which one is written, and is, holds or lies in the other."""
    values = check.values
    read = [key for key in (_INPUT, _LANDMARKS) if key in values and (key == _INPUT or is_file(values[key]))]
    written = [key for key in _WRITTEN if key in values]
    pairs = [*product(written, read), *combinations(written, 2)]
    met = [pair for pair in pairs if _meet(values[pair[0]], values[pair[1]])]
    over = [key for key in written if _meet(values[key], file.file)]
    for pair in met:
        check.wrong("these are the same path, or one lies in the other: give each a path of its own", *pair)
    for key in over:
        check.wrong("this is, or holds, the job file: give another path", key)


def _meet(written: str, other: str) -> bool:
    """Whether a path that is written is, holds or lies in another one."""
    try:
        store_of(written).output_path(written, (other,))
    except SpecError:
        return True
    except OSError:
        return False  # which the run will tell
    return False


def is_file(landmarks: str) -> bool:
    """Whether landmarks are those in a file, rather than chosen by a rule."""
    return landmarks.endswith(".npy")
