"""The tables of a job file: each key with its type, default and description, and the JSON Schema made from them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema, create_model

from bigkpca.numerics import kernels, landmarks, methods, preimages
from bigkpca.numerics.outliers import CALIBRATION_ROWS
from bigkpca.numerics.registry import Registry
from bigkpca.spec.fields import FitSpec
from bigkpca.spec.units import TIMEOUT_WRITTEN

_Text = Annotated[str, Field(min_length=1)]
MOST = 2**31  # of a count: anything larger is a mistake, since no array is that large
_Count = Annotated[int, Field(ge=1, le=MOST)]
_Positive = Annotated[float, Field(gt=0)]


class JobTable(BaseModel):
    """A table of a job file."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class JobTop(JobTable):
    """Keys before the first table."""

    seed: int = Field(0, ge=0, description=FitSpec.model_fields["seed"].description)


class JobInput(JobTable):
    """The rows, to which others can append between and during runs."""

    path: _Text = Field(description="path or URL of the rows", examples=["rows.zarr"])
    array: _Text | None = Field(None, description="array to read if the input is a Zarr group", examples=["x"])
    sample_weight: _Text | None = Field(
        None,
        description="array with the weights of the rows, beside them in the same Zarr group; fits use them",
        examples=["sample_weight"],
    )


class JobOutput(JobTable):
    """The features, and the records of the runs."""

    path: _Text = Field(description="path or URL of the output folder", examples=["features.zarr"])
    block_rows: _Count | None = Field(None, description="rows per block; one task writes each block")
    flag: float | None = Field(
        None,
        gt=0,
        lt=1,
        description="flag unusual rows, and at most this share of ordinary ones; the fit then sets calibration rows "
        f"aside, {CALIBRATION_ROWS} unless model.calibration_rows is set",
        examples=[0.01],
    )
    must_exist: bool | None = Field(
        None,
        description="whether output of earlier runs must exist; by default, true if the record of the job names any",
    )


class JobRun(JobTable):
    """Where a run works and what it may use, how it reacts to drift, and how to monitor it."""

    model_config = ConfigDict(json_schema_extra={"not": {"required": ["scheduler", "workers"]}})

    scheduler: _Text | None = Field(
        None,
        description="address of a Dask scheduler; if neither this nor workers is set, the run uses threads",
        examples=["tls://scheduler:8786"],
    )
    workers: _Count | None = Field(None, description="number of local worker processes, instead of a scheduler")
    device: _Text | None = Field(
        None,
        description='device that computes the passes, such as "cuda"; by default the processor (experimental)',
        examples=["cuda"],
    )
    memory: _Text | None = Field(
        None, description="memory limit: the run is refused if a process would need more", examples=["2 GB"]
    )
    timeout: _Text | _Positive = Field(
        TIMEOUT_WRITTEN,
        description="the run stops if no block of rows finishes within this time; a number means seconds",
        examples=["10 min"],
    )
    on_drift: Literal["warn", "fail"] = Field("warn", description="reaction to drift: warn, or fail (exit code 3)")
    drift_threshold: float = Field(0.2, gt=0, le=1, description="drift figure above which rows count as drifted")
    metrics: _Text | None = Field(
        None, description="local file to which each run writes its metrics for Prometheus", examples=["bigkpca.prom"]
    )
    log: Literal["plain", "json"] = Field(
        "plain", description="format of notes and progress on stderr: plain, or json (one object per line)"
    )


class JobModel(JobTable):
    """The model: its path, what to fit if there is none, and the fields of that which the file sets itself."""

    path: str
    spec: FitSpec
    given: frozenset[str]


def _named(registry: Registry[Any], *others: str, without: str = "", pattern: str | None = None) -> Any:
    """A name from a registry; the fit checks it, since it accepts other spellings, too."""
    names = [name for name in (*others, *registry.names) if name != without]
    schema: dict[str, Any] = {"type": "string", "enum": names}
    if pattern is not None:
        schema = {"anyOf": [schema, {"type": "string", "pattern": pattern.format(names="|".join(names))}]}
    return Annotated[str, WithJsonSchema(schema)]


_WITH_OPTIONS = "^({names}):"
_KERNELS = [name for name in kernels.KERNELS if name != kernels.Precomputed.name]

# What FitSpec takes only in Python, or checks with code.
_IN_FILES: Mapping[str, Any] = {
    "components": _Count | Annotated[float, Field(gt=0, lt=1)] | Literal["auto", "none"],
    "kernel": _named(kernels.KERNELS, without=kernels.Precomputed.name, pattern=_WITH_OPTIONS),
    "sigma": _Positive | Literal["median"] | Annotated[str, Field(pattern=r"^[0-9.]+ median$")],
    "gamma": _Positive | Literal["scale"],
    "method": _named(methods.METHODS),
    "size": _Count | Literal["auto"],
    "landmarks": _named(landmarks.RULES, "auto", pattern=r"\.npy$"),
    "n_directions": _Count | Literal["auto"],
    "column_weights": dict[str, Annotated[float, Field(ge=0)]],
    "preimage": _named(preimages.PREIMAGES, pattern=_WITH_OPTIONS),
}
_DESCRIBED = {"kernel": f"one of {', '.join(_KERNELS)}; options follow a colon, e.g. spectrum:k=4"}
_EXAMPLES: Mapping[str, Any] = {
    "sigma": ["3 median"],
    "kernel": ["spectrum:k=4"],
    "column_weights": [{"origin": 4}],
    "landmarks": ["landmarks.npy"],
    "preimage": ["ridge:size=500"],
}
_ELSEWHERE = {"seed", "block_rows"}  # in other tables of the file

_FIELDS: dict[str, Any] = {
    name: (
        _IN_FILES.get(name) or Annotated[field.annotation, Field(), *field.metadata],
        Field(field.default, description=_DESCRIBED.get(name, field.description), examples=_EXAMPLES.get(name)),
    )
    for name, field in FitSpec.model_fields.items()
    if name not in _ELSEWHERE
}
_PATH = Field(description="path or URL of the model", examples=["model.zarr"])

ModelTable = create_model(
    "ModelTable",
    __base__=JobTable,
    __doc__="The model: fitted if there is none, and then used unchanged. Takes all options of `bigkpca fit`.",
    path=(_Text, _PATH),
    **_FIELDS,
)

TABLES: Mapping[str, type[JobTable]] = {
    "input": JobInput,
    "model": ModelTable,
    "output": JobOutput,
    "run": JobRun,
}


VARIABLE = r"\$\{[A-Za-z_][A-Za-z0-9_]*\}"  # replaced by an environment variable

_BOUNDS = {
    "exclusiveMinimum": "above {:g}",
    "minimum": "of at least {:g}",
    "exclusiveMaximum": "below {:g}",
    "maximum": "at most {:g}",
}
_ABOUT = ("description", "default", "examples")
_NUMBERS = {"integer": "a whole number", "number": "a number"}


def job_schema() -> dict[str, Any]:
    """The JSON Schema of a job file.

    Returns
    -------
    dict
        A schema of draft 2020-12: each table with its keys, their types, choices, bounds, defaults and descriptions.
        It cannot express conflicts between keys, or the form of a path, an amount or a time.

    Examples
    --------
    >>> job_schema()["properties"]["run"]["properties"]["on_drift"]["default"]
    'warn'
    """
    top = _schema(JobTop)["properties"] | {name: _schema(kind) for name, kind in TABLES.items()}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Job of bigkpca run",
        "description": "A job file (TOML). ${NAME} in a text stands for an environment variable.",
        "type": "object",
        "properties": top,
        "required": [name for name in TABLES if "required" in top[name]],
        "additionalProperties": False,
    }


@cache
def properties(kind: type[JobTable]) -> Mapping[str, Any]:
    """The schema of each key of a table, for values without variables."""
    found = {}
    for key, schema in kind.model_json_schema()["properties"].items():
        about = {name: schema[name] for name in _ABOUT if schema.get(name) is not None}
        kinds = [
            {name: value for name, value in each.items() if name not in ("title", "default", *about)}
            for each in schema.get("anyOf", [schema])
            if each["type"] != "null"  # which TOML lacks: leave out the key instead
        ]
        found[key] = about | (kinds[0] if len(kinds) == 1 else {"anyOf": kinds})
    return found


def _schema(kind: type[JobTable]) -> dict[str, Any]:
    """The schema of a table, whose values can contain variables: text in any place, other kinds as a whole."""
    found = {}
    for key, schema in properties(kind).items():
        kinds = schema.get("anyOf") or [{name: value for name, value in schema.items() if name not in _ABOUT}]
        texts = [each for each in kinds if each["type"] == "string"]
        found[key] = schema
        if kinds[0]["type"] == "object":  # of numbers
            inside = {"anyOf": [kinds[0]["additionalProperties"], {"type": "string", "pattern": f"^{VARIABLE}$"}]}
            found[key] = schema | {"additionalProperties": inside}
        elif all({"enum", "const", "pattern"} & each.keys() for each in texts):  # no text accepts every value
            variables = {"type": "string", "pattern": VARIABLE if texts else f"^{VARIABLE}$"}
            found[key] = {name: schema[name] for name in _ABOUT if name in schema} | {"anyOf": [*kinds, variables]}
    whole = kind.model_json_schema()
    del whole["title"]
    return whole | {"properties": found}


def words(schema: Mapping[str, Any]) -> str:
    """The values that a key accepts, as worded in messages.

    Examples
    --------
    >>> words({"anyOf": [{"type": "integer", "minimum": 1}, {"type": "string", "const": "auto"}]})
    'a whole number of at least 1 or "auto"'
    """
    found: list[str] = []
    for kind in schema.get("anyOf", [schema]):
        if kind["type"] == "boolean":
            found.append("true or false")
        elif kind["type"] == "object":
            example = ", ".join(f"{name} = {value}" for name, value in schema["examples"][0].items())
            found.append(f"a table of names, each with {words(kind['additionalProperties'])}, such as {{{example}}}")
        elif kind["type"] in _NUMBERS:
            bounds = [text.format(kind[bound]) for bound, text in _BOUNDS.items() if kind.get(bound, MOST) != MOST]
            found.append(f"{_NUMBERS[kind['type']]} {' and '.join(bounds)}".strip())
        elif named := choices(kind):
            found += [json.dumps(word, ensure_ascii=False) for word in named]
        else:
            found.append(" such as ".join(["text", *map(json.dumps, schema.get("examples", ()))]))
    return either(found)


def either(names: Sequence[str]) -> str:
    """ "a, b or c"."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"


def choices(schema: Mapping[str, Any]) -> list[str]:
    """The words that a key accepts."""
    kinds = schema.get("anyOf", [schema])
    return [word for kind in kinds for word in (*kind.get("enum", ()), *([kind["const"]] if "const" in kind else []))]
