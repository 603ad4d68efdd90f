"""Services of deploy/docker as processes of this machine, without Docker: names in its networks become local ports."""

import json
import re
import shutil
import subprocess
from pathlib import Path

from tests.helpers.s3 import free_ports, program


class Services:
    """Services of a compose file in an image; those that were started end with the context."""

    def __init__(self, services, image, secrets):
        self.image, self._services, self._secrets = image, services, secrets
        self._scheduler, self._s3, *self._others = free_ports(6)
        self._http = dict(zip(("scheduler", "worker"), free_ports(2), strict=True))
        self._started = []

    def __enter__(self):
        for service in self._services.values():
            self._mount(service)
        return self

    def __exit__(self, *_):
        self.kill()

    def kill(self):
        """Kill all that was started."""
        for process in self._started:
            process.kill()
            process.wait(60)

    def _mount(self, service):
        """Copy secrets to where a container finds them."""
        for secret in service.get("secrets", []):
            target = Path(self.image.at(secret["target"]))
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(self._secrets / secret["source"], target)
            target.chmod(0o600)
        for volume in service.get("volumes", []):
            target, source = Path(self.image.at(volume["target"])), Path(volume["source"])
            if source.is_file():
                target.write_text(self._local(self.image.at(source.read_text())))
            else:
                target.mkdir(parents=True, exist_ok=True)

    def _local(self, text, name=""):
        text = text.replace("s3:8333", f"localhost:{self._s3}").replace("port=8333", f"port={self._s3}")
        text = text.replace("scheduler:8786", f"127.0.0.1:{self._scheduler}")
        text = re.sub("^8786$", str(self._scheduler), text)
        return re.sub("^:8787$", f"127.0.0.1:{self._http.get(name)}", text)

    def _command(self, name, arguments):
        if name == "s3":
            kinds = ("master", "volume", "filer", "admin")
            ports = [f"-{kind}.port={port}" for kind, port in zip(kinds, self._others, strict=True)]
            return [program("weed"), *(self.image.at(self._local(each)) for each in arguments), *ports]
        return self.image.command([self._local(each, name) for each in arguments])

    def _environment(self, name):
        given = self._services[name].get("environment", {})
        return self.image.environment({key: self._local(value) for key, value in given.items()})

    def start(self, name):
        """Start a service, and do not wait for it."""
        command = self._command(name, self._services[name]["command"])
        with (self.image.root / f"{name}-{len(self._started)}.log").open("wb") as log:
            env, folder = self._environment(name), Path(self.image.at("/tmp"))
            self._started.append(subprocess.Popen(command, env=env, cwd=folder, stdout=log, stderr=log))
        return self._started[-1]

    def run(self, name, *arguments):
        """`docker compose run NAME ARGUMENTS`; without arguments the service's own command."""
        command = self._command(name, list(arguments) or self._services[name]["command"])
        env, folder = self._environment(name), self.image.at("/tmp")
        return subprocess.run(command, env=env, cwd=folder, capture_output=True, text=True, timeout=200, check=False)

    def healthy(self, name, check):
        """Whether the check of the image, as its Dockerfile has it, finds a service well."""
        command = json.loads(check[check.index("[") :])
        command = [each.replace(":8787", f":{self._http[name]}") for each in command]
        env = self._environment(name)
        return subprocess.run(self.image.command(command), env=env, capture_output=True, check=False).returncode == 0
