"""bigkpca ...: results to stdout, progress and remarks to stderr, exit codes by meaning."""

from __future__ import annotations

import click

from bigkpca.cli.comparison import compare
from bigkpca.cli.data import info, ingest
from bigkpca.cli.exits import Commands
from bigkpca.cli.lengths import sigma
from bigkpca.cli.model import evaluate, fit, plan
from bigkpca.cli.pages import demo, report
from bigkpca.cli.rows import denoise, reconstruct, transform


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="bigkpca")
def main() -> None:
    """Kernel PCA for data that do not fit in memory.

    First steps: bigkpca demo, or ingest, fit, transform and report, each with --help.
    """


for _command in (ingest, info, sigma, plan, fit, evaluate, transform, reconstruct, denoise, compare, report, demo):
    main.add_command(_command)
