"""deploy/docker: the image, Compose and the scripts around them, without Docker."""

import os
import re
import shutil
import ssl
import stat
import subprocess
import tomllib
from functools import cache
from itertools import pairwise, product
from pathlib import Path

import pytest
import yaml
from dask.config import get
from dask.utils import parse_bytes
from packaging.requirements import Requirement

from bigkpca.execution import clusters
from bigkpca.spec.job import read_job
from tests.helpers.files import ROOT
from tests.helpers.images import instructions
from tests.helpers.s3 import program

FOLDER = ROOT / "deploy" / "docker"
JOB = tomllib.loads((FOLDER / "nightly.toml").read_text())
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
OURS = ("scheduler", "worker", "nightly")
STEPS = instructions(FOLDER / "Dockerfile")


@cache
def services():
    """The services of compose.yaml as Compose understands them; skips the test without it."""
    command = [program("docker-compose"), "-f", str(FOLDER / "compose.yaml"), "--profile", "nightly", "config"]
    env = {**os.environ, "BIGKPCA_USER": "10001:10001"}
    shown = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=env, check=True).stdout
    return dict(yaml.safe_load(shown)["services"])


def steps(word, having=""):
    """What follows a word of the Dockerfile."""
    return [rest for each, rest in STEPS if each == word and having in rest]


def pinned(name):
    """The versions in a file of requirements, each of which has the hashes of one or two wheels."""
    lines = [line for line in (FOLDER / name).read_text().splitlines() if not line.startswith("#")]
    found = [re.fullmatch(r"([\w-]+)==([\w.]+)((?: --hash=sha256:[0-9a-f]{64}){1,2})", line) for line in lines]
    assert all(found)
    return {each[1].lower().replace("_", "-"): each[2] for each in found if each}


@pytest.mark.full
def test_the_dockerfile_has_no_remarks_of_its_linter():
    done = subprocess.run([program("hadolint"), FOLDER / "Dockerfile"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_the_image_is_small_without_root_and_all_that_it_installs_is_pinned_with_hashes():
    (base,) = steps("ARG")
    assert re.fullmatch(r"PYTHON=3\.\d+\.\d+-slim-\w+", base)
    assert steps("FROM") == ["python:${PYTHON} AS build", "python:${PYTHON}"]
    assert "RUN" not in " ".join(word for word, _ in STEPS).rpartition("FROM")[2]  # the build's tools stay in its stage
    assert steps("USER") == ["10001:10001"]  # a number, for runAsNonRoot
    assert f"--build-arg PYTHON={base.partition('=')[2]}@sha256:" in (FOLDER / "Dockerfile").read_text()
    pins, extras = pinned("requirements.txt"), PROJECT["optional-dependencies"]
    for text in [*PROJECT["dependencies"], *extras["cloud"], *extras["tables"], *extras["tls"]]:
        needed = Requirement(text)
        assert needed.specifier.contains(pins[needed.name.lower()]), text
    assert "hatchling" in pinned("build-requirements.txt")
    installs = [step.partition(" install ")[2] for step in steps("RUN", "pip") if " install " in step]
    how = "--require-hashes --only-binary :all: -r "
    ways = [f"{how}requirements.txt", f"{how}build-requirements.txt", "--no-deps wheels/*.whl"]
    assert all(any(way in step for step in installs) for way in ways)
    assert len(installs) == len(ways)


@pytest.mark.parametrize("name", ["docker", "slurm"])
def test_dask_is_set_up_as_for_our_own_clusters_and_asks_for_encryption(name):
    settings = yaml.safe_load((ROOT / "deploy" / name / "dask.yaml").read_text())
    assert {key: get(key, config=settings) for key in clusters._SETTINGS} == clusters._SETTINGS
    assert name == "slurm" or get("distributed.comm.require-encryption", config=settings) is True


def test_services_are_limited_pinned_and_have_no_passwords_ports_or_places_to_write_but_their_own():
    assert {services()[name]["image"] for name in OURS} == {f"bigkpca:{PROJECT['version']}"}
    assert re.fullmatch(r"chrislusf/seaweedfs:\d+\.\d+", services()["s3"]["image"])
    for name, service in services().items():
        assert int(service["deploy"]["resources"]["limits"]["memory"]) >= 1 << 30
        assert (service["user"], service["read_only"], service["cap_drop"]) == ("10001:10001", True, ["ALL"])
        assert service["security_opt"] == ["no-new-privileges:true"]
        writable = {each["target"] for each in service.get("volumes", []) if not each.get("read_only")}
        assert writable == {"s3": {"/data"}, "nightly": {"/metrics"}}.get(name, set())
        secret = [key for key in service.get("environment", {}) if re.search("KEY|SECRET|PASSWORD", key)]
        assert [key for key in secret if not key.endswith("_FILE")] == []
    assert services()["nightly"]["stop_grace_period"] == "1m0s"  # tests of SIGTERM allow 10 seconds
    ports = [(name, each) for name, service in services().items() for each in service.get("ports", [])]
    assert [(name, each["host_ip"], each["target"]) for name, each in ports] == [("s3", "127.0.0.1", 8333)]
    assert set(services()["scheduler"]["networks"]) == {"cluster"}
    assert set(services()["s3"]["networks"]) == {"storage"}
    ignored = (FOLDER / ".gitignore").read_text().split()
    files = yaml.safe_load((FOLDER / "compose.yaml").read_text())["secrets"].values()
    assert {Path(each["file"]).parts[0] + "/" for each in files} <= set(ignored)


def test_the_job_fits_the_containers_and_its_variables_are_set():
    worker, nightly, text = services()["worker"], services()["nightly"], (FOLDER / "nightly.toml").read_text()
    flags, planned = dict(pairwise(worker["command"])), parse_bytes(JOB["run"]["memory"])
    assert JOB["run"]["scheduler"] == worker["command"][2] == "tls://scheduler:8786"
    assert "8786" in services()["scheduler"]["command"]
    for service in (worker, nightly):
        limit = int(service["deploy"]["resources"]["limits"]["memory"])
        assert 1.25 * planned <= limit  # one process in each
        assert planned < parse_bytes(flags["--memory-limit"]) < 0.9 * limit
    assert int(flags["--nthreads"]) == worker["deploy"]["resources"]["limits"]["cpus"]
    mounts = {each["target"]: each["source"] for each in nightly["volumes"]}
    assert nightly["command"] == ["bigkpca", "run", "/etc/bigkpca/nightly.toml"]
    assert mounts["/etc/bigkpca/nightly.toml"] == str(FOLDER / "nightly.toml")
    assert set(re.findall(r"\$\{(\w+)\}", text)) <= set(nightly["environment"])
    assert f"-bucket={nightly['environment']['BUCKET']}" in services()["s3"]["command"]
    assert Path(JOB["run"]["metrics"]).parent == Path("/metrics")
    read_job(FOLDER / "nightly.toml", {"BUCKET": "lake"})


def prepare(folder):
    """A copy of deploy/docker in which prepare.sh has run."""
    program("openssl")
    shutil.copy(ROOT / "deploy" / "certificates.sh", folder)
    made = shutil.ignore_patterns("secrets", "data", "metrics", ".env")
    copy = shutil.copytree(FOLDER, folder / "docker", ignore=made)
    subprocess.run([copy / "prepare.sh"], check=True)
    return Path(copy)


@pytest.mark.full
def test_prepare_makes_every_secret_for_nobody_else_and_again_renews_the_certificate_alone(tmp_path):
    folder = prepare(tmp_path)
    secrets = folder / "secrets"

    def files():
        return {path.name: path.read_bytes() for path in secrets.iterdir()}

    for secret in yaml.safe_load((folder / "compose.yaml").read_text())["secrets"].values():
        assert stat.S_IMODE((folder / secret["file"]).stat().st_mode) == 0o600
    owner = (secrets / "tls.key").stat()
    assert (folder / ".env").read_text() == f"BIGKPCA_USER={owner.st_uid}:{owner.st_gid}\n"
    assert owner.st_uid != 0
    assert (secrets / "s3-secret-key").read_text().strip() in (secrets / "s3.json").read_text()
    before = files()
    subprocess.run([folder / "prepare.sh"], check=True)
    assert {name for name, content in files().items() if content != before[name]} == {"tls.crt", "tls.key"}
    # The certificate is good for both sides and the names of the services, and for no other.
    ssl.create_default_context().load_cert_chain(secrets / "tls.crt", secrets / "tls.key")
    for purpose, name in product(("sslserver", "sslclient"), ("scheduler", "s3", "localhost", "elsewhere")):
        options = ["-x509_strict", "-purpose", purpose, "-verify_hostname", name, "-CAfile", secrets / "ca.crt"]
        done = subprocess.run(["openssl", "verify", *options, secrets / "tls.crt"], capture_output=True, check=False)
        assert (done.returncode == 0) == (name != "elsewhere"), done.stderr


@pytest.mark.full
def test_the_entrypoint_reads_credentials_from_files_and_passes_the_exit_code_on(tmp_path):
    def run(command, **files):
        line, env = [FOLDER / "entrypoint.sh", "sh", "-c", command], {"PATH": os.environ["PATH"], **files}
        return subprocess.run(line, env=env, capture_output=True, text=True, check=False)

    (tmp_path / "key").write_text("a b\n")
    shown = run('printf "%s" "$AWS_ACCESS_KEY_ID"; exit 6', AWS_ACCESS_KEY_ID_FILE=str(tmp_path / "key"))
    assert (shown.stdout, shown.returncode) == ("a b", 6)
    gone = run("true", AWS_SECRET_ACCESS_KEY_FILE="/none")
    assert gone.returncode != 0
    assert "/none" in gone.stderr


@pytest.mark.full
def test_a_night_is_tried_again_where_that_helps(tmp_path):
    docker = '#!/bin/sh\necho "$@" >> calls\nexit "$(sed -n "$(wc -l < calls)p" codes)"\n'
    for name, text in {"docker": docker, "sleep": '#!/bin/sh\necho "$1" >> pauses\n'}.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    shutil.copy(FOLDER / "nightly.sh", tmp_path)
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    pauses = ["60", "120", "240", "480", "960"]
    for codes in ([0], [1], [2], [3], [4], [7], [5, 6, 0], [137, 143, 3], [6] * 6):
        (tmp_path / "codes").write_text("".join(f"{code}\n" for code in codes))
        for name in ("calls", "pauses"):
            (tmp_path / name).write_text("")
        assert subprocess.run([tmp_path / "nightly.sh"], env=env, check=False).returncode == codes[-1]
        assert (tmp_path / "calls").read_text() == "compose run --rm -T nightly\n" * len(codes)
        assert (tmp_path / "pauses").read_text().split() == pauses[: len(codes) - 1], codes
