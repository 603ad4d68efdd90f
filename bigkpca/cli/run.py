"""Scheduled runs of a job, and their history."""

from __future__ import annotations

import json
import os
import textwrap
from typing import Any

import click

from bigkpca.cli.command import command
from bigkpca.cli.options import PATH, common, json_option, memory_option, scheduler_option, workers_option
from bigkpca.cli.printing import aligned, show
from bigkpca.execution.progress import ShownProgress


@command("bigkpca run nightly.toml", "bigkpca run nightly.toml --workers 4")
@click.argument("job", type=PATH)
@memory_option("Refuse to run if a process would need more, e.g. '2 GB'.", unset="as in the job file")
@workers_option
@scheduler_option
@json_option
@common
def run(job: str, as_json: bool, quiet: bool, **options: Any) -> None:
    """Run the JOB file once: extract features of the rows that arrived since the last run.

    The first run fits the model. Rerun the same command to finish a run that was stopped. --workers, --scheduler and
    --memory override the job file.
    """
    from bigkpca.spec.job import read_job
    from bigkpca.workflows import scheduled

    found = read_job(job, os.environ).running(**options)
    for record in scheduled.run(found, progress=ShownProgress(quiet)):
        if as_json:
            click.echo(json.dumps(record))
            continue
        drift, flagged = record["drift"], record["flagged"]
        facts = {
            "run": record["run"],
            "status": record["status"],
            "new_rows": _range(*record["rows"]),
            "rows": record["total_rows"],
            "model": record["model"]["path"],
            "drift": "not measured" if drift is None else f"{drift['figure']:.3f} (threshold {drift['threshold']:g})",
            "flagged": flagged and f"{flagged['count']:,} ({100 * flagged['share']:.3g}%)",
            "seconds": record["seconds"]["total"],
        }
        show({name: value for name, value in facts.items() if value is not None}, False)


def _range(first: int, stop: int) -> str:
    return f"{stop - first:,} ({first} to {stop - 1})" if stop > first else "none"


_TITLES = (
    "run", "finished (UTC)", "status", "exit", "new rows", "rows", "seconds", "drift", "outside", "flagged", "message"
)  # fmt: skip
_MOST_CHARACTERS = 200  # of a message in the table


@command("bigkpca history features.zarr")
@click.argument("out", type=PATH)
@json_option
@common
def history(out: str, as_json: bool, quiet: bool) -> None:
    """List the runs of the job that writes OUT."""
    from bigkpca.workflows.scheduled import history

    found = history(out)
    if as_json:
        for record in found:
            click.echo(json.dumps(record))
    elif not found:
        click.echo("no run has ended yet")
    else:
        click.echo("\n".join(aligned([_TITLES, *map(_cells, found)], [1, 2, 10])))


def _cells(record: dict[str, Any]) -> tuple[str, ...]:
    """A line of the table of runs; a record of a run that failed lacks some entries."""
    rows, drift = record.get("rows") or [0, 0], record.get("drift") or {}
    message = textwrap.shorten((record.get("message") or "").partition("\n")[0], _MOST_CHARACTERS, placeholder=" ...")
    return (
        str(record["run"]),
        str(record.get("finished"))[:19].replace("T", " "),
        str(record.get("status")),
        str(record.get("exit_code")),
        f"{rows[1] - rows[0]:,}",
        _number(record.get("total_rows")),
        f"{record.get('seconds', {}).get('total', 0):.1f}",
        f"{drift['figure']:.3f}" if drift else "",
        _number(drift.get("outside")),
        _number((record.get("flagged") or {}).get("count")),
        message,
    )


def _number(value: int | None) -> str:
    return "" if value is None else f"{value:,}"
