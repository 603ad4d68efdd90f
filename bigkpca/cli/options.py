"""Options that several commands share, and the values of those that are typed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import click

from bigkpca.errors import SpecError
from bigkpca.spec import FitSpec

Command = Callable[..., Any]


def common(command: Command) -> Command:
    """Options of every command that works for a while."""
    for option in (
        click.option("-v", "--verbose", is_flag=True, expose_value=False, help="Show tracebacks."),
        click.option("-q", "--quiet", is_flag=True, help="No progress, no remarks."),
    ):
        command = option(command)
    return command


def running(command: Command) -> Command:
    """Options that say where a run works and how much memory a process may use; they never change a result."""
    for option in (
        click.option("--array", metavar="NAME", help="Array inside the Zarr group DATA."),
        click.option("--memory", metavar="AMOUNT", help="Refuse what needs more in a process, as '2 GB'."),
        click.option("--workers", type=click.IntRange(1), metavar="N", help="Run on N local processes."),
        click.option("--scheduler", metavar="ADDRESS", help="Run on the Dask cluster at this address."),
    ):
        command = option(command)
    return common(command)


overwrite_option = click.option("--overwrite", is_flag=True, help="Replace earlier output of bigkpca's at this path.")
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def spec_options(names: Iterable[str]) -> Callable[[Command], Command]:
    """One option for each of these fields of FitSpec, so that the two cannot drift apart."""

    def decorate(command: Command) -> Command:
        for name in reversed(list(names)):
            command = _spec_option(name)(command)
        return command

    return decorate


def _spec_option(name: str) -> Callable[[Command], Command]:
    field, flag = FitSpec.model_fields[name], name.replace("_", "-")
    text = f"{field.description}  [default: {_shown(field.default)}]"
    if field.annotation is bool:
        return click.option(f"--{flag}/--no-{flag}", name, default=None, help=text)
    return click.option(f"--{flag}", name, metavar="VALUE", help=text)


fit_options = spec_options(FitSpec.model_fields)


def _shown(value: Any) -> str:
    return "by rule" if value is None else str(value)


def given(options: Mapping[str, Any]) -> dict[str, Any]:
    """The FitSpec fields among parsed options that were typed; "none" means None, a .npy file its array."""
    typed = {key: options[key] for key in FitSpec.model_fields if options.get(key) is not None}
    values = {key: None if value == "none" else value for key, value in typed.items()}
    own = values.get("landmarks")
    return values | {"landmarks": _array_of(own)} if isinstance(own, str) and own.endswith(".npy") else values


def _array_of(path: str) -> Any:
    import numpy as np

    try:
        return np.load(path, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise SpecError(f"landmarks cannot be read from {path}: {error}") from error
