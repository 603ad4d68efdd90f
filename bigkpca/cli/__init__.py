"""The command line: results on stdout, progress and notes on stderr, one exit code for each kind of error."""

from __future__ import annotations

import click

from bigkpca.cli.command import Commands

# In the order in which they are used: the module of each command, which is imported when it runs, and its line of help.
_COMMANDS = {
    "ingest": ("bigkpca.cli.datasets", "Make a dataset from files."),
    "info": ("bigkpca.cli.datasets", "Describe what is at a path."),
    "sigma": ("bigkpca.cli.fit", "Find a length sigma for the kernel."),
    "plan": ("bigkpca.cli.fit", "Estimate the cost of a fit."),
    "fit": ("bigkpca.cli.fit", "Fit kernel PCA and save the model."),
    "merge": ("bigkpca.cli.models", "Add up models of different rows."),
    "evaluate": ("bigkpca.cli.models", "Estimate how wrong a model is."),
    "transform": ("bigkpca.cli.models", "Write the scores of rows."),
    "reconstruct": ("bigkpca.cli.models", "Write pre-images of scores."),
    "denoise": ("bigkpca.cli.models", "Remove noise from rows."),
    "export": ("bigkpca.cli.models", "Write scores as CSV, Parquet or .npy."),
    "verify": ("bigkpca.cli.models", "Check what is stored."),
    "run": ("bigkpca.cli.run", "Run a scheduled job once."),
    "history": ("bigkpca.cli.run", "List the runs of a job."),
    "rollback": ("bigkpca.cli.run", "Go back to an earlier version of features."),
    "prune": ("bigkpca.cli.run", "Remove old versions of features."),
    "compare": ("bigkpca.cli.compare", "Compare all methods on your data."),
    "report": ("bigkpca.cli.models", "Draw the report of a model."),
    "submit": ("bigkpca.cli.submit", "Run a command on a cluster, and return at once."),
    "jobs": ("bigkpca.cli.submit", "List the commands that were submitted to a cluster."),
    "demo": ("bigkpca.cli.demo", "Run everything on small real data."),
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
