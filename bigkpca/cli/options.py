"""Options that several commands share, and their values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import click

from bigkpca.cli.exit_codes import verbose_option
from bigkpca.data.stores import expanded, store_of
from bigkpca.errors import SpecError
from bigkpca.spec import FitSpec
from bigkpca.spec.checks import landmarks_of_file
from bigkpca.spec.combinations import unused

Command = Callable[..., Any]


quiet_option = click.option("-q", "--quiet", is_flag=True, help="No progress, no notes.")


class _Path(click.ParamType):  # type: ignore[type-arg]  # which older ones do not take
    """A path, with `~` written out: what a shell does not expand within quotes, or after `--option=`."""

    name = "path"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return expanded(value)


PATH = _Path()


def common(command: Command) -> Command:
    """Options of every command that may take long."""
    return quiet_option(verbose_option(command))


def _bytes(_: click.Context, __: click.Parameter, text: str | None) -> int | None:
    """An amount of memory in bytes. Raises SpecError where the unit is missing."""
    if text is None:
        return None
    from bigkpca.spec.units import lacks_unit, parse_bytes

    if lacks_unit(text):
        raise SpecError(f"--memory {text}: give a unit, e.g. --memory '{text.strip()} GB'")
    return parse_bytes(text)


def memory_option(text: str) -> Callable[[Command], Command]:
    """--memory, with this help; its value is in bytes."""
    return click.option("--memory", metavar="AMOUNT", callback=_bytes, help=text)


_TIMEOUT_HELP = "Stop if no block of rows is finished for this time, e.g. '30 min'."
_CERTIFICATES = (
    ("--tls-ca", "ca-file", "Certificate of the authority, for a scheduler at tls://..."),
    ("--tls-cert", "client.cert", "Own certificate, for the same."),
    ("--tls-key", "client.key", "Key of the own certificate."),
)


def _certificate(option: str, key: str, text: str) -> Callable[[Command], Command]:
    """An option that stands for a setting of Dask's own configuration."""

    def configure(ctx: click.Context, _: click.Parameter, path: str | None) -> None:
        if path is None:
            return
        if not store_of(path).exists(path):
            raise SpecError(f"{option} {path} does not exist")
        import dask.config

        dask.config.set({f"distributed.comm.tls.{key}": path, "distributed.comm.require-encryption": True})

    return click.option(option, type=PATH, metavar="FILE", expose_value=False, callback=configure, help=text)


def certificates(command: Command) -> Command:
    """Options for the certificates of a cluster at tls://..."""
    for each in reversed(_CERTIFICATES):
        command = _certificate(*each)(command)
    return command


def running(command: Command) -> Command:
    """Options for where a run works and how much memory a process may use.

    They change no result, except that memory may end the growth of a size (`tol`).
    """
    options: list[Callable[[Command], Command]] = [
        click.option("--array", metavar="NAME", help="Array to read if the input is a Zarr group."),
        memory_option("Refuse to run if a process would need more, e.g. '2 GB'."),
        click.option("--timeout", metavar="TIME", default="10 min", show_default=True, help=_TIMEOUT_HELP),
        click.option("--workers", type=click.IntRange(1), metavar="N", help="Run on N local processes."),
        certificates,
        click.option("--scheduler", metavar="ADDRESS", help="Run on the Dask cluster at this address."),
    ]
    for option in options:
        command = option(command)
    return common(command)


overwrite_option = click.option("--overwrite", is_flag=True, help="Replace earlier output of bigkpca at this path.")
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def spec_options(names: Iterable[str]) -> Callable[[Command], Command]:
    """One option for each of these fields of FitSpec, generated from them."""

    def decorate(command: Command) -> Command:
        for name in reversed(list(names)):
            command = _spec_option(name)(command)
        return command

    return decorate


def _spec_option(name: str) -> Callable[[Command], Command]:
    field, flag = FitSpec.model_fields[name], name.replace("_", "-")
    text = f"{_sentence(str(field.description))}  [default: {_shown(name, field.default)}]"
    if field.annotation is bool:
        return click.option(f"--{flag}/--no-{flag}", name, default=None, help=text)
    return click.option(f"--{flag}", name, metavar="VALUE", help=text)


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


fit_options = spec_options(FitSpec.model_fields)


_UNSET = {"gamma": "from sigma", "tol": "none", "dtype": "automatic", "noise": "none", "block_rows": "automatic"}


def _shown(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return _UNSET[name] if value is None else str(value)


def given(options: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of FitSpec that the user gave; "none" means None, a .npy file its array."""
    typed = {key: options[key] for key in FitSpec.model_fields if options.get(key) is not None}
    values = {key: None if value == "none" else value for key, value in typed.items()}
    _check_used(values, varied="method" not in options)
    own = values.get("landmarks")
    return (
        values | {"landmarks": landmarks_of_file(expanded(own))}
        if isinstance(own, str) and own.endswith(".npy")
        else values
    )


def _check_used(values: Mapping[str, Any], *, varied: bool) -> None:
    """Raise SpecError for an option that the fit, or every fit by `varied` methods, would ignore."""
    kernel, method = (str(values.get(name, FitSpec.model_fields[name].default)) for name in ("kernel", "method"))
    for clash in unused(values, kernel, method, varied=varied):
        raise SpecError(f"--{clash.fields[0].replace('_', '-')} {clash.message}")
