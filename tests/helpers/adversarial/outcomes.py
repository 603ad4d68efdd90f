"""Fits of cases, and all that they say of themselves held against the truth."""

import warnings
from collections import Counter
from dataclasses import dataclass, field, fields
from unittest import mock

import numpy as np
from bigkpca.numerics.certificates import sampling
from sklearn.base import clone

from bigkpca.errors import BigKPCAError
from bigkpca.execution.blas import single_threaded_blas
from tests.helpers.adversarial.cases import CONTAINERS, estimator_of, rows_of
from tests.helpers.adversarial.truth import remainder, truth


@dataclass
class Outcome:
    """What came of a case."""

    problems: list[tuple[str, str]] = field(default_factory=list)  # kind, detail
    refused: str = ""  # the error of bigkpca.errors, if there was one
    warned: frozenset[str] = frozenset()  # classes of warnings of bigkpca.errors
    checked: Counter[str] = field(default_factory=Counter)  # what was checked, and what failed


def outcome(case):
    """Fit, and hold all that the fit says against the truth."""
    X, found, scores = rows_of(case), Outcome(), None
    sampled = mock.patch.object(sampling, "SAMPLED_ROWS", case.held_out or sampling.SAMPLED_ROWS)
    with warnings.catch_warnings(record=True) as caught, sampled:
        warnings.simplefilter("always")
        try:
            estimator = estimator_of(case, X)
            contained = CONTAINERS.get(case.container, np.asarray)
            first, *more = map(contained, np.array_split(X, case.parts))
            estimator.fit(first)
            if case.merged:
                estimator = sum((clone(estimator).fit(part, like=estimator) for part in more), estimator)
            else:
                for part in more:
                    estimator.partial_fit(part)
            rows = contained(X) if case.container == "frame" else X  # whose columns have names
            scores = np.asarray(estimator.transform(rows), float)
        except BigKPCAError as error:
            found.refused = f"{type(error).__name__}: {error}"
        except Exception as error:  # which is what is looked for
            found.problems.append(("unexpected error", f"{type(error).__name__}: {error}"))
    told = [each.category for each in caught if each.category.__module__ == BigKPCAError.__module__]
    found.warned = frozenset(each.__name__ for each in told)
    others = [f"{each.category.__name__}: {each.message}" for each in caught if each.category not in told]
    found.problems += [("unexpected error", other) for other in others[:1]]
    if scores is not None:
        # Threads that wait for each other, beside those of other tests, take ten times as long.
        with single_threaded_blas, np.errstate(all="ignore"):
            _judge(case, X, estimator, scores, found)
    return found


def _judge(case, X, estimator, scores, found):
    certified, features = estimator.certificate_, estimator.model_.features
    said = {part.name: getattr(certified, part.name) for part in fields(certified)}
    said |= {"scores": scores, "eigenvalues": estimator.eigenvalues_, "ratio": estimator.explained_variance_ratio_}
    unknown = {name for name in said if "estimate" in name or name == "eigenvalue_standard_error"}
    if bad := [name for name in said.keys() - unknown if said[name] is not None and np.isnan(said[name]).any()]:
        found.problems.append(("nan", ", ".join(bad)))
        return
    Z = (X.astype(np.longdouble) - features.offset) / (1 if features.scale is None else features.scale)
    true = truth(estimator.kernel_, Z, case.center)
    if "IndefiniteKernelWarning" not in found.warned:
        _judge_bounds(case, Z, estimator, true, found)
    if not found.warned:
        _judge_silence(certified, estimator.eigenvalues_, true, found)
    _judge_solid(certified, scores, true, found)


def _judge_bounds(case, Z, estimator, true, found):
    certified, features = estimator.certificate_, estimator.model_.features
    eigenvalues, residuals = estimator.eigenvalues_, certified.residuals
    exact, slack = true.values[: len(eigenvalues)], true.slack
    share, share_slack = exact / true.total, slack / abs(true.total)
    nearest = np.abs(true.values[:, None] - eigenvalues).min(axis=0)
    claims = []  # name, what is at most, what, but for this much
    for name, true_ones, rounding in (("eigenvalue", exact, slack), ("explained_variance_ratio", share, share_slack)):
        claims.append((f"{name}_lower", getattr(certified, f"{name}_lower"), true_ones, rounding))
        claims.append((f"{name}_upper", true_ones, getattr(certified, f"{name}_upper"), rounding))
    claims.append(("residuals", nearest, None if residuals is None else residuals * eigenvalues, slack))
    if case.method == "nystroem" and case.kernel not in ("sigmoid", "indefinite", "callable"):
        # Both parts of a ratio round: an eigenvalue, and the sum of all, whose rounding is not stated on its own.
        rounding = np.zeros(len(eigenvalues)) if certified.rounding is None else certified.rounding
        rounding = rounding + rounding @ estimator.explained_variance_ratio_
        ratio = estimator.explained_variance_ratio_ * (1 - rounding)
        claims.append(("explained_variance_ratio_", ratio, share, share_slack))
    likely, likely_upper = certified.spectral_error_likely, certified.eigenvalue_likely_upper
    missed = likely_upper is not None and bool((exact > likely_upper + slack).any())
    if case.method != "exact" and (certified.relative_trace_error is not None or likely is not None):
        E, rounding = remainder(estimator.kernel_, Z, features.landmarks.astype(np.longdouble))
        left = np.trace(E) - case.center * E.sum() / len(E)  # tr(HEH)
        claims.append(
            ("relative_trace_error", left / true.total, certified.relative_trace_error, rounding / abs(true.total))
        )
        missed |= likely is not None and bool(np.linalg.eigvalsh(E)[-1] > likely + rounding)
    for name, low, high, rounding in claims:
        excess = np.atleast_1d(0.0 if low is None or high is None else low - high - rounding)
        if (excess > 0).any():
            j = int(excess.argmax())
            low, high = np.atleast_1d(low)[j], np.atleast_1d(high)[j]
            found.problems.append(("false proven bound", f"{name}[{j}]: {low:.8g} <= {high:.8g} does not hold"))
    if likely is not None or likely_upper is not None:
        found.checked.update({"fits with likely bounds": 1, "fits whose likely bounds miss": int(missed)})
        found.problems += [("likely bound missed", "")] * missed


def _judge_silence(certified, eigenvalues, true, found):
    lower, upper, trust = certified.eigenvalue_lower, certified.eigenvalue_upper, certified.trust
    for j in range(min(5, len(eigenvalues))):
        exact, slack, error = true.values[j], true.slack, abs(eigenvalues[j] - true.values[j])
        if lower is not None and upper is not None:
            told = lower[j] - slack <= exact <= upper[j] + slack
        else:
            shares = [each[j] for each in (certified.missed, certified.rounding) if each is not None]
            # What is missed is estimated from kernel values, which round: those of exp(-|x - y|) to 1e-7 in float64.
            estimate = sum(shares) * eigenvalues[j] * (1 + 1e-5)
            told = (trust is not None and trust[j] != "solid") or estimate >= error - slack
        if error > 0.05 * abs(exact) + slack and not told:
            found.problems.append(("silent wrong spectrum", f"[{j}] is {eigenvalues[j]:.5g}, not {exact:.5g}"))


def _judge_solid(certified, scores, true, found):
    words = np.resize(np.array(certified.trust or ""), scores.shape[1])
    for j in np.flatnonzero((words == "solid") & (true.values[: len(words)] > 1e4 * true.slack)):  # or it is rounding
        exact = true.values[j]
        # Eigenvectors of values within 2 % turn into each other at a touch: what can be asked for is their span.
        near = np.abs(true.values - exact) <= 0.02 * exact
        cosine = float(np.linalg.norm(true.vectors[:, near].T @ scores[:, j]) / np.linalg.norm(scores[:, j]))
        found.checked.update({"solid components": 1, "solid components that fail": int(not cosine >= 0.99)})
        if not cosine >= 0.99:
            found.problems.append(("solid without cosine", f"component {j} of {len(scores.T)} has {cosine:.3f}"))


def total(outcomes):
    """Counts over cases: for each kind of problem the cases that have it, and what was checked."""
    counts = Counter()
    for each in outcomes:
        counts.update({kind for kind, _ in each.problems})
        counts.update({"cases": 1, "refused": bool(each.refused), "warned": bool(each.warned)} | each.checked)
    return counts
