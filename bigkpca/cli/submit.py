"""Submit commands that run on the cluster itself, and manage them."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import asdict
from threading import Thread
from time import sleep
from typing import TYPE_CHECKING

import click

from bigkpca.cli.command import command, option, verbose_option
from bigkpca.cli.options import certificates, json_option, scheduler_option
from bigkpca.cli.output import aligned
from bigkpca.errors import SpecError
from bigkpca.spec.units import TIMEOUT

if TYPE_CHECKING:
    from distributed import Future

_END_SECONDS = 30.0  # for a command whose worker died to end in order


@command(
    "bigkpca submit --scheduler tcp://10.0.0.1:8786 fit /shared/rows.zarr /shared/model.zarr",
    "bigkpca submit --scheduler tcp://10.0.0.1:8786 --name nightly --wait run /shared/nightly.toml",
    allow_interspersed_args=False,  # what follows the command belongs to it
)
@option("--name", metavar="NAME", unset="the command and a number", help="Name shown by `bigkpca jobs`.")
@click.option("--wait", is_flag=True, help="Show the output of the command, and exit with its exit code.")
@certificates
@scheduler_option
@verbose_option
@click.argument("words", metavar="COMMAND...", nargs=-1, required=True, type=click.UNPROCESSED)
@click.pass_context
def submit(ctx: click.Context, words: tuple[str, ...], scheduler: str | None, name: str | None, wait: bool) -> None:
    """Run any other COMMAND on a Dask cluster and return at once.

    One worker drives the command, and all workers share its work. If the driving worker dies, another one takes over.
    All workers must see the paths.
    """
    from bigkpca.execution import clusters, submitted

    on_cluster = _takes_scheduler(ctx, words)
    with clusters.connected(_needed(scheduler), TIMEOUT) as client:
        name, _ = submitted.submit(client, words, name, on_cluster=on_cluster)
        if wait:
            sys.exit(submitted.wait(client, name, lambda line: click.echo(line, err=True)))
    click.echo(name)
    click.echo(f"to follow its progress: bigkpca jobs --scheduler {scheduler}", err=True)


@command(
    "bigkpca jobs --scheduler tcp://10.0.0.1:8786",
    "bigkpca jobs --scheduler tcp://10.0.0.1:8786 --wait nightly",
    "bigkpca jobs --scheduler tcp://10.0.0.1:8786 --cancel nightly",
)
@option("--wait", metavar="NAME", unset="none", help="Show the output of a command, and exit with its exit code.")
@option("--cancel", metavar="NAME", unset="none", help="Stop a command; submitting it again resumes it.")
@json_option
@certificates
@scheduler_option
@verbose_option
def jobs(scheduler: str | None, wait: str | None, cancel: str | None, as_json: bool) -> None:
    """List the commands submitted to a Dask cluster."""
    from bigkpca.execution import clusters, submitted

    with clusters.connected(_needed(scheduler), TIMEOUT) as client:
        if wait is not None:
            sys.exit(submitted.wait(client, wait, lambda line: click.echo(line, err=True)))
        if cancel is not None:
            submitted.cancel(client, cancel)
        found = submitted.submitted(client)
    if as_json:
        for each in found:
            click.echo(json.dumps(asdict(each)))
    elif not found:
        click.echo("no commands have been submitted to this cluster")
    else:
        rows = [("name", "state", "exit", "command")]
        codes = ["" if each.exit_code is None else str(each.exit_code) for each in found]
        rows += [(each.name, each.state, code, each.command) for each, code in zip(found, codes, strict=True)]
        for line, one in zip(aligned(rows, range(len(rows[0]))), (None, *found), strict=True):
            click.echo(line)
            for said in (one.progress, one.message) if one else ():  # its latest output
                if said:
                    click.echo(f"    {said}")


def submit_command(words: Sequence[str], *, scheduler: str, name: str | None = None) -> Future[int]:
    """Run a command on a Dask cluster and return at once.

    One worker drives the command, and all workers share its work. If the driving worker dies, another one takes over.
    The command no longer depends on this process.

    Parameters
    ----------
    words : sequence of str
        The command and its arguments: ["fit", "/shared/rows.zarr", "/shared/model.zarr"].
    scheduler : str
        Address of the cluster.
    name : str, optional
        Name shown by `bigkpca jobs`.

    Returns
    -------
    distributed.Future
        Future of the exit code: 0 on success.

    Raises
    ------
    SpecError
        There is no such command, or the name is already taken.
    IncompleteError
        There is no scheduler at this address.
    """
    from bigkpca.cli import main
    from bigkpca.execution import clusters, submitted

    words = [str(word) for word in words]
    if not words:
        raise SpecError("name a command, such as ['fit', 'rows.zarr', 'model.zarr']")
    try:
        on_cluster = _takes_scheduler(click.Context(main), tuple(words))
    except click.UsageError as error:
        raise SpecError(error.format_message()) from error
    return submitted.submit(clusters.connect(scheduler, TIMEOUT), words, name, on_cluster=on_cluster)[1]


def _needed(scheduler: str | None) -> str:
    from bigkpca.execution.clusters import configured_scheduler

    if scheduler is None and (scheduler := configured_scheduler()) is None:
        raise SpecError("give the address of the cluster: --scheduler tcp://10.0.0.1:8786")
    return scheduler


def _takes_scheduler(ctx: click.Context, words: tuple[str, ...]) -> bool:
    """Whether a command can run on a cluster. Raises click.UsageError for unknown commands and options."""
    from bigkpca.cli import main

    named = None if words[0] in ("submit", "jobs") else main.get_command(ctx, words[0])
    if named is None:
        raise click.UsageError(f"No such command {words[0]!r} to submit.", ctx)
    named.make_parser(click.Context(named, info_name=words[0])).parse_args(list(words[1:]))
    options = {name for each in named.params for name in each.opts}
    if any(word.partition("=")[0] in ("--scheduler", "--workers") for word in words):
        raise click.UsageError("Give --scheduler once, before the command, which then runs on that cluster.", ctx)
    return "--scheduler" in options


def _end_with_parent() -> None:
    sys.stdin.read()  # blocks until the worker, which has the other end, is gone
    os.kill(os.getpid(), signal.SIGTERM)
    sleep(_END_SECONDS)
    os._exit(1)


if __name__ == "__main__":  # started by a worker for a submitted command
    from bigkpca.cli import main

    Thread(target=_end_with_parent, daemon=True).start()
    main(prog_name="bigkpca")
