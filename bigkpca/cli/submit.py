"""Submit commands that run on the cluster itself, and list them."""

from __future__ import annotations

import json
import shlex
import sys
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import click

from bigkpca.cli.command import command, option, outcome, verbose_option
from bigkpca.cli.options import PATH, json_option, scheduler_option
from bigkpca.cli.printing import aligned
from bigkpca.data.stores import store_of
from bigkpca.errors import BigKPCAError, SpecError
from bigkpca.spec.units import TIMEOUT

if TYPE_CHECKING:
    from distributed import Client


@command(
    "bigkpca submit --scheduler tcp://10.0.0.1:8786 fit /shared/rows.zarr /shared/model.zarr",
    "bigkpca submit --scheduler tcp://10.0.0.1:8786 --name nightly --wait run /shared/nightly.toml",
    allow_interspersed_args=False,  # what follows the command belongs to it
)
@option("--name", metavar="NAME", show_default="the command and a number", help="Name shown by `bigkpca jobs`.")
@click.option("--wait", is_flag=True, help="Show the output of the command, and exit with its exit code.")
@scheduler_option
@verbose_option
@click.argument("words", metavar="COMMAND...", nargs=-1, required=True, type=click.UNPROCESSED)
def submit(words: tuple[str, ...], scheduler: str | None, name: str | None, wait: bool) -> None:
    """Run any other COMMAND on a Dask cluster and return at once.

    One worker drives the command, and all workers share its work. If the driving worker dies, another one takes over.
    All workers must see the paths.
    """
    from bigkpca.execution import submit as submitting

    options = _options(words)
    name = name or f"{words[0]}-{uuid4().hex[:6]}"
    with _connected(scheduler) as client:
        submitting.submit(client, name, shlex.join(words), partial(_called, words[0]), options)
        if wait:
            sys.exit(submitting.wait(client, name, partial(click.echo, err=True)))
    click.echo(name)
    click.echo(f"to follow its progress: bigkpca jobs --scheduler {scheduler}", err=True)


@command(
    "bigkpca jobs --scheduler tcp://10.0.0.1:8786",
    "bigkpca jobs --scheduler tcp://10.0.0.1:8786 --wait nightly",
)
@option("--wait", metavar="NAME", help="Show the output of a command, and exit with its exit code.")
@json_option
@scheduler_option
@verbose_option
def jobs(scheduler: str | None, wait: str | None, as_json: bool) -> None:
    """List the commands submitted to a Dask cluster."""
    from bigkpca.execution import submit as submitting

    with _connected(scheduler) as client:
        if wait is not None:
            sys.exit(submitting.wait(client, wait, partial(click.echo, err=True)))
        found = submitting.jobs(client)
    if as_json:
        for each in found:
            click.echo(json.dumps(asdict(each)))
    elif not found:
        click.echo("no commands have been submitted to this cluster")
    else:
        codes = ["" if each.exit_code is None else str(each.exit_code) for each in found]
        rows = [(each.name, each.state, code, each.command) for each, code in zip(found, codes, strict=True)]
        title, *lines = aligned([("name", "state", "exit", "command"), *rows], range(4))
        click.echo(title)
        for line, each in zip(lines, found, strict=True):
            click.echo(line + (f"\n    {each.message}" if each.message else ""))


def _connected(scheduler: str | None) -> Client:
    """A client of the cluster at this address, or of the one in Dask's configuration."""
    from bigkpca.execution.clusters import configured_scheduler, connect

    if scheduler is None and (scheduler := configured_scheduler()) is None:
        raise SpecError("give the address of the cluster: --scheduler tcp://10.0.0.1:8786")
    return connect(scheduler, TIMEOUT)


def _options(words: Sequence[str]) -> dict[str, Any]:
    """The options of a command, with full paths, so that they mean the same on a worker. Raises click.UsageError."""
    from bigkpca.cli import main

    name, *others = words or [""]
    found = main.get_command(click.Context(main), name)
    if found is None or name in ("submit", "jobs"):
        raise click.UsageError(f"No such command {name!r} to submit.")
    context = found.make_context(name, others)
    if context.params.get("scheduler") or context.params.get("workers"):
        raise click.UsageError("Give --scheduler once, before the command, which then runs on that cluster.")
    paths = {each.name for each in found.params if each.type is PATH}
    return {name: _full(value) if name in paths else value for name, value in context.params.items()}


def _full(path: Any) -> Any:
    if isinstance(path, tuple):
        return tuple(map(_full, path))
    return None if path is None else store_of(path).absolute(path)


def _called(name: str, options: Mapping[str, Any]) -> tuple[int, str]:
    """Run a command on a worker: its exit code, and the reason of a failure."""
    from bigkpca.cli import main

    found = main.get_command(click.Context(main), name)
    assert found is not None
    try:
        with click.Context(found, info_name=name) as context:
            context.invoke(found, **options)
    except Exception as error:
        code, message = outcome(error)
        if code == BigKPCAError.exit_code:  # nobody expected it
            traceback.print_exc()
        click.echo(f"bigkpca: {message}", err=True)
        return code, message
    return 0, ""
