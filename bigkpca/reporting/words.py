"""What a report says: is this good, what did it find, how was it made. Plain text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from bigkpca.errors import Array
from bigkpca.numerics.certificate import trustworthy
from bigkpca.numerics.model import Model
from bigkpca.plan import Plan
from bigkpca.reporting.looked import Labels, Looked


def verdict(model: Model) -> str:
    """Whether the fit is good, with its numbers."""
    certificate, r = model.certificate, model.components
    trust = certificate.trust
    if certificate.relative_trace_error == 0:
        parts = ["Exact: the whole Gram matrix was solved, there is no error of approximation."]
    elif trust is None:
        parts = ["Nothing is known of how far its components can be trusted: fit with a larger size to find out."]
    else:
        known = "estimated" if certificate.residuals is None else "from residuals"
        parts = [f"{_trusted(trustworthy(trust), r)}. Trust: {_counts(trust)} ({known})."]
    return " ".join([*parts, *_shares(model)])


def _trusted(leading: int, r: int) -> str:
    if leading == r:
        return f"Good: all {r} components can be trusted"
    if leading >= r / 2:
        return f"Good up to component {leading} of {r}: what follows is doubtful"
    if leading:
        return f"Of limited use: only the first {leading} of {r} components can be trusted; a larger size would help"
    return "Not good: already the first component is doubtful; fit again with a larger size"


def _counts(trust: tuple[str, ...]) -> str:
    return ", ".join(f"{trust.count(word)} {word}" for word in ("solid", "fair", "doubtful") if word in trust)


def _shares(model: Model) -> Iterator[str]:
    certificate = model.certificate
    low = certificate.explained_variance_ratio_lower
    total = float((model.solution.explained_variance_ratio if low is None else low).sum())
    known = "about" if low is None else "at least"
    yield f"Together they hold {known} {total:.1%} of the variance ({'estimated' if low is None else 'proven'})."
    if certificate.relative_trace_error:
        size = model.features.size
        error = certificate.relative_trace_error
        yield f"At most {error:.1%} of the variance is out of reach of its {size:,} landmarks (proven)."
    if certificate.spectral_error_likely is not None:
        missed = certificate.spectral_error_likely
        share = missed / (model.solution.total_variance - (certificate.trace_error or 0.0) + missed)
        yield f"No component with more than {share:.2%} of it was missed ({certificate.confidence:.0%} confidence)."
    if certificate.kernel_error is not None:
        yield f"The kernel matrix is off by {certificate.kernel_error:.1%} of its norm (estimated)."
    if certificate.residuals is not None:
        yield f"The largest relative residual is {certificate.residuals.max():.2g} (proven)."


def findings(model: Model, looked: Looked) -> str:
    """What the leading components hold, and what they have to do with the labels."""
    shares = model.solution.explained_variance_ratio
    half = int(np.searchsorted(np.cumsum(shares), shares.sum() / 2)) + 1
    text = (
        f"Component 1 holds {shares[0]:.1%} of the variance, and {half} of {len(shares)} components hold half of what "
        "all of them do."
    )
    if looked.labels is None or looked.scores is None or len(looked.labels.names) < 2:
        return text
    explained = explained_by_labels(looked.scores, looked.labels)
    best = int(explained.argmax())
    return text + (
        f" Component {best + 1} tells the labels apart best: they explain {explained[best]:.0%} of it, "
        f"{ends(looked.scores[:, best], looked.labels)}."
    )


def explained_by_labels(scores: Array, labels: Labels) -> Array:
    """Variance of the means of the labels over the variance of scores (m, r), (r,): 1 if nothing else matters."""
    between = np.zeros(scores.shape[1])
    centred = scores - scores.mean(axis=0)
    for name in labels.names:
        here = labels.words == name
        between += here.sum() * centred[here].mean(axis=0) ** 2
    total = np.einsum("ij,ij->j", centred, centred)
    return np.divide(between, total, out=np.zeros_like(between), where=total > 0)


def ends(values: Array, labels: Labels) -> str:
    """Which labels have the smallest and the largest mean of values (m,)."""
    means = [values[labels.words == name].mean() for name in labels.names]
    low, high = labels.names[int(np.argmin(means))], labels.names[int(np.argmax(means))]
    return f"with {low} at the low end and {high} at the high one"


def provenance(model: Model, facts: dict[str, Any], written_by: str, plan: Plan | None) -> dict[str, str]:
    """What was fitted and how, as lines of a table; `written_by` is the version that wrote the model, `plan` what the
    fit was planned to cost, None where its rows are gone."""
    identity, kernel = model.provenance["identity"], dict(facts["kernel"])
    name = kernel.pop("name")
    parameters = ", ".join(f"{key} {_short(value)}" for key, value in kernel.items())
    added = sum(more["shape"][0] for more in model.provenance.get("added", []))
    return {
        "method": facts["method"],
        "kernel": f"{name} ({parameters})" if parameters else name,
        "landmarks" if "landmarks" in facts else "random features": f"{model.features.size:,}",
        "components": f"{model.components:,}",
        "way back to rows": facts["preimage"] or "none",
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
    passes = "the rows were in memory" if not plan.passes else f"{plan.passes} over the rows, beside a sample"
    return {
        "passes": f"{passes}, {plan.bytes_read / 1e6:,.0f} MB read",
        "memory of the fit": f"{plan.peak_bytes / 1e6:,.0f} MB at most in a process of this machine (planned)",
    }


def _short(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
