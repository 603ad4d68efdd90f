"""The page of a report: sections, each a title, text and cards with figures, pictures or tables, rendered by Jinja."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bigkpca.data.rows import ArrayRows, take
from bigkpca.errors import Array, SpecError
from bigkpca.evaluating import reconstructed
from bigkpca.execution.blas import single_threaded_blas
from bigkpca.execution.engine import Engine
from bigkpca.execution.projection import restored_rows
from bigkpca.fitting.preimage import of_leading
from bigkpca.numerics.calibration import usual_errors
from bigkpca.numerics.display import at_most, number
from bigkpca.numerics.linear_pca import Captured, spread
from bigkpca.numerics.model import Model
from bigkpca.plots.along import STEPS, walk_along
from bigkpca.plots.pictures import PictureFrame
from bigkpca.plots.tables import relations
from bigkpca.reporting import figures, text
from bigkpca.reporting.drawing import Drawing
from bigkpca.reporting.report_data import ReportData
from bigkpca.workflows.flags import FlaggedRows


@dataclass(frozen=True)
class Pictures:
    """A strip of pictures as a data URI, with its text alternative and caption."""

    uri: str
    alt: str
    caption: str


@dataclass(frozen=True)
class ReportTable:
    """Column titles and rows of a table."""

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    words: bool = False  # whether the first column is text


@dataclass(frozen=True)
class Card:
    """One figure, strip of pictures or table, with a title and a text on how to read it."""

    title: str
    text: str = ""
    drawing: Drawing | None = None
    pictures: tuple[Pictures, ...] = ()
    tables: tuple[ReportTable, ...] = ()


@dataclass(frozen=True)
class Section:
    """A titled group of cards."""

    title: str
    text: str
    cards: tuple[Card, ...]
    table: ReportTable | None = None  # collapsed, below the cards


_SHOWN = 5  # columns shown for each component
_MUCH = 0.2  # share of a component that a column explains, from which on the headline names it
READING = (
    "A column explains a share of the scores of a component: by a straight line, or by the means of its categories. "
    "Below the columns are the rows with the lowest and the highest scores."
)


def named_columns(data: ReportData) -> str:
    """The column that explains most of each of the first components, in a sentence; if it explains much."""
    if data.sample is None or data.scores is None or not data.columns:
        return ""
    at, rows = data.sample
    found = [
        f"{best.column.name} explains {best.share:.0%} of component {j + 1}"
        for j in range(min(3, data.scores.shape[1]))
        for best in relations(rows, data.scores[at, j], data.columns)[:1]
        if best.share >= _MUCH
    ]
    return f" Of the columns, {', '.join(found)}." if found else ""


def column_tables(
    data: ReportData, y: Array, at: Array, names: Sequence[str], rows: Array, walk: Array | None = None
) -> tuple[ReportTable, ...]:
    """The columns that go with scores y, and these rows (k, d), whose scores are y[at], with their values in them; and
    the values in pre-images `walk` (7, d) along the component."""
    assert data.sample is not None
    every = relations(data.sample[1], y[data.sample[0]], data.columns)[:_SHOWN]
    found = [each for each in every if each.share >= 0.005]  # less is shown as 0 %
    columns = [each.column for each in found] or data.columns[:_SHOWN]
    head = ("row", "score", *(column.name for column in columns))
    scores = [f"{value:.4g}".replace("-", "−") for value in y[at]]
    values = [column.words(rows) for column in columns]
    of_rows = ReportTable(head, tuple(zip(names, scores, *values, strict=True)))
    others: tuple[ReportTable, ...] = (of_rows,)
    if walk is not None:
        steps = [f"{step:+d}".replace("-", "−").replace("+0", "0") for step in STEPS]
        nearest = zip(steps, *(column.nearest(walk) for column in columns), strict=True)
        others += (ReportTable(("deviations", *(column.name for column in columns)), tuple(nearest)),)
    if not found:
        return others
    lines = []
    for each in found:
        unit = f" ({each.column.unit})" if each.column.unit else ""
        how = f"correlation {each.correlation or 0:+.2f}".replace("-", "−")
        if each.ends is not None:
            how = f"lowest mean {each.ends[0]}, highest {each.ends[1]}"
        lines.append((each.column.name + unit, f"{each.share:.0%}", how))
    return ReportTable(("column", "explains", "how"), tuple(lines), words=True), *others


_COMPONENTS = 6  # components shown with pre-images and extreme rows
_PAIRS = 8  # rows shown with their pre-images
_MOST_COLUMNS = 30  # of the table of what all scores explain
_ALONG = (
    "The first strip of each component shows pre-images of points on its axis, from 2 standard deviations below the "
    "mean to 2 above."
)
_ALONG_TABLE = (
    "Last are pre-images of points on the axis of the component, from 2 standard deviations below the mean to 2 above; "
    "a column of categories shows the nearest one."
)


def quality(model: Model) -> Section:
    """The section on the accuracy of the approximation."""
    certificate = model.certificate
    bars = "Dots: this model. No bound is known."
    if certificate.confidence:
        bars = f"Dots: this model. Bars: from what is proven to the bound with {certificate.confidence:.0%} confidence."
    cards = [Card("Spectrum", bars, figures.spectrum(model))]
    if drawing := figures.trust(model):
        lines = (
            "Below the lower line a component is solid, or fair where more than a third of its eigenvalue may have "
            "been missed; between the lines it is fair, above them doubtful."
        )
        cards.append(Card("Trust", lines, drawing))
    columns: dict[str, list[str]] = {
        "component": [str(number + 1) for number in range(model.components)],
        "eigenvalue": [number(value) for value in model.solution.eigenvalues],
        "share": [f"{value:.2%}" for value in model.solution.explained_variance_ratio],
    }
    if certificate.estimates:
        columns["exact (estimate)"] = list(certificate.estimates)
    if certificate.confidence:
        columns[f"at most, {certificate.confidence:.0%}"] = [number(at_most(value)) for value in certificate.upper]
    columns["trust"] = list(certificate.trust)
    table = ReportTable(tuple(columns), tuple(zip(*columns.values(), strict=True)))
    return Section("How accurate is it?", "", tuple(cards), table)


def capture(model: Model, data: ReportData) -> Section:
    """The section on what the components hold in feature space, and on the columns that their scores explain together,
    beside linear PCA."""
    cards = [Card("Share of variance in feature space", "Sum over the leading components.", figures.cumulative(model))]
    if (found := data.captured) is not None:
        cards.append(_explained(found, model.variables))
    return Section("What do they capture?", "", tuple(cards))


_FITTED = {False: "was not fitted", True: "was fitted", None: "may have been fitted"}


def _explained(found: Captured, variables: Mapping[str, slice]) -> Card:
    """Shares of the variance of the columns, by scores and by linear PCA."""
    shares = {"all columns": found.shares, **(found.of_columns(variables) if len(variables) > 1 else {})}
    lines = [(name, f"{ours:.0%}", f"{pca:.0%}") for name, (ours, pca) in list(shares.items())[: _MOST_COLUMNS + 1]]
    r = found.components
    head = ("column", f"{r} scores" if r > 1 else "the score", f"linear PCA, {r} component{'s' * (r > 1)}")
    about = (
        f"Share of the variance of {found.held_out:,} rows, in the units of the model, that a linear function "
        "of the scores explains, and that linear PCA explains. Both were fitted to "
        f"{found.rows:,} other rows. Kernel PCA {_FITTED[found.seen]} to the judged rows."
    )
    if len(shares) > len(lines):
        about += f" The {_MOST_COLUMNS} of {len(shares) - 1:,} columns with the largest shares are shown."
    return Card("Explained by all scores together", about, tables=(ReportTable(head, tuple(lines), words=True),))


def score_plots(model: Model, data: ReportData) -> Section | None:
    """The section with scatter plots of the scores of the first components."""
    Y = data.scores
    if Y is None:
        return None
    pairs = [(0, 1), (2, 3)] if Y.shape[1] >= 4 else [(0, 1)] if Y.shape[1] >= 2 else []
    best = text.best_component(data)
    if best is not None and pairs and best > pairs[-1][1]:  # which the headline names
        pairs.append((0, best))
    cards = [Card(f"Components {a + 1} and {b + 1}", "", figures.scores(Y, (a, b), data.labels)) for a, b in pairs] or [
        Card("Component 1", "", figures.histogram(Y[:, 0], "scores-1", "score"))
    ]
    every = "all" if len(Y) == data.total else f"{len(Y):,} of"
    caption = f"Scores of {every} {data.total:,} rows"
    caption += ", in 64 evenly spaced stretches." if len(Y) < data.total else "."
    if len(Y) > figures.MAX_POINTS:
        caption += " A dot stands for the rows around it: the larger, the more"
        caption += "; its colour is that of their most frequent label." if data.labels else "."
    if data.labels is not None:
        caption += " Names of labels are at the centres of their dots, or a line leads there."
    return Section("What did it find?", caption, tuple(cards))


def drift(_: Model, data: ReportData) -> Section | None:
    """The section on the drift of the runs of a job."""
    if not data.drift:
        return None
    reading = "At least this share of the new rows would have to be others to be distributed as those of the fit."
    head = ("run", "finished (UTC)", "drift", "threshold", "rows compared", "rows outside")
    lines = [
        (
            str(each.run),
            each.finished[:16].replace("T", " "),
            f"{each.figure:.3f}",
            f"{each.threshold:g}",
            f"{each.rows:,}",
            f"{each.outside:,}",
        )
        for each in data.drift
    ]
    card = Card("Drift of each run", reading, figures.drift(data.drift))
    return Section("Do new rows look like those of the fit?", "", (card,), ReportTable(head, tuple(lines)))


def components(model: Model, data: ReportData) -> Section | None:
    """The section on the meaning of the leading components: pre-images along each, and the rows at its ends."""
    frame = _frame(data, model)
    walks = _walks(model, frame) if frame else {}
    if walks:
        count = model.components
    elif data.scores is not None:
        count = data.scores.shape[1]
    else:
        return None
    shown, best = list(range(min(_COMPONENTS, count))), text.best_component(data)
    if best is not None and best not in shown:  # which the headline names
        shown.append(best)
    cards = tuple(_component(model, data, frame, j, walks.get(j)) for j in shown)
    as_words = data.columns and model.decoder and not frame
    readings = [
        _ALONG * bool(walks),
        READING * bool(data.columns),
        _ALONG_TABLE * bool(as_words),
    ]
    return Section("What do the components mean?", " ".join(filter(None, readings)), cards)


def _component(model: Model, data: ReportData, frame: PictureFrame | None, j: int, walk: Pictures | None) -> Card:
    trust, share = model.certificate.trust, model.solution.explained_variance_ratio[j]
    title = f"Component {j + 1}: {share:.1%} of the variance" + (f", {trust[j]}" if trust else "")
    pictures = [walk] if walk else []
    note, tables = "", tuple[ReportTable, ...]()
    if data.scores is not None and j < data.scores.shape[1]:
        y = data.scores[:, j]
        extremes = text.extremes(y)
        if data.labels is not None and len(data.labels.names) > 1:
            explained = text.explained_by_labels(y[:, None], data.labels)[0]
            note = f"Labels explain {explained:.0%} of it.{text.extreme_labels(y, data.labels)}"
        if frame and data.rows is not None:
            pictures += [_row_pictures(data, frame, f"{word.capitalize()} scores", at) for word, at in extremes.items()]
        elif data.sample and data.columns:
            at = np.concatenate(list(extremes.values()))
            walked = None if model.decoder is None else walk_along(model, j).rows
            tables = column_tables(data, y, at, _row_names(data, at), _rows(data, at), walked)
        else:
            head = tuple(part for word in extremes for part in (f"{word} score", "row"))
            columns: list[list[str]] = []
            for at in extremes.values():
                columns += [[f"{value:.4g}" for value in y[at]], _row_names(data, at)]
            tables = (ReportTable(head, tuple(zip(*columns, strict=True))),)
    return Card(title, note, None, tuple(pictures), tables)


def _row_pictures(data: ReportData, frame: PictureFrame, title: str, at: Array) -> Pictures:
    assert data.rows is not None
    named = "rows " + ", ".join(_row_names(data, at))
    return Pictures(frame.strip(_rows(data, at)), f"Pictures of {named}", f"{title}: {named}")


def _row_names(data: ReportData, at: Array) -> list[str]:
    """Row numbers at these positions, with labels if there are any."""
    numbers = [f"{number:,}" for number in data.numbers[at]]
    if data.labels is None:
        return numbers
    return [f"{number} ({word})" for number, word in zip(numbers, data.labels.values[at], strict=True)]


def _rows(data: ReportData, at: Array) -> Array:
    """The rows (k, d) at these positions, in the order given."""
    assert data.rows is not None
    numbers, back = np.unique(data.numbers[at], return_inverse=True)
    return take(data.rows, numbers)[back]


def _frame(data: ReportData, model: Model) -> PictureFrame | None:
    """The frame for pictures of rows, from the data, or else from pre-images along the first component."""
    if data.shape is None:
        return None
    if data.rows is not None:
        return PictureFrame.of(data.shape, _rows(data, np.linspace(0, len(data.numbers) - 1, 256).astype(np.intp)))
    if model.decoder is None:
        return None
    return PictureFrame.of(data.shape, walk_along(model, 0).rows)


def _walks(model: Model, frame: PictureFrame) -> dict[int, Pictures]:
    """Pictures of pre-images along each leading component; empty if the model has no pre-images."""
    if model.decoder is None:
        return {}
    found = {}
    for j in range(min(_COMPONENTS, model.components)):
        along = walk_along(model, j)
        rows, far = along.rows, along.far
        change = float(np.linalg.norm(rows[-1] - rows[0]) / np.linalg.norm(rows[len(STEPS) // 2]))
        lost = f"; {far.sum()} of them are too far from all data, and the mean is shown" if far.any() else ""
        alt = (
            f"Pre-images at −2 to 2 standard deviations along component {j + 1}; the last differs from the first by "
            f"{change:.0%} of the length of the middle one{lost}"
        )
        caption = f"Along the axis, −2 to 2 standard deviations{lost}"
        found[j] = Pictures(frame.strip(rows), alt, caption)
    return found


def preimages(model: Model, data: ReportData) -> Section | None:
    """The section that compares rows with the pre-images of their scores, and with their reconstruction by PCA."""
    if data.sample is None or data.scores is None or model.decoder is None:
        return None
    used = of_leading(model, data.scores.shape[1])
    at, rows = data.sample
    with single_threaded_blas:
        found = reconstructed(used, rows, data.scores[at], seen=data.seen)
    frame, r = _frame(data, model), used.components
    if found is None:
        return None
    lost = {"pre-images": (found.by_preimages, found.lost.by_preimages)}
    about = f"Share of the variance of {len(found.numbers):,} rows that is lost."
    if found.by_pca is not None and found.lost.by_pca is not None:
        lost["linear PCA"] = found.by_pca, found.lost.by_pca
        about += f" PCA was fitted to {found.lost.rows:,} other rows."
    fitted = f" Kernel PCA {_FITTED[found.lost.seen]} to the judged rows, too, which favours it if they are few"
    about += f"{fitted}: see bigkpca evaluate."
    lines = [(f"{name} of {r} components", f"{share:.1%}") for name, (_, share) in lost.items()]
    cards = [
        Card("Error of reconstruction", about, tables=(ReportTable(("method", "lost"), tuple(lines), words=True),))
    ]
    if frame:
        seen = spread(len(found.numbers), _PAIRS)
        shown = found.numbers[seen]
        caption = "Rows " + ", ".join(_row_names(data, at[shown]))
        below = " and ".join(f"{name}, {share} lost" for name, share in lines)
        strip = frame.strip(rows[shown], *(restored[seen] for restored, _ in lost.values()))
        pictures = Pictures(strip, f"{caption}, and below them {below}", caption)
        cards.append(Card(f"Rows above, {' and '.join(lost)} below", pictures=(pictures,)))
    return Section("What do they keep of a row?", "", tuple(cards))


def novelty(model: Model, data: ReportData) -> Section | None:
    """The section on residuals, |φ(x) − φ^(x)|², and the rows with the largest."""
    if data.residual is None:
        return None
    values = data.residual
    cards = [Card("Residuals", "", figures.histogram(values, "residual", "residual |φ(x) − φ^(x)|²"))]
    most = text.extremes(values)["highest"]
    frame = _frame(data, model)
    if frame and data.rows is not None:
        cards.append(Card("Rows least like the others", pictures=(_row_pictures(data, frame, "Largest first", most),)))
    else:
        lines = zip(_row_names(data, most), (f"{value:.4g}" for value in values[most]), strict=True)
        cards.append(Card("Rows least like the others", tables=(ReportTable(("row", "residual"), tuple(lines)),)))
    return Section(
        "What is new?",
        "The residual of a row is what its scores do not explain. It is large for rows unlike the fitted ones.",
        tuple(cards),
    )


_CONTRIBUTING = 3  # columns that the table names for each unusual row
_STATISTIC = (
    "The statistic of a row is the sum of its residual and of its distance from the mean, each divided by its mean "
    "over the fitted rows."
)
_DIFFERENT = (
    "Columns contribute most if they differ most from the pre-image of the row, in multiples of the usual error."
)


def unusual(model: Model, data: ReportData) -> Section | None:
    """The section on flagged rows: how many there are, what chance explains, and the most unusual ones."""
    if data.judged is None or data.flagged is None:
        return None
    cards = [Card("Residual and distance", "Flagged rows are beyond the line.", figures.unusual(data.judged))]
    if len(data.flagged.numbers):
        cards.append(_most_unusual(model, data, data.flagged))
    about = f"{data.flagged.share.compared(model.check_calibrated())}. {_STATISTIC}"
    return Section("Which rows are unusual?", about, tuple(cards))


def _most_unusual(model: Model, data: ReportData, found: FlaggedRows) -> Card:
    """The most unusual rows, with their pictures or the columns that contribute most."""
    numbers = [f"{number:,}" for number in found.numbers]
    columns = {"row": numbers, "statistic": [f"{value:.4g}" for value in found.statistic], "reason": found.reasons}
    frame, pictures, note = _frame(data, model), list[Pictures](), ""
    if data.rows is not None and model.decoder is not None:
        wanted, back = np.unique(found.numbers, return_inverse=True)
        rows = take(data.rows, wanted)[back]
        restored = _restored(model, rows)
        if frame:
            named, change = f"Rows {', '.join(numbers)}", rows - restored
            most = float(np.abs(change).max()) or 1.0
            signed = PictureFrame(frame.shape, -most, most)
            pictures = [
                Pictures(frame.strip(rows, restored), f"{named}, and below them their pre-images", named),
                Pictures(signed.strip(change), f"{named} minus their pre-images", "Minus pre-images: lighter is more"),
            ]
        elif names := data.rows.names or model.names:
            columns["columns"], note = _contributing(model, rows - restored, names), _DIFFERENT
    table = ReportTable(tuple(columns), tuple(zip(*columns.values(), strict=True)))
    return Card("Most unusual rows", note, pictures=tuple(pictures), tables=(table,))


def _restored(model: Model, rows: Array) -> Array:
    """The pre-images (k, d) of the scores of rows (k, d)."""
    return restored_rows(ArrayRows(rows), model, Engine()).astype(np.float64)


def _contributing(model: Model, change: Array, names: Sequence[str]) -> list[str]:
    """The columns that contribute most to what is unusual about rows that differ so from their pre-images, (k, d)."""
    known = model.check_calibrated().rows
    multiples = change / usual_errors(known, _restored(model, known))
    order = np.argsort(-np.abs(multiples), axis=1, kind="stable")[:, :_CONTRIBUTING]
    return [
        ", ".join(f"{names[j]} {row[j]:+.3g}".replace("-", "−") for j in most)
        for row, most in zip(multiples, order, strict=True)
    ]


def left_out(model: Model, data: ReportData) -> Iterator[str]:
    """What the report does not show, and the option that would show it."""
    yield from data.notes
    if data.scores is None:
        yield "scores, extreme rows and labels are left out: give --scores, or put the rows back"
    elif data.labels is None:
        yield "no labels: --labels gives some, or bigkpca ingest --labels keeps them with the rows"
    if data.scores is not None and data.residual is None and not model.features.precomputed:
        yield "no residuals: --scores of bigkpca transform --residual shows the rows least like the others"
    if data.scores is not None and data.flagged is None and model.calibration is not None:
        yield "no unusual rows: --scores of bigkpca transform --flag 1% shows them"
    if data.shape is None and not data.columns:
        yield "no pictures: rows have no image shape; --image-shape gives one"
        yield "no columns: the rows have no names of columns, which bigkpca ingest keeps from tables"
    elif data.shape is not None:
        try:
            model.check_preimages()
        except SpecError as error:
            yield f"no pre-images: {error}"


MARK = '<meta name="generator" content="bigkpca report">'  # distinguishes reports from other files


def render(**values: Any) -> str:
    """The HTML page with these values; texts are escaped, drawings inserted as they are."""
    from jinja2 import Environment, StrictUndefined

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    template = Path(__file__).with_name("page.html").read_text(encoding="utf-8")
    return environment.from_string(template).render(mark=MARK, **values)
