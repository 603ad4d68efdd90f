"""Rows of characters, from FASTA files and columns of text."""

import gzip

import numpy as np
import pandas as pd
import pytest

import bigkpca
from bigkpca.errors import CorruptionError, DataError, SpecError
from tests.helpers.named import WRITERS
from tests.ingesting.files import made, refuse

TEXTS = ["acgt", "tt", "gattaca", "", "cat"]
FASTA = ">one\nacgt\n>two words\ntt\n\n>three\ngat\nTACA\n>four\nCAT\n"


def texts_of(found, path):
    """The rows of a dataset as text again."""
    letters = bigkpca.info(str(path / "o.zarr"))["encoding"]["columns"][0]["categories"]
    return ["".join(letters[code - 1] for code in row if code) for row in found["x"]]


@pytest.mark.parametrize("kind", WRITERS)
def test_a_column_of_text_becomes_rows_of_characters(kind, tmp_path):
    frame = pd.DataFrame({"s": TEXTS, "label": list("ababa"), "other": 1.5})
    source = WRITERS[kind](tmp_path / f"a.{kind}", frame)
    found = made(tmp_path, source, text="s", labels="label", missing="drop")
    assert texts_of(found, tmp_path) == [text for text in TEXTS if text]
    assert (found["x"].dtype, found["x"].shape[1]) == (np.uint8, 7)
    assert np.array(found["categories"])[found["y"]].tolist() == ["a", "b", "a", "a"]
    refuse(tmp_path, DataError, r"row 3, column 0 \('s'\) is (empty|missing)", source, text="s")


def test_sequences_of_fasta(tmp_path):
    for name in ("a.fasta", "a.fa.gz", "a.FNA"):
        (tmp_path / name).write_bytes(gzip.compress(FASTA.encode()) if name.endswith("gz") else FASTA.encode())
        found = made(tmp_path, tmp_path / name)
        assert texts_of(found, tmp_path) == ["ACGT", "TT", "GATTACA", "CAT"], name
        assert "as upper-case" in found["notes"][0]
    source = tmp_path / "b.fasta"
    source.write_text(">x\nTAG\n")
    assert texts_of(made(tmp_path, source, append=True), tmp_path)[-1] == "TAG"
    for body, message in ((">x\nGATTACAT\n", "longer than the 7 characters"), (">x\nTAN\n", "not made of the 4")):
        source.write_text(body)
        message = rf"row 0, column 0 \('sequence'\) is '\w+', {message} of the dataset"
        refuse(tmp_path, DataError, message, source, append=True)


def test_files_that_are_no_fasta(tmp_path):
    source = tmp_path / "a.fasta"
    for body, message in (
        (b"ACGT\n", "is not a FASTA file: it begins with 'ACGT'"),
        (b"", r"a\.fasta is empty: it has no rows"),
        (b">x\n\n>y\n", "column 'sequence' has no value$"),
        (b">x\n\xff\n", "is not text"),
    ):
        source.write_bytes(body)
        refuse(tmp_path, DataError, message, source)
    (tmp_path / "a.fasta.gz").write_bytes(gzip.compress(FASTA.encode() * 50)[:-10])
    refuse(tmp_path, CorruptionError, "does not decode", tmp_path / "a.fasta.gz")
    for options, message in (
        ({"text": "u"}, "unknown column"),
        ({"text": "s", "drop": ["t"]}, "leave out columns, drop and categories"),
        ({"text": "s", "missing": "mean"}, "missing texts have no mean"),
    ):
        refuse(tmp_path, SpecError, message, "s,t\nab,cd\n", **options)
