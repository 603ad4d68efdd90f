"""Registries: the kinds of one family by the names that users type and files hold."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict
from typing import Any, Generic, TypeVar

from bigkpca.errors import unknown_name

T = TypeVar("T")


class Registry(Mapping[str, type[T]], Generic[T]):
    """Dataclasses by their attribute `name`, in the order in which users see them.

    Parameters
    ----------
    what : str
        What messages call a kind, e.g. "kernel".
    kinds : collection of classes
        The dataclasses.
    aliases : mapping, optional
        Other names. Names are not case-sensitive, and "_" is read as "-".
    also_known : collection of str, optional
        Further names for messages to list.
    needs : collection of str, optional
        Attributes that every kind must have; TypeError where one lacks them.
    """

    def __init__(
        self,
        what: str,
        kinds: Collection[Any],
        aliases: Mapping[str, str] | None = None,
        also_known: Collection[str] = (),
        needs: Collection[str] = (),
    ) -> None:
        self._what, self._aliases, self._also_known = what, aliases or {}, tuple(also_known)
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
            raise unknown_name(self._what, name, [*self._kinds, *self._also_known])
        return self._kinds[key]

    def named(self, name: str) -> T:
        """The default value of a name as a user types it. Raises SpecError like `kind`."""
        return self.kind(name)()

    def to_dict(self, value: Any) -> dict[str, Any]:
        """Name and fields as JSON-ready values, which `from_dict` reads."""
        return {"name": value.name, **asdict(value)}

    def from_dict(self, values: Mapping[str, Any]) -> T:
        """The value that `to_dict` described. Raises SpecError for unknown names."""
        return self.kind(values["name"])(**{key: value for key, value in values.items() if key != "name"})
