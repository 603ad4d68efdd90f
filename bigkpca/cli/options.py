"""Options that several commands share, and their values.

Those of a fit are the fields of `FitSpec` in `spec/fit_spec.py`, with their defaults and help.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import click

from bigkpca.cli.command import option, verbose_option
from bigkpca.data.stores import expanded
from bigkpca.errors import SpecError
from bigkpca.spec import RANDOM_FEATURES, SIZE_RULE, FitSpec
from bigkpca.spec.checks import typed, unused
from bigkpca.spec.units import TIMEOUT_WRITTEN, parse_bytes

Command = Callable[..., Any]


class _Path(click.Path):
    """A path with `~` expanded, which a shell does not do within quotes or after `--option=`."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return super().convert(expanded(value), param, ctx)


PATH = _Path(readable=False)


def common(command: Command) -> Command:
    """Options of every command that can take long."""
    quiet = click.option("-q", "--quiet", is_flag=True, help="No progress, no notes.")
    return quiet(verbose_option(command))


def memory_option(text: str, unset: str = "no limit") -> Callable[[Command], Command]:
    """--memory, with this help; its value is in bytes."""

    def read(_: click.Context, __: click.Parameter, amount: str | None) -> int | None:
        return None if amount is None else parse_bytes(amount)

    return option("--memory", metavar="AMOUNT", callback=read, show_default=unset, help=text)


scheduler_option = option(
    "--scheduler",
    metavar="ADDRESS",
    show_default="DASK_SCHEDULER_ADDRESS, if it is set",
    help="Run on the Dask cluster at this address.",
)
workers_option = option(
    "--workers",
    type=click.IntRange(1),
    metavar="N",
    show_default="threads of this process",
    help="Run on N local processes.",
)


def running(command: Command) -> Command:
    """Options for where a run works and how much memory a process may use. They do not change results, except that
    memory can end the growth of a size (`tol`)."""
    text = "Stop if no block of rows finishes within this time, e.g. '30 min'."
    timeout = option("--timeout", metavar="TIME", default=TIMEOUT_WRITTEN, help=text)
    memory = memory_option("Refuse to run if a process would need more, e.g. '2 GB'.")
    for each in (memory, timeout, workers_option, scheduler_option):
        command = each(command)
    return common(command)


device_option = option(
    "--device",
    metavar="NAME",
    show_default="cpu",
    help="Compute passes on this device, e.g. cuda or cuda:1 (PyTorch), or cupy:cuda:0 (CuPy). Experimental.",
)
overwrite_option = click.option("--overwrite", is_flag=True, help="Replace existing bigkpca output at this path.")
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def _weights(ctx: click.Context, param: click.Parameter, typed: tuple[str, ...]) -> dict[str, float] | None:
    """Weights of columns, typed as NAME=W; a name can contain "="."""
    found: dict[str, float] = {}
    for each in typed:
        name, _, weight = each.rpartition("=")
        try:
            found[name] = float(weight)
        except ValueError:
            name = ""
        if not name:
            raise SpecError(f"--weight {each}: give a column and its weight, 0 or more, e.g. --weight distance=2.5")
    return found or None


weight_option = option(
    "--weight",
    "--column-weights",
    "column_weights",
    multiple=True,
    metavar="NAME=W",
    callback=_weights,
    help="Multiply a column, or all columns of a column of categories, after they are standardised. May be repeated.",
)


_SHORT_FORMS = {"n_components": ("--components",), "random_state": ("--seed",)}


def spec_options(names: Iterable[str]) -> Callable[[Command], Command]:
    """One option for each of these fields of FitSpec."""

    def decorate(command: Command) -> Command:
        for name in reversed(list(names)):
            if name == "column_weights":
                command = weight_option(command)
                continue
            field, flag, short = FitSpec.model_fields[name], name.replace("_", "-"), _SHORT_FORMS.get(name, ())
            text = str(field.description)
            about: dict[str, Any] = {"help": f"{text[0].upper()}{text[1:]}.  [default: {default_of(name)}]"}
            if field.annotation is bool:
                command = option(f"--{flag}/--no-{flag}", name, default=None, **about)(command)
            else:
                command = option(f"--{flag}", *short, name, metavar="VALUE", **about)(command)
        return command

    return decorate


fit_options = spec_options(FitSpec.model_fields)


# The meaning of defaults that are rules, unless the description of the field has it.
_RULES = {
    "size": f"{SIZE_RULE}; {RANDOM_FEATURES} random features",
    "landmarks": "kmeans for kernels of x - y, rpcholesky or uniform for others",
    "n_directions": "as few as keep the kernel nearly unbiased",
    "block_rows": "from the chunks and columns of the data",
}


def default_of(name: str) -> str:
    """The default of a field of FitSpec, with the rule that it stands for."""
    value = FitSpec.model_fields[name].default
    if isinstance(value, bool):
        return "yes" if value else "no"
    shown = str(value) if value is not None else "automatic" if name in ("gamma", "dtype", *_RULES) else "none"
    return f"{shown} ({_RULES[name]})" if name in _RULES else shown


def given(options: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The fields of FitSpec that the user set, and all other options.

    Raises SpecError for an option that the fit, or every fit of a comparison, would ignore.
    """
    set_ones = {key: options[key] for key in FitSpec.model_fields if options.get(key) is not None}
    values = typed(set_ones, expanded)
    kernel, method = (str(values.get(name, FitSpec.model_fields[name].default)) for name in ("kernel", "method"))
    for clash in unused(values, kernel, method, varied="method" not in options):
        raise SpecError(f"--{clash.option.replace('_', '-')} {clash.message}")
    return values, {key: value for key, value in options.items() if key not in FitSpec.model_fields}


def whole_numbers(_: click.Context, param: click.Parameter, text: str | None) -> list[int] | None:
    """The comma-separated numbers of an option; None if it was not given."""
    if not text:
        return None
    if not all(part.strip().isdecimal() for part in text.split(",")):
        raise click.BadParameter(f"{text!r} is not a list of whole numbers such as 28,28", param=param)
    return [int(part) for part in text.split(",")]
