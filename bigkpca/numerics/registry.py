"""Kinds of one family by their names: what a user may type, and what a file holds."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict
from typing import Any, Generic, TypeVar

from bigkpca.errors import unknown_name

T = TypeVar("T")


class Registry(Mapping[str, type[T]], Generic[T]):
    """Classes of dataclasses by their attribute `name`, in the order in which they are listed to users.

    `what` is what messages call one of them. Names are the same in upper and lower case, with "_" for "-", and
    where `aliases` lead to one another; messages list `told` beside the names of the kinds. Raises TypeError where a
    class lacks an attribute that it `needs`.
    """

    def __init__(
        self,
        what: str,
        kinds: Collection[Any],
        aliases: Mapping[str, str] | None = None,
        told: Collection[str] = (),
        needs: Collection[str] = (),
    ) -> None:
        self._what, self._aliases, self._told = what, aliases or {}, tuple(told)
        for kind in kinds:
            if lacks := [name for name in needs if not hasattr(kind, name)]:
                raise TypeError(f"the {what} {kind.name!r} lacks {', '.join(lacks)}")
        self._kinds: dict[str, type[T]] = {kind.name: kind for kind in kinds}

    def __getitem__(self, name: str) -> type[T]:
        return self._kinds[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._kinds)

    def __len__(self) -> int:
        return len(self._kinds)

    def kind(self, name: str) -> type[T]:
        """The class of a name as a user types it. Raises SpecError, which suggests the nearest known name."""
        key = name.lower().replace("_", "-")
        key = self._aliases.get(key, key)
        if key not in self._kinds:
            raise unknown_name(self._what, name, [*self._kinds, *self._told])
        return self._kinds[key]

    def named(self, name: str) -> T:
        """The default value of a name as a user types it. Raises SpecError as `kind`."""
        return self.kind(name)()

    def to_dict(self, value: Any) -> dict[str, Any]:
        """Name and fields, as JSON-ready values; `from_dict` reads them back."""
        return {"name": value.name, **asdict(value)}

    def from_dict(self, values: Mapping[str, Any]) -> T:
        """What `to_dict` described. Raises SpecError for names that are not known."""
        return self.kind(values["name"])(**{key: value for key, value in values.items() if key != "name"})
