"""One HTML page that needs nothing but itself. Jinja's door."""

from __future__ import annotations

from pathlib import Path
from typing import Any

MARK = '<meta name="generator" content="bigkpca report">'  # tells our pages from others'


def request_mark(digest: str) -> str:
    """The element that says what a page was drawn from, by which the same request is known again."""
    return f'<meta name="bigkpca-request" content="{digest}">'


def render(**values: Any) -> str:
    """The page with these values; texts are escaped, drawings taken as they are."""
    from jinja2 import Environment, StrictUndefined

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    template = Path(__file__).with_name("page.html").read_text(encoding="utf-8")
    return environment.from_string(template).render(mark=MARK, **values)
