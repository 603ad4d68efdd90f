"""Help pages: an example for every command, and a true default for every option that takes a value."""

import re
import shlex

import click

import bigkpca
from bigkpca.cli import main
from bigkpca.execution.options import DeviceOptions, ReadingOptions
from bigkpca.spec import FitSpec
from bigkpca.spec.job import JobRun
from bigkpca.spec.units import parse_seconds
from tests.helpers.commands import run
from tests.helpers.options import defaults_of

NAMES = main.list_commands(click.Context(main))
COMMANDS = {name: main.get_command(click.Context(main), name) for name in NAMES}
# Functions of the commands whose options have a default of their own, by the names of their parameters.
FUNCTIONS = dict.fromkeys(["history", "demo", "run", "submit"])


def test_every_option_with_a_value_shows_a_default_or_the_rule_and_has_that_of_its_function():
    for name, command in COMMANDS.items():
        function = FUNCTIONS.get(name, getattr(bigkpca, name, None))
        known = defaults_of(function) if function else {}
        for each in command.params:
            if not isinstance(each, click.Option) or each.is_flag:
                continue
            record = each.get_help_record(click.Context(command))
            assert re.search(r"\[default: [^]]+\]", record[1]), f"{name} {each.name}: {record[1]}"
            assert record[1].count("[default: ") == 1
            if each.name in known and isinstance(each.default, str | int | float):
                shown, own = each.default, known[each.name]
                same = parse_seconds(shown) == parse_seconds(own) if each.name == "timeout" else str(own) == str(shown)
                assert same, (name, each)


def test_commands_that_run_have_every_option_of_a_run_that_their_function_has():
    for name, command in COMMANDS.items():
        function = FUNCTIONS.get(name, getattr(bigkpca, name, None))
        known = defaults_of(function) if function else {}
        taken = {each.name for each in command.params} | {"progress"}  # which --quiet turns off
        options = [*ReadingOptions.__annotations__, *DeviceOptions.__annotations__]
        assert [one for one in options if one in known and one not in taken] == [], name


def test_defaults_and_rules_of_fields_are_shown_as_the_spec_has_them():
    context, options = click.Context(COMMANDS["fit"]), {each.name: each for each in COMMANDS["fit"].params}
    for name, field in FitSpec.model_fields.items():
        shown = re.search(r"\[default: (.+)\]", options[name].get_help_record(context)[1])
        assert shown
        value = ("no", "yes")[field.default] if field.annotation is bool else field.default
        assert shown[1].startswith("automatic (" if value is None and shown[1] != "none" else str(value).lower()), name
    assert JobRun().timeout == options["timeout"].default


def test_every_help_page_ends_with_examples_that_parse():
    for name in ("", *NAMES):
        shown = run(*([name] if name else []), "--help").output
        lines = shown.partition("\nExamples:\n")[2].splitlines()
        assert lines, name
        for line in lines:
            program, called, *words = shlex.split(line)
            assert program == "bigkpca"
            assert name in ("", called)
            COMMANDS[called].make_context(called, list(words))  # UsageError where an option does not exist


def test_the_help_of_ingest_fits_on_a_screen_and_names_every_format():
    shown = run("ingest", "--help").output
    options = [name for name in COMMANDS["ingest"].params if name.param_type_name == "option"]
    assert len(options) <= 14 + 3  # and quiet, verbose and help
    for name in (".npy", ".npz", "HDF5", "IDX", "CSV", "Parquet", "Feather", "FASTA"):
        assert name in shown
