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
from bigkpca.reporting.report_data import ReportData, RowLabels
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
    return " ".join([*parts, *_of_variance(model)])


def components_verdict(trust: tuple[str, ...], shares: Array, more: str) -> str:
    """The verdict on components with these shares (r,) of the variance; `more` is what would improve them.

    Doubtful components count by their share of variance, since small ones at the end of a spectrum matter little.
    """
    r, trusted = len(trust), np.array([word != "doubtful" for word in trust])
    count, held = int(trusted.sum()), float(shares.sum())
    of_held = float(shares[trusted].sum()) / held if held else 0.0
    who = f"{count} of {r} components" if count < r else f"all {r} components" if r > 1 else "its only component"
    claim = f"{who} can be trusted"
    if count < r:
        claim += f", and those hold {share_at_least(of_held, 1)} of what all do"
    if not count:
        return f"Not good: no component can be trusted; {more} would help."
    if of_held < _MOST:
        return f"Not good: only {claim}; {more} would help."
    if of_held < _NEARLY_ALL:
        word = "Of limited use" if held < _MOST else "Good in part"
        return f"{word}: {claim}; {more} would help."
    if held < _MOST:
        return f"Sound but incomplete: {claim}, but most of the variance lies outside."
    return f"Good: {claim}."


def _counts(trust: tuple[str, ...], known: str) -> str:
    counts = ", ".join(f"{trust.count(word)} {word}" for word in ("solid", "fair", "doubtful") if word in trust)
    first = trustworthy(trust)
    where = f"; the first doubtful one is component {first + 1}" if 0 < first < len(trust) else ""
    return f"Trust: {counts} ({known}){where}."


def _of_variance(model: Model) -> Iterator[str]:
    """Sentences on the variance: what the components hold, what more of them would, what the model cannot reach."""
    certificate, exact, method = model.certificate, whole_gram(model), FitSpec.of(model).method_value
    held, low = float(model.solution.explained_variance_ratio.sum()), certificate.explained_variance_ratio_lower
    # For an indefinite kernel the total is the sum of the positive eigenvalues, of which products with the Gram matrix
    # find the leading ones only.
    total_known = certificate.residuals is None or model.solution.negative == 0
    if not total_known:
        yield "How much of the variance they hold is not known: the kernel is not positive semidefinite here."
    elif low is None:
        yield f"Together they hold about {held:.1%} of the variance (estimated)."
    else:
        # The bounds of other methods come from the Nyström components of the same landmarks.
        own = method in (Nystroem(), Exact()) or certificate.residuals is not None
        who = "Together they" if own else f"The first {len(low)} exact components"
        yield f"{who} hold at least {share_at_least(float(low.sum()), 1)} of the variance (proven)."
    reach = None if exact else certificate.relative_trace_error
    beyond = 0.0 if exact or certificate.residuals is not None else reach
    if not total_known:
        beyond = None
    if beyond is not None:
        further = max(1 - held - beyond, 0.0)
        yield f"Further components would hold {'less than 0.1%' if further < 0.001 else f'about {further:.1%}'}."
    if reach is not None:
        many = f"{model.features.size:,} landmarks"
        share = "Less than 0.1%" if reach < 0.001 else f"At most {share_at_most(reach, 1)}"
        yield f"{share} of the variance is out of reach of its {many} (proven)."
    if beyond is not None and held < _MOST:
        longer = " or take a longer sigma" if model.features.kernel.stationary else ""
        yield f"To hold more, {'keep more components' if further >= beyond else 'fit with a larger size'}{longer}."
    if certificate.spectral_error_likely is not None:
        missed = certificate.spectral_error_likely
        if method == Nystroem() or certificate.eigenvalue_lower is None:
            explained = model.solution.total_variance - (certificate.trace_error or 0.0)
        else:
            explained = float(certificate.eigenvalue_lower.sum())  # all eigenvalues may add up to more
        most = share_at_most(missed / (explained + missed))
        yield f"No component with more than {most} of it was missed ({certificate.confidence:.0%} confidence)."
    if certificate.kernel_error is not None:
        yield f"The kernel matrix is off by {certificate.kernel_error:.1%} of its norm (estimated)."
    if certificate.residuals is not None:
        yield f"The largest relative residual is {at_most(certificate.residuals.max(), 2):.2g} (proven)."


def findings(model: Model, data: ReportData) -> str:
    """What the leading components hold, and how they relate to the labels."""
    shares = model.solution.explained_variance_ratio
    half = int(np.searchsorted(np.cumsum(shares), shares.sum() / 2)) + 1
    text = (
        f"Component 1 holds {shares[0]:.1%} of the variance, and {half} of {len(shares)} components hold half of what "
        "all of them do."
    )
    best = best_component(data)
    if best is None or data.labels is None or data.scores is None:
        return text
    explained = explained_by_labels(data.scores, data.labels)
    return text + (
        f" Component {best + 1} tells the labels apart best: they explain {explained[best]:.0%} of it, "
        f"{extreme_labels(data.scores[:, best], data.labels)}."
    )


def best_component(data: ReportData) -> int | None:
    """The component that tells the labels apart best; None where there are none to tell apart."""
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
    """The labels with the smallest and the largest mean of values (m,). Single rows at the ends may have others."""
    means = [values[labels.values == name].mean() for name in labels.names]
    low, high = labels.names[int(np.argmin(means))], labels.names[int(np.argmax(means))]
    return f"with the lowest mean score for {low} and the highest for {high}"


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
            "memory of the fit": f"{plan.peak_bytes / 1e6:,.0f} MB at most in a process of this machine (planned)",
        }
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
        **cost,
        "written by": f"bigkpca {written_by}",
        "digest of the model": facts["digest"],
    }
