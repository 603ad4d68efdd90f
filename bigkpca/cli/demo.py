"""Run everything once on real digits, and print how good the result is."""

from __future__ import annotations

import io

import click
import numpy as np
from scipy.spatial.distance import cdist
from sklearn.datasets import load_digits

from bigkpca.cli.command import command
from bigkpca.cli.options import PATH, common
from bigkpca.cli.printing import show_spectrum
from bigkpca.data.stores import store_of
from bigkpca.errors import Array
from bigkpca.execution.progress import ShownProgress
from bigkpca.ingesting import ingest
from bigkpca.plots.style import INSTALL, installed
from bigkpca.reporting import report
from bigkpca.storage.describe import model_info
from bigkpca.workflows import fit, transform


def _accuracy(X: Array, labels: Array) -> float:
    """The share of odd rows whose nearest centroid, taken over the even rows, is that of their own label."""
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
    """Run ingest, fit, transform and report on 1797 images of digits, and write all files to DIR."""
    store, folder, progress = store_of(folder), folder.rstrip("/") or folder or ".", ShownProgress(quiet)
    raw = f"{folder}/digits.npz"
    paths = {"dataset": f"{folder}/digits.zarr", "model": f"{folder}/model.zarr", "scores": f"{folder}/scores.zarr"}
    digits = load_digits()
    pixels = digits.data.astype(np.uint8)
    if not store.exists(raw):  # written once, so that a rerun of the demo finds everything done
        content = io.BytesIO()
        np.savez_compressed(content, pixels=pixels, digit=digits.target)
        with store.writer(raw):  # which makes the folder
            store.write(raw, content.getvalue())
    ingest([raw], paths["dataset"], member="pixels", labels="digit", progress=progress)
    model = fit.fit(paths["dataset"], paths["model"], n_components=20, random_state=0, progress=progress)
    scores = transform.transform(paths["model"], paths["dataset"], paths["scores"], progress=progress)
    if installed():
        paths["report"] = f"{folder}/report.html"
        report(
            paths["model"],
            paths["report"],
            scores=paths["scores"],
            image_shape=(8, 8),
            overwrite=True,
            progress=progress,
        )
    facts = model_info(model, paths["model"])
    click.echo(f"sigma = {facts['kernel']['sigma']:.4g} (from the median distance between digits)")
    show_spectrum(facts)
    click.echo(
        f"nearest-centroid accuracy: {_accuracy(np.asarray(scores[:]), digits.target):.1%} from {facts['components']} "
        f"scores, {_accuracy(pixels, digits.target):.1%} from {facts['columns']} pixels"
    )
    for name, path in paths.items():
        click.echo(f"{name:<8} {path}")
    if "report" not in paths:
        click.echo(f"for a report with figures: {INSTALL}")
