"""Job files that are right: their values, full paths, and environment variables."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigkpca.cli import options
from bigkpca.numerics.landmarks import OwnRows
from bigkpca.spec import FitSpec
from bigkpca.spec.job import read_job
from bigkpca.spec.units import parse_seconds
from tests.helpers.jobs import LEAST, job_of, jobs, toml_of, written


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("jobs")


def test_fields_of_the_fit_are_those_that_the_file_gives(tmp_path):
    text = LEAST.replace("[model]", '[model]\ncomponents = "none"\nkernel = "RBF"\nsize = 100\nsigma = 3')
    job = job_of(tmp_path, text)
    assert job.model.given == {"components", "kernel", "size", "sigma"}
    assert job.model.spec == FitSpec(components=None, kernel="gaussian", size=100, sigma=3.0)
    job = job_of(tmp_path, LEAST.replace("[model]", '[model]\nkernel = "matern:nu=2.5"'))
    assert job.model.spec == FitSpec.checked(**options.given({"kernel": "matern:nu=2.5"})[0])  # as on the command line
    job = job_of(tmp_path, "seed = 7\n" + LEAST)
    assert (job.seed, job.model.spec, job.model.given) == (7, FitSpec(seed=7), {"seed"})


def check_equal(job, values):
    """That a job is what the values of its file say."""
    assert job.seed == values.get("seed", 0)
    for name in ("input", "output", "run"):
        table, said = getattr(job, name), dict(values[name])
        found = {key: getattr(table, key) for key in table.model_fields_set}
        for each in (found, said):
            if "timeout" in each:
                each["timeout"] = parse_seconds(each["timeout"])
        assert found == said
    fields = values["model"] | {key: values[key] for key in ("seed",) if key in values}
    assert job.model.path == fields.pop("path")
    if fields.get("components") == "none":
        fields["components"] = None
    assert job.model.spec == FitSpec(**fields)
    assert job.model.given == set(fields)


@given(values=jobs(), data=st.data())
def test_jobs_are_read_back_and_any_value_may_come_from_the_environment(folder, values, data):
    environment = {}

    def moved(value):
        if isinstance(value, dict):
            return {key: moved(each) for key, each in value.items()}
        if not data.draw(st.booleans()):
            return value
        name = f"V_{len(environment)}"
        environment[name] = str(value).lower() if isinstance(value, bool) else str(value)
        return f"${{{name}}}"

    text = toml_of(moved(values))
    check_equal(job_of(folder, text, **environment), values)


PATHS = {
    "rows.zarr": "HERE/rows.zarr",
    "../rows.zarr": "ABOVE/rows.zarr",
    "./rows.zarr/": "HERE/rows.zarr",
    "~/rows.zarr": "HOME/rows.zarr",
    "s3://lake/rows.zarr": "s3://lake/rows.zarr",
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
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "jobs" / "rows.zarr").symlink_to("../elsewhere")
    job = read_job("jobs/nightly.toml", {})
    assert job.output.path == str(tmp_path / "jobs" / "features.zarr")
    assert job.run.metrics == str(tmp_path / "jobs" / "m.prom")
    assert read_job(Path("jobs/nightly.toml"), {}) == job
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert read_job("../jobs/nightly.toml", {}) == job
    (tmp_path / "link.toml").symlink_to("jobs/nightly.toml")  # which means its own folder
    assert read_job(tmp_path / "link.toml", {}).input.path == str(tmp_path / "rows.zarr")


def test_numbers_and_truth_values_from_the_environment_are_read_as_people_set_them(tmp_path):
    text = LEAST.replace("[model]", '[model]\ncenter = "${CENTER}"') + '[run]\nworkers = "${WORKERS}"\n'
    for workers, center, told in (("4", "true", True), (" 4\n", "False", False), ("4.0", "true", True)):
        job = job_of(tmp_path, text, WORKERS=workers, CENTER=center)
        assert (job.run.workers, type(job.run.workers)) == (4, int)
        assert job.model.spec.center is told


def test_landmarks_in_a_file_lie_beside_the_job_file(tmp_path):
    rows = np.arange(6.0).reshape(3, 2)
    np.save(tmp_path / "landmarks.npy", rows)
    job = job_of(tmp_path, LEAST.replace("[model]", '[model]\nlandmarks = "${NAME}.npy"'), NAME="landmarks")
    assert job.model.spec.landmarks == OwnRows(rows)
    assert job.model.given == {"landmarks"}


def test_whole_numbers_may_be_written_as_others_and_files_with_other_editors(tmp_path):
    other = b"\xef\xbb\xbf" + LEAST.replace("\n", "\r\n").encode()
    assert job_of(tmp_path, other) == job_of(tmp_path, LEAST)
    job = job_of(tmp_path, LEAST.replace("[model]", "[model]\ncomponents = 5.0\nsigma = 2") + "[run]\nworkers = 2.0")
    assert (job.model.spec.components, job.model.spec.sigma, job.run.workers) == (5, 2.0, 2)
    assert [type(value) for value in (job.model.spec.components, job.model.spec.sigma)] == [int, float]


def test_a_job_that_flags_rows_sets_some_aside_unless_it_says_how_many(tmp_path):
    job = job_of(tmp_path, LEAST + "flag = 0.01")
    assert (job.output.flag, job.model.spec.calibration_rows, job.model.given) == (0.01, 2000, frozenset())
    given = LEAST.replace("[output]", "calibration_rows = 300\n[output]")
    assert job_of(tmp_path, given + "flag = 0.01").model.spec.calibration_rows == 300
    assert job_of(tmp_path, LEAST).model.spec.calibration_rows == 0
