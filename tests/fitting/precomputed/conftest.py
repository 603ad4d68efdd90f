"""Matrices that are held in memory, and matrices that are read in pieces."""

import pytest

from bigkpca.data import matrix_tiles, npy


@pytest.fixture
def large(monkeypatch):
    """No matrix of more than 100 rows is held, and pieces are so small that there are many.

    The true limits need matrices of 8,192 rows and more.
    """
    for module in ("spec", "evaluating"):
        monkeypatch.setattr(f"bigkpca.{module}.EXACT_MOST_ROWS", 100)
    monkeypatch.setattr(matrix_tiles, "_STRIP_ROWS", 64)
    monkeypatch.setattr(matrix_tiles, "_TALL", 32)
    monkeypatch.setattr(matrix_tiles, "TILE_BYTES", 2**14)
    monkeypatch.setattr(matrix_tiles, "PART_BYTES", 2**15)
    monkeypatch.setattr(npy, "_RUN_BYTES", 2**8)


@pytest.fixture(params=["held", "read in pieces"])
def path(request):
    """Both ways of solving."""
    if request.param == "read in pieces":
        request.getfixturevalue("large")
    return request.param
