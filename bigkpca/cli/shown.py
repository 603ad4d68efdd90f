"""Results on stdout: facts, choices, spectra."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import click


def show(facts: Mapping[str, Any], as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(facts))
        return
    width = max(len(key) for key in facts)
    for key, value in facts.items():
        click.echo(f"{key.replace('_', ' '):<{width}}  {_readable(key, value)}")


def _readable(key: str, value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int) and "bytes" in key:
        return f"{value / 1e6:,.1f} MB"
    if isinstance(value, float):
        return f"{value:.6g}"
    if key == "kernel":
        parameters = ", ".join(f"{name} {_readable(name, item)}" for name, item in value.items() if name != "name")
        return f"{value['name']} ({parameters})" if parameters else str(value["name"])
    if isinstance(value, dict):
        return ", ".join(f"{name} {_readable(name, item)}" for name, item in value.items())
    if key in ("shape", "row_shape", "chunks", "shards") and value:
        return " × ".join(f"{axis:,}" for axis in value)
    if isinstance(value, list):
        shown = ", ".join(_readable(key, item) for item in value[:8])
        return f"{shown}, ... ({len(value)} in all)" if len(value) > 8 else shown or "none"
    return f"{value:,}" if isinstance(value, int) else str(value)


SPECTRUM = ("eigenvalues", "explained_variance_ratio", "certificate", "choices")  # printed by themselves


def show_choices(facts: Mapping[str, Any]) -> None:
    """What was left open, as it was chosen, with the reasons."""
    for choice in facts["choices"]:
        value = _readable("", choice["value"])
        click.echo(f"chosen: {choice['option'].replace('_', ' ')} {value}, {choice['reason']}")


def show_spectrum(facts: Mapping[str, Any], rows: int = 10) -> None:
    """Eigenvalues with their proven bounds and one word of trust for each, then how wrong the whole is."""
    proven, estimated = facts["certificate"]["proven"], facts["certificate"]["estimated"]
    values, shares = facts["eigenvalues"], facts["explained_variance_ratio"]
    highest, trust = proven["eigenvalue_upper"], estimated["trust"]
    click.echo(
        "component   eigenvalue   share of variance   cumulative"
        + ("   proven at most" if highest else "")
        + ("   trust" if trust else "")
    )
    total = 0.0
    for number in range(min(rows, len(values))):
        total += shares[number]
        click.echo(
            f"{number + 1:>9}   {values[number]:>#10.5g}   {shares[number]:>16.2%}   {total:>10.2%}"
            + (f"   {highest[number]:>#14.5g}" if highest else "")
            + (f"   {trust[number]}" if trust else "")
        )
    if len(values) > rows:
        rest = sum(shares[rows:])
        words = [f"{trust[rows:].count(word)} {word}" for word in ("solid", "fair", "doubtful")] if trust else []
        gap = " " * 17 if highest else ""
        click.echo(
            f"  {rows + 1} to {len(values)}" + f"{rest:>30.2%}   {total + rest:>10.2%}{gap}   " + ", ".join(words)
        )
    if proven["residuals"] is not None:
        click.echo(f"largest relative residual: {max(proven['residuals']):.2g} (proven)")
    if proven["relative_trace_error"] is not None:
        click.echo(
            f"unexplained by the landmarks: {proven['relative_trace_error']:.2%} of the variance at most (proven)"
        )
    if estimated["kernel_error"] is not None:
        click.echo(f"error of the centred kernel matrix: {estimated['kernel_error']:.2%} of its norm (estimated)")
    if estimated["leave_one_out_residual"] is not None:
        click.echo(f"residual of a new row: {estimated['leave_one_out_residual']:.3g} of k(x, x) (estimated)")
