"""What is shipped: the files of both distributions, and one version in every place that names it."""

import re
import shutil
import tarfile
import tomllib
import zipfile
from contextlib import chdir
from pathlib import Path

import pytest

import bigkpca
from tests.helpers.commands import run
from tests.helpers.files import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
VERSION = PROJECT["version"]
FOLDERS = ("bigkpca", "tests", "benchmarks", "docs", "deploy")
BESIDE = {"CHANGELOG.md", "CITATION.cff", "CONTRIBUTING.md", "LICENSE", "README.md", "pyproject.toml", ".gitignore"}
NOT_PYTHON = {"bigkpca/py.typed"}
# One file of each kind that tests read.
READ_BY_TESTS = {"docs/getting-started.md", "docs/preimages.png", "tests/hard_data/once_wrong.json"}
READ_BY_TESTS |= {"deploy/certificates.sh", "deploy/docker/.gitignore", "deploy/docker/compose.yaml"}
# Files of tools, and results, as they lie in a tree that is worked in.
FOREIGN = {".env", ".idea/workspace.xml", ".mypy_cache/3.11/x.json", ".venv/pyvenv.cfg", "bigkpca/__pycache__/x.pyc"}
FOREIGN |= {"build/benchmarks/benchmarks.json", "dist/bigkpca-0.0.1.tar.gz", "tests/.hypothesis/examples/x"}
FOREIGN |= {"docs/auto_gallery/x.py", "rows.zarr/zarr.json", "scores.csv"}
# Passwords, keys and data of a deployment.
IGNORED = {
    (file.parent / line).relative_to(ROOT): line.endswith("/")
    for file in (ROOT / "deploy").glob("*/.gitignore")
    for line in file.read_text().split()
}


def modules(*folders):
    """The Python files of folders of this tree, without those that a build of the site writes."""
    found = {path.relative_to(ROOT) for folder in folders for path in (ROOT / folder).rglob("*.py")}
    return {path.as_posix() for path in found if "auto_gallery" not in path.parts}


def test_distributions_hold_the_package_and_what_its_tests_need_and_no_secrets_results_or_files_of_tools(tmp_path):
    hatchling = pytest.importorskip("hatchling.build", reason="it builds the package: pip install '.[test]'")
    tree, out = tmp_path / "tree", str(tmp_path / "out")
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
        built_wheel, built_sdist = Path(out, hatchling.build_wheel(out)), Path(out, hatchling.build_sdist(out))
    with zipfile.ZipFile(built_wheel) as of_wheel, tarfile.open(built_sdist) as of_sdist:
        wheel, sdist = set(of_wheel.namelist()), {name.partition("/")[2] for name in of_sdist.getnames()}

    about = {"METADATA", "WHEEL", "entry_points.txt", "RECORD", "licenses/LICENSE"}
    assert wheel == modules("bigkpca") | NOT_PYTHON | {f"bigkpca-{VERSION}.dist-info/{name}" for name in about}
    assert sdist >= modules(*FOLDERS) | BESIDE | NOT_PYTHON | READ_BY_TESTS
    assert {name.partition("/")[0] for name in sdist} == {*FOLDERS, *BESIDE, "PKG-INFO"}
    assert "deploy/docker/secrets/x" in foreign
    assert foreign & (wheel | sdist) == set()


def test_package_command_changelog_and_deployments_have_the_version_of_the_project():
    assert bigkpca.__version__ == VERSION
    assert run("--version").stdout.endswith(f", version {VERSION}\n")
    assert re.findall(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)[0] == VERSION
    assert re.findall(r"^version: (.+)", (ROOT / "CITATION.cff").read_text(), re.MULTILINE) == [VERSION]
    for name in ("docker/Dockerfile", "docker/README.md", "docker/compose.yaml", "kubernetes/kustomization.yaml"):
        text = (ROOT / "deploy" / name).read_text()
        assert set(re.findall(r"(?:bigkpca:|newTag: )(\d[\w.]*)", text)) == {VERSION}, name


def test_the_conda_recipe_has_the_version_and_the_requirements_of_the_project():
    recipe = (ROOT / "deploy" / "conda" / "recipe.yaml").read_text()
    run_time = recipe.partition("  run:\n")[2].partition("\n\n")[0]
    names = {"dask[array]": "dask-core"}
    of_project = {
        re.sub(r"^[\w\[\]-]+", lambda name: names.get(name[0], name[0]), need) for need in PROJECT["dependencies"]
    }
    assert set(re.findall(r"^    - (.+)", run_time, re.MULTILINE)) == {
        "python >=${{ python_min }}",
        *(need.replace(">=", " >=") for need in of_project),
    }
    assert f"  version: {VERSION}\n" in recipe
    assert f'  python_min: "{PROJECT["requires-python"].removeprefix(">=")}"\n' in recipe
