"""Where the project is, and files of the shared data beside it."""

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SHARED = ROOT.parent / "shared" / "data"


def shared_file(*parts: str) -> Path:
    """A file of the shared data; skips the test where it is not there."""
    path = SHARED.joinpath(*parts)
    if not path.exists():
        pytest.skip(f"{Path(*parts)} is not beside the project (../shared/data)")
    return path
