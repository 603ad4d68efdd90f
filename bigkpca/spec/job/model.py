"""The table [model] of a job file, as a FitSpec."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError, model_validator

from bigkpca.errors import SpecError
from bigkpca.spec.checks import landmarks_of_file
from bigkpca.spec.combinations import Clash, clashes, unused
from bigkpca.spec.fields import FitSpec
from bigkpca.spec.job.check import Check
from bigkpca.spec.job.paths import is_file
from bigkpca.spec.job.schema import properties, words
from bigkpca.spec.job.tables import ModelTable

_SEED, _KERNEL, _LANDMARKS = ("seed",), ("model", "kernel"), ("model", "landmarks")
_NO_MORE = "this does not fit the other options of the model; the reason would show what the environment holds"


class _Fields(FitSpec):
    """A FitSpec whose fields are right one by one, and may not go together."""

    @model_validator(mode="after")
    def _combinations(self) -> _Fields:
        return self


def check_model(check: Check) -> dict[str, Any]:
    """The fields of FitSpec that a job file sets, where they are right by themselves and together."""
    fields = {name: value for name, value in check.table("model").items() if name != "path"}
    if fields.get("components") == "none":
        fields["components"] = None
    if is_file(fields.get("landmarks", "")):
        _read_landmarks(check, fields)
    spec = _checked(check, fields)
    if spec.precomputed:
        check.wrong("a job extracts features of rows, and a matrix of kernels has none: give another kernel", _KERNEL)
    _check_together(check, spec, fields)
    if _SEED in check.values:
        fields["seed"] = check.values[_SEED]
    return fields


def _read_landmarks(check: Check, fields: dict[str, Any]) -> None:
    try:
        fields["landmarks"] = landmarks_of_file(fields["landmarks"])
    except SpecError as error:
        del fields["landmarks"]
        check.wrong(str(error), _LANDMARKS, instead="landmarks cannot be read from there: give a .npy file of rows")


def _checked(check: Check, fields: dict[str, Any]) -> FitSpec:
    """The spec of the fields that are right; the others are noted and removed."""
    try:
        return _Fields(**fields)
    except ValidationError as error:
        for one in error.errors():
            name = str(one["loc"][0])
            key, value = ("model", name), fields.pop(name)
            if isinstance(value, str) and ":" not in value:
                check.wrong_kind(ModelTable, key)
                continue
            reason = str(one["ctx"]["error"]).removeprefix(f"{name}={value!r}: ")
            check.wrong(reason, key, instead=f"give {words(properties(ModelTable)[name])}")
        return _Fields(**fields)


def _check_together(check: Check, spec: FitSpec, fields: Mapping[str, Any]) -> None:
    """Note fields that do not go together, or would do nothing. Nothing is said of those that are wrong already."""
    wrong = {key[-1] for key in check.given if key[:-1] == ("model",) and key not in check.values}
    ignored = [
        Clash(clash.fields, f"{clash.fields[0]} {clash.message}")
        for clash in unused(fields, str(spec.kernel), spec.method_value.name)
    ]
    for clash in [*clashes(spec), *ignored]:
        if not wrong & {*clash.fields}:
            keys = [("model", name) for name in clash.fields if name in fields]
            check.wrong(clash.message, *keys, instead=_NO_MORE)
