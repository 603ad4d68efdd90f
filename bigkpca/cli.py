"""bigkpca ...: results to stdout, progress and remarks to stderr, exit codes by meaning."""

from __future__ import annotations

import json
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

from bigkpca.errors import BigKPCAError, IncompleteError, SpecError
from bigkpca.spec import FitSpec

_stderr = Console(stderr=True, highlight=False, soft_wrap=True)
Command = Callable[..., Any]


class Report:
    """Progress on stderr: a bar on a terminal, one line for each finished pass; nothing when quiet."""

    def __init__(self, quiet: bool) -> None:
        self._quiet = quiet
        self._bars: Bars | None = None
        self._title, self._done, self._started = "", 0, 0.0

    def start(self, title: str, rows: int) -> None:
        self._title, self._done, self._started = title, 0, time.perf_counter()
        if _stderr.is_terminal and not self._quiet:
            columns = TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[rate]}")
            self._bars = Bars(*columns, TimeRemainingColumn(), console=_stderr, transient=True)
            self._bars.add_task(title, total=rows or None, rate="")
            self._bars.start()

    def advance(self, rows: int) -> None:
        self._done += rows
        if self._bars:
            self._bars.update(self._bars.task_ids[0], completed=self._done, rate=self._rate())

    def finish(self) -> None:
        if self._bars:
            self._bars.stop()
            self._bars = None
        if self._done:
            seconds = time.perf_counter() - self._started
            self.note(f"{self._title}: {self._done:,} rows in {seconds:.1f} s ({self._rate()})")

    def note(self, message: str) -> None:
        if not self._quiet:
            _stderr.print(message, markup=False)

    def _rate(self) -> str:
        return f"{self._done / max(time.perf_counter() - self._started, 1e-9):,.0f} rows/s"


class _Commands(click.Group):
    """Turns errors into a few lines on stderr and the exit code of their meaning."""

    def invoke(self, ctx: click.Context) -> Any:
        signal.signal(signal.SIGTERM, _interrupt)
        warnings.showwarning = lambda message, *_: _stderr.print(f"bigkpca: warning: {message}", markup=False)
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            _leave(IncompleteError("stopped; nothing half-done was published: run the same command again"))
        except BigKPCAError as error:
            _leave(error)


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def _leave(error: BigKPCAError) -> None:
    if "-v" in sys.argv or "--verbose" in sys.argv:
        traceback.print_exc()
    _stderr.print(f"bigkpca: {error}", markup=False)
    sys.exit(error.exit_code)


def _common(command: Command) -> Command:
    """Options of every command that works for a while."""
    for option in (
        click.option("-v", "--verbose", is_flag=True, expose_value=False, help="Show tracebacks."),
        click.option("-q", "--quiet", is_flag=True, help="No progress, no remarks."),
    ):
        command = option(command)
    return command


def _running(command: Command) -> Command:
    """Options that say where a run works and how much memory a process may use; they never change a result."""
    for option in (
        click.option("--array", metavar="NAME", help="Array inside the Zarr group DATA."),
        click.option("--memory", metavar="AMOUNT", help="Refuse what needs more in a process, as '2 GB'."),
        click.option("--workers", type=click.IntRange(1), metavar="N", help="Run on N local processes."),
        click.option("--scheduler", metavar="ADDRESS", help="Run on the Dask cluster at this address."),
    ):
        command = option(command)
    return _common(command)


_overwrite = click.option("--overwrite", is_flag=True, help="Replace earlier output of bigkpca's at this path.")
_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def _fit_options(command: Command) -> Command:
    """One option for every field of FitSpec, so that the two cannot drift apart."""
    for name, field in reversed(FitSpec.model_fields.items()):
        flag = name.replace("_", "-")
        text = f"{field.description}  [default: {_shown(field.default)}]"
        if field.annotation is bool:
            option = click.option(f"--{flag}/--no-{flag}", name, default=None, help=text)
        else:
            option = click.option(f"--{flag}", name, metavar="VALUE", help=text)
        command = option(command)
    return command


def _shown(value: Any) -> str:
    return "by rule" if value is None else str(value)


def _given(options: Mapping[str, Any]) -> dict[str, Any]:
    """The FitSpec fields among parsed options that were typed; "none" means None, a .npy file its array."""
    typed = {key: options[key] for key in FitSpec.model_fields if options.get(key) is not None}
    given = {key: None if value == "none" else value for key, value in typed.items()}
    own = given.get("landmarks")
    return given | {"landmarks": _array_of(own)} if isinstance(own, str) and own.endswith(".npy") else given


def _array_of(path: str) -> Any:
    import numpy as np

    try:
        return np.load(path, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise SpecError(f"landmarks cannot be read from {path}: {error}") from error


def _print(facts: Mapping[str, Any], as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(facts))
        return
    width = max(len(key) for key in facts)
    for key, value in facts.items():
        click.echo(f"{key.replace('_', ' '):<{width}}  {_readable(key, value)}")


def _readable(key: str, value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int) and "bytes" in key:
        return f"{value / 1e6:,.1f} MB"
    if isinstance(value, float):
        return f"{value:.6g}"
    if key == "kernel":
        parameters = ", ".join(f"{name} {_readable(name, item)}" for name, item in value.items() if name != "name")
        return f"{value['name']} ({parameters})" if parameters else str(value["name"])
    if isinstance(value, dict):
        return ", ".join(f"{name} {_readable(name, item)}" for name, item in value.items())
    if key in ("shape", "row_shape", "chunks", "shards") and value:
        return " × ".join(f"{axis:,}" for axis in value)
    if isinstance(value, list):
        shown = ", ".join(_readable(key, item) for item in value[:8])
        return f"{shown}, ... ({len(value)} in all)" if len(value) > 8 else shown or "none"
    return f"{value:,}" if isinstance(value, int) else str(value)


_SPECTRUM = ("eigenvalues", "explained_variance_ratio", "certificate", "choices")  # printed by themselves


def _print_choices(facts: Mapping[str, Any]) -> None:
    """What was left open, as it was chosen, with the reasons."""
    for choice in facts["choices"]:
        value = _readable("", choice["value"])
        click.echo(f"chosen: {choice['option'].replace('_', ' ')} {value}, {choice['reason']}")


def _print_spectrum(facts: Mapping[str, Any], rows: int = 10) -> None:
    """Eigenvalues with their proven bounds and one word of trust for each, then how wrong the whole is."""
    proven, estimated = facts["certificate"]["proven"], facts["certificate"]["estimated"]
    values, shares = facts["eigenvalues"], facts["explained_variance_ratio"]
    highest, trust = proven["eigenvalue_upper"], estimated["trust"]
    click.echo(
        "component   eigenvalue   share of variance   cumulative"
        + ("   proven at most" if highest else "")
        + ("   trust" if trust else "")
    )
    total = 0.0
    for number in range(min(rows, len(values))):
        total += shares[number]
        click.echo(
            f"{number + 1:>9}   {values[number]:>#10.5g}   {shares[number]:>16.2%}   {total:>10.2%}"
            + (f"   {highest[number]:>#14.5g}" if highest else "")
            + (f"   {trust[number]}" if trust else "")
        )
    if len(values) > rows:
        rest = sum(shares[rows:])
        words = [f"{trust[rows:].count(word)} {word}" for word in ("solid", "fair", "doubtful")] if trust else []
        gap = " " * 17 if highest else ""
        click.echo(
            f"  {rows + 1} to {len(values)}" + f"{rest:>30.2%}   {total + rest:>10.2%}{gap}   " + ", ".join(words)
        )
    if proven["residuals"] is not None:
        click.echo(f"largest relative residual: {max(proven['residuals']):.2g} (proven)")
    if proven["relative_trace_error"] is not None:
        click.echo(
            f"unexplained by the landmarks: {proven['relative_trace_error']:.2%} of the variance at most (proven)"
        )
    if estimated["kernel_error"] is not None:
        click.echo(f"error of the centred kernel matrix: {estimated['kernel_error']:.2%} of its norm (estimated)")
    if estimated["leave_one_out_residual"] is not None:
        click.echo(f"residual of a new row: {estimated['leave_one_out_residual']:.3g} of k(x, x) (estimated)")


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="bigkpca")
def main() -> None:
    """Kernel PCA for data that do not fit in memory."""


@main.command()
@click.argument("sources", nargs=-1, required=True, metavar="SRC...")
@click.argument("destination", metavar="DST")
@click.option("--member", metavar="NAME", help="Member of .npz and HDF5 files to read.")
@click.option("--labels", metavar="NAME|FILE", help="Labels: a member, a column, or a second file.")
@click.option("--dtype", metavar="T", help="Store as this dtype.")
@click.option("--block-rows", type=click.IntRange(1), metavar="N", help="Rows of one stored shard.")
@click.option("--append", is_flag=True, help="Add rows to the dataset DST.")
@_overwrite
@_common
def ingest(sources: tuple[str, ...], destination: str, quiet: bool, **options: Any) -> None:
    """Make a dataset DST (chunked Zarr) of files: .npy .npz .csv .csv.gz IDX Parquet HDF5."""
    from bigkpca.info import info
    from bigkpca.ingest import ingest as run

    report = Report(quiet)
    done = run(sources, destination, progress=report, **options)
    if done.already_done:
        report.note(f"{destination} holds these files already: nothing to do")
    facts = info(destination)
    _print({key: facts[key] for key in ("path", "shape", "dtype", "bytes")}, False)


@main.command()
@click.argument("path")
@click.option("--array", metavar="NAME", help="Array inside the Zarr group PATH.")
@_json
def info(path: str, array: str | None, as_json: bool) -> None:
    """Tell what is at PATH: a dataset, a model, a feature store, or any Zarr array."""
    from bigkpca.info import info as look

    facts = look(path, array)
    if as_json or facts["kind"] != "model":
        _print(facts, as_json)
        return
    _print({key: facts[key] for key in facts if key not in _SPECTRUM}, False)
    _print_choices(facts)
    _print_spectrum(facts)


@main.command()
@click.argument("data")
@click.option("--kernel", default="gaussian", show_default=True, help="The kernel whose length is asked for.")
@click.option("--seed", default="0", show_default=True, help="Seed of the sample.")
@click.option("--standardize", is_flag=True, help="Lengths for columns brought to mean 0 and deviation 1.")
@click.option("--cv", is_flag=True, help="Choose by how well pre-images restore held-out rows of a sample.")
@click.option("--preimage", default="ridge", show_default=True, help="With --cv: the way back from scores to rows.")
@click.option("--noise", type=float, metavar="SD", help="With --cv: restore rows from noise of this deviation.")
@click.option("--size", metavar="L", default="auto", show_default=True, help="With --cv: landmarks of each fit.")
@click.option("--components", metavar="R,R,...", help="With --cv: numbers of components to try.")
@click.option("--save", metavar="FILE", help="With --cv: write every setting that was tried to a .csv file.")
@_json
@_running
def sigma(data: str, as_json: bool, quiet: bool, **options: Any) -> None:
    """Candidate lengths sigma from distances of sampled pairs, each with its sampling error."""
    from bigkpca.choose import sample_lengths
    from bigkpca.engine import open_engine
    from bigkpca.sources import open_rows

    fields = {key: options[key] for key in ("kernel", "seed", "standardize")}
    if options["cv"]:
        _cross_validated(data, fields, as_json, quiet, options)
        return
    for name in ("noise", "components", "save"):
        if options[name] is not None:
            raise SpecError(f"--{name} is for --cv: add it, or leave --{name} out")
    run, spec = options, FitSpec.checked(**fields)
    with open_engine(run["scheduler"], run["workers"]) as engine:
        lengths = sample_lengths(open_rows(data, run["array"]), spec, engine, Report(quiet))
    if as_json:
        click.echo(json.dumps({name: asdict(length) for name, length in lengths.items()}))
        return
    for name, length in lengths.items():
        click.echo(f"{name.replace('_', ' '):<14} {length.sigma:>12.6g}  ± {length.standard_error:.2g}")


def _cross_validated(data: str, fields: dict[str, Any], as_json: bool, quiet: bool, options: Mapping[str, Any]) -> None:
    """The error of each setting, a mark at the best, and the command that uses it."""
    from bigkpca.crossvalidation import cross_validate
    from bigkpca.engine import open_engine
    from bigkpca.sources import open_rows

    spec = FitSpec.checked(**fields, **{key: options[key] for key in ("preimage", "noise", "size")})
    tried = options["components"]
    numbers = [_number(part) for part in tried.split(",")] if tried else None
    if options["save"] and not Path(options["save"]).absolute().parent.is_dir():
        raise SpecError(f"{options['save']} cannot be written: its folder does not exist")
    with open_engine(options["scheduler"], options["workers"]) as engine:
        rows = open_rows(data, options["array"])
        found = cross_validate(rows, spec, engine, Report(quiet), components=numbers)
    if options["save"]:
        _save_settings(options["save"], found.settings)
    best = found.best
    if as_json:
        click.echo(json.dumps({**asdict(found), "best": asdict(best)}))
        return
    click.echo(f"mean squared error of pre-images, {found.folds} folds of {found.rows:,} rows")
    click.echo("       sigma   components   ridge        error")
    for one in found.curve():
        ridge = "" if one.ridge is None else f"{one.ridge:g}"
        mark = "  best" if one == best else ""
        error = f"{one.error:>10.5g} ± {one.standard_error:.1g}"
        click.echo(f"{one.sigma:>12.6g}   {one.components:>10}   {ridge:<6}{error}{mark}")
    chosen = f"--sigma {best.sigma:.6g} --components {best.components} --preimage {spec.preimage_value.name}"
    click.echo(f"bigkpca fit {data} MODEL {chosen}{_typed(spec, options['array'])}")
    if best.ridge is not None:
        click.echo(
            f"in Python, preimage={type(spec.preimage_value).__name__}(ridge={best.ridge:g}) of bigkpca.preimages"
        )


def _typed(spec: FitSpec, array: str | None) -> str:
    """The other options of a cross-validation, where they are not the default, as `fit` takes them."""
    given = {name: getattr(spec, name) for name in ("kernel", "seed", "size", "noise")}
    default = FitSpec()
    words = [f" --{name} {value}" for name, value in given.items() if value != getattr(default, name)]
    return "".join([*words, " --standardize" * spec.standardize, f" --array {array}" if array else ""])


def _number(text: str) -> int:
    if not text.strip().isdecimal() or int(text) < 1:
        raise SpecError(f"--components {text}: give numbers of components, as 10,50,200")
    return int(text)


def _save_settings(path: str, settings: Any) -> None:
    import csv

    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["sigma", "components", "ridge", "error", "standard_error"])
        writer.writerows([one.sigma, one.components, one.ridge, one.error, one.standard_error] for one in settings)


@main.command()
@click.argument("data")
@_fit_options
@_json
@_running
def plan(data: str, as_json: bool, quiet: bool, **options: Any) -> None:
    """Tell what a fit of DATA would cost, without running it."""
    from bigkpca.engine import Engine, parse_bytes
    from bigkpca.plan import plan_fit
    from bigkpca.sources import open_rows

    threads = 1 if options["workers"] else Engine().threads
    found = plan_fit(open_rows(data, options["array"]), FitSpec.checked(**_given(options)), threads)
    _print(asdict(found), as_json)
    if options["memory"]:
        found.check(parse_bytes(options["memory"]), "ask for a smaller --size")


@main.command()
@click.argument("data")
@click.argument("model")
@_fit_options
@click.option("--time-budget", metavar="TIME", help="With --tol: end the growth of the size in time, as '10 min'.")
@_overwrite
@_running
def fit(data: str, model: str, quiet: bool, **options: Any) -> None:
    """Fit kernel PCA to DATA and save it as MODEL."""
    from bigkpca import pipeline
    from bigkpca.info import model_info

    run = {key: options[key] for key in ("array", "scheduler", "workers", "memory", "overwrite", "time_budget")}
    fitted = pipeline.fit(data, model, progress=Report(quiet), **run, **_given(options))
    facts = model_info(fitted, model)
    shown = ("path", "method", "kernel", "landmarks", "random_features", "components", "bytes")
    _print({key: facts[key] for key in shown if key in facts}, False)
    _print_choices(facts)
    _print_spectrum(facts)


@main.command()
@click.argument("model")
@click.argument("data")
@click.argument("out")
@click.option("--block-rows", type=click.IntRange(1), metavar="N", help="Rows of one task and one shard.")
@click.option("--residual", is_flag=True, help="Also write what scores leave out of each row: novelty.")
@_overwrite
@_running
def transform(model: str, data: str, out: str, quiet: bool, **options: Any) -> None:
    """Write the scores of DATA under MODEL to the feature store OUT."""
    from bigkpca import pipeline

    scores = pipeline.transform(model, data, out, progress=Report(quiet), **options)
    _print({"path": out, "shape": list(scores.shape), "dtype": str(scores.dtype)}, False)


def _printed_rows(out: str, x: Any) -> None:
    """Where pre-images are, and what is known of them."""
    from bigkpca import store_blocks

    far = int(store_blocks.values(out, "far").sum())
    stopped = x.shape[0] - int(store_blocks.values(out, "converged").sum()) - far
    facts = {"path": out, "shape": list(x.shape), "dtype": str(x.dtype), "not_converged": stopped, "far": far}
    _print(facts, False)


@main.command()
@click.argument("model")
@click.argument("scores")
@click.argument("out")
@click.option("--block-rows", type=click.IntRange(1), metavar="N", help="Rows of one task and one shard.")
@_overwrite
@_running
def reconstruct(model: str, scores: str, out: str, quiet: bool, **options: Any) -> None:
    """Write the rows that SCORES of MODEL stand for, their pre-images, to OUT."""
    from bigkpca import pipeline

    _printed_rows(out, pipeline.reconstruct(model, scores, out, progress=Report(quiet), **options))


@main.command()
@click.argument("model")
@click.argument("data")
@click.argument("out")
@click.option("--block-rows", type=click.IntRange(1), metavar="N", help="Rows of one task and one shard.")
@_overwrite
@_running
def denoise(model: str, data: str, out: str, quiet: bool, **options: Any) -> None:
    """Write what MODEL makes of the rows of DATA to OUT: transform and reconstruct in one pass."""
    from bigkpca import pipeline

    _printed_rows(out, pipeline.denoise(model, data, out, progress=Report(quiet), **options))


@main.command()
@click.argument("model")
@click.argument("data")
@click.option("--sample", type=click.IntRange(2), default=500, show_default=True, help="Rows with exact kernels.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Seed of the sample.")
@_json
@_running
def evaluate(model: str, data: str, as_json: bool, quiet: bool, **options: Any) -> None:
    """Estimate how wrong MODEL is on DATA, fitted or new, from exact kernels with sampled rows: one pass."""
    from bigkpca import pipeline

    del options["memory"]
    found = pipeline.evaluate(model, data, progress=Report(quiet), **options)
    if as_json:
        click.echo(json.dumps(asdict(found), default=lambda array: array.tolist()))
        return
    click.echo(f"estimates from {found.sampled:,} of {found.rows:,} rows, ± standard errors")
    click.echo("component   eigenvalue         95 % interval   relative residual")
    for number, line in enumerate(zip(found.eigenvalues, found.intervals, found.residuals, strict=True), 1):
        value, (low, high), residual = line
        interval = f"{low:#.6g} to {high:#.6g}"
        click.echo(f"{number:>9}   {value:>#10.6g}   {interval:>19}   {residual:>17.2g}")
    frobenius, total = found.frobenius, found.total_variance
    click.echo(f"total variance   {total.value:.6g} ± {total.standard_error:.2g}")
    click.echo(f"|K - K^|_F       {frobenius.value:.6g} ± {frobenius.standard_error:.2g}")


@main.command()
@click.argument("model")
@click.argument("out", metavar="OUT.html")
@click.option("--scores", metavar="PATH", help="Feature store, or array of scores, to show.  [default: sampled rows]")
@click.option("--labels", metavar="PATH|NAME", help="Labels: a file, or an array beside the rows.  [default: y]")
@click.option("--image-shape", metavar="H,W", help="Show rows as pictures.  [default: their shape before ingest]")
@click.option("--array", metavar="NAME", help="Array of the rows inside their Zarr group.")
@_overwrite
@_common
def report(model: str, out: str, image_shape: str | None, quiet: bool, **options: Any) -> None:
    """Draw one page, OUT.html, that says whether MODEL is good and what it found."""
    from bigkpca.reporting import report as draw

    shape = _shape(image_shape) if image_shape else None
    path = draw(model, out, image_shape=shape, progress=Report(quiet), **options)
    _print({"path": path, "bytes": Path(path).stat().st_size}, False)


def _shape(text: str) -> tuple[int, ...]:
    parts = text.split(",")
    if not all(part.strip().isdecimal() for part in parts):
        raise SpecError(f"--image-shape {text}: give height and width, as 28,28")
    return tuple(map(int, parts))


@main.command()
@click.argument("folder", default="bigkpca-demo", metavar="[DIR]")
@_common
def demo(folder: str, quiet: bool) -> None:
    """The whole story on 1797 real digits: ingest, fit, transform and report into DIR."""
    from bigkpca.demo import demonstrate
    from bigkpca.info import model_info
    from bigkpca.reporting import INSTALL

    shown = demonstrate(Path(folder), Report(quiet))
    facts = model_info(shown.model, shown.paths["model"])
    click.echo(f"sigma = {facts['kernel']['sigma']:.4g} (the median pair of digits has k = exp(-1))")
    _print_spectrum(facts)
    click.echo(
        f"nearest-centroid accuracy: {shown.accuracy_scores:.1%} from {facts['components']} scores, "
        f"{shown.accuracy_pixels:.1%} from {facts['columns']} pixels"
    )
    click.echo("seconds: " + ", ".join(f"{step} {seconds:.2f}" for step, seconds in shown.seconds.items()))
    for name, path in shown.paths.items():
        click.echo(f"{name:<8} {path}")
    if "report" not in shown.paths:
        click.echo(f"for a page of figures: {INSTALL}")


if __name__ == "__main__":
    main()
