"""The command line: results on stdout, progress and notes on stderr, one exit code for each kind of error."""

from __future__ import annotations

import click

from bigkpca.cli.compare import compare
from bigkpca.cli.datasets import info, ingest
from bigkpca.cli.demo import demo
from bigkpca.cli.evaluate import evaluate
from bigkpca.cli.exit_codes import Commands
from bigkpca.cli.fit import fit, plan
from bigkpca.cli.report import report
from bigkpca.cli.run import history, rollback, run
from bigkpca.cli.sigma import sigma
from bigkpca.cli.transform import denoise, reconstruct, transform
from bigkpca.cli.verify import verify


@click.group("bigkpca", cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="bigkpca")
def main() -> None:
    """Kernel PCA for data that do not fit in memory.

    First steps: bigkpca demo, or ingest, fit, transform and report, each with --help.
    """


_COMMANDS = (
    ingest,
    info,
    sigma,
    plan,
    fit,
    evaluate,
    transform,
    reconstruct,
    denoise,
    verify,
    run,
    history,
    rollback,
    compare,
    report,
    demo,
)
for _command in _COMMANDS:
    main.add_command(_command)
