"""Help and completion: an example for every command, a true default for every option that takes a value, and shells
that complete commands, options, values and paths."""

import os
import re
import shlex
import sys

import click
from click.shell_completion import BashComplete

import bigkpca
from bigkpca.cli import main
from bigkpca.execution.options import DeviceOptions, ReadingOptions
from bigkpca.spec import FitSpec
from bigkpca.spec.job import JobRun
from bigkpca.spec.units import parse_seconds
from tests.helpers.commands import finished, run
from tests.helpers.options import defaults_of

NAMES = main.list_commands(click.Context(main))
COMMANDS = {name: main.get_command(click.Context(main), name) for name in NAMES}
# Commands whose options have defaults of their own.
OWN = {"history", "demo", "run", "submit"}


def test_every_option_with_a_default_shows_it_and_has_that_of_its_function():
    for name, command in COMMANDS.items():
        known = defaults_of(getattr(bigkpca, name)) if name not in OWN and hasattr(bigkpca, name) else {}
        for each in command.params:
            if not isinstance(each, click.Option) or each.is_flag:
                continue
            record = each.get_help_record(click.Context(command))
            has_default = isinstance(each.default, str | int | float)
            shown = record[1].count("[default: ")
            assert shown in ((1,) if has_default else (0, 1)), f"{name} {each.name}: {record[1]}"
            if each.name in known and has_default:
                shown, own = each.default, known[each.name]
                same = parse_seconds(shown) == parse_seconds(own) if each.name == "timeout" else str(own) == str(shown)
                assert same, (name, each)
        taken = {each.name for each in command.params} | {"progress"}  # which --quiet turns off
        options = [*ReadingOptions.__annotations__, *DeviceOptions.__annotations__]
        assert [one for one in options if one in known and one not in taken] == [], name


def test_defaults_and_rules_of_fields_are_shown_as_the_spec_has_them():
    context, options = click.Context(COMMANDS["fit"]), {each.name: each for each in COMMANDS["fit"].params}
    for name, field in FitSpec.model_fields.items():
        if name == "column_weights":  # written by hand
            continue
        shown = re.search(r"\[default: (.+)\]", options[name].get_help_record(context)[1])
        assert shown
        value = ("no", "yes")[field.default] if field.annotation is bool else field.default
        assert shown[1].startswith("automatic" if value is None and shown[1] != "none" else str(value).lower()), name
    assert JobRun().timeout == options["timeout"].default


def test_help_pages_have_whole_sentences_and_end_with_examples_that_parse():
    shown = run("--help").stdout
    commands = re.findall(r"^  ([a-z]+) {2,}([A-Z].*)$", shown, re.M)
    assert [name for name, _ in commands] == NAMES
    assert all(text.endswith(".") and "..." not in text for _, text in commands)
    for name in ("", *NAMES):
        shown = run(*([name] if name else []), "--help").output
        assert not re.search(r"\bas '|default: (True|False|None)|INTEGER RANGE", shown), name
        lines = shown.partition("\nExamples:\n")[2].splitlines()
        assert lines, name
        for line in lines:
            program, called, *words = shlex.split(line)
            assert program == "bigkpca"
            assert name in ("", called)
            COMMANDS[called].make_context(called, list(words))  # UsageError where an option does not exist


def completed(line):
    """(kind, value) of what completes the last word of a line."""
    *words, last = line.split(" ")
    found = BashComplete(main, {}, "bigkpca", "_BIGKPCA_COMPLETE").get_completions(words[1:], last)
    return [(item.type, item.value) for item in found]


def test_commands_options_values_and_paths_are_completed():
    for line, words in {
        "bigkpca re": ["reconstruct", "report"],
        "bigkpca --he": ["--help"],
        "bigkpca transform m.zarr --resi": ["--residual"],
        "bigkpca ingest --missing m": ["mean"],
    }.items():
        assert completed(line) == [("plain", word) for word in words], line
    for line in ("fit rows", "transform model.zarr rows", "fit --transform sc",
                 "run nigh", "ingest a.csv b"):  # fmt: skip
        assert completed(f"bigkpca {line}") == [("file", line.rpartition(" ")[2])]


def loaded(program, **env):
    """What a program prints, and the modules that it imports."""
    program = "import sys, atexit; atexit.register(lambda: print(*sys.modules, file=sys.stderr)); " + program
    done = finished(sys.executable, "-c", program, env=os.environ | env, timeout=120)
    return done.stdout, set(done.stderr.split())


def test_help_and_completion_are_quick_because_commands_import_their_own_modules():
    """They answer while somebody types."""
    shown, modules = loaded("from bigkpca.cli import main; main(['--help'])")
    assert "Make a dataset from files." in shown
    assert not modules & {"numpy", "scipy", "dask", "zarr", "sklearn", "pydantic", "rich"}
    typed = {"COMP_WORDS": "bigkpca fit --ker", "COMP_CWORD": "2", "_BIGKPCA_COMPLETE": "bash_complete"}
    shown, modules = loaded("from bigkpca.cli import main; main(prog_name='bigkpca')", **typed)
    assert shown.startswith("plain,")
    assert "click" in modules
    assert not modules & {"scipy.linalg", "scipy.special", "scipy.sparse", "dask", "zarr", "rich", "sklearn", "pandas"}
