"""What the certificate adds to the time of a fit."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from benchmarks.common import MEDIAN_DISTANCE, arguments, interleaved, median_ratio, repeated_dataset, seconds_of, table
from bigkpca.eigenproblem import certify
from bigkpca.engine import Engine, Silent, single_threaded_blas
from bigkpca.fitting import fit_rows
from bigkpca.sources import open_rows
from bigkpca.spec import FitSpec

COMPONENTS = 50


def main(argv: Sequence[str] | None = None) -> None:
    given = arguments(__doc__ or "", argv, rows=600_000, repeats=3)
    rows = open_rows(repeated_dataset(given.folder, given.rows))
    lines = []
    for method, landmarks in (("nystroem", "kmeans"), ("nystroem", "uniform"), ("columns", "uniform"), ("rff", "auto")):
        spec = FitSpec.checked(
            components=COMPONENTS, method=method, landmarks=landmarks, size=given.size, sigma=MEDIAN_DISTANCE
        )
        model = fit_rows(rows, spec, Engine(threads=2), Silent())

        def certificate_alone(model=model, spec=spec) -> None:
            with single_threaded_blas:
                certify(model.moments, model.features, model.solution, spec)

        seconds = interleaved(
            given.repeats,
            fit=lambda spec=spec: seconds_of(lambda: fit_rows(rows, spec, Engine(threads=2), Silent())),
            certificate=lambda alone=certificate_alone: seconds_of(alone),
        )
        share = median_ratio(seconds["certificate"], seconds["fit"])
        medians = [statistics.median(seconds[name]) for name in ("fit", "certificate")]
        lines.append([method, landmarks, given.rows, *medians, f"{share:.2%}"])
    header = ["method", "landmarks", "rows", "seconds of the fit", "of which the certificate", "share"]
    table(f"The certificate of {given.size} features; medians of {given.repeats}", header, lines)


if __name__ == "__main__":
    main()
