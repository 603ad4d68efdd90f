"""deploy/docker: what the image and Compose promise, and the scripts around them, without Docker."""

import os
import re
import shutil
import ssl
import stat
import subprocess
import tomllib
from itertools import pairwise, product
from pathlib import Path

import pytest
import yaml
from dask.config import get
from dask.utils import parse_bytes
from packaging.requirements import Requirement

from bigkpca.execution import clusters
from bigkpca.spec.job import read_job
from tests.helpers.commands import finished
from tests.helpers.files import ROOT
from tests.helpers.s3 import program

FOLDER = ROOT / "deploy" / "docker"
DOCKERFILE = (FOLDER / "Dockerfile").read_text()
COMPOSE = yaml.safe_load((FOLDER / "compose.yaml").read_text())
SERVICES = COMPOSE["services"]
JOB = tomllib.loads((FOLDER / "nightly.toml").read_text())
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def memory_of(service):
    return parse_bytes(service["deploy"]["resources"]["limits"]["memory"] + "ib")


@pytest.mark.full
def test_the_dockerfile_has_no_remarks_of_its_linter():
    assert finished(program("hadolint"), FOLDER / "Dockerfile").stdout == ""


def test_the_image_has_no_root_and_all_that_it_installs_is_pinned_with_hashes():
    (base,) = re.findall(r"^ARG PYTHON=(3\.\d+\.\d+-slim-\w+)$", DOCKERFILE, re.M)
    assert f"--build-arg PYTHON={base}@sha256:" in DOCKERFILE
    assert "\nUSER 10001:10001\n" in DOCKERFILE  # a number, for runAsNonRoot
    installs = re.findall(r" install (.*?)(?: && \\)?$", DOCKERFILE, re.M)
    how = "--require-hashes --only-binary :all: -r "
    assert installs == [f"{how}build-requirements.txt", f"{how}requirements.txt", "--no-deps wheels/*.whl"]
    lines = re.findall("^[^#].*$", (FOLDER / "requirements.txt").read_text(), re.M)
    found = [re.fullmatch(r"([\w-]+)==([\w.]+)((?: --hash=sha256:[0-9a-f]{64}){1,2})", line) for line in lines]
    pins, extras = {each[1].lower().replace("_", "-"): each[2] for each in found}, PROJECT["optional-dependencies"]
    for text in [*PROJECT["dependencies"], *extras["cloud"], *extras["tables"], *extras["tls"]]:
        needed = Requirement(text)
        assert needed.specifier.contains(pins[needed.name.lower()]), text
    ignored = (FOLDER / "Dockerfile.dockerignore").read_text().splitlines()
    assert ignored[1] == "*"
    assert all(f"!{source}" in ignored for source in re.findall(r"^COPY (?!--from).*?(deploy\S+)", DOCKERFILE, re.M))


@pytest.mark.parametrize("name", ["docker", "slurm"])
def test_dask_is_set_up_as_for_our_own_clusters_and_asks_for_encryption(name):
    settings = yaml.safe_load((ROOT / "deploy" / name / "dask.yaml").read_text())
    assert {key: get(key, config=settings) for key in clusters._SETTINGS} == clusters._SETTINGS
    assert name == "slurm" or get("distributed.comm.require-encryption", config=settings) is True


def test_services_are_limited_pinned_and_have_no_passwords_ports_or_places_to_write_but_their_own():
    for name, service in SERVICES.items():
        image = r"chrislusf/seaweedfs:\d+\.\d+" if name == "s3" else f"bigkpca:{PROJECT['version']}"
        assert re.fullmatch(image, service["image"])
        assert memory_of(service) >= 1 << 30
        assert (service["read_only"], service["cap_drop"]) == (True, ["ALL"])
        assert service["user"].startswith("${BIGKPCA_USER:?")
        assert service["security_opt"] == ["no-new-privileges:true"]
        writable = [each for each in service.get("volumes", []) if not each.endswith(":ro")]
        assert writable == {"s3": ["./data:/data"], "nightly": ["./metrics:/metrics"]}.get(name, [])
        secret = [key for key in service.get("environment", {}) if re.search("KEY|SECRET|PASSWORD", key)]
        assert [key for key in secret if not key.endswith("_FILE")] == []
        assert service.get("ports", []) == (["127.0.0.1:8333:8333"] if name == "s3" else [])
    assert SERVICES["nightly"]["stop_grace_period"] == "60s"  # tests of SIGTERM allow 10 seconds
    assert (SERVICES["scheduler"]["networks"], SERVICES["s3"]["networks"]) == (["cluster"], ["storage"])
    ignored = (FOLDER / ".gitignore").read_text().split()
    assert {Path(each["file"]).parts[0] + "/" for each in COMPOSE["secrets"].values()} <= set(ignored)


def test_the_job_fits_the_containers_and_its_variables_are_set():
    worker, nightly, text = SERVICES["worker"], SERVICES["nightly"], (FOLDER / "nightly.toml").read_text()
    flags, planned = dict(pairwise(worker["command"])), parse_bytes(JOB["run"]["memory"])
    assert JOB["run"]["scheduler"] == worker["command"][2] == "tls://scheduler:8786"
    assert "8786" in SERVICES["scheduler"]["command"]
    for service in (worker, nightly):
        assert 1.25 * planned <= memory_of(service)  # one process in each
        assert planned < parse_bytes(flags["--memory-limit"]) < 0.9 * memory_of(service)
    assert flags["--nthreads"] == worker["deploy"]["resources"]["limits"]["cpus"]
    assert nightly["command"] == ["bigkpca", "run", "/etc/bigkpca/nightly.toml"]
    assert "./nightly.toml:/etc/bigkpca/nightly.toml:ro" in nightly["volumes"]
    assert set(re.findall(r"\$\{(\w+)\}", text)) <= set(nightly["environment"])
    assert f"-bucket={nightly['environment']['BUCKET']}" in SERVICES["s3"]["command"]
    assert Path(JOB["run"]["metrics"]).parent == Path("/metrics")
    read_job(FOLDER / "nightly.toml", {"BUCKET": "lake"})


@pytest.mark.full
def test_prepare_makes_every_secret_for_nobody_else_and_again_renews_the_certificate_alone(tmp_path):
    program("openssl")
    shutil.copy(ROOT / "deploy" / "certificates.sh", tmp_path)
    ignored = shutil.ignore_patterns("secrets", "data", "metrics", ".env")
    folder = Path(shutil.copytree(FOLDER, tmp_path / "docker", ignore=ignored))
    secrets = folder / "secrets"

    def files():
        return {path.name: path.read_bytes() for path in secrets.iterdir()}

    finished(folder / "prepare.sh")
    for secret in COMPOSE["secrets"].values():
        assert stat.S_IMODE((folder / secret["file"]).stat().st_mode) == 0o600
    owner = (secrets / "tls.key").stat()
    assert (folder / ".env").read_text() == f"BIGKPCA_USER={owner.st_uid}:{owner.st_gid}\n"
    assert owner.st_uid != 0
    assert (secrets / "s3-secret-key").read_text().strip() in (secrets / "s3.json").read_text()
    before = files()
    finished(folder / "prepare.sh")
    assert {name for name, content in files().items() if content != before[name]} == {"tls.crt", "tls.key"}
    # The certificate is good for both sides and the names of the services, and for no other.
    ssl.create_default_context().load_cert_chain(secrets / "tls.crt", secrets / "tls.key")
    for purpose, name in product(("sslserver", "sslclient"), ("scheduler", "s3", "localhost", "elsewhere")):
        options = ["-x509_strict", "-purpose", purpose, "-verify_hostname", name, "-CAfile", secrets / "ca.crt"]
        done = subprocess.run(["openssl", "verify", *options, secrets / "tls.crt"], capture_output=True, check=False)
        assert (done.returncode == 0) == (name != "elsewhere"), done.stderr


@pytest.mark.full
def test_the_entrypoint_reads_credentials_from_files_and_passes_the_exit_code_on(tmp_path):
    line, path = [FOLDER / "entrypoint.sh", "sh", "-c"], {"PATH": os.environ["PATH"]}
    (tmp_path / "key").write_text("a b\n")
    command, env = 'printf "%s" "$AWS_ACCESS_KEY_ID"; exit 6', path | {"AWS_ACCESS_KEY_ID_FILE": str(tmp_path / "key")}
    assert finished(*line, command, code=6, env=env).stdout == "a b"
    env = path | {"AWS_SECRET_ACCESS_KEY_FILE": "/none"}
    assert "/none" in finished(*line, "true", code=1, env=env).stderr


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
        finished(tmp_path / "nightly.sh", code=codes[-1], env=env)
        assert (tmp_path / "calls").read_text() == "compose run --rm -T nightly\n" * len(codes)
        assert (tmp_path / "pauses").read_text().split() == pauses[: len(codes) - 1], codes
