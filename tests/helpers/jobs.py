"""Job files, written and read."""

import json

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


def refusal(path, environment):
    """The message of the SpecError of a file; nothing if it is read."""
    try:
        read_job(path, environment)
    except SpecError as error:
        return str(error)
    return ""


def toml_of(tables):
    """TOML of tables of texts, numbers and booleans, or of mappings of such, which become inline tables."""
    lines = []
    for name, table in tables.items():
        lines += [f"[{name}]", *(f"{key} = {_value(value)}" for key, value in table.items())]
    return "\n".join(lines) + "\n"


def _value(value):
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {_value(each)}" for key, each in value.items()) + "}"
    return json.dumps(value)
