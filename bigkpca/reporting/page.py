"""Render a report as one self-contained HTML page with Jinja."""

from __future__ import annotations

from pathlib import Path
from typing import Any

MARK = '<meta name="generator" content="bigkpca report">'  # distinguishes reports from other files


def request_mark(digest: str) -> str:
    """The meta element that identifies what a page was drawn from, so that a repeated request is recognised."""
    return f'<meta name="bigkpca-request" content="{digest}">'


def render(**values: Any) -> str:
    """The HTML page with these values; texts are escaped, drawings inserted as they are."""
    from jinja2 import Environment, StrictUndefined

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    template = Path(__file__).with_name("page.html").read_text(encoding="utf-8")
    return environment.from_string(template).render(mark=MARK, **values)
