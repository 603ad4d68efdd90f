"""deploy/docker: the image, Compose and the scripts around them, without Docker."""

import json
import os
import re
import runpy
import shutil
import ssl
import stat
import subprocess
import sys
import tomllib
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest
import yaml
from dask.utils import parse_bytes
from packaging.requirements import Requirement

from bigkpca.execution import clusters
from bigkpca.spec.job import read_job
from tests.helpers.files import ROOT
from tests.helpers.images import context, instructions
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
    done = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
    assert done.returncode == 0, done.stderr
    return dict(yaml.safe_load(done.stdout)["services"])


each_service = pytest.mark.parametrize("name", [*OURS, "s3"])


def test_the_dockerfile_has_no_remarks_of_its_linter():
    done = subprocess.run([program("hadolint"), FOLDER / "Dockerfile"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_the_image_is_pinned_small_and_without_root():
    bases = [rest for word, rest in STEPS if word == "FROM"]
    (default,) = [rest for word, rest in STEPS if word == "ARG"]
    assert re.fullmatch(r"PYTHON=3\.\d+\.\d+-slim-\w+", default)
    assert bases == ["python:${PYTHON} AS build", "python:${PYTHON}"]
    words = " ".join(word for word, _ in STEPS)
    assert "RUN" not in words.rpartition("FROM")[2]  # the build's tools stay in its stage
    assert [rest for word, rest in STEPS if word == "USER"] == ["10001:10001"]  # a number, for runAsNonRoot


def test_everything_that_the_image_installs_is_pinned_and_fits_the_project():
    pins = pinned("requirements.txt")
    extras = PROJECT["optional-dependencies"]
    for text in [*PROJECT["dependencies"], *extras["cloud"], *extras["tls"]]:
        needed = Requirement(text)
        assert needed.specifier.contains(pins[needed.name.lower()]), text
    assert "hatchling" in pinned("build-requirements.txt")


def pinned(name):
    """The versions in a file of requirements, each of which has the hashes of one or two wheels."""
    lines = [line for line in (FOLDER / name).read_text().splitlines() if not line.startswith("#")]
    found = [re.fullmatch(r"([\w-]+)==([\w.]+)((?: --hash=sha256:[0-9a-f]{64}){1,2})", line) for line in lines]
    assert all(found)
    return {each[1].lower().replace("_", "-"): each[2] for each in found if each}


@pytest.mark.parametrize("name", ["requirements.txt", "build-requirements.txt"])
def test_pip_installs_nothing_without_a_hash(name):
    (step,) = [rest for word, rest in STEPS if word == "RUN" and f" {name}" in rest]
    assert f"install --require-hashes --only-binary :all: -r {name}" in step
    installs = [rest for word, rest in STEPS if word == "RUN" and "pip" in rest and " install " in rest]
    assert len(installs) == 3  # the third installs the wheel that was made, without what it needs
    assert "install --no-deps wheels/*.whl" in installs[2]


def test_what_pins_the_base_image_by_digest_is_an_argument(tmp_path):
    text = (FOLDER / "Dockerfile").read_text()
    (default,) = [rest.partition("=")[2] for word, rest in STEPS if word == "ARG"]
    assert f"--build-arg PYTHON={default}@sha256:" in text
    assert f"imagetools inspect python:{default} --format" in text


def test_hashes_are_written_anew(tmp_path, monkeypatch):
    def install(command, **_):
        wanted = Path(command[command.index("--requirement") + 1]).read_text()
        arm = any("aarch64" in word for word in command)
        wheels = [("b", "2", "00" if arm else "11"), ("A-c", "1.0", "22")]
        report = {
            "install": [
                {
                    "metadata": {"name": name, "version": version},
                    "download_info": {"archive_info": {"hashes": {"sha256": sha256}}},
                }
                for name, version, sha256 in wheels
            ]
        }
        assert wanted == "# mine\nb==2\nA-c==1.0\n"
        return subprocess.CompletedProcess(command, 0, json.dumps(report).encode())

    monkeypatch.setattr(subprocess, "run", install)
    file = tmp_path / "requirements.txt"
    file.write_text("# mine\nb==2 --hash=sha256:33\nA-c==1.0\n")
    monkeypatch.setattr(sys, "argv", ["pin.py", str(file)])
    runpy.run_path(str(FOLDER / "pin.py"), run_name="__main__")
    assert file.read_text() == "# mine\nA-c==1.0 --hash=sha256:22\nb==2 --hash=sha256:00 --hash=sha256:11\n"
    assert list(tmp_path.iterdir()) == [file]


def test_the_builder_gets_what_it_copies_and_no_secrets():
    let_through = set(context(FOLDER / "Dockerfile.dockerignore"))
    copied = [rest.split() for word, rest in STEPS if word == "COPY" and "--from" not in rest]
    assert {source for words in copied for source in words[:-1] if not source.startswith("--")} == let_through
    assert (FOLDER / "Dockerfile.dockerignore").read_text().splitlines()[1] == "*"


def test_dask_in_the_image_is_set_up_as_for_our_own_clusters():
    settings = yaml.safe_load((FOLDER / "dask.yaml").read_text())

    def value(key):
        node = settings
        for part in key.split("."):
            node = node[part]
        return node

    assert {key: value(key) for key in clusters._SETTINGS} == clusters._SETTINGS
    assert value("distributed.comm.require-encryption") is True


def test_the_images_of_compose_are_pinned_to_this_version():
    found = {name: service["image"] for name, service in services().items()}
    assert {found[name] for name in OURS} == {f"bigkpca:{PROJECT['version']}"}
    assert re.fullmatch(r"chrislusf/seaweedfs:\d+\.\d+", found["s3"])


@each_service
def test_a_service_has_limits_no_rights_and_nothing_to_write_but_its_data(name):
    service = services()[name]
    assert int(service["deploy"]["resources"]["limits"]["memory"]) >= 1 << 30
    assert service["deploy"]["resources"]["limits"]["cpus"] >= 1
    assert service["user"] == "10001:10001"
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    writable = {each["target"] for each in service.get("volumes", []) if not each.get("read_only")}
    assert writable == {"s3": {"/data"}, "nightly": {"/metrics"}}.get(name, set())


@each_service
def test_a_service_is_started_again_and_watched_but_the_job_is_not(name):
    service = services()[name]
    if name == "nightly":
        assert service["restart"] == "no"
        assert service["stop_grace_period"] == "1m0s"  # tests of SIGTERM allow 10 seconds
        assert service["depends_on"]["scheduler"]["condition"] == "service_healthy"
        return
    assert service["restart"] == "unless-stopped"
    if name == "s3":
        assert service["healthcheck"]["test"][0] == "CMD"
    else:  # the image's own check asks this port
        assert service["command"][-1] == ":8787"
        assert "http://127.0.0.1:8787/health" in next(rest for word, rest in STEPS if word == "HEALTHCHECK")


def test_only_the_s3_server_is_published_and_on_this_machine_alone():
    ports = {name: service["ports"] for name, service in services().items() if "ports" in service}
    assert {name: [(each["host_ip"], each["target"]) for each in found] for name, found in ports.items()} == {
        "s3": [("127.0.0.1", 8333)]
    }
    assert set(services()["scheduler"]["networks"]) == {"cluster"}
    assert set(services()["s3"]["networks"]) == {"storage"}


def test_no_password_is_in_compose_but_files_are_that_git_ignores():
    for service in services().values():
        secret = [key for key in service.get("environment", {}) if re.search("KEY|SECRET|PASSWORD", key)]
        assert [key for key in secret if not key.endswith("_FILE")] == []
    ignored = (FOLDER / ".gitignore").read_text().split()
    files = yaml.safe_load((FOLDER / "compose.yaml").read_text())["secrets"].values()
    assert {Path(each["file"]).parts[0] + "/" for each in files} <= set(ignored)


def test_the_job_names_the_scheduler_and_fits_the_containers():
    worker = services()["worker"]["command"]
    flags = dict(pairwise(worker))
    assert JOB["run"]["scheduler"] == worker[2] == "tls://scheduler:8786"
    assert "8786" in services()["scheduler"]["command"]
    planned = parse_bytes(JOB["run"]["memory"])
    for name in ("worker", "nightly"):
        limit = int(services()[name]["deploy"]["resources"]["limits"]["memory"])
        assert 1.25 * planned <= limit  # one process in each
        assert planned < parse_bytes(flags["--memory-limit"]) < 0.9 * limit
    assert int(flags["--nthreads"]) == services()["worker"]["deploy"]["resources"]["limits"]["cpus"]


def test_the_job_file_is_mounted_and_its_variables_are_set():
    nightly, text = services()["nightly"], (FOLDER / "nightly.toml").read_text()
    mounts = {each["target"]: each["source"] for each in nightly["volumes"]}
    assert nightly["command"] == ["bigkpca", "run", "/etc/bigkpca/nightly.toml"]
    assert mounts["/etc/bigkpca/nightly.toml"] == str(FOLDER / "nightly.toml")
    assert set(re.findall(r"\$\{(\w+)\}", text)) <= set(nightly["environment"])
    assert f"-bucket={nightly['environment']['BUCKET']}" in services()["s3"]["command"]
    assert Path(JOB["run"]["metrics"]).parent == Path("/metrics")


def test_the_job_file_is_a_job():
    read_job(FOLDER / "nightly.toml", {"BUCKET": "lake"})


def prepare(folder):
    """A copy of deploy/docker in which prepare.sh has run."""
    program("openssl")
    shutil.copy(ROOT / "deploy" / "certificates.sh", folder)
    made = shutil.ignore_patterns("secrets", "data", "metrics", ".env")
    copy = shutil.copytree(FOLDER, folder / "docker", ignore=made)
    subprocess.run([copy / "prepare.sh"], check=True)
    return Path(copy)


@pytest.fixture
def prepared(tmp_path):
    return prepare(tmp_path)


def test_prepare_makes_every_secret_for_nobody_else(prepared):
    for secret in yaml.safe_load((prepared / "compose.yaml").read_text())["secrets"].values():
        assert stat.S_IMODE((prepared / secret["file"]).stat().st_mode) == 0o600
    secrets = prepared / "secrets"
    owner = (secrets / "tls.key").stat()
    assert (prepared / ".env").read_text() == f"BIGKPCA_USER={owner.st_uid}:{owner.st_gid}\n"
    assert owner.st_uid != 0
    assert (secrets / "s3-secret-key").read_text().strip() in (secrets / "s3.json").read_text()


def test_prepare_again_renews_the_certificate_and_keeps_authority_and_credentials(prepared):
    def files():
        return {path.name: path.read_bytes() for path in (prepared / "secrets").iterdir()}

    before = files()
    subprocess.run([prepared / "prepare.sh"], check=True)
    assert {name for name, content in files().items() if content != before[name]} == {"tls.crt", "tls.key"}


def test_the_certificates_are_good_for_both_sides_and_the_names_of_the_services(prepared):
    secrets = prepared / "secrets"
    strict = {"cafile": str(secrets / "ca.crt")}
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, **strict)
    client = ssl.create_default_context(ssl.Purpose.SERVER_AUTH, **strict)
    for side in (server, client):
        side.verify_flags |= ssl.VERIFY_X509_STRICT  # the default from Python 3.13 on
        side.verify_mode = ssl.CERT_REQUIRED
        side.load_cert_chain(secrets / "tls.crt", secrets / "tls.key")
    for name in ("scheduler", "s3", "localhost"):
        assert shaken(server, client, name)
    with pytest.raises(ssl.SSLCertVerificationError, match="not valid for 'elsewhere'"):
        shaken(server, client, "elsewhere")


def shaken(server, client, name):
    """Whether both sides of a connection to this name finish their handshake."""
    a, b = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [client.wrap_bio(a, b, server_hostname=name), server.wrap_bio(b, a, server_side=True)]
    for _ in range(4):
        for side in list(sides):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
            sides.remove(side)
    return not sides


def test_the_entrypoint_reads_credentials_from_files_and_passes_the_exit_code_on(tmp_path):
    (tmp_path / "key").write_text("a b\n")
    env = {"AWS_ACCESS_KEY_ID_FILE": str(tmp_path / "key"), "PATH": os.environ["PATH"]}

    def run(env, *command):
        line = [FOLDER / "entrypoint.sh", *command]
        return subprocess.run(line, env=env, capture_output=True, text=True, check=False)

    assert run(env, "sh", "-c", 'printf "%s" "$AWS_ACCESS_KEY_ID"').stdout == "a b"
    assert run(env, "sh", "-c", "exit 6").returncode == 6
    gone = run({**env, "AWS_SECRET_ACCESS_KEY_FILE": "/none"}, "true")
    assert gone.returncode != 0
    assert "/none" in gone.stderr


@pytest.mark.parametrize(
    ("codes", "calls", "pauses"),
    [
        *(([code], 1, []) for code in (0, 1, 2, 3, 4, 7)),
        ([5, 6, 0], 3, ["60", "120"]),
        ([137, 143, 3], 3, ["60", "120"]),
        ([6] * 6, 6, ["60", "120", "240", "480", "960"]),
    ],
)
def test_a_night_is_tried_again_where_that_helps(tmp_path, codes, calls, pauses):
    (tmp_path / "codes").write_text("".join(f"{code}\n" for code in codes))
    docker = '#!/bin/sh\necho "$@" >> calls\nexit "$(sed -n "$(wc -l < calls)p" codes)"\n'
    for name, text in {"docker": docker, "sleep": '#!/bin/sh\necho "$1" >> pauses\n'}.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    shutil.copy(FOLDER / "nightly.sh", tmp_path)
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    assert subprocess.run([tmp_path / "nightly.sh"], env=env, check=False).returncode == codes[-1]
    assert (tmp_path / "calls").read_text() == "compose run --rm -T nightly\n" * calls
    waited = tmp_path / "pauses"
    assert (waited.read_text().split() if waited.exists() else []) == pauses


def test_the_readme_names_every_file_that_a_user_calls_or_changes():
    readme = (FOLDER / "README.md").read_text()
    for name in ("prepare.sh", "nightly.sh", "nightly.toml", "compose.yaml"):
        assert name in readme
