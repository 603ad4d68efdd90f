"""Completion in shells: commands, options, values and paths, as bash asks for them."""

import os
import subprocess
import sys

from click.shell_completion import BashComplete

from bigkpca.cli import main


def completed(line):
    """(kind, value) of what completes the last word of a line."""
    *words, last = line.split(" ")
    found = BashComplete(main, {}, "bigkpca", "_BIGKPCA_COMPLETE").get_completions(words[1:], last)
    return [(item.type, item.value) for item in found]


def plain(line):
    return [value for kind, value in completed(line) if kind == "plain"]


def test_commands_options_values_and_paths_are_completed():
    assert plain("bigkpca re") == ["reconstruct", "report"]
    assert plain("bigkpca --he") == ["--help"]
    assert plain("bigkpca transform m.zarr --co") == ["--components"]
    assert "--no-center" in plain("bigkpca fit --no-")
    for line, words in {
        "bigkpca transform --dtype float6": ["float64"],
        "bigkpca ingest --missing m": ["mean"],
    }.items():
        assert plain(line) == words, line
    for line in ("fit rows", "transform model.zarr rows", "fit --transform sc",
                 "run nigh", "ingest a.csv b"):  # fmt: skip
        assert completed(f"bigkpca {line}") == [("file", line.rpartition(" ")[2])]


def test_completion_loads_nothing_that_computes():
    """Which would take most of its time: it answers while somebody types."""
    told = "import sys, atexit; atexit.register(lambda: print(*sys.modules, file=sys.stderr)); "
    program = told + "from bigkpca.cli import main; main(prog_name='bigkpca')"
    typed = {"COMP_WORDS": "bigkpca fit --ker", "COMP_CWORD": "2"}
    env = os.environ | {"_BIGKPCA_COMPLETE": "bash_complete"} | typed
    done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, timeout=120)
    assert done.stdout.startswith("plain,")
    loaded = set(done.stderr.split())
    assert "click" in loaded
    assert not loaded & {"scipy.linalg", "scipy.special", "scipy.sparse", "dask", "zarr", "rich", "sklearn", "pandas"}
