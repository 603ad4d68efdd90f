"""Text of a report: accuracy of the fit and what it captures, findings, provenance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from bigkpca.data.rows import ArrayRows
from bigkpca.errors import Array
from bigkpca.execution.plan import Plan
from bigkpca.fitting.messages import dominance
from bigkpca.numerics.certificate import accuracy, trustworthy
from bigkpca.numerics.display import at_most, share_at_least, share_at_most
from bigkpca.numerics.linear_pca import Captured, only_followed
from bigkpca.numerics.methods import Exact, Nystroem
from bigkpca.numerics.model import Model
from bigkpca.plots.rows import RowLabels
from bigkpca.reporting.report_data import ReportData
from bigkpca.spec import FitSpec
from bigkpca.storage.describe import whole_gram

_EXTREMES = 6  # rows at either end of a component
_MOST = 0.5  # of the variance


@dataclass(frozen=True)
class Tile:
    """One of the answers at the top of a report: its name, the answer in a few words, and a note."""

    name: str
    value: str
    note: str


def tiles(model: Model, data: ReportData | None = None) -> tuple[Tile, ...]:
    """How accurate the approximation is, its error, and what the components capture: in feature space, and of the
    columns, beside linear PCA."""
    found = model.captured if data is None else data.captured
    columns = () if found is None else (_columns(found, model.variables),)
    return _approximation(model), _error(model), _variance(model), *columns


_MEANING = "It says how well kernel PCA is known, not how useful it is."


def _approximation(model: Model) -> Tile:
    """How well kernel PCA of these rows is known, which says nothing about its use."""
    trust, r, name, whole = model.certificate.trust, model.components, "Approximation", whole_gram(model)
    exact = "The whole Gram matrix was solved: there is no error of approximation."
    word, part = accuracy(trust, model.solution.explained_variance_ratio)
    counts = ", ".join(f"{trust.count(each)} {each}" for each in ("solid", "fair", "doubtful") if each in trust)
    how = "rounding" if whole else "from residuals" if model.certificate.of_products else "estimated"
    count = r - trust.count("doubtful")
    note = f"{count} of {r} components are solid or fair: {counts} ({how})."
    if 0 < count < r:
        note += f" These {count} hold {share_at_least(part, 1)} of the variance that all {r} hold."
        note += f" The first doubtful one is component {trustworthy(trust) + 1}."
    if whole:
        return Tile(name, "Exact", f"{exact} {note}")
    if word != "accurate":
        better = "More products with the Gram matrix" if model.certificate.of_products else "A larger size"
        note += f" {better} would help."
    return Tile(name, word.capitalize(), f"{note} {_MEANING}")


_NAMED = 3  # columns that the tile names at either end


def _columns(found: Captured, places: dict[str, slice]) -> Tile:
    """What the scores explain of the columns, and linear PCA with as many components."""
    (ours, pca), r = found.shares, found.components
    scores, components = (f"all {r} scores", f"{r} components") if r > 1 else ("the score", "1 component")
    note = f"By a linear function of {scores}; linear PCA with {components}: {pca:.0%}."
    shares = {name: share for name, (share, _) in found.of_columns(places).items()}
    if (only := only_followed(shares)) is not None:
        note += f" The scores follow {only} only."
    elif len(shares) > 1:
        most = [f"{name} {share:.0%}" for name, share in list(shares.items())[:_NAMED]]
        least = [f"{name} {share:.0%}" for name, share in list(shares.items())[max(_NAMED, len(shares) - _NAMED) :]]
        note += f" Most of {', '.join(most)}" + (f"; least of {', '.join(least)}." if least else ".")
    return Tile("Captured of the columns", f"{ours:.0%}, PCA {pca:.0%}", note)


def _held_and_beyond(model: Model) -> tuple[float, float, float]:
    """Shares of the variance: in the components, in further ones, and out of reach of the model."""
    held = float(model.solution.explained_variance_ratio.sum())
    beyond = 0.0 if whole_gram(model) or model.certificate.of_products else model.certificate.unexplained
    return held, max(1 - held - beyond, 0.0), beyond


def _variance(model: Model) -> Tile:
    certificate, name = model.certificate, "Captured in feature space"
    held, further, beyond = _held_and_beyond(model)
    if certificate.of_products and model.solution.negative < 0:
        return Tile(name, "not known", "The kernel is not positive semidefinite on these rows.")
    value, note = f"about {held:.1%}", "Estimated."
    if certificate.proven:
        # The bounds of other methods come from the Nyström components of the same landmarks.
        own = FitSpec.of(model).method_value in (Nystroem(), Exact()) or certificate.of_products
        least = float(certificate.lower.sum()) / model.solution.total_variance
        value = f"at least {share_at_least(least, 1)}"
        note = "Proven." if own else f"Proven for the first {len(certificate.lower)} exact components."
        if held - least > 0.01:
            note += f" Estimated: {held:.1%}."
    if beyond < 1:
        note += f" More components would add {'less than 0.1%' if further < 0.001 else f'about {further:.1%}'}."
        if held < _MOST:
            advice = "keep more components" if further >= beyond else "fit with a larger size"
            longer = " or use a longer sigma" if model.features.kernel.stationary else ""
            note += f" To hold more, {advice}{longer}."
    return Tile(name, value, note)


def _error(model: Model) -> Tile:
    """The first error that is known makes the value, the others the note."""
    certificate, found, more = model.certificate, [], ""
    if whole_gram(model):
        return Tile("Error of approximation", "none", "The method is exact.")
    if certificate.of_products:
        found.append(
            (
                f"at most {at_most(certificate.residuals.max(), 2):.2g}",
                "Largest relative residual of a component (proven).",
            )
        )
    if certificate.unexplained < 1:
        reach = certificate.unexplained
        share = "less than 0.1%" if reach < 0.001 else f"at most {share_at_most(reach, 1)}"
        found.append((share, f"Variance out of reach of its {model.features.size:,} landmarks (proven)."))
    if certificate.confidence:
        missed = float(certificate.missed[0] * model.solution.eigenvalues[0])
        most = share_at_most(missed / (model.solution.total_variance * (1 - certificate.unexplained) + missed))
        more = f" No component with more than {most} of it was missed ({certificate.confidence:.0%} confidence)."
    (value, note), *others = found or [("not known", "")]
    also = "".join(f" {what[:-1]}: {figure}." for figure, what in others)
    return Tile("Error of approximation", value, note + more + also)


def findings(model: Model, data: ReportData) -> str:
    """What the leading components hold, and how they relate to the labels."""
    shares = model.solution.explained_variance_ratio
    half, r = int(np.searchsorted(np.cumsum(shares), shares.sum() / 2)) + 1, len(shares)
    together = f"; the first {half} of {r} hold half of what all {r} hold" if 1 < half < r else ""
    text = f"Component 1 holds {shares[0]:.1%} of the variance{together}."
    best = best_component(data)
    if best is None or data.labels is None or data.scores is None:
        return text
    explained = explained_by_labels(data.scores, data.labels)
    ends = extreme_labels(data.scores[:, best], data.labels)
    return f"{text} Component {best + 1} separates the labels best: they explain {explained[best]:.0%} of it.{ends}"


def dominant_column(model: Model, data: ReportData) -> str:
    """A sentence on the column that makes nearly all of the distances between rows, if there is one."""
    if data.sample is None:
        return ""
    rows = ArrayRows(data.sample[1], names=model.names, one_hot=model.one_hot)
    found = dominance(rows, rows.values, model.features, FitSpec.of(model))
    return "" if found is None else f" {found[0].upper()}{found[1:]}."


def best_component(data: ReportData) -> int | None:
    """The component that separates the labels best; None without at least two labels."""
    if data.labels is None or data.scores is None or len(data.labels.names) < 2:
        return None
    return int(explained_by_labels(data.scores, data.labels).argmax())


def explained_by_labels(scores: Array, labels: RowLabels) -> Array:
    """Share (r,) of the variance of scores (m, r) that lies between labels: variance of their means over the total."""
    between = np.zeros(scores.shape[1])
    centred = scores - scores.mean(axis=0)
    for name in labels.names:
        here = labels.values == name
        between += here.sum() * centred[here].mean(axis=0) ** 2
    total = np.einsum("ij,ij->j", centred, centred)
    return np.divide(between, total, out=np.zeros_like(between), where=total > 0)


def extreme_labels(values: Array, labels: RowLabels) -> str:
    """A sentence on the label of the rows at either end of values (m,), as far as these rows have the same label."""
    found = [
        f"the {len(at)} {word} scores have label {labels.values[at[0]]}"
        for word, at in extremes(values).items()
        if len(at) > 1 and len(set(labels.values[at].tolist())) == 1
    ]
    return f" T{' and '.join(found)[1:]}." if found else ""


def extremes(values: Array) -> dict[str, Array]:
    """Positions of the lowest and of the highest of values (m,), most extreme first."""
    order = np.argsort(values, kind="stable")
    return {"lowest": order[:_EXTREMES], "highest": order[::-1][:_EXTREMES]}


def provenance(model: Model, facts: dict[str, Any], written_by: str, plan: Plan | None) -> dict[str, str]:
    """What was fitted and how, as names and values of a table; the plan is None if the rows are gone."""
    identity, kernel = model.provenance["identity"], dict(facts["kernel"])
    name = kernel.pop("name")
    words = {key: f"{value:.6g}" if isinstance(value, float) else str(value) for key, value in kernel.items()}
    parameters = ", ".join(f"{key} {word}" for key, word in words.items())
    cost = {}
    if plan is not None:
        passes = f"{plan.passes} over the rows, beside a sample" if plan.passes else "the rows were in memory"
        cost = {
            "passes": f"{passes}, {plan.bytes_read / 1e6:,.0f} MB read",
            "memory of the fit": f"{plan.array_bytes / 1e6:,.0f} MB of arrays at most on this machine (planned)",
        }
    added = sum(more["shape"][0] for more in model.provenance.get("added", []))
    weights = facts["options"].get("column_weights")
    named = [f"{name} {weight:g}" for name, weight in weights.items()] if isinstance(weights, dict) else ["by column"]
    return {
        "method": facts["method"],
        "kernel": f"{name} ({parameters})" if parameters else name,
        "landmarks" if "landmarks" in facts else "random features": f"{model.features.size:,}",
        "components": f"{model.components:,}",
        "pre-image": facts["preimage"] or "none",
        **({"weights of columns": ", ".join(named)} if weights else {}),
        "data": identity["path"] or "an array in memory",
        "rows": f"{identity['shape'][0]:,} × {identity['shape'][1]:,}, {np.dtype(identity['dtype']).name}",
        **({"weight of the rows": f"{model.sums.weight:,.10g}"} if model.sums and model.weighted else {}),
        "precision": facts["dtype"],
        "seed": str(facts["random_state"]),
        **({"rows added later": f"{added:,}"} if added else {}),
        **cost,
        "written by": f"bigkpca {written_by}",
    }
