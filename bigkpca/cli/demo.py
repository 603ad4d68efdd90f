"""Run everything once on real digits, and say how good the result is."""

from __future__ import annotations

import io
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import click
import numpy as np
from scipy.spatial.distance import cdist
from sklearn.datasets import load_digits

from bigkpca.cli.command import command
from bigkpca.cli.options import PATH, common
from bigkpca.cli.output import show_spectrum
from bigkpca.data.stores import store_of
from bigkpca.errors import Array
from bigkpca.execution.progress import Progress, ShownProgress
from bigkpca.ingesting import ingest
from bigkpca.numerics.model import Model
from bigkpca.reporting import installed, report
from bigkpca.workflows import fit, transform

T = TypeVar("T")


@dataclass(frozen=True)
class Demonstration:
    """The files that the demo wrote, and how good its scores are."""

    model: Model
    seconds: dict[str, float]  # of each step
    paths: dict[str, str]
    accuracy_scores: float  # nearest centroid, even rows train, odd rows test
    accuracy_pixels: float


def demonstrate(folder: str, progress: Progress) -> Demonstration:
    """Write scikit-learn's 1797 digits into `folder`, ingest them, fit 20 components, transform, and draw a report
    where its extra is installed."""
    store, folder = store_of(folder), folder.rstrip("/") or folder or "."
    raw, dataset, model_path, scores_path = (
        f"{folder}/{name}" for name in ("digits.npz", "digits.zarr", "model.zarr", "scores.zarr")
    )
    digits = load_digits()
    pixels = digits.data.astype(np.uint8)
    if not store.exists(raw):  # written once, so that running the demo again finds everything done
        content = io.BytesIO()
        np.savez_compressed(content, pixels=pixels, digit=digits.target)
        with store.writer(raw):  # which makes the folder
            store.write(raw, content.getvalue())
    seconds: dict[str, float] = {}

    def timed(step: str, work: Callable[[], T]) -> T:
        started = time.perf_counter()
        result = work()
        seconds[step] = time.perf_counter() - started
        return result

    timed("ingest", lambda: ingest([raw], dataset, member="pixels", labels="digit", progress=progress))
    model = timed("fit", lambda: fit.fit(dataset, model_path, components=20, seed=0, progress=progress))
    scores = timed("transform", lambda: transform.transform(model_path, dataset, scores_path, progress=progress))
    paths = {"dataset": dataset, "model": model_path, "scores": scores_path}
    if installed():
        page = f"{folder}/report.html"
        shown: dict[str, Any] = {"scores": scores_path, "image_shape": (8, 8), "overwrite": True, "progress": progress}
        paths["report"] = timed("report", lambda: report(model_path, page, **shown))
    return Demonstration(
        model=model,
        seconds=seconds,
        paths=paths,
        accuracy_scores=_nearest_centroid_accuracy(np.asarray(scores[:]), digits.target),
        accuracy_pixels=_nearest_centroid_accuracy(pixels, digits.target),
    )


def _nearest_centroid_accuracy(X: Array, labels: Array) -> float:
    X = X.astype(np.float64)
    centroids = np.stack([X[::2][labels[::2] == label].mean(axis=0) for label in range(10)])
    nearest = cdist(X[1::2], centroids).argmin(axis=1)
    return float((nearest == labels[1::2]).mean())


@command(
    "bigkpca demo",
    "bigkpca demo my-folder",
)
@click.argument("folder", default="bigkpca-demo", metavar="[DIR]", type=PATH)
@common
def demo(folder: str, quiet: bool) -> None:
    """Run ingest, fit, transform and report on 1797 real digits, and write all files to DIR."""
    from bigkpca.reporting import INSTALL
    from bigkpca.storage.describe import model_info

    shown = demonstrate(folder, ShownProgress(quiet))
    facts = model_info(shown.model, shown.paths["model"])
    click.echo(f"sigma = {facts['kernel']['sigma']:.4g} (the median pair of digits has k = exp(-1))")
    show_spectrum(facts)
    click.echo(
        f"nearest-centroid accuracy: {shown.accuracy_scores:.1%} from {facts['components']} scores, "
        f"{shown.accuracy_pixels:.1%} from {facts['columns']} pixels"
    )
    click.echo("seconds: " + ", ".join(f"{step} {seconds:.2f}" for step, seconds in shown.seconds.items()))
    for name, path in shown.paths.items():
        click.echo(f"{name:<8} {path}")
    if "report" not in shown.paths:
        click.echo(f"for a page of figures: {INSTALL}")
