"""The table of contents: a file imports only from files above it, and a foreign library only through its door."""

import ast
import sys
from importlib import import_module
from pathlib import Path

import pytest

import bigkpca
from tests.layers import DOORS, EVERYWHERE, KINDS, LAYERS, PURE, TOUCHING_PATHS

PACKAGE = Path(bigkpca.__file__).parent


def place(name):
    """Where a file stands, counted from the top; None where it has no place."""
    if name in LAYERS:
        return LAYERS.index(name)
    package = name.rpartition(".")[0]
    return LAYERS.index(package) - 0.5 if package in KINDS and name in FILES else None


def known(name):
    """Whether it is a file of ours."""
    return name in LAYERS or name in FILES


def imports(tree):
    """(module, line) of every import below a node; our own files as they are called in LAYERS."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level:
            found = ["." * node.level + (node.module or "")]
        elif isinstance(node, ast.ImportFrom):
            parts = [f"{node.module}.{alias.name}" for alias in node.names]
            found = [part if known(part.removeprefix("bigkpca.")) else node.module for part in parts]
        else:
            continue
        for module in found:
            yield "bigkpca.__init__" if module == "bigkpca" else module, node.lineno


def complaints(source, name):
    """What is wrong with the imports of a file, one line each; `name` is what LAYERS calls it."""
    tree = ast.parse(source)
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    hidden = {line for function in functions for _, line in imports(function)}
    wrong = []
    for module, line in imports(tree):
        where = f"{name}, line {line}: "
        root, _, own = module.partition(".")
        if module.startswith("."):
            wrong.append(where + "a relative import")
        elif root == "bigkpca":
            if (above := place(own)) is None:
                wrong.append(where + f"{own} is not in the list of layers")
            elif above >= place(name):
                wrong.append(where + f"{own} is not above {name}")
            if line in hidden and not name.startswith("cli."):  # a command imports its module: help stays quick
                wrong.append(where + f"the import of {own} hides in a function")
        elif name.startswith("numerics") and root not in PURE:
            wrong.append(where + f"numerics know nothing of {root}")
        elif root not in EVERYWHERE | sys.stdlib_module_names and name not in DOORS.get(root, ()):
            wrong.append(where + f"{name} is no door of {root}")
    return wrong


def name_of(path):
    """What LAYERS calls a file: a package goes by its folder, the root by __init__."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)


FILES = {name_of(path): path for path in sorted(PACKAGE.rglob("*.py"))}


def test_the_list_names_every_file_once_and_kinds_need_no_line():
    assert len(set(LAYERS)) == len(LAYERS)
    assert set(LAYERS) <= set(FILES)
    assert [name for name in FILES if place(name) is None] == []


def test_a_kind_without_a_line_stands_beside_the_others_just_above_its_package(monkeypatch):
    for kind in ("tanimoto", "other"):
        monkeypatch.setitem(FILES, f"numerics.kernels.{kind}", PACKAGE)
    for listed in ("from bigkpca.numerics.kernels.base import Evaluate", "from bigkpca.numerics.kernels import base"):
        assert complaints(listed, "numerics.kernels.tanimoto") == []
    assert complaints("from bigkpca.numerics.kernels.tanimoto import Tanimoto", "numerics.kernels") == []
    (complaint,) = complaints("from bigkpca.numerics.kernels import other", "numerics.kernels.tanimoto")
    assert "numerics.kernels.other is not above numerics.kernels.tanimoto" in complaint
    (complaint,) = complaints("from bigkpca.numerics.kernels import KERNELS", "numerics.kernels.tanimoto")
    assert "numerics.kernels is not above numerics.kernels.tanimoto" in complaint


@pytest.mark.parametrize("name", FILES)
def test_files_import_from_above_and_through_doors(name):
    assert complaints(FILES[name].read_text(encoding="utf-8"), name) == []


def test_every_door_is_used():
    trees = {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in FILES.items()}
    used = {(module.partition(".")[0], name) for name, tree in trees.items() for module, _ in imports(tree)}
    unused = {(library, name) for library, names in DOORS.items() for name in names} - used
    assert unused == set()


def test_the_public_names_are_where_the_lazy_table_says():
    assert sorted(bigkpca._PUBLIC) == sorted(bigkpca.__all__)
    for module, attribute in bigkpca._PUBLIC.values():
        assert module.removeprefix("bigkpca.") in LAYERS
        assert attribute is None or hasattr(import_module(module), attribute)
    assert all(getattr(bigkpca, name) is not None for name in bigkpca.__all__)


def test_other_public_names_do_not_exist():
    with pytest.raises(AttributeError, match="module 'bigkpca' has no attribute 'KernelPca'"):
        _ = bigkpca.KernelPca


@pytest.mark.parametrize(
    ("name", "source", "message"),
    [
        ("data.blocks", "from bigkpca.workflows.transform import fit", "workflows.transform is not above data.blocks"),
        ("data.blocks", "from bigkpca.storage import groups", "storage.groups is not above data.blocks"),
        ("data.blocks", "import bigkpca.data.blocks", "data.blocks is not above data.blocks"),
        ("numerics.kernels", "from bigkpca.numerics import model", "numerics.model is not above numerics.kernels"),
        ("storage.groups", "from bigkpca import KernelPCA", "__init__ is not above storage.groups"),
        ("storage.groups", "from bigkpca.helpers import f", "helpers is not in the list"),
        ("storage.groups", "from . import blocks", "a relative import"),
        (
            "storage.groups",
            "def f():\n    from bigkpca.data.blocks import split",
            "line 2: the import of data.blocks hides in a function",
        ),
        ("data.blocks", "if True:\n    from bigkpca import cli", "line 2: cli is not above data.blocks"),
        ("cli.transform", "def f():\n    import bigkpca", "__init__ is not above cli.transform"),
        ("cli.transform", "def f():\n    from bigkpca.cli import main", "cli is not above cli.transform"),
        ("cli.options", "from bigkpca.cli.transform import transform", "cli.transform is not above cli.options"),
        ("cli", "def f():\n    from bigkpca import arrays", "line 2: the import of arrays hides in a function"),
        ("data.blocks", "import dask.array as da", "data.blocks is no door of dask"),
        ("data.blocks", "def f():\n    from zarr.storage import LocalStore", "line 2: data.blocks is no door of zarr"),
        ("cli.transform", "import torch", "cli.transform is no door of torch"),
        ("cli.transform", "from rich.console import Console", "cli.transform is no door of rich"),
        ("numerics.solvers", "import os", "numerics know nothing of os"),
        ("numerics.solvers", "from time import monotonic", "numerics know nothing of time"),
        ("numerics.model", "import dask", "numerics know nothing of dask"),
    ],
)
def test_the_check_sees_what_is_wrong(name, source, message):
    (complaint,) = complaints(source, name)
    assert message in complaint


@pytest.mark.parametrize(
    ("name", "source"),
    [
        (
            "workflows.transform",
            "import os\nimport numpy as np\nfrom bigkpca.storage import groups\nfrom bigkpca.numerics import solvers",
        ),
        ("cli.transform", "def f():\n    from bigkpca import arrays"),
        ("ingesting.formats.hdf5", "def f():\n    import h5py"),
        ("numerics.bandwidth", "from bigkpca.numerics.kernels import Distance\nimport scipy.linalg"),
    ],
)
def test_the_check_lets_pass_what_is_right(name, source):
    assert complaints(source, name) == []


_OF_OS = {"path", "stat", "walk", "listdir", "scandir", "rename", "replace", "remove", "unlink", "mkdir", "makedirs"}


def touches_paths(source):
    """What a file does with paths by itself: (what, line)."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [alias.name for alias in node.names] + [getattr(node, "module", None) or ""]
            yield from ((name, node.lineno) for name in names if name in ("shutil", "pathlib", "glob", "LocalStore"))
        of_os = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "os"
        if of_os and node.attr in _OF_OS:
            yield f"os.{node.attr}", node.lineno
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "open":
            yield "open", node.lineno


def test_paths_are_touched_by_stores_alone():
    found = {name: list(touches_paths(path.read_text(encoding="utf-8"))) for name, path in FILES.items()}
    known = {name: next((key for key in TOUCHING_PATHS if f"{name}.".startswith(f"{key}.")), None) for name in found}
    assert {name: what for name, what in found.items() if what and known[name] is None} == {}
    assert {known[name] for name, what in found.items() if what} == set(TOUCHING_PATHS)


@pytest.mark.parametrize(
    ("source", "what"),
    [
        ("import os\nos.path.exists('a')", "os.path"),
        ("import shutil", "shutil"),
        ("from pathlib import Path", "pathlib"),
        ("from zarr.storage import LocalStore", "LocalStore"),
        ("open('a')", "open"),
    ],
)
def test_the_check_sees_who_touches_paths(source, what):
    assert what in [found for found, _ in touches_paths(source)]


def test_the_check_lets_pass_what_touches_no_path():
    assert list(touches_paths("import os\nfrom os import PathLike\nos.getpid()\nrows.open('a')")) == []
