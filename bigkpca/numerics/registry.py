"""Registries: the kinds of one family, by the names that users type and files store."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, fields
from typing import Any, TypeVar

import numpy as np

from bigkpca.errors import SpecError, unknown_name

T = TypeVar("T")


def _is_number(value: Any) -> bool:
    """Whether it is a number that fits in a double; JSON's integers have no limit."""
    return isinstance(value, float) or (type(value) is int and abs(value) < 2**63)


# The values that a plain field may have, by a part of its annotation; the class itself checks parts not listed here.
_FITS: dict[str, Callable[[Any], bool]] = {
    "int": lambda value: _is_number(value) and value == value // 1,  # also 2.0, which `Polynomial` accepts
    "float": _is_number,
    "bool": lambda value: isinstance(value, bool),
    "str": lambda value: isinstance(value, str),
    "None": lambda value: value is None,
}

# How the text of an option is parsed, by the annotation of its field; all others are floats.
_READ: dict[str, Any] = {"int": int, "bool": lambda text: {"true": True, "false": False}[text.lower()]}


def check_plain(kind: Any, values: Mapping[str, Any], what: str) -> None:
    """Raise SpecError unless `values`, from a file, can be fields of a dataclass: known, complete, and, for numbers,
    strings and booleans, of the right types."""
    known = {field.name: field for field in fields(kind) if field.init}
    for name, value in values.items():
        if name not in known:
            raise unknown_name(f"parameter of {what}", name, list(known))
        parts = [_FITS.get(part) for part in str(known[name].type).split(" | ")]
        if all(parts) and not any(fits(value) for fits in parts if fits):
            raise SpecError(f"{what}: {name} must be of type {known[name].type}, not {value!r:.80}")
    for name, field in known.items():
        if name not in values and field.default is MISSING and field.default_factory is MISSING:
            raise SpecError(f"{what} lacks its parameter {name}")


def name_in(values: Any, what: str) -> str:
    """The entry "name" of a mapping from a file. Raises SpecError if there is none."""
    name = values.get("name") if isinstance(values, Mapping) else None
    if not isinstance(name, str):
        raise SpecError(f"a {what} must be described by a mapping with a name, not by {values!r:.80}")
    return name


def named_fields(value: Any) -> dict[str, Any]:
    """The name of a value and its fields, without arrays, JSON-ready: NumPy's numbers become Python's."""
    held = {part.name: getattr(value, part.name) for part in fields(value)}
    plain = {name: np.asarray(each).item() for name, each in held.items() if not isinstance(each, np.ndarray)}
    return {"name": value.name, **plain}


class Registry(dict[str, type[T]]):
    """Dataclasses by their attribute `name`, in the order in which users see them.

    `what` is the word for a kind in messages, e.g. "kernel"; `aliases` are other names. Names are not case-sensitive,
    and "_" is read as "-".
    """

    def __init__(self, what: str, kinds: Iterable[Any], aliases: Mapping[str, str] | None = None) -> None:
        super().__init__({kind.name: kind for kind in kinds})
        self._what, self._aliases = what, aliases or {}

    def kind(self, name: str) -> type[T]:
        """The class for a name as a user types it. Raises SpecError, suggesting the nearest known name."""
        key = name.lower().replace("_", "-")
        key = self._aliases.get(key, key)
        if key not in self:
            raise unknown_name(self._what, name, [*self, *self._aliases])
        return self[key]

    def named(self, name: str) -> T:
        """The default value for a name as a user types it. Raises SpecError like `kind`."""
        return self.kind(name)()

    def typed(self, text: str) -> T:
        """The value for a name with options, "name" or "name:key=value,key=value", as a user types it. Raises SpecError
        if the name or an option is unknown, suggesting the nearest known one, or if a value is not valid."""
        kind: Any
        kind, found = self.read(text)
        made: T = kind(**found)
        return made

    def read(self, text: str) -> tuple[type[T], dict[str, Any]]:
        """The class and the options of "name" or "name:key=value,key=value". Raises SpecError like `typed`, but accepts
        fewer options than the class needs."""
        name, _, options = text.partition(":")
        kind: Any = self.kind(name)
        known = {option.name: _READ.get(str(option.type).partition(" ")[0], float) for option in fields(kind)}
        found: dict[str, Any] = {}
        for part in filter(None, options.split(",")):
            key, _, value = part.strip().partition("=")
            if key not in known:
                raise unknown_name(f"option of {self._what} {kind.name!r}", key, list(known))
            try:
                found[key] = known[key](value)
            except (KeyError, ValueError):
                raise SpecError(f"{self._what}='{text}': {key} cannot be {value!r}") from None
        return kind, found

    to_dict = staticmethod(named_fields)

    def from_dict(self, values: Mapping[str, Any]) -> T:
        """The value that `to_dict` described. Raises SpecError for unknown names and invalid parameters."""
        kind = self.kind(name_in(values, self._what))
        parameters = {key: value for key, value in values.items() if key != "name"}
        check_plain(kind, parameters, f"the {self._what} {values['name']!r}")
        return kind(**parameters)
