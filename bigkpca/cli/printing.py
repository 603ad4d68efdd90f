"""Print facts, choices and spectra."""

from __future__ import annotations

import json
from collections.abc import Container, Iterable, Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import click

from bigkpca.numerics.display import at_most, plus_minus

if TYPE_CHECKING:
    from bigkpca.ingesting.encoder import Column
    from bigkpca.numerics.calibration import Calibration
    from bigkpca.workflows.flags import FlaggedRows


def show(facts: Mapping[str, Any], as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(facts))
        return
    width = max(len(key) for key in facts)
    for key, value in facts.items():
        click.echo(f"{key.replace('_', ' '):<{width}}  {_readable(key, value)}")


_MOST_ENCODED = 40  # columns that are shown


def show_columns(columns: Sequence[Column]) -> None:
    """How the columns of a table became numbers: name, Arrow type, numbers, and missing values that were filled in."""
    shown = [("column", "type", "becomes")]
    for each in columns[:_MOST_ENCODED]:
        filled = f"; {each.missing:,} missing values are the mean" if each.missing else ""
        shown.append((each.name, each.arrow, each.as_words + filled))
    if columns:
        click.echo("\n".join(aligned(shown, range(3))))
    if len(columns) > _MOST_ENCODED:
        click.echo(f"... and {len(columns) - _MOST_ENCODED:,} more")


def _first(words: Sequence[str]) -> str:
    return ", ".join(words[:8]) + (f", ... ({len(words)} in all)" if len(words) > 8 else "")


def _readable(key: str, value: Any) -> str:
    if value is None or value == {}:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int) and "bytes" in key:
        return f"{value / 1e6:,.1f} MB"
    if isinstance(value, float):
        return f"{value:,.10g}" if key == "sum" else f"{value:.6g}"
    if key == "encoding":  # how the columns of a table became numbers
        from bigkpca.ingesting.encoder import Encoder

        return _first([f"{each.name} ({each.as_words})" for each in Encoder.from_json(value).columns])
    if key == "kernel":
        parameters = ", ".join(f"{name} {_readable(name, item)}" for name, item in value.items() if name != "name")
        return f"{value['name']} ({parameters})" if parameters else str(value["name"])
    if isinstance(value, dict):
        return ", ".join(f"{name.replace('_', ' ')} {_readable(name, item)}" for name, item in value.items())
    if key in ("shape", "row_shape", "chunks", "shards") and value:
        return " × ".join(f"{axis:,}" for axis in value)
    if isinstance(value, list):
        return _first([_readable(key, item) for item in value]) or "none"
    return f"{value:,}" if isinstance(value, int) else str(value)


SPECTRUM = ("eigenvalues", "explained_variance_ratio", "certificate", "choices")  # printed separately


def show_model(facts: Mapping[str, Any], names: Iterable[str], **others: str) -> None:
    """Print facts of these names about a model, and others, what was chosen automatically and why, and its spectrum."""
    show({name: facts[name] for name in names if name in facts} | others, False)
    for choice in facts["choices"]:
        value = _readable("", choice["value"])
        click.echo(f"chosen: {choice['option']} {value}, {choice['reason']}")
    show_spectrum(facts)


def show_spectrum(facts: Mapping[str, Any]) -> None:
    """Print the first eigenvalues with their upper bounds and trust, all others in one line, and the errors."""
    from bigkpca.storage.describe import accuracy_in_words, whole_gram

    rows, certified = 10, facts["certificate"]
    trust, values, shares = certified["trust"], facts["eigenvalues"], facts["explained_variance_ratio"]
    columns = {
        "component": [str(number) for number, _ in enumerate(values[:rows], 1)],
        "eigenvalue": [f"{value:#.5g}" for value in values[:rows]],
    }
    if any(value is not None for value in certified["estimate"]) and not whole_gram(facts):
        pairs = zip(certified["estimate"][:rows], certified["standard_error"][:rows], strict=True)
        columns["exact (estimate)"] = ["" if value is None else plus_minus(value, error) for value, error in pairs]
    columns["share of variance"] = [f"{share:.2%}" for share in shares[:rows]]
    columns["cumulative"] = [f"{share:.2%}" for share in accumulate(shares[:rows])]
    if certified["confidence"]:
        limits = [f"{at_most(value):#.5g}" for value in certified["upper"][:rows]]
        columns[f"at most, {certified['confidence']:.0%}"] = limits
    columns["trust"] = trust[:rows]
    lines = [tuple(columns), *zip(*columns.values(), strict=True)]
    if len(values) > rows:
        others = {
            "component": f"{rows + 1} to {len(values)}",
            "share of variance": f"{sum(shares[rows:]):.2%}",
            "cumulative": f"{sum(shares):.2%}",
            "trust": ", ".join(f"{trust[rows:].count(word)} {word}" for word in ("solid", "fair", "doubtful")),
        }
        lines.append(tuple(others.get(title, "") for title in columns))
    click.echo("\n".join(aligned(lines, [len(columns) - 1], "   ")))
    for name, words in accuracy_in_words(facts).items():
        click.echo(f"{name}: {words}")


def show_flagged(found: FlaggedRows, calibration: Calibration) -> None:
    """Print how many rows are flagged, what chance explains, and the most unusual rows with their reasons."""
    from bigkpca.numerics.calibration import COMBINED

    click.echo(found.share.compared(calibration))
    if not len(found.numbers):
        return
    limit = calibration.limits(found.share.alpha)[COMBINED]
    click.echo(f"most unusual (limit {limit:.4g}):")
    cells = zip(found.numbers, found.statistic, found.reasons, strict=True)
    lines = [(f"{number}", f"{value:.4g}", reason) for number, value, reason in cells]
    click.echo("\n".join(aligned([("row", "statistic", "reason"), *lines], [2], "   ")))


def aligned(rows: Iterable[Sequence[str]], left: Container[int], gap: str = "  ") -> list[str]:
    """Lines of a table; the columns with these numbers are left-aligned, the others right-aligned."""
    rows = list(rows)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        gap.join(f"{cell:{'<' if i in left else '>'}{widths[i]}}" for i, cell in enumerate(row)).rstrip()
        for row in rows
    ]
