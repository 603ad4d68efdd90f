"""Job files: read into values, or refused in one error that lists every problem."""

import re
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigkpca.errors import SpecError
from bigkpca.execution.options import RunOptions
from bigkpca.numerics.calibration import CALIBRATION_ROWS
from bigkpca.numerics.landmarks import OwnRows
from bigkpca.spec import FitSpec
from bigkpca.spec.job import JobRun, read_job
from tests.data.cases import case
from tests.helpers.jobs import LEAST, job_of, refusal, toml_of, written

RUN = LEAST + "[run]\n"
# Tables with every key.
FULL = {
    "run": {
        "workers": 4,
        "device": "cupy:cuda:1",
        "memory": "1.5 GiB",
        "timeout": "90 s",
        "on_drift": "fail",
        "drift_threshold": 0.5,
        "metrics": "/var/metrics.prom",
    },
    "output": {"path": "s3://lake/features", "block_rows": 9, "flag": 0.01, "must_exist": True},
    "model": {
        "path": "s3://lake/model.zarr",
        "n_components": 20,
        "kernel": "laplacian",
        "sigma": 2.5,
        "center": False,
        "method": "nystroem",
        "size": 500,
        "preimage": "ridge:ridge=0.5,size=500",
        "calibration_rows": 300,
        "random_state": 2**63 - 1,
        "dtype": "float32",
        "column_weights": {"origin": 2.0, "kind=a b": 0.5},
    },
    "input": {"path": "s3://lake/rows.zarr"},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("jobs")


def problems_of(folder, text, **environment):
    """The lines of the error of a text, without the path of the file."""
    path = written(folder, text)
    return [line.removeprefix(f"{path}: ") for line in refusal(path, environment).splitlines()]


def of_model(lines):
    """A job with these lines in the table of its model."""
    return LEAST.replace("[output]", f"{lines}\n[output]")


def test_jobs_are_read_back_and_any_value_may_come_from_the_environment(tmp_path):
    spec = {name: value for name, value in FULL["model"].items() if name != "path"}
    moved = {name: {key: f"${{{name}_{key}}}" for key in table} for name, table in FULL.items()}
    environment = {f"{name}_{key}": str(value) for name, table in FULL.items() for key, value in table.items()}
    moved["model"]["column_weights"] = spec["column_weights"]
    for tables in (FULL, moved):
        job = job_of(tmp_path, toml_of(tables), **environment)
        for name in ("input", "output", "run"):
            assert getattr(job, name).model_dump(exclude_unset=True) == FULL[name]
        assert (job.model.path, job.model.options) == (FULL["model"]["path"], FitSpec(**spec))
        assert job.model.options.model_fields_set == set(spec)


PATHS = {
    "rows.zarr": "HERE/rows.zarr",
    "../rows.zarr": "ABOVE/rows.zarr",
    "./rows.zarr/": "HERE/rows.zarr",
    "~/rows.zarr": "HOME/rows.zarr",
    "gs://lake/rows.zarr/": "gs://lake/rows.zarr",
    "$HOME/rows": "HERE/$HOME/rows",
    "${LAKE}/rows.zarr": "s3://lake/rows.zarr",
    "${DIR}/rows.zarr": "HERE/data/rows.zarr",
    "${TILDE}/rows.zarr": "HOME/rows.zarr",
    "rows-${A}${B}.zarr": "HERE/rows-one2.zarr",
    "$${A}": "HERE/$one",
    "${TWICE}": "HERE/${A}",
    "${}${1}${A-b}$A": "HERE/${}${1}${A-b}$A",
}


def test_paths_are_full_and_hold_variables(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", "/home/somebody")
    monkeypatch.setenv("A", "not this one")
    here = tmp_path / "jobs"
    here.mkdir()
    places = {"HERE": str(here), "ABOVE": str(tmp_path), "HOME": "/home/somebody"}
    for path, full in PATHS.items():
        text = LEAST.replace("rows.zarr", path)
        job = job_of(here, text, LAKE="s3://lake", DIR="data", TILDE="~", A="one", B="2", TWICE="${A}")
        first, *rest = full.split("/", 1)
        assert job.input.path == "/".join([places.get(first, first), *rest])


def test_relative_paths_start_at_the_job_file_from_any_current_folder(tmp_path, monkeypatch):
    (tmp_path / "jobs").mkdir()
    written(tmp_path / "jobs", LEAST + '[run]\nmetrics = "m.prom"\n')
    monkeypatch.chdir(tmp_path)
    job = read_job("jobs/nightly.toml", {})
    assert job.output.path == str(tmp_path / "jobs" / "features.zarr")
    assert (job.run.metrics, job.file) == tuple(str(tmp_path / "jobs" / name) for name in ("m.prom", "nightly.toml"))
    assert read_job(Path("jobs/nightly.toml"), {}) == job
    (tmp_path / "link.toml").symlink_to("jobs/nightly.toml")  # which means its own folder
    assert read_job(tmp_path / "link.toml", {}).input.path == str(tmp_path / "rows.zarr")


def test_values_are_read_as_people_and_editors_write_them(tmp_path):
    text = LEAST.replace("[model]", '[model]\ncenter = "${CENTER}"') + '[run]\nworkers = "${WORKERS}"\n'
    for workers, center, told in (("4", "true", True), (" 4\n", "False", False), ("4.0", "true", True)):
        job = job_of(tmp_path, text, WORKERS=workers, CENTER=center)
        assert (job.run.workers, type(job.run.workers), job.spec.center) == (4, int, told)
    other = b"\xef\xbb\xbf" + LEAST.replace("\n", "\r\n").encode()
    assert job_of(tmp_path, other) == job_of(tmp_path, LEAST)
    spec = job_of(tmp_path, of_model("n_components = 5.0\nsigma = 2")).spec
    assert [(value, type(value)) for value in (spec.n_components, spec.sigma)] == [(5, int), (2.0, float)]


def test_landmarks_in_a_file_lie_beside_the_job_file(tmp_path):
    rows = np.arange(6.0).reshape(3, 2)
    np.save(tmp_path / "landmarks.npy", rows)
    job = job_of(tmp_path, of_model('landmarks = "${NAME}.npy"'), NAME="landmarks")
    assert job.spec.landmarks == OwnRows(rows)
    np.save(tmp_path / "nan.npy", np.full((2, 2), np.nan))
    for name, reason in (("none", "cannot be read"), ("nan", "row 0, column 0 is NaN")):
        assert reason in problems_of(tmp_path, of_model(f'landmarks = "{name}.npy"'))[0]


def test_a_job_sets_rows_aside_unless_it_says_how_many(tmp_path):
    job = job_of(tmp_path, LEAST)
    assert (job.spec.calibration_rows, job.model.options.model_fields_set) == (CALIBRATION_ROWS, set())
    for count in (300, 0):
        assert job_of(tmp_path, of_model(f"calibration_rows = {count}")).spec.calibration_rows == count
    assert job_of(tmp_path, of_model('method = "exact"')).spec.calibration_rows == 0  # since it cannot leave rows out


def test_options_of_a_command_override_those_of_the_file(tmp_path):
    job = job_of(tmp_path, RUN + 'scheduler = "tcp://a:1"\nmemory = "2 GB"')
    assert job.running(workers=None, scheduler=None, memory=None) == job
    run = job.running(workers=4, memory=10**9).run
    assert (run.scheduler, run.workers, run.memory) == (None, 4, 10**9)
    own = {each.name for each in fields(RunOptions)} & JobRun.model_fields.keys()
    assert own == {"scheduler", "workers", "device", "memory", "timeout"}


def test_all_problems_are_told_at_once(tmp_path):
    text = """
random_state = 1
[input]
pth = "rows.zarr"
[modle]
path = "model.zarr"
[output]
path = "features.zarr"
block_rows = 0
[run]
drift_treshold = 0.2
on_drift = "wran"
workers = "many"
timeout = "soon"
"""
    assert problems_of(tmp_path, text) == [
        "input.path: Field required",
        "input.pth: unknown key 'pth': did you mean 'path'? known are path",
        "model: Field required",
        "output.block_rows: Input should be greater than or equal to 1",
        "run.workers: Input should be a valid integer, unable to parse string as an integer",
        "run.timeout: 'soon' is not a time such as '90 s' or '10 min'",
        "run.on_drift: Input should be 'warn' or 'fail'",
        "run.drift_treshold: unknown key 'drift_treshold': did you mean 'drift_threshold'? known are device, "
        "drift_threshold, memory, metrics, on_drift, scheduler, timeout, workers",
        "random_state: unknown key 'random_state': known are input, model, output, run",
        "modle: unknown key 'modle': did you mean 'model'? known are input, model, output, run",
    ]
    unset = problems_of(tmp_path, text.replace("features.zarr", "${OUT}/features.zarr"))
    assert unset == ["output.path: the environment variable OUT is not set"]


PROBLEMS = [
    ("run = 3\n" + LEAST, "run: Input should be a valid dictionary"),
    (LEAST + "flag = 0.0008", "output.flag is below 2 / (1 + model.calibration_rows): give a larger share"),
    (LEAST + 'flag = "1%"', "output.flag: Input should be a valid number"),
    (of_model('method = "exact"') + "flag = 0.1", "output.flag does not work with this mod"),
    (RUN + 'workers = 2\nscheduler = "tcp://a:1"', "run: give a scheduler or a number of workers, not both"),
    (RUN + 'device = "gpu 1"', "run.device: device='gpu 1' is not the name of a device"),
    (RUN + 'memory = "2"', "run.memory: '2' is not an amount of memory with its unit, such as '2 GB'"),
    (RUN + "timeout = 0", "run.timeout: 0.0: a time must be positive"),
    (RUN + 'scheduler = "nowhere"', "run.scheduler: 'nowhere' is not the address of a Dask scheduler, such as tcp://"),
    (RUN + 'metrics = "s3://a/m.prom"', "run.metrics: metrics go to a file for the node exporter of this machine"),
    (RUN + 'metrics = "nightly.toml"', "run.metrics: "),
    (of_model("n_components = 0"), "model.n_components: Input should be greater than or equal to 1, or Input should"),
    (of_model("sigma = -1"), "model.sigma: sigma=-1: give a positive number"),
    (of_model('kernel = "precomputed"\nmethod = "exact"'), "model: a job extracts features of rows, and a kernel mat"),
    (of_model('kernel = "poly:degree=2"\ndegree = 3'), "model: degree is already set by kernel"),
    (of_model("column_weights = {origin = -1}"), "model.column_weights: the weight of 'origin' is -1"),
    (of_model("keep = 3"), "model.keep: unknown key 'keep': did you mean 'kernel'? known are block_rows"),
]


def test_problems_one_by_one(tmp_path):
    for text, problem in PROBLEMS:
        with case(problem):
            assert [found[: len(problem)] for found in problems_of(tmp_path, text)] == [problem]


PLACES = [
    (("a", "m", "a"), "output.path: HERE/a is an input and would be replaced"),
    (("a", "m", "./b/../a/"), "output.path: HERE/a is an input and would be replaced"),
    (("a", "m", "a/b"), "output.path: HERE/a/b and the input HERE/a lie inside each other"),
    (("a", "a", "o"), "model.path: HERE/a is an input and would be replaced"),
    (("a", "m", "m"), "model.path: HERE/m is an input and would be replaced"),
    (("s3://b/a/c", "m", "s3://b/a/"), "output.path: s3://b/a and the input s3://b/a/c lie inside each other"),
    (("real", "m", "link"), "output.path: HERE/link is an input and would be replaced"),
    (("a", "m", "nightly.toml"), "output.path: HERE/nightly.toml is an input and would be replaced"),
    (("s3://b/a", "s3://b/m", "../here"), "output.path: HERE "),
    (("a", "m", "/"), "model.path: HERE/m and the input / lie inside each other"),
    (("a", "m", "file/x"), "output.path: HERE/file/x cannot be written: HERE/file is a file"),
    (("a", "m", "ftp://b/x"), "output.path: ftp://b/x: only local paths and s3://"),
    (("a\\u0000b", "m", "o"), "input.path: a path cannot contain a zero character"),
    (("", "m", "o"), "input.path: String should have at least 1 character"),
]


def test_paths_that_are_none_or_of_which_one_would_be_written_over_another(tmp_path):
    here = tmp_path / "here"
    (here / "real").mkdir(parents=True)
    (here / "link").symlink_to("real")
    (here / "file").write_text("")
    for paths, problem in PLACES:
        tables = zip(("input", "model", "output"), paths, strict=True)
        (found,) = problems_of(here, "".join(f'[{key}]\npath = "{path}"\n' for key, path in tables))
        assert found.replace(str(here), "HERE").startswith(problem), paths


def test_files_that_cannot_be_read(tmp_path):
    for content, message in [
        (b"", ": input: Field required"),
        (b"# x\n[a]\np = rows\n", " is not valid TOML: Invalid value (at line 3, column 5)"),
        (b"a = 1\nb = '\xe9'\n", " is not valid TOML: 'utf-8' codec can't decode byte 0xe9"),
        (b"a = " + b"9" * 5000, " is not valid TOML: "),
        (b"a = " + b"[" * 100_000, " is not valid TOML: "),
    ]:
        path = written(tmp_path, content)
        assert refusal(path, {}).startswith(f"{path}{message}"), content[:20]
    for path, message in [
        (tmp_path / "none.toml", f"there is no job file {tmp_path}/none.toml"),
        (tmp_path, "Is a directory"),
        ("s3://lake/nightly.toml", "s3://lake/nightly.toml: a job file must be on a local disk"),
        (tmp_path / ("x" * 300), "File name too long"),
    ]:
        with pytest.raises(SpecError, match=re.escape(message)):
            read_job(path, {})


PIECES = [b"\n", b"\0", b"[run]\n", b'"', b"'", b"[", b"{", b"=", b"${X}", b"-1", b"1e999", b'"""', b"\xff", b""]
CUTS = st.tuples(st.integers(0, 900), st.integers(0, 9), st.sampled_from(PIECES))


@given(cuts=st.lists(CUTS, min_size=1, max_size=4))
def test_files_that_were_cut_and_pasted_are_read_or_refused_by_name(folder, cuts):
    content = toml_of(FULL).encode()
    for at, length, piece in cuts:
        content = content[:at] + piece + content[at + length :]
    path = written(folder, content)
    assert all(str(path) in line for line in refusal(path, {}).split("\n") if line)


def test_messages_name_variables_in_place_of_their_values(tmp_path):
    with pytest.raises(SpecError, match=r"unknown kernel '\$\{SECRET\}'") as told:
        job_of(tmp_path, of_model('kernel = "${SECRET}"'), SECRET="hunter2")
    assert "hunter2" not in str(told.value)
