"""Text of a report: quality of the fit, findings, provenance."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from bigkpca.errors import Array
from bigkpca.execution.planning import Plan
from bigkpca.numerics.certificates import trustworthy
from bigkpca.numerics.display import at_most, share_at_least, share_at_most
from bigkpca.numerics.methods import Exact, Nystroem
from bigkpca.numerics.model import Model
from bigkpca.reporting.report_data import Labels, ReportData
from bigkpca.spec import FitSpec
from bigkpca.storage.describe import whole_gram

_NEARLY_ALL, _MOST = 0.95, 0.5  # shares of the variance that components hold, or of all variance


def verdict(model: Model) -> str:
    """How good the fit is: trust of its components, share of variance, and what it leaves out."""
    certificate, trust = model.certificate, model.certificate.trust
    shares = model.solution.explained_variance_ratio
    if whole_gram(model):
        parts = ["Exact: the whole Gram matrix was solved, there is no error of approximation."]
        if trust is not None and set(trust) != {"solid"}:
            parts.append(_counts(trust, "rounding"))
    elif trust is None:
        parts = ["Nothing is known of how far its components can be trusted: fit with a larger size to find out."]
    else:
        known = "estimated" if certificate.residuals is None else "from residuals"
        more = "a larger size" if certificate.residuals is None else "more products with the Gram matrix"
        parts = [components_verdict(trust, shares, more), _counts(trust, known)]
    return " ".join([*parts, *_held(model), *_rest(model)])


def components_verdict(trust: tuple[str, ...], shares: Array, more: str) -> str:
    """The verdict on components with these shares (r,) of the variance; `more` is what would improve them.

    Doubtful components count by their share of variance, since small ones at the end of a spectrum matter little.
    """
    r, trusted = len(trust), np.array([word != "doubtful" for word in trust])
    count, held = int(trusted.sum()), float(shares.sum())
    of_held = float(shares[trusted].sum()) / held
    who = f"{count} of {r} components" if count < r else f"all {r} components" if r > 1 else "its only component"
    told = f"{who} can be trusted" + (
        "" if count == r else f", and those hold {share_at_least(of_held, 1)} of what all do"
    )
    if not count:
        return f"Not good: no component can be trusted; {more} would help."
    if of_held < _MOST:
        return f"Not good: only {told}; {more} would help."
    if of_held < _NEARLY_ALL:
        word = "Of limited use" if held < _MOST else "Good in part"
        return f"{word}: {told}; {more} would help."
    if held < _MOST:
        return f"Sound but incomplete: {told}, but most of the variance lies outside."
    return f"Good: {told}."


def _counts(trust: tuple[str, ...], known: str) -> str:
    """The number of solid, fair and doubtful components."""
    counts = ", ".join(f"{trust.count(word)} {word}" for word in ("solid", "fair", "doubtful") if word in trust)
    first = trustworthy(trust)
    where = f"; the first doubtful one is component {first + 1}" if 0 < first < len(trust) else ""
    return f"Trust: {counts} ({known}){where}."


def _held(model: Model) -> Iterator[str]:
    """The share of variance that the components hold."""
    low = model.certificate.explained_variance_ratio_lower
    if not _knows_total(model):
        yield "How much of the variance they hold is not known: the kernel is not positive semidefinite here."
    elif low is None:
        total = float(model.solution.explained_variance_ratio.sum())
        yield f"Together they hold about {total:.1%} of the variance (estimated)."
    else:
        who = "Together they" if _bounds_are_its_own(model) else f"The first {len(low)} exact components"
        yield f"{who} hold at least {share_at_least(float(low.sum()), 1)} of the variance (proven)."


def _rest(model: Model) -> Iterator[str]:
    """The variance that the components leave out: what more of them would hold, and what the model cannot reach."""
    certificate, exact = model.certificate, whole_gram(model)
    held = float(model.solution.explained_variance_ratio.sum())
    reach = None if exact else certificate.relative_trace_error
    beyond = 0.0 if exact or certificate.residuals is not None else reach
    if not _knows_total(model):
        beyond = None
    if beyond is not None:
        further = max(1 - held - beyond, 0.0)
        yield f"Further components would hold {'less than 0.1%' if further < 0.001 else f'about {further:.1%}'}."
    if reach is not None:
        many = f"{model.features.size:,} landmarks"
        share = "Less than 0.1%" if reach < 0.001 else f"At most {share_at_most(reach, 1)}"
        yield f"{share} of the variance is out of reach of its {many} (proven)."
    if beyond is not None and held < _MOST:
        yield _advice(model, further, beyond)
    if certificate.spectral_error_likely is not None:
        missed = certificate.spectral_error_likely
        most = share_at_most(missed / (_explained(model) + missed))
        yield f"No component with more than {most} of it was missed ({certificate.confidence:.0%} confidence)."
    if certificate.kernel_error is not None:
        yield f"The kernel matrix is off by {certificate.kernel_error:.1%} of its norm (estimated)."
    if certificate.residuals is not None:
        yield f"The largest relative residual is {at_most(certificate.residuals.max(), 2):.2g} (proven)."


def _knows_total(model: Model) -> bool:
    """Whether the total variance is known.

    For an indefinite kernel it is the sum of the positive eigenvalues, of which products with the Gram matrix find the
    leading ones only.
    """
    return model.certificate.residuals is None or model.solution.negative == 0


def _bounds_are_its_own(model: Model) -> bool:
    """Whether lower bounds of eigenvalues hold for the components of the model itself.

    For methods other than these, the bounds come from the Nyström components of the same landmarks.
    """
    return FitSpec.of(model).method_value in (Nystroem(), Exact()) or model.certificate.residuals is not None


def _explained(model: Model) -> float:
    """A variance that the landmarks are proven to explain."""
    certificate, method = model.certificate, FitSpec.of(model).method_value
    if method == Nystroem() or certificate.eigenvalue_lower is None:
        return model.solution.total_variance - (certificate.trace_error or 0.0)
    return float(certificate.eigenvalue_lower.sum())  # those of other methods may add up to more


def _advice(model: Model, further: float, beyond: float) -> str:
    """Advice on how to hold more of the variance."""
    longer = " or take a longer sigma" if model.features.kernel.stationary else ""
    return f"To hold more, {'keep more components' if further >= beyond else 'fit with a larger size'}{longer}."


def findings(model: Model, data: ReportData) -> str:
    """What the leading components hold, and how they relate to the labels."""
    shares = model.solution.explained_variance_ratio
    half = int(np.searchsorted(np.cumsum(shares), shares.sum() / 2)) + 1
    text = (
        f"Component 1 holds {shares[0]:.1%} of the variance, and {half} of {len(shares)} components hold half of what "
        "all of them do."
    )
    if data.labels is None or data.scores is None or len(data.labels.names) < 2:
        return text
    explained, best = explained_by_labels(data.scores, data.labels), best_component(data)
    assert best is not None  # there are labels
    return text + (
        f" Component {best + 1} tells the labels apart best: they explain {explained[best]:.0%} of it, "
        f"{extreme_labels(data.scores[:, best], data.labels)}."
    )


def best_component(data: ReportData) -> int | None:
    """The component that tells the labels apart best; None where there are none to tell apart."""
    if data.labels is None or data.scores is None or len(data.labels.names) < 2:
        return None
    return int(explained_by_labels(data.scores, data.labels).argmax())


def explained_by_labels(scores: Array, labels: Labels) -> Array:
    """Share (r,) of the variance of scores (m, r) that lies between labels: variance of their means over the total."""
    between = np.zeros(scores.shape[1])
    centred = scores - scores.mean(axis=0)
    for name in labels.names:
        here = labels.values == name
        between += here.sum() * centred[here].mean(axis=0) ** 2
    total = np.einsum("ij,ij->j", centred, centred)
    return np.divide(between, total, out=np.zeros_like(between), where=total > 0)


def extreme_labels(values: Array, labels: Labels) -> str:
    """The labels with the smallest and the largest mean of values (m,). Single rows at the ends may have others."""
    means = [values[labels.values == name].mean() for name in labels.names]
    low, high = labels.names[int(np.argmin(means))], labels.names[int(np.argmax(means))]
    return f"with the lowest mean score for {low} and the highest for {high}"


def provenance(model: Model, facts: dict[str, Any], written_by: str, plan: Plan | None) -> dict[str, str]:
    """What was fitted and how, as names and values of a table.

    `written_by` is the version that wrote the model, `plan` the planned cost of the fit, None if its rows are gone.
    """
    identity, kernel = model.provenance["identity"], dict(facts["kernel"])
    name = kernel.pop("name")
    parameters = ", ".join(f"{key} {_short(value)}" for key, value in kernel.items())
    added = sum(more["shape"][0] for more in model.provenance.get("added", []))
    return {
        "method": facts["method"],
        "kernel": f"{name} ({parameters})" if parameters else name,
        "landmarks" if "landmarks" in facts else "random features": f"{model.features.size:,}",
        "components": f"{model.components:,}",
        "pre-image": facts["preimage"] or "none",
        "data": identity["path"] or "an array in memory",
        "rows": f"{identity['shape'][0]:,} × {identity['shape'][1]:,}, {np.dtype(identity['dtype']).name}",
        "stamp of the data": str(identity["stamp"]),
        "precision": facts["dtype"],
        "seed": str(facts["seed"]),
        **({"rows added later": f"{added:,}"} if added else {}),
        **({} if plan is None else _cost(plan)),
        "written by": f"bigkpca {written_by}",
        "digest of the model": facts["digest"],
    }


def _cost(plan: Plan) -> dict[str, str]:
    """Planned passes and memory of the fit."""
    passes = "the rows were in memory" if not plan.passes else f"{plan.passes} over the rows, beside a sample"
    return {
        "passes": f"{passes}, {plan.bytes_read / 1e6:,.0f} MB read",
        "memory of the fit": f"{plan.peak_bytes / 1e6:,.0f} MB at most in a process of this machine (planned)",
    }


def _short(value: Any) -> str:
    """A number with at most six digits, or any other value as text."""
    return f"{value:.6g}" if isinstance(value, float) else str(value)
