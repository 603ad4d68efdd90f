"""A store of features that meets other packages, or another type of processor."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import bigkpca
from bigkpca.storage import models
from tests.helpers.disks import Restored
from tests.helpers.nights import Night, some_rows


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Restored:
    """A job that ran on 90 rows; 40 more wait."""
    night = Night.made(tmp_path_factory.mktemp("made") / "job")
    night.append(some_rows(90))
    night.run()
    night.append(some_rows(40, 1))
    return Restored.made(Path(night.folder))


def test_a_model_keeps_its_digest_under_a_later_bigkpca(night: Night, monkeypatch: pytest.MonkeyPatch) -> None:
    before = models.model_digest(bigkpca.load(night.model))
    monkeypatch.setattr(models, "version", lambda _: "99.0")
    assert models.model_digest(bigkpca.load(night.model)) == before
    assert night.run()[0]["rows"] == [90, 130]
    assert bigkpca.reconstruct(night.model, night.out, f"{night.root}/again.zarr").shape == (130, 4)
    np.testing.assert_array_equal(night.scores(), night.wanted())
