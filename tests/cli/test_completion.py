"""Completion in shells: commands, options, values and paths, as bash asks for them."""

import os
import shutil
import subprocess
import sys

import pytest
from click.shell_completion import BashComplete

from bigkpca.cli import main
from bigkpca.numerics.kernels import KERNELS


def completed(line):
    """(kind, value) of what completes the last word of a line."""
    *words, last = line.split(" ")
    found = BashComplete(main, {}, "bigkpca", "_BIGKPCA_COMPLETE").get_completions(words[1:], last)
    return [(item.type, item.value) for item in found]


def plain(line):
    return [value for kind, value in completed(line) if kind == "plain"]


def test_commands_are_completed_with_their_lines_of_help():
    assert plain("bigkpca re") == ["reconstruct", "report"]
    assert plain("bigkpca --he") == ["--help"]


def test_options_are_completed():
    assert plain("bigkpca transform m.zarr --co") == ["--components"]
    assert "--no-center" in plain("bigkpca fit --no-")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("bigkpca fit --method r", ["rff", "rff-pca"]),
        ("bigkpca fit --kernel spe", ["spectrum"]),
        ("bigkpca plan --landmarks un", ["uniform"]),
        ("bigkpca fit --preimage fi", ["fixed-point"]),
        ("bigkpca fit --size a", ["auto"]),
        ("bigkpca sigma --kernel lap", ["laplacian"]),
        ("bigkpca sigma --preimage ri", ["ridge"]),
        ("bigkpca transform --dtype float6", ["float64"]),
        ("bigkpca ingest --missing m", ["mean", "median"]),
        ("bigkpca fit --kernel nothing", []),
    ],
)
def test_values_are_completed(line, words):
    assert plain(line) == words


def test_an_empty_word_offers_all_values():
    assert plain("bigkpca fit --kernel ") == ["gaussian", *(name for name in KERNELS.names if name != "gaussian")]


@pytest.mark.parametrize(
    "line",
    [
        "bigkpca fit rows",
        "bigkpca transform model.zarr rows",
        "bigkpca fit --landmarks mine.n",
        "bigkpca fit --transform sc",
        "bigkpca run nigh",
        "bigkpca ingest a.csv b",
        "bigkpca fit --tls-ca c",
    ],
)
def test_paths_are_left_to_the_shell(line):
    assert completed(line) == [("file", line.rpartition(" ")[2])]


@pytest.mark.parametrize("line", ["bigkpca fi", "bigkpca fit --kernel spe", "bigkpca fit --co"])
def test_completion_loads_nothing_that_computes(line):
    """Which would take most of its time: it answers while somebody types."""
    program = (
        "import sys, atexit; atexit.register(lambda: print(*sys.modules, file=sys.stderr)); "
        "from bigkpca.cli import main; main(prog_name='bigkpca')"
    )
    env = os.environ | {
        "_BIGKPCA_COMPLETE": "bash_complete", "COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))
    }  # fmt: skip
    done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, timeout=60)
    assert done.stdout.startswith("plain,")
    loaded = set(done.stderr.split())
    assert "click" in loaded
    assert not loaded & {"scipy.linalg", "scipy.special", "scipy.sparse", "dask", "zarr", "rich", "sklearn", "pandas"}
    assert "numpy" not in loaded or line != "bigkpca fi"


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_bash_completes_with_the_script_that_the_page_names(tmp_path):
    command = tmp_path / "bin" / "bigkpca"
    command.parent.mkdir()
    command.write_text(f"#!{sys.executable}\nfrom bigkpca.cli import main\nmain(prog_name='bigkpca')\n")
    command.chmod(0o755)
    script = """
        eval "$(_BIGKPCA_COMPLETE=bash_source bigkpca)"
        complete -p bigkpca
        COMP_WORDS=(bigkpca fit --method r); COMP_CWORD=3
        _bigkpca_completion bigkpca
        echo "${COMPREPLY[*]}"
    """
    path = f"{command.parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "--norc", "-c", script], env=os.environ | {"PATH": path}, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    declared, *found = done.stdout.splitlines()
    assert declared.endswith("bigkpca")
    assert found == ["rff rff-pca"]
