"""Results on stdout: facts, choices, spectra."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import click

from bigkpca.numerics.display import at_most, share_at_most


def show(facts: Mapping[str, Any], as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(facts))
        return
    width = max(len(key) for key in facts)
    for key, value in facts.items():
        click.echo(f"{key.replace('_', ' '):<{width}}  {_readable(key, value)}")


def _readable(key: str, value: Any) -> str:
    if value is None or value == {}:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int) and "bytes" in key:
        return f"{value / 1e6:,.1f} MB"
    if isinstance(value, float):
        return f"{value:.6g}"
    if key in ("options", "preimage_options"):
        return ", ".join(f"{name.replace('_', ' ')} {_readable(name, item)}" for name, item in value.items())
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
    """Eigenvalues with what they are at most and one word of trust for each, then how wrong the whole is."""
    certified = facts["certificate"]
    proven, likely, estimated = certified["proven"], certified["likely"], certified["estimated"]
    values, shares, trust = facts["eigenvalues"], facts["explained_variance_ratio"], estimated["trust"]
    highest = {"proven at most": proven["eigenvalue_upper"]}
    if likely["confidence"]:
        highest[f"at most, {likely['confidence']:.0%}"] = likely["eigenvalue_upper"]
    highest = {title: bounds for title, bounds in highest.items() if bounds}
    click.echo(
        "component   eigenvalue   share of variance   cumulative"
        + "".join(f"   {title}" for title in highest)
        + ("   trust" if trust else "")
    )
    total = 0.0
    for number in range(min(rows, len(values))):
        total += shares[number]
        click.echo(
            f"{number + 1:>9}   {values[number]:>#10.5g}   {shares[number]:>16.2%}   {total:>10.2%}"
            + "".join(f"   {at_most(bounds[number]):>#{len(title)}.5g}" for title, bounds in highest.items())
            + (f"   {trust[number]}" if trust else "")
        )
    if len(values) > rows:
        rest = sum(shares[rows:])
        words = [f"{trust[rows:].count(word)} {word}" for word in ("solid", "fair", "doubtful")] if trust else []
        gap = "".join(" " * (3 + len(title)) for title in highest)
        click.echo(
            f"  {rows + 1} to {len(values)}" + f"{rest:>30.2%}   {total + rest:>10.2%}{gap}   " + ", ".join(words)
        )
    if proven["residuals"] is not None:
        largest = at_most(max(proven["residuals"]), 2)
        click.echo(f"largest relative residual: {largest:.2g} (proven: an eigenvalue lies that near)")
    if facts["method"] == "exact" and proven["residuals"] is None:
        click.echo("exact: the whole Gram matrix was solved, there is no error of approximation")
    elif proven["relative_trace_error"] is not None:
        share = share_at_most(proven["relative_trace_error"])
        click.echo(f"unexplained by the landmarks: {share} of the variance at most (proven)")
    if likely["spectral_error"] is not None:
        click.echo(
            f"missed by the landmarks: no component with an eigenvalue above {at_most(likely['spectral_error']):.5g} "
            f"({likely['confidence']:.0%} confidence)"
        )
    if estimated["kernel_error"] is not None:
        click.echo(f"error of the centred kernel matrix: {estimated['kernel_error']:.2%} of its norm (estimated)")
    if estimated["leave_one_out_residual"] is not None:
        click.echo(f"residual of a new row: {estimated['leave_one_out_residual']:.3g} of k(x, x) (estimated)")
