"""Dask inside one Slurm job: the certificates of its processes, then its scheduler and workers.

    python cluster.py certificates FOLDER
    srun python cluster.py start FOLDER

FOLDER is seen by all nodes and read by nobody else. The first task becomes the scheduler, whose address appears in
FOLDER/scheduler.json, and every other task a worker. TLS files are read from Dask's configuration (nightly.sbatch).
"""

import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path

from dask_jobqueue.slurm import SLURMRunner
from distributed import Security
from distributed.system import MEMORY_LIMIT


def certificates(folder: Path) -> None:
    """Write a certificate and its key. The same pair serves all processes of the job, and is its own authority."""
    made = Security.temporary().get_tls_config_for_role("scheduler")
    for name, content in {"ca.pem": made["ca_file"], "cert.pem": made["cert"], "key.pem": made["key"]}.items():
        with open(os.open(folder / name, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as file:
            file.write(content)


def memory_of_a_task(env: Mapping[str, str]) -> int:
    """The bytes that each task may use: as --mem-per-cpu says, or else a share of --mem, or of all memory of the node
    where neither is set, or --mem is 0. A node with few tasks gives each as much as one with many."""
    if per_cpu := int(env.get("SLURM_MEM_PER_CPU", 0)):
        return per_cpu * int(env["SLURM_CPUS_PER_TASK"]) * 2**20
    node = int(env.get("SLURM_MEM_PER_NODE", 0)) * 2**20 or MEMORY_LIMIT
    tasks = env.get("SLURM_STEP_TASKS_PER_NODE") or env["SLURM_TASKS_PER_NODE"]  # e.g. "2(x3),1"
    return node // max(map(int, re.findall(r"(?:^|,)(\d+)", tasks)))


def start(folder: Path) -> None:
    """Be the scheduler or a worker, until the job ends."""
    cpus = int(os.environ["SLURM_CPUS_PER_TASK"])
    memory = memory_of_a_task(os.environ)
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
