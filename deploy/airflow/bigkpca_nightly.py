"""A night of bigkpca in Airflow 3: tried again after exit codes 5 and 6 and after kills, failed at once after others,
with a call to somebody after 7. PAGER_URL takes what is posted to it, as an alerting service does."""

import os
import subprocess
import urllib.request
from datetime import datetime, timedelta

from airflow.sdk import dag, task
from airflow.sdk.exceptions import AirflowFailException


@dag(schedule="30 2 * * *", start_date=datetime(2026, 1, 1), catchup=False, max_active_runs=1)
def bigkpca_nightly():
    @task(retries=6, retry_delay=timedelta(minutes=5), execution_timeout=timedelta(hours=8))
    def run(job: str) -> None:
        code = subprocess.run(["bigkpca", "run", job]).returncode
        if code in (5, 6) or code < 0 or code > 128:  # locked, incomplete, killed: the same command goes on
            raise RuntimeError(f"exit code {code}: tried again")
        if code == 7:  # what is stored is damaged, or the input changed
            urllib.request.urlopen(os.environ["PAGER_URL"], data=f"bigkpca run {job}: exit code 7".encode(), timeout=30)
        if code:
            raise AirflowFailException(f"exit code {code}: see the log of this task")

    run("/etc/bigkpca/nightly.toml")


bigkpca_nightly()
