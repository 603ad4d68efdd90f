"""A Slurm of one node, from Debian's packages `slurm-wlm` and `munge`, without systemd and control groups.

It needs root, as its daemons do: `apt-get install --no-install-recommends slurm-wlm munge`.
"""

import os
import re
import shutil
import socket
import subprocess
from contextlib import suppress

import pytest

from tests.helpers.dask_processes import wait_until
from tests.helpers.s3 import free_ports

_CONFIG = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
SlurmdParameters=config_overrides
SchedulerParameters=batch_sched_delay=1,sched_interval=2
KillWait=10
NodeName={host} NodeAddr=127.0.0.1 Sockets=1 CoresPerSocket={cpus} RealMemory=8000
PartitionName=all Nodes={host} Default=YES MaxTime=INFINITE
"""
_DAEMONS = ("munged", "slurmctld", "slurmd")


class Slurm:
    """The daemons, on ports that are free and in a folder of their own. They end with the context."""

    def __init__(self, folder, cpus=4):
        missing = [name for name in (*_DAEMONS, "sbatch", "mungekey") if not shutil.which(name, path=_path())]
        if missing or os.geteuid():
            pytest.skip("needs root and Slurm: apt-get install --no-install-recommends slurm-wlm munge")
        self.folder = folder
        self._daemons = []
        for name in ("state", "spool"):
            (folder / name).mkdir(parents=True)
        words = {"folder": folder, "cpus": cpus, "ports": free_ports(2), "host": socket.gethostname().split(".")[0]}
        (folder / "slurm.conf").write_text(_CONFIG.format(**words))
        (folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
        self.env = {**os.environ, "PATH": _path(), "SLURM_CONF": str(folder / "slurm.conf")}

    def __enter__(self):
        try:
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _start(self):
        key, munge = self.folder / "munge.key", self.folder / "munge.socket"
        self.run("mungekey", "--create", f"--keyfile={key}")
        files = [f"--{name}-file={self.folder}/munge.{name}" for name in ("log", "pid", "seed")]
        self._daemon("munged", "--foreground", "--force", f"--key-file={key}", f"--socket={munge}", *files)
        wait_until(munge.exists)
        self._daemon("slurmctld", "-D", "-i")
        self._daemon("slurmd", "-D")
        wait_until(lambda: "idle" in self.run("sinfo", "--noheader", "--format=%T", check=False))

    def _daemon(self, *command):
        with (self.folder / f"{command[0]}.out").open("wb") as out:
            self._daemons.append(subprocess.Popen(command, stdout=out, stderr=out, env=self.env))

    def __exit__(self, *_):
        """End all jobs, then the daemons, and wait for them."""
        with suppress(AssertionError, subprocess.TimeoutExpired):  # where the daemons never came up
            self.run("scancel", "--user=root", check=False)
            wait_until(lambda: not self.run("squeue", "--noheader"), 30)
        for daemon in reversed(self._daemons):
            daemon.terminate()
            daemon.wait(60)

    def run(self, *command, check=True, **how):
        """What a command of Slurm prints."""
        done = subprocess.run(command, **{"env": self.env, "timeout": 60, **how}, capture_output=True, text=True)
        assert not check or done.returncode == 0, done.stderr
        return done.stdout

    def submit(self, folder, *options, env=None):
        """Submit a job from a folder; its number."""
        return int(self.run("sbatch", "--parsable", *options, cwd=folder, env={**self.env, **(env or {})}))

    def job(self, number):
        """What Slurm says of a job, such as {"JobState": "RUNNING", "Restarts": "0", "ExitCode": "0:0"}."""
        return dict(re.findall(r"(\w+)=(\S*)", self.run("scontrol", "show", "job", str(number))))

    def wait(self, number, *states, seconds=120.0):
        """Wait until a job is in one of these states; what Slurm says of it then."""
        wait_until(lambda: self.job(number)["JobState"] in states, seconds)
        return self.job(number)


def _path():
    return os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
