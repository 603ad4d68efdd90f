"""The page of a report: facts and figures of a model, and a table of its components, as one file of HTML."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

import numpy as np

from bigkpca.numerics.display import at_least, at_most, number, share_at_least
from bigkpca.numerics.model import Model
from bigkpca.storage.describe import accuracy_in_words, model_info

MARK = '<meta name="generator" content="bigkpca report">'  # distinguishes reports from other files
_STATED = ("n_components", "size")  # by the numbers that were found
_STYLE = """
:root { --paper: #ffffff; --page: #f3f5f7; --ink: #1c2126; --soft: #56606a; --faint: #c5ccd3; }
@media screen and (prefers-color-scheme: dark) {
  :root { --paper: #1f252b; --page: #14181c; --ink: #e8ecef; --soft: #a7b1ba; --faint: #4b565f; }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink); font: 1rem/1.5 system-ui, sans-serif; }
main { max-width: 72rem; margin: 0 auto; padding: 1rem; }
h1 { font-size: 1.5rem; line-height: 1.25; margin: .5rem 0 1rem; overflow-wrap: anywhere; }
h2 { font-size: 1rem; margin: 0 0 .5rem; }
.figures { columns: 24rem auto; column-gap: 1rem; margin-top: 1rem; }
.card { background: var(--paper); border-radius: .5rem; padding: .75rem 1rem; margin: 0 0 1rem; break-inside: avoid; }
svg { display: block; width: 100%; height: auto; }
svg text { font-family: system-ui, sans-serif !important; }
table { border-collapse: collapse; font-size: .875rem; font-variant-numeric: tabular-nums; }
th, td { padding: .2rem .75rem .2rem 0; text-align: left; vertical-align: top; border-bottom: 1px solid var(--faint); }
th { color: var(--soft); font-weight: normal; }
.facts { width: 100%; }
.facts th { min-width: clamp(6.5rem, 18vw, 13rem); }
.facts td { width: 100%; overflow-wrap: anywhere; }
.wide { overflow-x: auto; break-inside: auto; margin-top: 1rem; }
.wide th, .wide td { text-align: right; white-space: nowrap; }
"""


def render(title: str, facts: Mapping[str, str], figures: Iterable[tuple[str, str]], model: Model) -> str:
    """The page with these facts and figures, which are titles and SVG elements."""
    lines = "\n".join(f'<tr><th scope="row">{escape(a)}</th><td>{escape(b)}</td></tr>' for a, b in facts.items())
    cards = "\n".join(f'<figure class="card"><h2>{escape(a)}</h2>\n{svg}</figure>' for a, svg in figures)
    head, *rows = ("".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in row) for tag, row in _components(model))
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
{MARK}
<link rel="icon" href="data:,">
<title>{escape(title)}</title>
<style>{_STYLE}</style>
</head>
<body>
<main>
<h1>{escape(title)}</h1>
<div class="card"><table class="facts">
{lines}
</table></div>
<div class="figures">
{cards}
</div>
<div class="card wide"><h2>Components</h2><table>
<thead><tr>{head}</tr></thead>
<tbody>
{"".join(f"<tr>{row}</tr>" for row in rows)}
</tbody>
</table></div>
</main>
</body>
</html>
"""


def _components(model: Model) -> Iterable[tuple[str, Sequence[str]]]:
    """The head and the rows of the table of components, each with the tag of its cells."""
    known, solution = model.certificate, model.solution
    columns = {
        "component": [str(j + 1) for j in range(model.components)],
        "eigenvalue": list(map(number, solution.eigenvalues)),
        "share of variance": [f"{share:.2%}" for share in solution.explained_variance_ratio],
        "proven at least": [number(at_least(value)) for value in known.lower if known.proven],
        f"at most, {known.confidence:.0%}": [number(at_most(value)) for value in known.upper if known.confidence],
        "exact (estimate)": known.estimates or [],
        "trust": known.trust,
    }
    columns = {name: cells for name, cells in columns.items() if cells}
    return [("th", tuple(columns)), *(("td", row) for row in zip(*columns.values(), strict=True))]


def facts_of(model: Model, path: str) -> dict[str, str]:
    """What was fitted, how accurate it is, what it captures, and how it was fitted; by name."""
    info, identity = model_info(model, path), model.provenance["identity"]
    n, d = identity["shape"]
    rows = f"{n:,} × {d:,}, {np.dtype(identity['dtype']).name}"
    if model.sums and model.weighted:
        rows += f", of weight {model.sums.weight:,.10g}"
    if added := sum(each["rows"] for each in info["added"]):
        rows += f"; {added:,} added later"
    kernel = dict(info["kernel"])
    kind, parameters = kernel.pop("name"), _word(kernel)
    return {
        "data": identity["path"] or "an array in memory",
        "rows": rows,
        **_accuracy(model, info),
        "method": info["method"],
        "kernel": f"{kind} ({parameters})" if parameters else kind,
        "landmarks" if "landmarks" in info else "random features": f"{model.features.size:,}",
        "components": f"{model.components:,}",
        "pre-images": info["preimage"] or "none",
        **{f"chosen: {each['option']}": f"{_word(each['value'])}, {each['reason']}" for each in info["choices"]},
        **{name.replace("_", " "): _word(value) for name, value in info["options"].items() if name not in _STATED},
        **({"calibration rows": f"{model.calibration.count:,}"} if model.calibration else {}),
        "centred, standardized": f"{_word(info['center'])}, {_word(info['standardize'])}",
        "precision, seed": f"{info['dtype']}, {info['random_state']}",
    }


def _word(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return ", ".join(f"{name} {_word(each)}" for name, each in value.items())
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _accuracy(model: Model, info: Mapping[str, Any]) -> dict[str, str]:
    """How accurate the approximation is, and what the components capture."""
    found, known = accuracy_in_words(info), model.certificate
    if known.proven:
        least = share_at_least(float(known.lower.sum()) / model.solution.total_variance, 1)
        found["captured in feature space"] += f"; by the exact components at least {least} (proven)"
    if model.captured is None:
        found["captured of the columns"] = "not known: fit with calibration_rows=2000 (--calibration-rows 2000)"
    return found
