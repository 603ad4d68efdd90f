"""Dask inside one Slurm job: the certificates of its processes, then its scheduler and workers.

    python cluster.py certificates FOLDER
    srun python cluster.py start FOLDER

FOLDER is seen by all nodes and read by nobody else. The first task becomes the scheduler, whose address appears in
FOLDER/scheduler.json, and every other task a worker. TLS files are read from Dask's configuration (nightly.sbatch).
"""

import os
import sys
from pathlib import Path

from dask_jobqueue.slurm import SLURMRunner
from distributed import Security


def certificates(folder: Path) -> None:
    """Write a certificate and its key. The same pair serves all processes of the job, and is its own authority."""
    made = Security.temporary().get_tls_config_for_role("scheduler")
    for name, content in {"ca.pem": made["ca_file"], "cert.pem": made["cert"], "key.pem": made["key"]}.items():
        with open(os.open(folder / name, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as file:
            file.write(content)


def start(folder: Path) -> None:
    """Be the scheduler or a worker, until the job ends."""
    cpus = int(os.environ["SLURM_CPUS_PER_TASK"])
    memory = int(os.environ["SLURM_MEM_PER_CPU"]) * cpus * 2**20
    # The network between nodes, such as ib0. No pages over HTTP leave the node: they have no TLS.
    common = {"interface": os.environ.get("BIGKPCA_INTERFACE"), "dashboard_address": "127.0.0.1:0", "dashboard": False}
    SLURMRunner(
        client=False,
        scheduler_file=str(folder / "scheduler.json"),
        scheduler_options={"protocol": "tls", **common},
        worker_class="distributed.Nanny",  # starts a worker again that died
        worker_options={"nthreads": cpus, "memory_limit": memory, "death_timeout": 60, **common},
    )


if __name__ == "__main__":
    {"certificates": certificates, "start": start}[sys.argv[1]](Path(sys.argv[2]))
