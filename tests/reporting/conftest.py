"""A model with its scores and its page, and pages without drawn figures."""

import html
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits

import bigkpca
from bigkpca.ingesting import ingest
from bigkpca.reporting import figures
from bigkpca.reporting.drawing import Drawing


@pytest.fixture(scope="session")
def place(tmp_path_factory):
    """A folder with digits (1797, 8, 8) and their labels ingested, a model, and scores with residuals."""
    folder = tmp_path_factory.mktemp("report")
    digits = load_digits()
    np.save(folder / "digits.npy", digits.images.astype(np.uint8))
    np.save(folder / "labels.npy", digits.target)
    ingest([folder / "digits.npy"], folder / "d.zarr", labels=str(folder / "labels.npy"))
    bigkpca.fit(folder / "d.zarr", folder / "m.zarr", n_components=8, size=60)
    bigkpca.transform(folder / "m.zarr", folder / "d.zarr", folder / "s.zarr", residual=True)
    return folder


@pytest.fixture(scope="session")
def page(place):
    """The whole report."""
    return Path(bigkpca.report(place / "m.zarr", place / "r.html", scores=place / "s.zarr")).read_text("utf-8")


def drawn(model, out, **options):
    """The page of a report, with entities turned into what a reader sees."""
    return html.unescape(Path(bigkpca.report(model, out, **options)).read_text("utf-8"))


@pytest.fixture
def sketched(monkeypatch):
    """Figures without their lines, for tests of what is around them: drawing takes most of a report's time."""
    monkeypatch.setattr(figures, "drawing", lambda figure, name, alt: Drawing("<svg></svg>", alt))
