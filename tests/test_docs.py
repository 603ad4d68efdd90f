"""Code on the pages of docs runs, and its assertions hold."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

DOCS = Path(__file__).resolve().parents[1] / "docs"


def code_of(page: str) -> list[tuple[int, str]]:
    """(line, code) of every Python block of a page."""
    text = (DOCS / page).read_text()
    found = re.finditer(r"^```python\n(.*?)^```$", text, re.M | re.S)
    return [(text[: block.start(1)].count("\n"), block[1]) for block in found]


@pytest.mark.parametrize("page", ["errata.md"])
def test_the_code_of_a_page_runs(page: str) -> None:
    names: dict[str, Any] = {}
    for line, code in code_of(page):
        exec(compile("\n" * line + code, str(DOCS / page), "exec"), names)
