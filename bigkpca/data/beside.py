"""What a dataset holds beside its rows, one value for each row: labels and sample weights."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Beside:
    """Values beside the rows of a dataset.

    option: the option of `ingest` that names them, and the entry of the attribute of a dataset. array: their array in a
    dataset. noun: what one of them is called in messages.
    """

    option: str
    array: str
    noun: str

    @property
    def flag(self) -> str:
        """The option on the command line."""
        return f"--{self.option.replace('_', '-')}"


LABELS = Beside("labels", "y", "label")
WEIGHTS = Beside("sample_weight", "sample_weight", "sample weight")
BESIDE = (LABELS, WEIGHTS)
