"""The JSON Schema of a job file, and what it says of a key in words."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from bigkpca.spec.job.tables import MOST, TABLES, JobTop, Table

VARIABLE = r"\$\{[A-Za-z_][A-Za-z0-9_]*\}"  # what an environment variable fills

_BOUNDS = {
    "exclusiveMinimum": "above {:g}",
    "minimum": "of at least {:g}",
    "exclusiveMaximum": "below {:g}",
    "maximum": "at most {:g}",
}
_NUMBERS = {"integer": "a whole number", "number": "a number"}


def job_schema() -> dict[str, Any]:
    """The JSON Schema of a job file.

    Returns
    -------
    dict
        A schema of draft 2020-12: each table with its keys, their types, choices, bounds, defaults and descriptions.
        It cannot say what goes together, or what the text of a path, an amount or a time must look like.

    Examples
    --------
    >>> job_schema()["properties"]["run"]["properties"]["on_drift"]["default"]
    'warn'
    """
    top = _table(JobTop)
    top["properties"] |= {name: _table(kind) for name, kind in TABLES.items()}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Job of bigkpca run",
        "description": "A job file (TOML). ${NAME} in a text stands for an environment variable.",
        "type": "object",
        "properties": top["properties"],
        "required": [name for name in TABLES if "required" in top["properties"][name]],
        "additionalProperties": False,
    }


@cache
def properties(kind: type[Table]) -> Mapping[str, Any]:
    """The schema of each key of a table, for values without variables."""
    return {key: _key(told) for key, told in kind.model_json_schema()["properties"].items()}


def _table(kind: type[Table]) -> dict[str, Any]:
    schema = kind.model_json_schema()
    del schema["title"]
    return schema | {"properties": {key: _with_variables(told) for key, told in properties(kind).items()}}


def _key(told: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of a key, without what TOML lacks: a null, which is a key that is left out."""
    about = {name: told[name] for name in ("description", "default", "examples") if told.get(name) is not None}
    kinds = [kind for kind in told.get("anyOf", [told]) if kind["type"] != "null"]
    kinds = [
        {name: value for name, value in kind.items() if name not in ("title", "default", *about)} for kind in kinds
    ]
    return about | (kinds[0] if len(kinds) == 1 else {"anyOf": kinds})


def _with_variables(told: Mapping[str, Any]) -> dict[str, Any]:
    """The same, for values that may hold variables: text anywhere, other kinds as a whole."""
    about = {name: told[name] for name in ("description", "default", "examples") if name in told}
    kinds = told.get("anyOf") or [{name: value for name, value in told.items() if name not in about}]
    if any(_is_any_text(kind) for kind in kinds):
        return dict(told)
    part = any(kind["type"] == "string" for kind in kinds)
    return about | {"anyOf": [*kinds, {"type": "string", "pattern": VARIABLE if part else f"^{VARIABLE}$"}]}


def _is_any_text(kind: Mapping[str, Any]) -> bool:
    return kind["type"] == "string" and not {"enum", "const", "pattern"} & kind.keys()


def words(told: Mapping[str, Any]) -> str:
    """What a key may be, as a message says it.

    Examples
    --------
    >>> words({"anyOf": [{"type": "integer", "minimum": 1}, {"type": "string", "const": "auto"}]})
    'a whole number of at least 1 or "auto"'
    """
    found = [part for kind in told.get("anyOf", [told]) for part in _parts(kind, told.get("examples", ()))]
    return either(found)


def either(names: Sequence[str]) -> str:
    """ "a, b or c"."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"


def _parts(kind: Mapping[str, Any], examples: Sequence[str]) -> list[str]:
    if kind["type"] == "boolean":
        return ["true or false"]
    if kind["type"] in _NUMBERS:
        told = {bound: text for bound, text in _BOUNDS.items() if kind.get(bound, MOST) != MOST}
        bounds = [text.format(kind[bound]) for bound, text in told.items()]
        return [" ".join([_NUMBERS[kind["type"]], " and ".join(bounds)]).strip()]
    if named := _choices(kind):
        return [json.dumps(word, ensure_ascii=False) for word in named]
    return [" such as ".join(["text", *map(json.dumps, examples)])]


def choices(told: Mapping[str, Any]) -> list[str]:
    """The words among what a key may be."""
    return [word for kind in told.get("anyOf", [told]) for word in _choices(kind)]


def _choices(kind: Mapping[str, Any]) -> list[str]:
    return [*kind.get("enum", ()), *([kind["const"]] if "const" in kind else [])]
