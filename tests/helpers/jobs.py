"""Job files: written naively, and random ones that are right."""

import json
from collections.abc import Mapping

from hypothesis import strategies as st

from bigkpca.errors import SpecError
from bigkpca.spec.job import read_job

LEAST = '[input]\npath = "rows.zarr"\n[model]\npath = "model.zarr"\n[output]\npath = "features.zarr"\n'


def written(folder, text):
    """A job file with this text, in a folder."""
    path = folder / "nightly.toml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def job_of(folder, text, **environment):
    """The job of this text."""
    return read_job(written(folder, text), environment)


def problems_of(folder, text, **environment):
    """The lines of the error of a text, without the path of the file."""
    path = written(folder, text)
    return [line.removeprefix(f"{path}: ") for line in refusal(path, environment).splitlines()]


def refusal(path, environment):
    """The message of the SpecError of a file; nothing if it is read."""
    try:
        read_job(path, environment)
    except SpecError as error:
        return str(error)
    return ""


def problems_of_model(folder, options, **environment):
    """As `problems_of`, with these lines in the table [model]."""
    return problems_of(folder, LEAST.replace("[output]", f"{options}\n[output]"), **environment)


def toml_of(values):
    """TOML of these values: plain keys first, then a table for each mapping, with inline tables in it."""
    plain = {key: value for key, value in values.items() if not isinstance(value, Mapping)}
    tables = [f"[{_key(key)}]\n{_lines(value)}" for key, value in values.items() if key not in plain]
    return "".join([_lines(plain), *tables])


def _lines(values):
    return "".join(f"{_key(key)} = {toml_value(value)}\n" for key, value in values.items())


def toml_value(value):
    """A value as TOML, tables inline."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_key(key)} = {toml_value(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml_value, value)) + "]"
    if isinstance(value, bool):
        return str(value).lower()
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f") if isinstance(value, str) else repr(value)


def _key(key):
    return key if key.isascii() and key.replace("_", "").replace("-", "").isalnum() else toml_value(key)


def _some(required, **optional):
    return st.fixed_dictionaries({key: st.just(value) for key, value in required.items()}, optional=optional)


def positive(most=1e6):
    return st.floats(1e-6, most, allow_subnormal=False)


_COUNTS = st.integers(1, 10**9)
_LENGTHS = _some({}, sigma=positive() | st.just("median")) | st.fixed_dictionaries({"gamma": positive()})
_KERNELS = _some({}, kernel=st.sampled_from(["gaussian", "rbf", "laplacian", "matern"]))
_METHODS = st.one_of(
    _some({}, method=st.sampled_from(["nystroem", "nystrom"]), size=_COUNTS | st.just("auto")),
    _some({"method": "nystroem"}, tol=st.floats(0.01, 0.99), landmarks=st.sampled_from(["auto", "kmeans", "k-means"])),
    _some({"method": "columns"}, landmarks=st.sampled_from(["auto", "uniform"])),
    _some({"method": "exact"}, residual_tol=positive()),
    _some({"refine": 2, "n_components": 20}, residual_tol=positive()),
    _some({"method": "rff", "kernel": "gaussian"}, solver=st.sampled_from(["auto", "dense", "randomized"])),
    _some({"method": "rff-pca", "kernel": "rbf"}, n_directions=_COUNTS | st.just("auto")),
    _some({"kernel": "polynomial", "sigma": "median"}, degree=st.integers(1, 100), coef0=st.floats(0, 9)),
)
_OTHERS = _some(
    {},
    n_components=_COUNTS | st.floats(0.01, 0.99) | st.just("none"),
    random_state=st.integers(0, 2**63 - 1),
    center=st.booleans(),
    standardize=st.booleans(),
    column_weights=st.dictionaries(st.sampled_from(["origin", "kind=a b", "Ort"]), st.floats(0, 9) | st.just(2)),
    dtype=st.sampled_from(["float32", "float64"]),
    preimage=st.sampled_from(["fixed-point", "ridge", "ridge:size=500"]),
    noise=positive(),
)


@st.composite
def jobs(draw):
    """Values of a job file that is right, in any order of its tables; paths are full."""
    name = st.text(st.characters(codec="utf-8", exclude_characters="\0/?$", exclude_categories=["Cs"]), max_size=5)
    place = draw(st.sampled_from(["/lake", "s3://lake"]))
    model = {}
    for part in (_LENGTHS, _KERNELS, _OTHERS, _METHODS):  # later ones fit only what they set themselves
        model |= draw(part)
    if model.get("kernel") == "polynomial":
        model.pop("gamma", None)
    tables = {
        "input": {"path": f"{place}/rows{draw(name)}.zarr"} | draw(_some({}, array=name.map(lambda each: f"x{each}"))),
        "model": {"path": f"{place}/model.zarr"} | model,
        "output": {"path": "/data/features"} | draw(_some({}, block_rows=_COUNTS)),
        "run": draw(_runs()),
    }
    order = draw(st.permutations(list(tables)))
    return {table: tables[table] for table in order}


def _runs():
    shared = {
        "device": st.sampled_from(["cpu", "cuda", "cupy:cuda:1"]),
        "memory": st.sampled_from(["2 GB", "500MB", "1.5 GiB"]),
        "timeout": st.sampled_from(["10 min", "90 s", "1.5 h", "600"]) | positive(),
        "on_drift": st.sampled_from(["warn", "fail"]),
        "drift_threshold": st.floats(0.01, 1),
        "metrics": st.just("/var/metrics.prom"),
        "log": st.sampled_from(["plain", "json"]),
    }
    at = st.sampled_from(["tls://scheduler:8786", "10.0.0.1:1"])
    return _some({}, **shared, workers=_COUNTS) | _some({}, **shared, scheduler=at)
