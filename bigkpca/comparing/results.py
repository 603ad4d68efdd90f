"""Results of a comparison: the files of its output folder, medians over seeds, a recommendation, and the figure."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from importlib.util import find_spec
from statistics import median
from typing import Any
from zipfile import BadZipFile

import numpy as np

from bigkpca.comparing.trials import MethodVariant, ReferenceSolution, TrialResult, all_variants
from bigkpca.data.devices import CPU
from bigkpca.data.json_files import read_json, write_json
from bigkpca.data.stores import Store, store_of
from bigkpca.errors import CorruptionError, SpecError
from bigkpca.numerics.methods import Exact
from bigkpca.plots.style import PALETTE, plain_ticks
from bigkpca.reporting.drawing import INK, figure_of, standalone
from bigkpca.storage.output import other

_RECORD, _TRIALS, _REFERENCE, FIGURE = "compare.json", "compare.csv", "reference.npz", "compare.svg"
_FORMAT = {"format": "comparison", "format_version": 1}
_NUMBERS = [field.name for field in fields(TrialResult) if field.type in ("float", "float | None")]


@dataclass(frozen=True)
class Folder:
    """The output folder of a comparison, whose files are written atomically."""

    path: str

    @property
    def _store(self) -> Store:
        return store_of(self.path)

    def _at(self, name: str) -> str:
        return f"{self.path}/{name}"

    def claim(self, record: Mapping[str, Any], *, overwrite: bool) -> None:
        """Create the folder, or reopen it if it holds the same comparison, whose trials are kept.

        Raises SpecError if it holds anything else. With `overwrite`, another comparison is replaced, but other files
        are not.
        """
        wanted = {**_FORMAT, **record}
        try:
            there = read_json(self._at(_RECORD))
        except (OSError, ValueError):
            there = None
        if not isinstance(there, dict) or there.get("format") != _FORMAT["format"]:
            there = None
        if there is None and self._store.exists(self.path):
            # A folder can hold an unfinished record.
            empty = self._store.is_folder(self.path) and set(self._store.names(self.path)) <= {_RECORD + ".partial"}
            if not empty:
                raise SpecError(
                    f"{self.path} is not an empty folder and was not made by bigkpca compare: choose another folder, "
                    "or move this one away"
                )
        if there is not None and there != wanted:
            if not overwrite:
                found = other({"device": CPU, **there}, {"device": CPU, **wanted})
                raise SpecError(
                    f"{self.path} already holds {found}: choose another folder, or replace it with --overwrite "
                    "(overwrite=True in Python)"
                )
            for name in (_TRIALS, _REFERENCE, FIGURE):  # the record is replaced last, since it identifies the folder
                self._store.remove_file(self._at(name))
        self._store.make_folder(self.path)
        write_json(self._at(_RECORD), wanted)

    def trials(self) -> list[TrialResult]:
        """The trials stored in the folder, in order. Raises CorruptionError for a file that was edited."""
        path = self._at(_TRIALS)
        if not self._store.exists(path):
            return []
        try:
            with self._store.open(path) as file, io.TextIOWrapper(file, encoding="utf-8", newline="") as text:
                found = []
                for line in csv.DictReader(text):
                    values: dict[str, Any] = dict(line) | {"size": int(line["size"]), "seed": int(line["seed"])}
                    values |= {name: float(line[name]) if line[name] else None for name in _NUMBERS}
                    found.append(TrialResult(**values))
                return found
        except (KeyError, TypeError, ValueError) as error:
            raise CorruptionError(
                f"{path} is not a list of trials: move it away, and rerun the same command"
            ) from error

    def write_trials(self, trials: Sequence[TrialResult]) -> None:
        text = io.StringIO(newline="")
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow([field.name for field in fields(TrialResult)])
        writer.writerows(["" if value is None else value for value in asdict(trial).values()] for trial in trials)
        self._store.write(self._at(_TRIALS), text.getvalue().encode())

    def reference(self) -> ReferenceSolution | None:
        """The reference stored in the folder, if there is one. Raises CorruptionError if it cannot be read."""
        try:
            with self._store.open(self._at(_REFERENCE)) as file, np.load(file, allow_pickle=False) as held:
                numbers = [None if np.isnan(value) else float(value) for value in held["numbers"]]
                return ReferenceSolution(
                    held["eigenvalues"], held["scores"], held["rows"], str(held["about"]), *numbers
                )
        except FileNotFoundError:
            return None
        except (OSError, KeyError, ValueError, BadZipFile) as error:
            raise CorruptionError(
                f"{self._at(_REFERENCE)} cannot be read: remove it, and rerun the same command"
            ) from error

    def write_reference(self, reference: ReferenceSolution) -> None:
        numbers = reference.sigma, reference.seconds, reference.planned_mb, reference.pca_error
        content = io.BytesIO()
        np.savez(
            content,
            eigenvalues=reference.eigenvalues,
            scores=reference.scores,
            rows=reference.rows,
            about=np.array(reference.description),
            numbers=np.array([np.nan if value is None else value for value in numbers]),
        )
        self._store.write(self._at(_REFERENCE), content.getvalue())

    def write_figure(self, svg: str) -> None:
        self._store.write(self._at(FIGURE), svg.encode())


GOOD = 0.05
"""Score error below which an approximation is good: 5 % of the norm of the exact scores."""

_LITTLE_LONGER = 1.5  # among fits within this factor of the fastest, the most accurate is recommended

_MEASURES = [field.name for field in fields(TrialResult) if field.name not in ("method", "landmarks", "size", "seed")]


@dataclass(frozen=True)
class Spread:
    """Median, smallest and largest value over seeds."""

    median: float
    least: float
    most: float


@dataclass(frozen=True)
class TrialGroup:
    """Trials of one variant at one size.

    Attributes
    ----------
    variant : MethodVariant
        Method and landmark rule.
    size, seeds : int
        Number of landmarks or features, and number of fits.
    spreads : dict of Spread
        The spread of each measure of TrialResult over seeds, by name; None if unknown.
    """

    variant: MethodVariant
    size: int
    seeds: int
    spreads: dict[str, Spread | None]

    def median(self, measure: str) -> float:
        """The median of a measure; NaN if unknown."""
        spread = self.spreads[measure]
        return math.nan if spread is None else spread.median

    def __str__(self) -> str:
        return f"{self.variant} with {'all' if self.exact else 'size'} {self.size:,}{' rows' if self.exact else ''}"

    @property
    def exact(self) -> bool:
        return self.variant.method == Exact.name


def group_trials(trials: Iterable[TrialResult]) -> tuple[TrialGroup, ...]:
    """Trials grouped by variant and size, in the order of the grid, the exact reference last."""
    groups: dict[tuple[MethodVariant, int], list[TrialResult]] = {}
    order = {variant: number for number, variant in enumerate(all_variants())}
    for trial in trials:
        groups.setdefault((MethodVariant(trial.method, trial.landmarks), trial.size), []).append(trial)
    found = []
    for variant, size in sorted(groups, key=lambda key: (order.get(key[0], len(order)), key[1])):
        members, spreads = groups[variant, size], {}
        for measure in _MEASURES:
            values = [value for trial in members if (value := getattr(trial, measure)) is not None]
            spreads[measure] = Spread(median(values), min(values), max(values)) if values else None
        found.append(TrialGroup(variant, size, len(members), spreads))
    return tuple(found)


def advice(groups: Sequence[TrialGroup]) -> str:
    """The recommended variant and size, in one sentence.

    Among fits within `GOOD`, the most accurate that takes little longer than the fastest; without such fits, the most
    accurate of all; or the exact method if it takes no longer.
    """
    approximate = [group for group in groups if not group.exact]
    if not approximate:
        return "Nothing was compared yet."
    good = [group for group in approximate if group.median("score_error") <= GOOD]
    chosen, why = approximate, f"the most accurate, but none is within {GOOD:.0%}; try larger sizes"
    if good:
        time = _LITTLE_LONGER * min(group.median("seconds") for group in good)
        chosen = [group for group in good if group.median("seconds") <= time]
        why = f"the most accurate of the fastest fits within {GOOD:.0%}"
    best = min(chosen, key=lambda group: group.median("score_error"))
    exact = next((group for group in groups if group.exact), None)
    if exact is not None and exact.median("seconds") <= best.median("seconds"):
        return (
            f"Use the exact method: it took {_cost(exact)}, no longer than {best} ({_cost(best)}), "
            f"whose scores are off by {best.median('score_error'):.2%}."
        )
    against = f"; exact took {exact.median('seconds'):.3g} s" if exact is not None else ""
    others = [group for group in approximate if group.variant.method != best.variant.method and group.size == best.size]
    if others:
        other = min(others, key=lambda group: group.median("score_error"))
        against += f"; {other} leaves {other.median('score_error'):.2%} in {other.median('seconds'):.3g} s"
    return (
        f"Use {best}: scores are off by {best.median('score_error'):.2%}, eigenvalues by "
        f"{best.median('eigenvalue_error'):.2%}, in {_cost(best)} ({why}){against}."
    )


def pca_note(groups: Sequence[TrialGroup], components: int, error: float | None) -> str | None:
    """A sentence on linear PCA with as many components, whose reconstruction has this `error`; None if it is unknown.

    It compares PCA with the fit with the best pre-images, which are favoured if they were made from the judged rows.
    """
    if error is None:
        return None
    text = f"Linear PCA with {components} components: the error of reconstruction is {error:.2%}"
    known = [group for group in groups if not math.isnan(group.median("preimage_error"))]
    if not known:
        return f"{text}."
    best = min(known, key=lambda group: group.median("preimage_error"))
    verdict = "better" if error < best.median("preimage_error") else "worse"
    favoured = "; unlike PCA, these were fitted to the rows that are judged" if best.median("preimages_seen") else ""
    return f"{text}, {verdict} than the best pre-images ({best.median('preimage_error'):.2%}, {best}){favoured}."


def _cost(group: TrialGroup) -> str:
    return f"{group.median('seconds'):.3g} s and {group.median('planned_mb'):.0f} MB"


_PANELS = {"score_error": "error of the scores", "eigenvalue_error": "mean error of the eigenvalues"}
_MARKERS = "osD^vPX*"
_MIN_ERROR = 1e-6  # smaller errors are rounding, and are plotted at this value


def can_draw() -> bool:
    return find_spec("matplotlib") is not None


def comparison_svg(groups: Sequence[TrialGroup], data: str, reference: str) -> str:
    """An SVG file of errors of scores and eigenvalues against seconds of the fit, on logarithmic axes.

    Each point is the median over seeds at one size; bars extend from the smallest to the largest value.
    """
    by_variant: dict[MethodVariant, list[TrialGroup]] = {}
    for group in groups:
        if not group.exact:
            by_variant.setdefault(group.variant, []).append(group)
    exact_seconds = next((group.median("seconds") for group in groups if group.exact), None)
    sizes = next(([f"{group.size:,}" for group in variant_groups] for variant_groups in by_variant.values()), [])
    with figure_of(10, 5.2) as figure:
        for axes, (measure, title) in zip(figure.subplots(1, 2), _PANELS.items(), strict=True):
            for number, variant in enumerate(all_variants()):
                if not (line := by_variant.get(variant)):
                    continue
                x, spreads = [group.median("seconds") for group in line], [group.spreads[measure] for group in line]
                found = np.array([(s.median, s.least, s.most) if s else (np.nan,) * 3 for s in spreads])
                y, low, high = np.maximum(found, _MIN_ERROR).T
                bars = [(y - low).tolist(), (high - y).tolist()]  # lists: Matplotlib 3.10 looks for numbers in arrays
                axes.errorbar(x, y, bars, color=PALETTE[number], marker=_MARKERS[number % len(_MARKERS)],
                              markersize=5, linewidth=1.5, elinewidth=1, label=str(variant))  # fmt: skip
            if exact_seconds is not None:
                axes.axvline(exact_seconds, color=INK, linestyle="--", linewidth=1, label="exact")
            axes.set(xscale="log", yscale="log", xlabel="seconds of the fit", title=title)
            plain_ticks(axes.xaxis, numticks=12)
            plain_ticks(axes.yaxis, "%", 100, numticks=12)
        handles, labels = axes.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=5)
        points = f"{data}, sizes {', '.join(sizes)} along each line"
        figure.suptitle(f"{points}; errors against {re.split(r' [(]|, |: ', reference)[0]}", fontsize=11)
        last = [variant_groups[-1] for variant_groups in by_variant.values()]
        errors = [f"{group} {group.median('score_error'):.2%} in {group.median('seconds'):.2g} s" for group in last]
        alt = f"Error of the scores and of the eigenvalues against time. Scores: {'; '.join(errors)}."
        alt += "" if exact_seconds is None else f" The exact method took {exact_seconds:.3g} s."
        return standalone(figure, "compare", alt)
