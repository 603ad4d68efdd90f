"""deploy/slurm: the script with stand-ins for Slurm's commands, its cluster without Slurm, and a real Slurm of one node
on which the job is stopped before its time limit, and goes on."""

import os
import re
import runpy
import shutil
import signal
import subprocess
import sys
import tomllib
from contextlib import suppress

import dask
import numpy as np
import psutil
import pytest

import bigkpca
from bigkpca.ingesting import ingest
from tests.helpers.dask_processes import wait_until
from tests.helpers.disks import tree_bytes
from tests.helpers.files import ROOT
from tests.helpers.slurm import Slurm

SLURM = ROOT / "deploy" / "slurm"
ADDRESS = "tls://127.0.0.1:1"
# Stand-ins for commands; each writes what it was asked for into calls.txt.
COMMANDS = {
    "python": "exit 0",
    "srun": f"""echo '{{"address": "{ADDRESS}"}}' > "$PWD/.cluster-7/scheduler.json"; exec sleep 250""",
    "scontrol": "exit 0",
}


def prepared(folder, **commands):
    """A folder as a user has it, with these commands in its environment; the variables of a job."""
    shutil.copytree(SLURM, folder, dirs_exist_ok=True)
    programs = folder / ".venv" / "bin"
    programs.mkdir(parents=True)
    for name, body in commands.items():
        (programs / name).write_text(f'#!/bin/bash\necho "{name} $*" >> "{folder}/calls.txt"\n{body}\n')
        (programs / name).chmod(0o755)
    return {**os.environ, "SLURM_JOB_ID": "7", "SLURM_CPUS_PER_TASK": "1", "SLURM_MEM_PER_CPU": "1500"}


def start(folder, env):
    command = ["bash", "nightly.sbatch"]
    return subprocess.Popen(command, cwd=folder, env=env, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def queued_again(folder):
    found = re.findall("^scontrol.*", (folder / "calls.txt").read_text(), re.MULTILINE)
    assert found in ([], ["scontrol requeue 7", "scontrol update JobId=7 StartTime=now+5minutes"])
    return bool(found)


@pytest.mark.full
def test_a_job_is_queued_again_after_5_and_6_and_if_it_was_killed_but_ten_times_at_most(tmp_path):
    for code, restarts in [*((code, "0") for code in (0, 1, 2, 3, 4, 5, 6, 7, 137, 143)), (6, "10")]:
        folder = tmp_path / f"{code} {restarts}"
        env = prepared(folder, **COMMANDS, bigkpca=f'[ "$BIGKPCA_SCHEDULER" = {ADDRESS} ] && exit {code}')
        with start(folder, env | {"SLURM_RESTART_COUNT": restarts}) as job:
            _, errors = job.communicate(timeout=250)
        assert job.returncode == code, errors
        assert queued_again(folder) == (code in (5, 6, 137, 143) and restarts == "0"), code
        assert "bigkpca run nightly.toml" in (folder / "calls.txt").read_text()
        assert not list(folder.glob(".cluster-*"))


@pytest.mark.full
@pytest.mark.parametrize(("number", "again"), [(signal.SIGUSR1, True), (signal.SIGTERM, False)])
def test_the_signal_before_the_limit_queues_it_again_and_a_cancelled_job_stays_so(number, again, tmp_path):
    body = 'trap "exit 6" TERM\ntouch running; for _ in {1..2000}; do sleep 0.1; done'
    env = prepared(tmp_path, **COMMANDS, bigkpca=body)
    with start(tmp_path, env) as job:
        wait_until((tmp_path / "running").exists, 200)
        job.send_signal(number)
        if number == signal.SIGTERM:  # reaches all processes of a job
            for child in psutil.Process(job.pid).children(recursive=True):
                with suppress(psutil.NoSuchProcess):
                    child.terminate()
        job.communicate(timeout=250)
    assert job.returncode == 6
    assert queued_again(tmp_path) == again


def test_the_options_bound_time_and_memory_and_let_slurm_queue_it_again():
    script = (SLURM / "nightly.sbatch").read_text()
    options = dict(re.findall(r"^#SBATCH --([a-z-]+)(?:=(.*))?$", script, re.MULTILINE))
    assert options["time"]
    assert options["signal"].startswith("B:USR1@")
    assert int(options["signal"].partition("@")[2]) >= 120  # Slurm may be a minute early, the command takes seconds
    assert {"requeue", "output"} <= set(options)
    assert options["open-mode"] == "append"
    assert options["dependency"] == "singleton"
    memory = tomllib.loads((SLURM / "nightly.toml").read_text())["run"]["memory"]
    assert dask.utils.parse_bytes(options["mem-per-cpu"] + "iB") > dask.utils.parse_bytes(memory)


MEMORIES = [
    ({"SLURM_MEM_PER_CPU": "1500", "SLURM_CPUS_PER_TASK": "2"}, 3000),
    ({"SLURM_MEM_PER_NODE": "9000", "SLURM_TASKS_PER_NODE": "3"}, 3000),
    ({"SLURM_MEM_PER_NODE": "9000", "SLURM_STEP_TASKS_PER_NODE": "3"}, 3000),
    ({"SLURM_MEM_PER_NODE": "9000", "SLURM_STEP_TASKS_PER_NODE": "3", "SLURM_TASKS_PER_NODE": "9"}, 3000),
    ({"SLURM_MEM_PER_NODE": "9000", "SLURM_TASKS_PER_NODE": "1,3(x12)"}, 3000),
    ({"SLURM_MEM_PER_NODE": "0", "SLURM_TASKS_PER_NODE": "4"}, 16_000),  # --mem=0: all of the node
    ({"SLURM_TASKS_PER_NODE": "4"}, 16_000),  # of a site that does not count memory
]


def test_a_task_knows_its_memory_however_a_site_sets_it(monkeypatch):
    pytest.importorskip("dask_jobqueue")
    cluster = runpy.run_path(str(SLURM / "cluster.py"))
    monkeypatch.setitem(cluster["memory_of_a_task"].__globals__, "MEMORY_LIMIT", 64_000 * 2**20)
    for env, megabytes in MEMORIES:
        assert cluster["memory_of_a_task"](env) == megabytes * 2**20, env


@pytest.mark.full
def test_the_tasks_of_a_job_are_a_cluster_over_tls(tmp_path):
    memory = {"SLURM_MEM_PER_NODE": "4500", "SLURM_STEP_TASKS_PER_NODE": "3"}
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(5000, 20)).astype("f4"))
    options = {"n_components": 3, "size": 50, "random_state": 1}
    bigkpca.fit(tmp_path / "x.npy", tmp_path / "clean.zarr", **options)
    # The script itself, with a `srun` that starts three tasks.
    srun = """shift 2
export SLURM_NTASKS=3 BIGKPCA_INTERFACE=lo
for SLURM_PROCID in 0 1 2; do export SLURM_PROCID; "$@" & done
trap 'kill $(jobs -p)' TERM; wait"""
    fit = " ".join(f"--{name.replace('_', '-')} {value}" for name, value in options.items())
    cli = f'exec "{sys.executable}" -m bigkpca.cli fit x.npy m.zarr {fit} --scheduler "$BIGKPCA_SCHEDULER"'
    env = prepared(tmp_path, python=f'exec "{sys.executable}" "$@"', srun=srun, scontrol="exit 0", bigkpca=cli)
    del env["SLURM_MEM_PER_CPU"]
    with start(tmp_path, env | memory | {"PYTHONPATH": str(ROOT)}) as job:
        _, errors = job.communicate(timeout=250)
    assert job.returncode == 0, errors
    assert "running on tls://127.0.0.1:" in errors
    assert tree_bytes(tmp_path / "m.zarr") == tree_bytes(tmp_path / "clean.zarr")


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_a_job_that_reaches_its_time_limit_queues_itself_again_and_gives_the_same_bytes(tmp_path):
    """On a real Slurm of one node. A block that is computed again has another inode."""
    slurm = Slurm(tmp_path / "slurm")
    model, here = {"n_components": 10, "size": 1500, "sigma": 8, "landmarks": "uniform"}, tmp_path / "job"
    np.save(tmp_path / "rows.npy", np.random.default_rng(0).normal(size=(400_000, 40)).astype("f4"))
    ingest([tmp_path / "rows.npy"], tmp_path / "rows.zarr")
    bigkpca.fit(tmp_path / "rows.zarr", tmp_path / "model.zarr", **model)
    bigkpca.transform(tmp_path / "model.zarr", tmp_path / "rows.zarr", tmp_path / "features.zarr", block_rows=8192)
    run = f'exec "{sys.executable}" -m bigkpca.cli "$@"'
    env = prepared(here, python=f'exec "{sys.executable}" "$@"', bigkpca=run)
    for old, new in (
        ("rows.zarr", str(tmp_path / "rows.zarr")),
        ('path = "features.zarr"', 'path = "features.zarr"\nblock_rows = 8192'),
        ("n_components = 50", "\n".join(f"{key} = {value!r}" for key, value in model.items())),
    ):
        (here / "nightly.toml").write_text((here / "nightly.toml").read_text().replace(old, new))

    def blocks():
        return {file.stat().st_ino for file in here.glob("features.zarr*/**/c/*/*")}

    with slurm:
        options = ("--ntasks=3", "--mem-per-cpu=1500M", "--time=10", "nightly.sbatch")
        mine = {"PYTHONPATH": str(ROOT), "BIGKPCA_INTERFACE": "lo"}
        job = slurm.submit(here, *options, env=env | slurm.env | mine)
        wait_until(lambda: len(blocks()) >= 2, 600)
        assert not (here / "features.zarr").exists()
        slurm.run("scancel", "--batch", "--signal=USR1", str(job))  # as --signal does
        waiting = slurm.wait(job, "PENDING")
        wait_until(lambda: slurm.job(job)["Reason"] == "BeginTime")
        assert waiting["Restarts"] == "1"
        log, done = here / f"bigkpca-nightly-{job}.log", blocks()
        assert "exit code 6: queued again" in log.read_text()

        def started():  # at once; in the second of its end no job can start
            slurm.run("scontrol", "update", f"JobId={job}", "StartTime=now", check=False)
            return slurm.job(job)["JobState"] != "PENDING"

        wait_until(started, 200)
        assert slurm.wait(job, "COMPLETED", "FAILED", seconds=600)["JobState"] == "COMPLETED", log.read_text()
    assert done < blocks()  # it went on where it was
    for name in ("features.zarr/scores", "model.zarr"):
        assert tree_bytes(here / name) == tree_bytes(tmp_path / name)
    assert not list(here.glob(".cluster-*"))
