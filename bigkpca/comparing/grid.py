"""The grid of a comparison: method variants, sizes and seeds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from bigkpca.data.rows import Rows
from bigkpca.errors import MemoryLimitError, SpecError, unknown_name
from bigkpca.execution.engine import Engine
from bigkpca.execution.planning import plan_fit
from bigkpca.execution.progress import Progress
from bigkpca.numerics import landmarks, methods
from bigkpca.spec import VARIED, FitSpec, resolve

_SHARES = (8, 4, 2, 1)


@dataclass(frozen=True)
class MethodVariant:
    """A method, with its landmark rule if there is a choice of rules."""

    method: str
    landmarks: str = ""

    def __str__(self) -> str:
        return f"{self.method} {self.landmarks}".rstrip()

    def spec(self, base: FitSpec, size: int, seed: int) -> FitSpec:
        """The spec of a fit of this variant. Raises SpecError if kernel and method do not go together."""
        rule = {"landmarks": self.landmarks} if self.landmarks else {}
        values: dict[str, Any] = {key: getattr(base, key) for key in FitSpec.model_fields if key not in VARIED}
        return FitSpec.checked(**values, method=self.method, size=self.even(size), seed=seed, **rule)

    def even(self, size: int) -> int:
        """The size, rounded up to an even number if features come in pairs."""
        return size + size % 2 if methods.named(self.method).pairs else size


@dataclass(frozen=True)
class Candidate:
    """One fit of the grid."""

    variant: MethodVariant
    size: int
    seed: int


def all_variants() -> tuple[MethodVariant, ...]:
    """All variants: Nyström with each landmark rule, and the other approximate methods."""
    approximate = [name for name in methods.METHODS if name not in (methods.Nystroem.name, methods.Exact.name)]
    ruled = [MethodVariant(methods.Nystroem.name, rule) for rule in landmarks.RULES]
    return (*ruled, *map(MethodVariant, approximate))


def parse_variants(names: Sequence[str]) -> tuple[MethodVariant, ...]:
    """The variants of these names: "rff", "nystroem" (with all landmark rules), or "nystroem/kmeans".

    Raises SpecError for unknown names.
    """
    found: dict[MethodVariant, None] = {}
    for name in names:
        method, slash, rule = name.strip().partition("/")
        chosen = [
            variant
            for variant in all_variants()
            if variant.method == methods.named(method).name and rule in ("", variant.landmarks)
        ]
        if not chosen or (slash and not rule):
            raise unknown_name(
                "method to compare",
                name,
                [f"{variant.method}/{variant.landmarks}".rstrip("/") for variant in all_variants()],
            )
        found |= dict.fromkeys(chosen)
    return tuple(found)


def default_sizes(spec: FitSpec, rows: Rows) -> tuple[int, ...]:
    """An eighth, a quarter, half and all of the default size of a fit, at most the number of rows."""
    most = resolve(FitSpec(components=spec.components), rows).size
    return tuple(sorted({max(most // share, 2) for share in _SHARES}))


def candidates(chosen: Sequence[MethodVariant], sizes: Sequence[int], seeds: int, n: int) -> Iterator[Candidate]:
    """All fits of the grid, small sizes first, so that a comparison that is stopped early has results."""
    grid: dict[Candidate, None] = {}
    for size in sorted(sizes):
        for seed in range(seeds):
            for variant in chosen:
                fits = min(size, n) if methods.named(variant.method).landmarks else variant.even(size)
                grid[Candidate(variant, fits, seed)] = None
    return iter(grid)


def feasible_fits(
    grid: Iterator[Candidate],
    rows: Rows,
    spec: FitSpec,
    limit: int | None,
    asked: Sequence[str] | None,
    progress: Progress,
) -> list[tuple[Candidate, FitSpec]]:
    """The candidates that suit the kernel and the memory limit, with their specs; notes those left out, each once.

    Raises SpecError if a method that was asked for by name does not suit the kernel, or if no candidate is left.
    """
    found: list[tuple[Candidate, FitSpec]] = []
    noted: set[tuple[MethodVariant, int]] = set()
    for candidate in grid:
        try:
            own = candidate.variant.spec(spec, candidate.size, candidate.seed)
            plan_fit(rows, own, Engine().threads).check(limit, f"{candidate.variant} is left out at {candidate.size:,}")
            found.append((candidate, own))
        except MemoryLimitError as error:
            _note_once(noted, candidate.variant, candidate.size, str(error), progress)
        except SpecError as error:
            if asked is not None:
                raise
            _note_once(noted, candidate.variant, 0, f"{candidate.variant} is left out: {error}", progress)
    if not found:
        raise SpecError("nothing is left to compare: allow more memory, or ask for smaller sizes")
    return found


def _note_once(
    noted: set[tuple[MethodVariant, int]], variant: MethodVariant, size: int, message: str, progress: Progress
) -> None:
    """Note a message once for each variant and size."""
    if (variant, size) not in noted:
        progress.note(message)
    noted.add((variant, size))
