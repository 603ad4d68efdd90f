"""deploy/systemd: the units as systemd-analyze sees them, a fit under their filter of system calls, the crontab."""

import os
import re
import shutil
import sys
import tomllib
from ctypes.util import find_library
from pathlib import Path

import dask
import numpy as np
import pytest

import bigkpca
from bigkpca.errors import SpecError
from bigkpca.execution.clusters import check_address
from tests.deploy.under_filter import settings
from tests.helpers.commands import finished
from tests.helpers.disks import tree_bytes
from tests.helpers.files import ROOT

SYSTEMD = ROOT / "deploy" / "systemd"
SERVICE = SYSTEMD / "bigkpca-nightly.service"
TIMER = SYSTEMD / "bigkpca-nightly.timer"
MOST_EXPOSED = {(): 0.6, ("network.conf",): 1.1}  # as README.md says

needs_systemd = pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd-analyze is not installed")


def analyze(*arguments):
    """What systemd-analyze prints, which finds nothing wrong."""
    return finished("systemd-analyze", *arguments, env={**os.environ, "TZ": "UTC"})


def installed(folder, *drop_ins):
    """Both units in a folder, with these drop-ins and a program that is there."""
    (folder / "bigkpca-nightly.service.d").mkdir()
    for name in drop_ins:
        shutil.copy(SYSTEMD / name, folder / "bigkpca-nightly.service.d")
    text = SERVICE.read_text()
    (folder / SERVICE.name).write_text(text.replace("/opt/bigkpca/.venv/bin/bigkpca", sys.executable))
    shutil.copy(TIMER, folder)
    return [folder / SERVICE.name, folder / TIMER.name]


@pytest.mark.full
@needs_systemd
def test_systemd_accepts_the_units_and_finds_them_no_more_exposed_than_the_readme_says(tmp_path):
    for number, drop_ins in enumerate([(), ("network.conf",), ("network.conf", "tls.conf")]):
        (tmp_path / str(number)).mkdir()
        units = installed(tmp_path / str(number), *drop_ins)
        done = analyze("verify", "--man=no", *units)
        assert (done.stdout, done.stderr) == ("", "")  # unknown keys are only remarks
        if "--offline" not in analyze("--help").stdout:
            pytest.skip("systemd-analyze security --offline needs systemd 250")
        found = analyze("security", "--offline=yes", units[0])
        level = float(re.search(r"exposure level for \S+: ([\d.]+)", found.stdout)[1])
        assert level <= MOST_EXPOSED[drop_ins[:1]], found.stdout
    for level in MOST_EXPOSED.values():
        assert f"{level}" in (SYSTEMD / "README.md").read_text()


def test_the_service_starts_every_night_again_when_that_helps_and_fits_the_job():
    assert {"OnCalendar=*-*-* 02:00:00", "Persistent=true"} <= set(TIMER.read_text().splitlines())
    job, service = tomllib.loads((SYSTEMD / "nightly.toml").read_text()), settings(SERVICE)
    assert service["Restart"] == ["on-failure"]  # oneshot services may not name the codes that start them again
    assert set(service["RestartPreventExitStatus"][0].split()) == {"1", "2", "3", "4", "7"}
    assert "SuccessExitStatus" not in service
    limit = dask.utils.parse_bytes(service["MemoryMax"][0] + "iB")
    assert limit >= 1.25 * dask.utils.parse_bytes(job["run"]["memory"])
    may_write = ["/var/lib/" + service["StateDirectory"][0], service["ReadWritePaths"][0].removeprefix("-")]
    for path in (job["model"]["path"], job["output"]["path"], job["run"]["metrics"]):
        assert str(Path(path).parent) in may_write


@pytest.mark.full
@needs_systemd
@pytest.mark.skipif(not find_library("seccomp"), reason="libseccomp is not installed")
def test_a_fit_on_two_processes_makes_no_call_that_the_service_refuses(tmp_path):
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(5000, 20)).astype("f4"))
    bigkpca.fit(tmp_path / "x.npy", tmp_path / "clean.zarr", n_components=3, size=50)
    under = [sys.executable, ROOT / "tests" / "deploy" / "under_filter.py", SERVICE, sys.executable]
    assert "Operation not permitted" in finished(*under, "-c", "import os; os.chown('.', 0, 0)", code=1).stderr
    fit = [*under, "-m", "bigkpca.cli", "fit", "x.npy", "m.zarr", "--components=3", "--size=50", "--workers=2"]
    finished(*fit, cwd=tmp_path, timeout=120)
    assert tree_bytes(tmp_path / "m.zarr") == tree_bytes(tmp_path / "clean.zarr")


def test_with_tls_conf_an_address_without_tls_is_refused():
    variables = [line.partition("=") for line in settings(SYSTEMD / "tls.conf")["Environment"]]
    credentials = {line.partition(":")[0] for line in settings(SYSTEMD / "tls.conf")["LoadCredential"]}
    assert {value.removeprefix("%d/") for _, _, value in variables if value.startswith("%d/")} == credentials
    configured = dask.config.collect_env({name: value for name, _, value in variables})
    with (
        dask.config.set(configured),
        pytest.raises(SpecError, match=r"does not use TLS, which .* require: use tls://"),
    ):
        check_address("tcp://10.0.0.1:8786")
    for key in ("ca-file", "client.cert", "client.key"):
        assert dask.config.get(f"distributed.comm.tls.{key}", config=configured).startswith("%d/")


def test_the_crontab_runs_the_job_hourly_from_two_to_five():
    lines = [line for line in (SYSTEMD / "crontab").read_text().splitlines() if line and not line.startswith("#")]
    variables = dict(line.split("=", 1) for line in lines if re.match(r"\w+=", line))
    ((*when, command),) = [line.split(maxsplit=5) for line in lines if not re.match(r"\w+=", line)]
    assert {"MAILTO", "PATH", "SHELL"} <= set(variables)
    assert variables["PATH"].split(":")[0] + "/bigkpca run" in settings(SERVICE)["ExecStart"][0]
    assert command.endswith("bigkpca run -q /etc/bigkpca/nightly.toml >/dev/null")
    assert "%" not in command  # which cron turns into a new line
    assert when == ["0", "2-5", "*", "*", "*"]
