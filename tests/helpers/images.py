"""A Dockerfile read, and followed without Docker: its steps on this machine, below a folder that stands for `/`."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.helpers.files import ROOT

# Folders of the image that a command line, a setting or a file may name.
_OURS = re.compile(r"(?<![\w/])(/(?:opt|etc)/bigkpca|/etc/dask|/run/secrets|/data|/metrics|/src|/tmp)(?![\w-])")
_AS_NOBODY = ["unshare", "--user", "--map-user=10001", "--map-group=10001"]


def instructions(dockerfile):
    """The instructions of a Dockerfile with what follows them, comments left out, continued lines joined."""
    lines = [line for line in dockerfile.read_text().splitlines() if line.strip() and not line.startswith("#")]
    joined = re.sub(r"\\\n\s*", " ", "\n".join(lines)).splitlines()
    return [(word, rest) for word, _, rest in (line.strip().partition(" ") for line in joined)]


def python(version):
    """A Python of this minor version; skips the test where there is none."""
    beside = sorted(Path("~/.pyenv/versions").expanduser().glob(f"{version}.*/bin/python"))
    here = sys.executable if f"{sys.version_info[0]}.{sys.version_info[1]}" == version else None
    found = here or (str(beside[-1]) if beside else shutil.which(f"python{version}"))
    if found is None:
        pytest.skip(f"no Python {version}, which the image has")
    return found


@dataclass
class Image:
    """What a Dockerfile makes, below `root`."""

    root: Path
    env: dict[str, str] = field(default_factory=dict)
    entrypoint: list[str] = field(default_factory=list)
    folder: Path = Path("/")

    def at(self, text):
        """The text with its paths below `root`."""
        return _OURS.sub(lambda match: f"{self.root}{match[1]}", text)

    def command(self, arguments):
        """The command that a container would run, as a user without a name where this machine can."""
        return [*_nobody(), *self.entrypoint, *map(self.at, arguments)]

    def environment(self, given):
        """The environment of a container, and nothing of this process's."""
        etc = {"DASK_ROOT_CONFIG": self.at("/etc/dask")}
        return {"PATH": "/usr/bin:/bin", **self.env, **etc, **{name: self.at(value) for name, value in given.items()}}


def build(dockerfile, root, version):
    """Follow all steps. All stages share one folder, so that what one copies from another must keep its path."""
    subprocess.run([python(version), "-m", "venv", root / "base"], check=True)
    plain = {"PATH": f"{root / 'base' / 'bin'}:/usr/bin:/bin"}
    image = Image(root)
    for word, rest in instructions(dockerfile):
        if word == "FROM":
            image = Image(root, env=dict(plain))
        elif word == "WORKDIR":
            image.folder = Path(image.at(rest))
            image.folder.mkdir(parents=True, exist_ok=True)
        elif word == "ENV":
            image.env |= _settings(image, rest)
        elif word == "COPY":
            _copy(image, rest)
        elif word == "RUN":
            ours = {name: os.environ[name] for name in os.environ if name.startswith(("PIP_", "HOME", "SSL_", "http"))}
            subprocess.run(["sh", "-euc", image.at(rest)], cwd=image.folder, env=ours | image.env, check=True)
        elif word == "ENTRYPOINT":
            image.entrypoint = [image.at(each) for each in json.loads(rest)]
    return image


def _nobody():
    """How to run as a user without a name, where this machine lets us."""
    can = shutil.which("unshare") and subprocess.run([*_AS_NOBODY, "true"], capture_output=True).returncode == 0
    return _AS_NOBODY if can else []


def _settings(image, rest):
    pairs = (each.partition("=") for each in shlex.split(rest))
    return {name: image.at(value).replace("$PATH", image.env["PATH"]) for name, _, value in pairs}


def _copy(image, rest):
    words = shlex.split(rest)
    options, (*sources, to) = [w for w in words if w.startswith("--")], [w for w in words if not w.startswith("--")]
    if any(option.startswith("--from=") for option in options):
        assert sources == [to]
        return
    target = Path(image.at(to)) if to.startswith("/") else image.folder / to
    for source in sources:
        assert source in context(ROOT / "deploy" / "docker" / "Dockerfile.dockerignore"), f"{source} is ignored"
        into = target / Path(source).name if to.endswith("/") else target
        into.parent.mkdir(parents=True, exist_ok=True)
        copy = shutil.copytree if (ROOT / source).is_dir() else shutil.copyfile
        copy(ROOT / source, into)
        if into.suffix == ".yaml":
            into.write_text(image.at(into.read_text()))
        modes = [option.partition("=")[2] for option in options if option.startswith("--chmod=")]
        into.chmod(int(modes[0], 8) if modes else into.stat().st_mode)


def context(ignore):
    """Paths that a .dockerignore lets through, which ignores all others, such as secrets."""
    _, everything, *others = ignore.read_text().splitlines()
    assert everything == "*"
    return [line[1:] for line in others if line.startswith("!")]
