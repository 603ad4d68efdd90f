"""The JSON Schema of job files: what it holds, that it agrees with the parser, and the page that is made of it."""

import re
import tomllib
from operator import attrgetter
from types import NoneType
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from bigkpca.numerics import kernels, landmarks, methods, preimages
from bigkpca.spec import FitSpec
from bigkpca.spec.job import Job, job_schema
from bigkpca.spec.job.tables import TABLES, JobTop, ModelTable, properties
from tests.helpers.files import ROOT
from tests.helpers.jobs import LEAST, job_of, jobs, problems_of, toml_of, toml_value

SCHEMA = job_schema()
VALIDATOR = Draft202012Validator(SCHEMA)
PAGE = (ROOT / "docs" / "job-file.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("jobs")


def keys():
    """Each key by its full name, what the schema tells of it, and whether it must be given."""
    for name, told in SCHEMA["properties"].items():
        if told.get("type") != "object":
            yield name, told, False
            continue
        for key, inner in told["properties"].items():
            yield f"{name}.{key}", inner, key in told.get("required", ())


def test_it_is_a_schema_of_its_draft_in_which_all_is_described():
    Draft202012Validator.check_schema(SCHEMA)
    assert SCHEMA["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert SCHEMA["required"] == ["input", "model", "output"]
    assert "null" not in str(SCHEMA)  # which TOML lacks
    described = [(name, told) for name, told, _ in keys()] + list(SCHEMA["properties"].items())
    assert [name for name, told in described if not told.get("description")] == []
    assert list(SCHEMA["properties"]) == ["seed", "input", "model", "output", "run"]
    assert list(Job.model_fields) == [*SCHEMA["properties"], "file"]


def test_every_field_of_a_fit_is_a_key_of_a_job_with_its_default_and_description():
    assert {*ModelTable.model_fields, "seed", "block_rows"} == {*FitSpec.model_fields, "path"}
    assert "seed" in JobTop.model_fields
    assert "block_rows" in TABLES["output"].model_fields
    for name in FitSpec.model_fields.keys() & ModelTable.model_fields.keys():
        field, key = FitSpec.model_fields[name], ModelTable.model_fields[name]
        assert key.default == field.default
        assert key.description == field.description or name == "kernel"


def test_only_none_that_is_no_default_needs_a_word_in_a_file():
    optional = {name for name, field in FitSpec.model_fields.items() if NoneType in get_args(field.annotation)}
    assert {name for name in optional if FitSpec.model_fields[name].default is not None} == {"components"}
    assert "none" in str(properties(ModelTable)["components"])


def test_choices_are_those_that_exist():
    told = properties(ModelTable)
    assert {*told["kernel"]["anyOf"][0]["enum"]} == {*kernels.KERNELS, "rbf", "poly"} - {"precomputed"}
    assert {*methods.METHODS} < {*told["method"]["enum"]}
    assert {"auto", *landmarks.RULES} < {*told["landmarks"]["anyOf"][0]["enum"]}
    assert {*preimages.PREIMAGES} == {*told["preimage"]["anyOf"][0]["enum"]}


def test_the_defaults_of_the_schema_are_those_of_a_job(folder):
    for name, told, _ in keys():
        if "default" in told:
            value = attrgetter(name.replace("model.", "model.spec."))(job_of(folder, LEAST))
            default = "nystroem" if name == "model.method" else told["default"]  # "auto" is resolved at once
            assert value == default, name


@given(values=jobs())
def test_job_files_that_are_right_are_right_by_the_schema(values):
    VALIDATOR.validate(values)


# Texts of which the schema cannot say what they must look like, and keys that do not go with others.
UNTOLD = ["", "text", "a\nb", "${V}", "x${V}", "$V", "${V}${V}", "none", "auto", "median", "4", "true", "warn"]
UNTOLD += ["float32", "rbf", "matern:nu=2.5", "ridge:size=9", "unknown:size=9"]
ANY_VALUE = st.one_of(
    st.sampled_from(UNTOLD),
    st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=9),
    st.integers(-2, 3),
    st.sampled_from([10**30, -1.0, 0.0, 1e-9, 0.5, 0.999, 1.0, 1.5, 2.0, 1e300]),
    st.booleans(),
    st.sampled_from([[], [1], {}, {"x": 1}]),
)
CHECKED_BY_CODE = {"memory", "timeout", "scheduler", "device", "landmarks", "preimage"}
CHECKED_BY_CODE |= {"path", "metrics"}
CHECKED_BY_CODE |= {"sample_weight"}
BESIDE = {"flag", "n_directions", "degree", "coef0", "solver", "residual_tol"}


@given(
    name=st.sampled_from([name for name, _, _ in keys()]), value=ANY_VALUE, variable=st.sampled_from(["3", "true", "x"])
)
def test_schema_and_parser_agree_on_a_key(folder, name, value, variable):
    values = tomllib.loads(LEAST) | {"run": {}}
    *table, key = name.split(".")
    (values[table[0]] if table else values)[key] = value
    accepted = VALIDATOR.is_valid(values)
    problems = problems_of(folder, toml_of(values), V=variable)
    if not problems:
        assert accepted
    elif accepted:
        filled = isinstance(value, str) and "${V}" in value
        assert filled or key in BESIDE or (key in CHECKED_BY_CODE and isinstance(value, str))


@pytest.mark.parametrize("value", [float("nan"), 10**400], ids=["NaN", "beyond a double"])
def test_numbers_that_json_lacks_are_refused_by_the_parser(folder, value):
    for table, key in (("model", "sigma"), ("model", "tol"), ("output", "block_rows"), ("run", "workers")):
        values = tomllib.loads(LEAST) | {"run": {}}
        values[table][key] = value
        assert any(key in problem for problem in problems_of(folder, toml_of(values))), key


def test_schema_and_parser_both_refuse(folder):
    for name, change in {
        "no input": lambda job: job.pop("input"),
        "no path": lambda job: job["model"].pop("path"),
        "an unknown table": lambda job: job.update(other=1),
        "an unknown key": lambda job: job["run"].update(other=1),
        "a number for a table": lambda job: job.update(run=3),
        "a list of tables": lambda job: job.update(run=[{}]),
        "a scheduler and workers": lambda job: job["run"].update(scheduler="tcp://a:1", workers=2),
        "a number in quotes": lambda job: job["run"].update(workers="4"),
        "a variable in a number": lambda job: job["run"].update(workers="${V}0"),
        "a number for a text": lambda job: job["run"].update(log=3),
        "precomputed": lambda job: job["model"].update(kernel="precomputed"),
        "precomputed with options": lambda job: job["model"].update(kernel="precomputed:"),
        "an unknown kernel with options": lambda job: job["model"].update(kernel="spektrum:k=4"),
        "an unknown pre-image with options": lambda job: job["model"].update(preimage="rigde:size=9"),
    }.items():
        values = tomllib.loads(LEAST) | {"run": {}}
        change(values)
        assert not VALIDATOR.is_valid(values), name
        assert problems_of(folder, toml_of(values), V="3"), name


def test_the_page_has_a_row_for_each_key_as_the_schema_tells_it():
    expected = []
    for name, told, needed in keys():
        default = f"`{toml_value(told['default'])}`" if "default" in told else ""
        expected.append(f"| `{name}` | {'required' if needed else default} | {told['description']} |")
    found = re.findall(r"^\| `.*$", PAGE, re.M)
    assert found == expected, "\n".join(["rows for the table:", *(row for row in expected if row not in found)])


def test_the_example_of_the_page_is_right(tmp_path):
    (example,) = re.findall(r"^```toml\n(.*?)^```$", PAGE, re.M | re.S)
    VALIDATOR.validate(tomllib.loads(example))
    job = job_of(tmp_path, example, BUCKET="lake")
    assert job.input.path.startswith("s3://lake/")
    for name, told in SCHEMA["properties"].items():  # of small tables it shows every key that goes with the others
        if name != "model" and "properties" in told:
            assert {*told["properties"]} - {"workers"} == {*tomllib.loads(example)[name]}
