"""Make a dataset, and describe what is on disk."""

from __future__ import annotations

import csv
from typing import Any

import click

from bigkpca.cli.command import WithExamples, command, option, verbose_option
from bigkpca.cli.options import PATH, array_option, common, json_option, memory_option, overwrite_option
from bigkpca.cli.output import SPECTRUM, show, show_model
from bigkpca.execution.progress import ShownProgress


def _names(_: click.Context, __: click.Parameter, text: str | None) -> tuple[str, ...] | None:
    """Names between commas, quoted where they hold commas themselves."""
    return None if text is None else tuple(name.strip() for name in next(csv.reader([text], skipinitialspace=True)))


class _OfFormats(WithExamples):
    """A command whose help ends with the files that can be read; their readers are not imported before it is shown."""

    @property
    def help(self) -> str:
        from bigkpca.ingesting.formats import KNOWN_FILES

        return f"{self._about} {KNOWN_FILES}."

    @help.setter
    def help(self, about: str) -> None:
        self._about = about


@command(
    "bigkpca ingest rows.csv rows.zarr",
    "bigkpca ingest train-images.gz rows.zarr --labels train-labels.gz",
    "bigkpca ingest flights.csv flights.zarr --drop tailnum --categories one-hot --missing median",
    "bigkpca ingest more.csv rows.zarr --append",
    cls=_OfFormats,
)
@click.argument("sources", nargs=-1, required=True, metavar="SRC...", type=PATH)
@click.argument("destination", metavar="DST", type=PATH)
@option("--member", metavar="NAME", unset="the only one", help="Member of .npz and HDF5 files to read.")
@option("--labels", type=PATH, metavar="NAME|FILE", unset="none", help="Labels: a member, a column, or a second file.")
@option("--dtype", metavar="T", unset="by rule: that of the files, float64 for CSV", help="Store as this dtype.")
@option("--columns", callback=_names, metavar="A,B,...", unset="all", help="Use only these columns.")
@option(
    "--drop",
    callback=lambda *given: _names(*given) or (),
    metavar="A,B,...",
    unset="none",
    help="Leave these columns out.",
)
@option(
    "--missing",
    type=click.Choice(["refuse", "drop", "mean", "median"]),
    default="refuse",
    help="Rows with missing values: an error, left out, or filled with the mean or median of the column.",
)
@option(
    "--categories",
    type=click.Choice(["one-hot"]),
    unset="none, columns of text are refused",
    help="Make a column of 0 and 1 for each text of a column.",
)
@option("--text", metavar="NAME", unset="none", help="Make rows of the characters of this column, for string kernels.")
@option(
    "--like",
    type=PATH,
    metavar="DATASET",
    unset="none",
    help="Use the columns, categories, means and medians of DATASET.",
)
@option(
    "--block-rows",
    type=click.IntRange(1),
    metavar="N",
    unset="by rule: from the width of the rows",
    help="Rows of one stored shard.",
)
@memory_option("Refuse files whose rows, columns or lines need more, e.g. '4 GB'.", unset="2 GB")
@option("--append", is_flag=True, help="Add rows to the dataset DST.")
@overwrite_option
@common
def ingest(sources: tuple[str, ...], destination: str, quiet: bool, **options: Any) -> None:
    """Make a dataset DST (chunked Zarr) from files:"""  # which help names
    from bigkpca.ingesting import ingest as run
    from bigkpca.storage.describe import info as look

    progress = ShownProgress(quiet)
    if run(sources, destination, progress=progress, **options).already_done:
        progress.note(f"{destination} holds these files already: nothing to do")
    facts = look(destination)
    show({key: facts[key] for key in ("path", "shape", "dtype", "bytes")}, False)


@command(
    "bigkpca info model.zarr",
    "bigkpca info rows.zarr --json",
)
@click.argument("path", type=PATH)
@array_option("Array inside the Zarr group PATH.")
@json_option
@verbose_option
def info(path: str, array: str | None, as_json: bool) -> None:
    """Describe what is at PATH: a dataset, a model, a feature store, or any Zarr array."""
    from bigkpca.storage.describe import info as look

    facts = look(path, array)
    if as_json or facts["kind"] != "model":
        show(facts, as_json)
        return
    show_model(facts, {key: facts[key] for key in facts if key not in SPECTRUM})
