"""Draws the pictures of the README and the front page, for light and dark pages.

`overview` fits MNIST, from the files that `benchmarks/data.py` names; `times` draws a
table of docs/benchmarks.md. To run it: python -m docs.gallery.draw_readme
"""

from __future__ import annotations

import gzip
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import to_rgb
from matplotlib.ticker import LogLocator, StrMethodFormatter
from PIL import Image
from sklearn.decomposition import PCA

from benchmarks.data import SHARED, mnist
from bigkpca import KernelPCA

DOCS = Path(__file__).resolve().parents[1]
STYLE = Path(__file__).with_name("gallery.mplstyle")
INK = {"light": "#1f2328", "dark": "#e6edf3"}
TEN = {  # one colour for each digit
    "light": (
        *("#4e79a7", "#d37295", "#59a14f", "#b6992d", "#e15759"),
        *("#9c6fb6", "#499894", "#e07b1a", "#9d7660", "#6b6b6b"),
    ),
    "dark": (
        *("#7ba7d9", "#f1a7c1", "#7fd07a", "#f1ce63", "#ff8587"),
        *("#c9a0e0", "#86d6cf", "#ffb066", "#d7b5a6", "#c4c4c4"),
    ),
}
CELLS = (25, 21)  # of the map, across and up
NOISE, COMPONENTS = 64.0, 256


def digits_to_show() -> tuple[np.ndarray, np.ndarray]:
    """The 10,000 digits that are not fitted, and which digit each is."""
    with gzip.open(SHARED / "mnist" / "t10k-images-idx3-ubyte.gz") as images:
        X = np.frombuffer(images.read(), np.uint8, offset=16).reshape(-1, 784)
    with gzip.open(SHARED / "mnist" / "t10k-labels-idx1-ubyte.gz") as labels:
        return X, np.frombuffer(labels.read(), np.uint8, offset=8)


def on_a_grid(scores: np.ndarray) -> list[tuple[int, int, int]]:
    """(column, row, i) of each cell: the scores of row i are nearest to its centre."""
    low, high = np.percentile(scores, [0.1, 99.9], axis=0)
    places = (scores - low) / (high - low) * CELLS
    cells = np.floor(places).astype(int)
    far = np.linalg.norm(places - cells - 0.5, axis=1)
    nearest: dict[tuple[int, int], int] = {}
    for row in np.argsort(far):
        if (cells[row] >= 0).all() and (cells[row] < CELLS).all():
            nearest.setdefault((int(cells[row, 0]), int(cells[row, 1])), int(row))
    return [(*cell, row) for cell, row in nearest.items()]


def save(figure: plt.Figure, name: str) -> None:
    """As PNG without a background, in few steps of opacity: half the bytes."""
    path = DOCS / name
    figure.savefig(path, dpi=135, transparent=True)
    plt.close(figure)
    with Image.open(path) as image:
        pixels = np.array(image)
    pixels[..., 3] = np.round(pixels[..., 3] / 15) * 15
    pixels[pixels[..., 3] == 0] = 0
    Image.fromarray(pixels).save(path, optimize=True)
    print(f"{name}: {path.stat().st_size:,} bytes")


def overview() -> None:
    """Digits at their scores, and some with noise that PCA and kernel PCA remove."""
    X, (shown, digits) = mnist(), digits_to_show()
    scores = KernelPCA(2, size=1000, random_state=0).fit(X).transform(shown)
    noisy = shown + np.random.default_rng(0).normal(0, NOISE, shown.shape).astype(
        np.float32
    )
    errors = {}
    for components in (48, 64, 96, 128, 192):  # PCA at its best
        pca = PCA(components, svd_solver="covariance_eigh").fit(X)
        restored = pca.inverse_transform(pca.transform(noisy))
        errors[components] = rms(restored, shown), restored
    best = min(errors, key=lambda components: errors[components][0])
    kernel = KernelPCA(
        COMPONENTS,
        sigma=2601.0,
        size=1000,
        preimage="denoising",
        noise=NOISE,
        random_state=0,
    ).fit(X)
    lines = {
        "with noise": noisy,
        "PCA": errors[best][1],
        "kernel PCA": kernel.denoise(noisy),
        "original": shown,
    }
    print({components: round(error, 1) for components, (error, _) in errors.items()})
    print({name: round(rms(rows, shown), 1) for name, rows in lines.items()})
    for theme, ink in INK.items():
        with plt.style.context(
            [STYLE, {"text.color": ink, "font.size": 13, "axes.titlesize": 13}]
        ):
            draw(scores, shown, digits, lines, theme)


def rms(rows: np.ndarray, truth: np.ndarray) -> float:
    return float(np.sqrt(np.mean((rows - truth) ** 2.0)))


def ink_on_nothing(picture: np.ndarray, color: str) -> np.ndarray:
    """A picture as ink of one colour, with nothing behind it."""
    opacity = np.clip(picture.reshape(28, 28) / 255, 0, 1)
    return np.dstack([np.broadcast_to(to_rgb(color), (28, 28, 3)), opacity])


def draw(
    scores: np.ndarray,
    shown: np.ndarray,
    digits: np.ndarray,
    lines: dict[str, np.ndarray],
    theme: str,
) -> None:
    figure = plt.figure(figsize=(8, 3.7), layout="none")
    places = figure.add_axes((0.005, 0.0, 0.475, 0.9))
    for column, row, i in on_a_grid(scores):
        tile = ink_on_nothing(shown[i], TEN[theme][digits[i]])
        places.imshow(
            tile, extent=(column, column + 1, row, row + 1), interpolation="bilinear"
        )
    places.set(xlim=(0, CELLS[0]), ylim=(0, CELLS[1]), aspect="auto")
    figure.text(0.01, 0.94, "new images, mapped")
    places.axis("off")
    first = [int(np.flatnonzero(digits == digit)[4]) for digit in (2, 4, 5, 6, 8)]
    left, size = 0.655, 0.067
    for j, (name, rows) in enumerate(lines.items()):
        bottom = 0.685 - 0.225 * j
        for k, i in enumerate(first):
            ax = figure.add_axes(
                (left + k * size * 1.02, bottom, size, size * 8 / 3.7 * 1.4)
            )
            ax.imshow(ink_on_nothing(rows[i], INK[theme]), interpolation="bilinear")
            ax.axis("off")
        error = f"\nRMS error {rms(rows, shown):.0f}" if name != "original" else ""
        figure.text(left - 0.012, bottom + 0.1, name + error, ha="right", va="center")
    figure.text(0.99, 0.94, "and with noise removed", ha="right")
    save(figure, f"overview-{theme}.png")


def table_rows(page: str, title: str) -> list[list[str]]:
    """The cells of the table of a page whose title begins so, without its header."""
    if f"\n{title}" not in page:
        raise ValueError(
            f"no table begins with {title!r}: run python -m benchmarks peers"
        )
    lines = page.split(f"\n{title}", 1)[1].split("\n\n")[1].splitlines()
    return [[cell.strip() for cell in line[1:-1].split(" | ")] for line in lines[2:]]


def times(page: Path = DOCS / "benchmarks.md") -> None:
    """Seconds of bigkpca and scikit-learn against the angle to the exact components."""
    text = page.read_text(encoding="utf-8").split("\n## peers\n")[1]
    drawn = {"bigkpca": "bigkpca, in memory", "scikit-learn": "scikit-learn"}
    found = {  # by size: angle in degrees, seconds
        name: {
            int(line[1]): (np.degrees(np.arccos(float(line[-1]))), float(line[2]))
            for line in table_rows(text, "MNIST, ")
            if line[0] == program
        }
        for name, program in drawn.items()
    }
    compared = [
        (int(theirs), int(ours), float(ratio))
        for where, theirs, _, ours, _, ratio, *_ in table_rows(
            text, "By smallest cosine"
        )
        if where == "in memory" and ours.isdigit()
    ]
    shades = {"bigkpca": 0, "scikit-learn": 7}
    for theme, ink in INK.items():
        inks = ["text.color", "axes.labelcolor", "axes.edgecolor"]
        inks += ["xtick.color", "ytick.color"]
        sizes = {"font.size": 12, "axes.labelsize": 12, "axes.titlesize": 12}
        with plt.style.context([STYLE, dict.fromkeys(inks, ink), sizes]):
            figure, ax = plt.subplots(figsize=(7, 3.4))
            for name, points in found.items():
                color = TEN[theme][shades[name]]
                angles, seconds = np.array(list(points.values())).T
                ax.loglog(angles, seconds, "o-", color=color)
                last = angles[-1] / 1.1, seconds[-1]
                ax.text(*last, name, color=color, va="center", ha="left")
            for theirs, ours, ratio in compared:
                angle, seconds = found["scikit-learn"][theirs]
                _, least = found["bigkpca"][ours]
                ax.plot([angle, angle], [least, seconds], ":", color=ink, lw=1)
                middle = angle / 1.05, (least * seconds) ** 0.5
                ax.text(*middle, f"{ratio:.1f} ×", va="center", ha="left")
                label = f"{theirs:,}" + (
                    " landmarks" if theirs == compared[0][0] else ""
                )
                above = angle, seconds * 1.2
                ax.text(*above, label, color=color, ha="right", va="bottom", size=10)
            ax.set(xlabel="largest angle to the exact 20 components", ylabel="seconds")
            widest, narrowest = ax.get_xlim()[::-1]
            ax.set(xlim=(widest, narrowest / 3), ylim=(None, ax.get_ylim()[1] * 1.3))
            for axis, shown in (ax.xaxis, "{:g}°"), (ax.yaxis, "{:g}"):
                axis.set_major_locator(LogLocator(subs=(1, 3)))
                axis.set_major_formatter(StrMethodFormatter(shown.replace(":", "x:")))
            ax.minorticks_off()
            ax.set_title("60,000 × 784 rows, fit and transform, 2 cores")
            save(figure, f"times-{theme}.png")


if __name__ == "__main__":
    times()
    overview()
