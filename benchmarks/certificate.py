"""The share of the certificate in the time of a fit, and the share of its bound with 95 % confidence."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from benchmarks.common import MEDIAN_DISTANCE, arguments, interleaved, median_ratio, repeated_dataset, seconds_of
from benchmarks.results import Results, table
from bigkpca.data.opening import open_rows
from bigkpca.execution.blas import single_threaded_blas
from bigkpca.execution.engine import Engine
from bigkpca.fitting.features import SizeLimits, choose_features
from bigkpca.fitting.fit import fit_rows
from bigkpca.fitting.solve import Checks, draw_of, first_basis, solve
from bigkpca.numerics.certificates import sample_of
from bigkpca.numerics.linalg import rank_tolerance
from bigkpca.numerics.model import Model
from bigkpca.numerics.rounding import MEASURED_ROWS
from bigkpca.spec import FitSpec, ResolvedFit, resolve

COMPONENTS = 50


def main(argv: Sequence[str] | None = None) -> Results:
    given = arguments(__doc__ or "", argv, rows=600_000, repeats=3)
    rows = open_rows(repeated_dataset(given.folder, given.rows))
    lines = []
    for method, landmarks in (("nystroem", "kmeans"), ("nystroem", "uniform"), ("columns", "uniform"), ("rff", "auto")):
        spec = FitSpec.checked(
            components=COMPONENTS, method=method, landmarks=landmarks, size=given.size, sigma=MEDIAN_DISTANCE
        )
        engine = Engine(threads=2)
        model = fit_rows(rows, spec, engine)
        fit = resolve(spec, rows)
        chosen = choose_features(rows, fit, SizeLimits(given.size), engine)
        measured = chosen.few[:MEASURED_ROWS]  # as a fit measures rounding
        with engine.small_work() as in_order:
            basis = first_basis(chosen.features, None, in_order)
        draw, kept = draw_of(chosen.features, basis, fit, measured, None), sample_of(model.certificate)
        residuals, drawn = (None, None) if draw is None or kept is None else (draw.residuals, kept[0])
        checks = Checks(measured, chosen.near_mean, rows.shape[0], measured, basis, residuals, drawn)
        few = replace(checks, drawn=None)

        def solved(
            checks: Checks = checks, model: Model = model, fit: ResolvedFit = fit, engine: Engine = engine
        ) -> None:
            with engine.small_work() as in_order:
                solve(model.moments, model.features, fit, checks, in_order)

        def solved_alone(model: Model = model, spec: FitSpec = spec) -> None:
            tolerance = rank_tolerance(model.features.dtype)
            assert model.moments is not None  # which only exact fits have not
            with single_threaded_blas:
                spec.method_value.solve(model.moments, model.features, COMPONENTS, spec.center, tolerance)

        seconds = interleaved(
            given.repeats,
            fit=partial(seconds_of, partial(fit_rows, rows, spec, engine)),
            solved=partial(seconds_of, solved),
            proven=partial(seconds_of, partial(solved, few)),
            alone=partial(seconds_of, solved_alone),
        )
        parts = [
            [whole - part for whole, part in zip(seconds["solved"], seconds[other], strict=True)]
            for other in ("alone", "proven")
        ]
        medians = [statistics.median(values) for values in (seconds["fit"], *parts)]
        shares = [f"{median_ratio(part, seconds['fit']):.1%}" for part in parts]
        lines.append([method, landmarks, given.rows, *medians, *shares])
    header = ["method", "landmarks", "rows", "fit, s", "certificate, s", "likely bound, s", "share", "of the bound"]
    return Results((table(f"The certificate of {given.size} features; medians of {given.repeats}", header, lines),))


if __name__ == "__main__":
    main()
