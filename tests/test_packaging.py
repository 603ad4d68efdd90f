"""What is shipped: the files of both distributions, and one version in every place that names it."""

import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from contextlib import chdir
from dataclasses import dataclass
from pathlib import Path

import pytest

import bigkpca
from tests.helpers.files import ROOT

VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
FOLDERS = ("bigkpca", "tests", "benchmarks", "docs", "deploy")
BESIDE = {"CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "README.md", "pyproject.toml", ".gitignore"}
NOT_PYTHON = {"bigkpca/py.typed", "bigkpca/reporting/page.html"}
READ_BY_TESTS = {  # one of each kind
    "deploy/certificates.sh",
    "deploy/docker/.gitignore",
    "deploy/docker/compose.yaml",
    "docs/getting-started.md",
    "docs/preimages.png",
    "tests/hard_data/once_wrong.json",
}
FOREIGN = {  # files of tools, and results, as they lie in a tree that is worked in
    ".env",
    ".idea/workspace.xml",
    ".mypy_cache/3.11/x.json",
    ".venv/pyvenv.cfg",
    "bigkpca/__pycache__/x.pyc",
    "build/benchmarks/benchmarks.json",
    "dist/bigkpca-0.0.1.tar.gz",
    "rows.zarr/zarr.json",
    "scores.csv",
    "tests/.hypothesis/examples/x",
}
# Passwords, keys and data of a deployment.
IGNORED = {
    (file.parent / line).relative_to(ROOT): line.endswith("/")
    for file in (ROOT / "deploy").glob("*/.gitignore")
    for line in file.read_text().split()
}


@dataclass(frozen=True)
class Built:
    """Names of the files in both distributions, and of those that lay in the tree but belong in neither."""

    wheel: set[str]
    sdist: set[str]
    foreign: set[str]


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Both distributions of a copy of this tree in which foreign files lie too."""
    hatchling = pytest.importorskip("hatchling.build", reason="it builds the package: pip install '.[test]'")
    tree, out = tmp_path_factory.mktemp("tree"), str(tmp_path_factory.mktemp("out"))
    for folder in FOLDERS:
        left = ["__pycache__", *(path.name for path in IGNORED if folder == "deploy")]
        shutil.copytree(ROOT / folder, tree / folder, ignore=shutil.ignore_patterns(*left))
    for name in BESIDE:
        shutil.copy(ROOT / name, tree)
    foreign = FOREIGN | {f"{path}/x" if folder else f"{path}" for path, folder in IGNORED.items()}
    for name in foreign:
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text("foreign")
    with chdir(tree):
        wheel, sdist = Path(out, hatchling.build_wheel(out)), Path(out, hatchling.build_sdist(out))
    with zipfile.ZipFile(wheel) as of_wheel, tarfile.open(sdist) as of_sdist:
        names = {name.partition("/")[2] for name in of_sdist.getnames()}
        return Built(set(of_wheel.namelist()), names, foreign)


def modules(*folders):
    """The Python files of folders of this tree."""
    return {path.relative_to(ROOT).as_posix() for folder in folders for path in (ROOT / folder).rglob("*.py")}


def test_the_wheel_holds_the_package_and_nothing_else(built):
    about = {"METADATA", "WHEEL", "entry_points.txt", "RECORD", "licenses/LICENSE"}
    expected = modules("bigkpca") | NOT_PYTHON | {f"bigkpca-{VERSION}.dist-info/{name}" for name in about}
    assert built.wheel == expected


def test_the_source_distribution_holds_what_the_tests_need(built):
    assert built.sdist >= modules(*FOLDERS) | BESIDE | NOT_PYTHON | READ_BY_TESTS
    assert {name.partition("/")[0] for name in built.sdist} == {*FOLDERS, *BESIDE, "PKG-INFO"}


def test_neither_holds_secrets_results_or_files_of_tools(built):
    assert "deploy/docker/secrets/x" in built.foreign
    assert built.foreign & (built.wheel | built.sdist) == set()


def test_the_version_of_the_project_is_that_of_the_package_and_of_the_command():
    assert bigkpca.__version__ == VERSION
    shown = subprocess.run(
        [sys.executable, "-m", "bigkpca.cli", "--version"], capture_output=True, text=True, check=True
    )
    assert shown.stdout.endswith(f", version {VERSION}\n")


def test_the_changelog_begins_with_the_version_of_the_project():
    assert re.findall(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)[0] == VERSION


@pytest.mark.parametrize(
    "name", ["docker/Dockerfile", "docker/README.md", "docker/compose.yaml", "kubernetes/kustomization.yaml"]
)
def test_deployments_name_the_version_of_the_project(name):
    text = (ROOT / "deploy" / name).read_text()
    assert set(re.findall(r"(?:bigkpca:|newTag: )(\d[\w.]*)", text)) == {VERSION}
