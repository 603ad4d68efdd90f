"""Names of kinds, and what a kind must have to be listed."""

from dataclasses import dataclass
from typing import ClassVar

import pytest

from bigkpca.numerics.registry import Registry


@dataclass(frozen=True)
class Small:
    name: ClassVar[str] = "small-one"
    bytes_: int = 3

    def working_bytes(self):
        return self.bytes_


@dataclass(frozen=True)
class Progress:
    name: ClassVar[str] = "silent"


def test_a_kind_that_does_not_tell_its_bytes_does_not_load():
    Registry("kind", (Small,), needs=["working_bytes"])
    with pytest.raises(TypeError, match="the kind 'silent' lacks working_bytes"):
        Registry("kind", (Small, Progress), needs=["working_bytes"])
