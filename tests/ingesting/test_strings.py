"""Rows of characters: from FASTA files and columns of text to components that separate promoters."""

import gzip

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline

import bigkpca
from bigkpca import KernelPCA, kernels
from bigkpca.errors import CorruptionError, DataError, SpecError
from tests.helpers.files import shared_file
from tests.helpers.named import WRITERS, stored
from tests.helpers.progress import Recorder

TEXTS = ["acgt", "tt", "gattaca", "", "cat"]
FASTA = ">one\nacgt\n>two words\ntt\n\n>three\ngat\nTACA\n>four\nCAT\n"


def texts_of(path):
    """The rows of a dataset as text again."""
    found = stored(path)
    about = bigkpca.info(str(path))
    letters = about["encoding"]["columns"][0]["categories"]
    return ["".join(letters[code - 1] for code in row if code) for row in found["x"]]


@pytest.mark.parametrize("kind", WRITERS)
def test_a_column_of_text_becomes_rows_of_characters(kind, tmp_path):
    frame = pd.DataFrame({"s": TEXTS, "label": list("ababa"), "other": 1.5})
    source = WRITERS[kind](tmp_path / f"a.{kind}", frame)
    done = bigkpca.ingest(source, tmp_path / "o.zarr", text="s", labels="label", missing="drop")
    assert texts_of(done.path) == [text for text in TEXTS if text]
    assert (done.dtype, done.columns) == (np.uint8, 7)
    found = stored(done.path)
    assert np.array(found["categories"])[found["y"]].tolist() == ["a", "b", "a", "a"]
    with pytest.raises(DataError, match=r"row 3, column 0 \('s'\) is (empty|missing)"):
        bigkpca.ingest(source, tmp_path / "p.zarr", text="s")


def test_sequences_of_fasta(tmp_path):
    for name in ("a.fasta", "a.fa.gz", "a.FNA"):
        (tmp_path / name).write_bytes(gzip.compress(FASTA.encode()) if name.endswith("gz") else FASTA.encode())
        notes = Recorder()
        done = bigkpca.ingest(tmp_path / name, tmp_path / f"{name}.zarr", progress=notes)
        assert texts_of(done.path) == ["ACGT", "TT", "GATTACA", "CAT"], name
        assert "read as capital ones" in notes.notes[0]


def test_further_texts_must_fit_the_dataset(tmp_path):
    (tmp_path / "a.fasta").write_text(FASTA)
    bigkpca.ingest(tmp_path / "a.fasta", tmp_path / "o.zarr")
    (tmp_path / "b.fasta").write_text(">x\nTAG\n")
    bigkpca.ingest(tmp_path / "b.fasta", tmp_path / "o.zarr", append=True)
    assert texts_of(tmp_path / "o.zarr")[-1] == "TAG"
    for body, message in ((">x\nGATTACAT\n", "longer than the 7 characters"), (">x\nTAN\n", "of others than the 4")):
        (tmp_path / "c.fasta").write_text(body)
        with pytest.raises(DataError, match=rf"row 0, column 0 \('sequence'\) is '\w+', {message} of the dataset"):
            bigkpca.ingest(tmp_path / "c.fasta", tmp_path / "o.zarr", append=True)


def test_files_that_are_no_fasta(tmp_path):
    for body, error, message in (
        (b"ACGT\n", DataError, "is no FASTA file: it begins with 'ACGT'"),
        (b"", DataError, r"a\.fasta is empty: it holds no rows"),
        (b">x\n\n>y\n", DataError, "column 'sequence' has no value$"),
        (b">x\n\xff\n", DataError, "is not text"),
    ):
        (tmp_path / "a.fasta").write_bytes(body)
        with pytest.raises(error, match=message):
            bigkpca.ingest(tmp_path / "a.fasta", tmp_path / "o.zarr")
    (tmp_path / "a.fasta.gz").write_bytes(gzip.compress(FASTA.encode() * 50)[:-10])
    with pytest.raises(CorruptionError, match="does not decode"):
        bigkpca.ingest(tmp_path / "a.fasta.gz", tmp_path / "o.zarr")
    (tmp_path / "a.csv").write_text("s,t\nab,cd\n")
    for options, message in (
        ({"text": "u"}, "unknown column"),
        ({"text": "s", "drop": ["t"]}, "leave columns, drop and categories out"),
        ({"text": "s", "missing": "mean"}, "missing texts have no mean"),
    ):
        with pytest.raises(SpecError, match=message):
            bigkpca.ingest(tmp_path / "a.csv", tmp_path / "o.zarr", **options)


@pytest.mark.full
def test_promoters_are_separated_far_better_than_by_chance(tmp_path):
    """106 sequences of DNA, half of them promoters; chance is 0.5."""
    bigkpca.ingest(shared_file("promoters/promoters.csv"), tmp_path / "p.zarr", text="sequence", labels="label")
    found = stored(tmp_path / "p.zarr")
    kernel = kernels.Spectrum(2) + kernels.Spectrum(3) + kernels.Spectrum(4)
    kpca = KernelPCA(20, kernel=kernel, size=60, landmarks="rpcholesky", random_state=0)
    line = make_pipeline(kpca, LogisticRegression(C=10.0, max_iter=1000))
    scores = cross_val_score(line, found["x"], found["y"], cv=10)
    assert scores.mean() > 0.7


def test_strings_are_fitted_out_of_core(tmp_path):
    rng = np.random.default_rng(0)
    texts = [
        "".join(rng.choice(list("ACGT"), rng.integers(20, 40), p=p)) for p in ([0.4, 0.1, 0.1, 0.4], [0.25] * 4) * 150
    ]
    (tmp_path / "a.fasta").write_text("".join(f">{i}\n{text}\n" for i, text in enumerate(texts)))
    bigkpca.ingest(tmp_path / "a.fasta", tmp_path / "x.zarr", block_rows=100)
    model = bigkpca.fit(tmp_path / "x.zarr", tmp_path / "m.zarr", kernel="spectrum:k=2", components=3, size=50)
    scores = bigkpca.transform(tmp_path / "m.zarr", tmp_path / "x.zarr", tmp_path / "s.zarr")[:]
    first = np.abs(scores[::2, 0].mean() - scores[1::2, 0].mean()) / scores[:, 0].std()
    assert first > 1
    assert model.features.kernel == kernels.Spectrum(2)
    assert KernelPCA.load(tmp_path / "m.zarr").kernel_ == kernels.Spectrum(2)
