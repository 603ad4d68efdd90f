"""A model with its scores and its page."""

import html
import re
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits

import bigkpca
from bigkpca import reporting
from bigkpca.ingesting import ingest


@pytest.fixture(scope="session")
def place(tmp_path_factory):
    """A folder with digits (1797, 8, 8) and their labels ingested, a model, and scores."""
    folder = tmp_path_factory.mktemp("report")
    digits = load_digits()
    np.save(folder / "digits.npy", digits.images.astype(np.uint8))
    np.save(folder / "labels.npy", digits.target)
    ingest([folder / "digits.npy"], folder / "d.zarr", labels=str(folder / "labels.npy"))
    bigkpca.fit(folder / "d.zarr", folder / "m.zarr", n_components=8, size=60, transform=folder / "s.zarr")
    return folder


@pytest.fixture(scope="session")
def page(place):
    """The whole report."""
    return Path(bigkpca.report(place / "m.zarr", place / "r.html", scores=place / "s.zarr")).read_text("utf-8")


@pytest.fixture
def sketched(monkeypatch):
    """Figures without their lines, for tests of what is around them: writing SVG takes most of a report's time."""
    monkeypatch.setattr(reporting, "svg_of", lambda *_: "<svg></svg>")


def facts_of(page):
    """The facts of a page by name, as a reader sees them."""
    return {name: html.unescape(value) for name, value in re.findall(r'<th scope="row">(.*?)</th><td>(.*?)</td>', page)}


def titles_of(page):
    """The titles of the figures."""
    return re.findall(r'<figure class="card"><h2>(.*?)</h2>', page)
