"""A night of bigkpca in Prefect 3: tried again after exit codes 5 and 6 and after kills, failed at once after others,
with a call to somebody after 7. PAGER_URL takes what is posted to it, as an alerting service does."""

import os
import subprocess
import urllib.request

from prefect import flow, task


class TryAgain(Exception):
    """Locked, incomplete or killed: the same command goes on."""


def is_worth_a_try(task, run, state) -> bool:
    return isinstance(state.result(raise_on_failure=False), TryAgain)


@task(retries=6, retry_delay_seconds=300, retry_condition_fn=is_worth_a_try)
def run(job: str) -> None:
    code = subprocess.run(["bigkpca", "run", job]).returncode
    if code in (5, 6) or code < 0 or code > 128:
        raise TryAgain(f"exit code {code}: tried again")
    if code == 7:  # what is stored is damaged, or the input changed
        urllib.request.urlopen(os.environ["PAGER_URL"], data=f"bigkpca run {job}: exit code 7".encode(), timeout=30)
    if code:
        raise RuntimeError(f"exit code {code}: see the log of this task")


@flow(timeout_seconds=8 * 3600)
def bigkpca_nightly(job: str = "/etc/bigkpca/nightly.toml") -> None:
    run(job)


if __name__ == "__main__":
    bigkpca_nightly.serve(name="nightly", cron="30 2 * * *", limit=1)
