"""Options that several commands share, and their values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import click
from click.shell_completion import CompletionItem

from bigkpca.cli.command import option, verbose_option
from bigkpca.data.stores import expanded
from bigkpca.errors import SpecError
from bigkpca.spec import DENSE_MOST_FEATURES, RANDOM_FEATURES, SIZE_RULE, FitSpec
from bigkpca.spec.checks import landmarks_of_file, unused
from bigkpca.spec.units import TIMEOUT_WRITTEN, lacks_unit, parse_bytes

Command = Callable[..., Any]


class _Path(click.ParamType):  # type: ignore[type-arg]  # not generic in older versions
    """A path with `~` expanded, which a shell does not do within quotes or after `--option=`."""

    name = "path"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return expanded(value)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return [CompletionItem(incomplete, type="file")]  # completed by the shell itself


PATH = _Path()


def common(command: Command) -> Command:
    """Options of every command that can take long."""
    quiet = click.option("-q", "--quiet", is_flag=True, help="No progress, no notes.")
    return quiet(verbose_option(command))


def memory_option(text: str, unset: str = "no limit") -> Callable[[Command], Command]:
    """--memory, with this help; its value is in bytes."""

    def read(_: click.Context, __: click.Parameter, amount: str | None) -> int | None:
        if amount is not None and lacks_unit(amount):
            raise SpecError(f"--memory {amount}: give a unit, e.g. --memory '{amount.strip()} GB'")
        return None if amount is None else parse_bytes(amount)

    return option("--memory", metavar="AMOUNT", callback=read, unset=unset, help=text)


array_option = option(
    "--array", metavar="NAME", unset="automatic (x, or the only one)", help="Array to read from a Zarr group."
)


timeout_option = option(
    "--timeout",
    metavar="TIME",
    default=TIMEOUT_WRITTEN,
    help="Stop if no block of rows finishes within this time, e.g. '30 min'.",
)
scheduler_option = option(
    "--scheduler",
    metavar="ADDRESS",
    unset="DASK_SCHEDULER_ADDRESS, if it is set",
    help="Run on the Dask cluster at this address.",
)
workers_option = option(
    "--workers",
    type=click.IntRange(1),
    metavar="N",
    unset="none (threads of this process)",
    help="Run on N local processes.",
)


def running(command: Command) -> Command:
    """Options for where a run works and how much memory a process may use.

    They do not change results, except that memory can end the growth of a size (`tol`).
    """
    for each in (
        array_option,
        memory_option("Refuse to run if a process would need more, e.g. '2 GB'."),
        timeout_option,
        workers_option,
        scheduler_option,
    ):
        command = each(command)
    return common(command)


device_option = option(
    "--device",
    metavar="NAME",
    unset="cpu",
    help="Compute passes on this device, e.g. cuda or cuda:1 (PyTorch), or cupy:cuda:0 (CuPy). Experimental.",
)
overwrite_option = click.option("--overwrite", is_flag=True, help="Replace existing bigkpca output at this path.")
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def _weights(_: click.Context, __: click.Parameter, typed: tuple[str, ...]) -> dict[str, float] | None:
    """Weights of columns, typed as NAME=W; a name can contain "="."""
    found: dict[str, float] = {}
    for each in typed:
        name, equals, weight = each.rpartition("=")
        if not (name and equals):
            raise SpecError(f"--weight {each}: give the name of a column and its weight, e.g. --weight distance=2.5")
        if name in found:
            raise SpecError(f"--weight {each}: {name} already has the weight {found[name]:g}: give one of them")
        try:
            found[name] = float(weight)
        except ValueError:
            raise SpecError(f"--weight {each}: the weight {weight!r} is not a number: give one, 0 or more") from None
    return found or None


weight_option = option(
    "--weight",
    "--column-weights",
    "column_weights",
    multiple=True,
    metavar="NAME=W",
    callback=_weights,
    unset="none",
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
            about: dict[str, Any] = {"unset": default_of(name), "help": f"{text[0].upper()}{text[1:]}."}
            if field.annotation is bool:
                command = option(f"--{flag}/--no-{flag}", name, default=None, **about)(command)
            else:
                command = option(f"--{flag}", *short, name, metavar="VALUE", **about)(command)
        return command

    return decorate


fit_options = spec_options(FitSpec.model_fields)


# The meaning of defaults that are rules.
_RULES = {
    "sigma": "from the median distance between sampled rows",
    "gamma": "from sigma, or 1/columns",
    "size": f"{SIZE_RULE}; {RANDOM_FEATURES} random features",
    "landmarks": "kmeans for kernels of x - y, rpcholesky or uniform for others",
    "n_directions": "as few as keep the kernel nearly unbiased",
    "dtype": "that of the data, or float64 where rounding would matter",
    "solver": f"randomized above {DENSE_MOST_FEATURES} random features",
    "block_rows": "from the chunks and columns of the data",
}


def default_of(name: str) -> str:
    """The default of a field of FitSpec, with the rule that it stands for."""
    value = FitSpec.model_fields[name].default
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None:
        return f"automatic ({_RULES[name]})" if name in _RULES else "none"
    return f"{value} ({_RULES[name]})" if name in _RULES else str(value)


def given(options: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The fields of FitSpec that the user set, and all other options; "none" means None, a .npy file its array.

    Raises SpecError for an option that the fit, or every fit of a comparison, would ignore.
    """
    typed = {key: options[key] for key in FitSpec.model_fields if options.get(key) is not None}
    values = {key: None if value == "none" else value for key, value in typed.items()}
    kernel, method = (str(values.get(name, FitSpec.model_fields[name].default)) for name in ("kernel", "method"))
    for clash in unused(values, kernel, method, varied="method" not in options):
        raise SpecError(f"--{clash.option.replace('_', '-')} {clash.message}")
    own = values.get("landmarks")
    if isinstance(own, str) and own.endswith(".npy"):
        values["landmarks"] = landmarks_of_file(expanded(own))
    return values, {key: value for key, value in options.items() if key not in FitSpec.model_fields}


def whole_numbers(flag: str, text: str | None, wanted: str, least: int = 0) -> list[int] | None:
    """The comma-separated numbers of an option; None if it was not given. Raises SpecError for anything else."""
    if text is None:
        return None
    for part in text.split(","):
        if not part.strip().isdecimal() or int(part) < least:
            raise SpecError(f"{flag} {part}: give {wanted}")
    return [int(part) for part in text.split(",")]
