"""The command line: results on stdout, progress and notes on stderr, one exit code for each kind of error."""

from __future__ import annotations

import click

from bigkpca.cli.command import Commands

# In the order of use: the module of each command, imported when the command runs, and its one-line help.
_COMMANDS = {
    "ingest": ("bigkpca.cli.datasets", "Make a dataset from files."),
    "info": ("bigkpca.cli.datasets", "Describe the data, model or output at a path."),
    "sigma": ("bigkpca.cli.fit", "Find a kernel length sigma."),
    "plan": ("bigkpca.cli.fit", "Estimate the cost of a fit."),
    "fit": ("bigkpca.cli.fit", "Fit kernel PCA and save the model."),
    "merge": ("bigkpca.cli.models", "Merge models fitted to different rows."),
    "evaluate": ("bigkpca.cli.models", "Estimate the error of a model."),
    "transform": ("bigkpca.cli.models", "Write the scores of rows."),
    "reconstruct": ("bigkpca.cli.models", "Write pre-images of scores."),
    "denoise": ("bigkpca.cli.models", "Remove noise from rows."),
    "export": ("bigkpca.cli.models", "Write scores as CSV, Parquet or .npy."),
    "verify": ("bigkpca.cli.models", "Check stored data for damage."),
    "run": ("bigkpca.cli.run", "Run a scheduled job once."),
    "history": ("bigkpca.cli.run", "List the runs of a job."),
    "compare": ("bigkpca.cli.fit", "Compare all methods on your data."),
    "report": ("bigkpca.cli.models", "Draw the report of a model."),
    "submit": ("bigkpca.cli.submit", "Run a command on a cluster and return at once."),
    "jobs": ("bigkpca.cli.submit", "List the commands submitted to a cluster."),
    "demo": ("bigkpca.cli.demo", "Try everything on a small real dataset."),
}


_EXAMPLES = (
    "bigkpca demo",
    "bigkpca ingest rows.csv rows.zarr",
    "bigkpca fit rows.zarr model.zarr --components 20",
    "bigkpca transform model.zarr rows.zarr scores.zarr",
    "bigkpca report model.zarr report.html --scores scores.zarr",
)


@click.group(
    "bigkpca",
    cls=Commands,
    modules=_COMMANDS,
    examples=_EXAMPLES,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(package_name="bigkpca")
def main() -> None:
    """Kernel PCA for data that do not fit in memory.

    First steps: bigkpca demo, or ingest, fit, transform and report, each with --help.
    """
