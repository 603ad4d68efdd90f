"""Names of kinds, and what a kind must have to be listed."""

from dataclasses import dataclass
from typing import ClassVar

import pytest

from bigkpca.errors import SpecError
from bigkpca.numerics.registry import Registry


@dataclass(frozen=True)
class Small:
    name: ClassVar[str] = "small-one"
    bytes_: int = 3

    def working_bytes(self):
        return self.bytes_


@dataclass(frozen=True)
class Silent:
    name: ClassVar[str] = "silent"


KINDS = Registry("kind", (Small,), aliases={"tiny": "small-one"}, also_known=["auto"])


def test_names_stand_for_defaults_and_values_are_told_and_read_back():
    for name in ("small-one", "Small_One", "TINY"):
        assert KINDS.named(name) == Small()
        assert KINDS.kind(name) is Small
    assert KINDS.from_dict(KINDS.to_dict(Small(5))) == Small(5)
    assert (list(KINDS), len(KINDS), KINDS.names) == (["small-one"], 1, ["small-one", "tiny"])
    message = r"unknown kind 'smal-one': did you mean 'small-one'\? known are auto, small-one"
    with pytest.raises(SpecError, match=message):
        KINDS.named("smal-one")


def test_a_kind_that_does_not_tell_its_bytes_does_not_load():
    Registry("kind", (Small,), needs=["working_bytes"])
    with pytest.raises(TypeError, match="the kind 'silent' lacks working_bytes"):
        Registry("kind", (Small, Silent), needs=["working_bytes"])
