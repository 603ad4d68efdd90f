"""Fits of cases, and all that they say of themselves held against the truth."""

import warnings
from collections import Counter
from dataclasses import dataclass, field, fields
from unittest import mock

import numpy as np
from sklearn.base import clone

from bigkpca.errors import BigKPCAError
from bigkpca.execution.blas import single_threaded_blas
from bigkpca.spec import resolved
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
    drawn = mock.patch.object(resolved, "DRAWN_ROWS", case.held_out or resolved.DRAWN_ROWS)
    with warnings.catch_warnings(record=True) as caught, drawn:
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
    unknown = {"estimate", "standard_error", "cosine" if certified.of_products else "residuals"}
    if bad := [name for name in said.keys() - unknown if np.isnan(said[name]).any()]:
        found.problems.append(("nan", ", ".join(bad)))
        return
    Z = (X.astype(np.longdouble) - features.offset) / (1 if features.scale is None else features.scale)
    true = truth(estimator.kernel_, Z, case.center)
    if "IndefiniteKernelWarning" not in found.warned:
        _judge_bounds(case, Z, estimator, true, found)
    if not found.warned:
        _judge_silence(certified, estimator.eigenvalues_, true, found)
    _judge_trust(certified, scores, true, found)


def _judge_bounds(case, Z, estimator, true, found):
    certified, eigenvalues = estimator.certificate_, estimator.eigenvalues_
    exact, slack = true.values[: len(eigenvalues)], true.slack
    share, share_slack = exact / true.total, slack / abs(true.total)
    shares = certified.shares(estimator.model_.solution.total_variance)
    claims = []  # name, what is at most, what, but for this much
    if certified.proven:
        claims += [("lower", certified.lower, exact, slack), ("lower of shares", shares.lower, share, share_slack)]
    if certified.of_products:
        nearest = np.abs(true.values[:, None] - eigenvalues).min(axis=0)
        claims.append(("residuals", nearest, certified.residuals * eigenvalues, slack))
    if case.method == "nystroem" and case.kernel not in ("sigmoid", "indefinite", "callable"):
        # Both parts of a ratio round: an eigenvalue, and the sum of all, whose rounding is not stated on its own.
        rounding = certified.rounding + certified.rounding @ estimator.explained_variance_ratio_
        ratio = estimator.explained_variance_ratio_ * (1 - rounding)
        claims.append(("explained_variance_ratio_", ratio, share, share_slack))
    likely = [("upper", exact, certified.upper, slack)]
    if case.method in ("nystroem", "columns") and not certified.of_products:
        E, rounding = remainder(estimator.kernel_, Z, estimator.model_.features.landmarks.astype(np.longdouble))
        left = np.trace(E) - case.center * E.sum() / len(E)  # tr(HEH)
        claims.append(("unexplained", left / true.total, certified.unexplained, rounding / abs(true.total)))
        largest = float(np.linalg.eigvalsh(E)[-1])
        likely.append(("missed", largest, float((certified.missed * eigenvalues).max()), rounding))
        likely.append(("upper of shares", share, shares.upper, share_slack + rounding / abs(true.total)))
    for name, low, high, rounding in claims:
        excess = np.atleast_1d(low - high - rounding)
        if (excess > 0).any():
            j = int(excess.argmax())
            low, high = (np.broadcast_to(each, excess.shape)[j] for each in (low, high))
            found.problems.append(("false proven bound", f"{name}[{j}]: {low:.8g} <= {high:.8g} does not hold"))
    if certified.confidence:
        missed = [name for name, low, high, rounding in likely if np.any(low - high - rounding > 0)]
        found.checked.update({"fits with likely bounds": 1, "fits whose likely bounds miss": int(bool(missed))})
        found.problems += [("likely bound missed", ", ".join(missed))] * bool(missed)
    _count_estimates(certified, true, found)


def _count_estimates(certified, true, found):
    exact, known = true.values[: len(certified.estimate)], np.isfinite(certified.standard_error)
    off = np.abs(certified.estimate - exact)[known] > 2 * certified.standard_error[known] + true.slack
    found.checked.update({"estimates": int(known.sum()), "estimates off by two standard errors": int(off.sum())})


def _judge_silence(certified, eigenvalues, true, found):
    lower, upper, slack = certified.lower, certified.upper, true.slack
    for j in range(min(5, len(eigenvalues))):
        exact, error = true.values[j], abs(eigenvalues[j] - true.values[j])
        if certified.proven and np.isfinite(upper[j]):
            told = lower[j] - slack <= exact <= upper[j] + slack
        else:
            # What is missed is estimated from kernel values, which round: those of exp(-|x - y|) to 1e-7 in float64.
            share = (certified.missed[j] + certified.rounding[j]) * (1 + 1e-5)
            told = certified.trust[j] != "solid" or share * eigenvalues[j] >= error - slack
        if error > 0.05 * abs(exact) + slack and not told:
            found.problems.append(("silent wrong spectrum", f"[{j}] is {eigenvalues[j]:.5g}, not {exact:.5g}"))


LEAST = {"solid": 0.99, "fair": 0.9}  # cosine with the true component


def _judge_trust(certified, scores, true, found):
    words = np.array(certified.trust)
    known = true.values[: len(words)] > 1e4 * true.slack  # the others are rounding
    for j in np.flatnonzero((words != "doubtful") & known):
        exact, word = true.values[j], str(words[j])
        # Eigenvectors of values within 2 % turn into each other at a touch: what can be asked for is their span.
        near = np.abs(true.values - exact) <= 0.02 * exact
        cosine = float(np.linalg.norm(true.vectors[:, near].T @ scores[:, j]) / np.linalg.norm(scores[:, j]))
        wrong = not cosine >= LEAST[word]
        found.checked.update({f"{word} components": 1, f"{word} components that fail": int(wrong)})
        if wrong:
            found.problems.append((f"{word} without cosine", f"component {j} of {len(scores.T)} has {cosine:.3f}"))


def total(outcomes):
    """Counts over cases: for each kind of problem the cases that have it, and what was checked."""
    counts = Counter()
    for each in outcomes:
        counts.update({kind for kind, _ in each.problems})
        counts.update({"cases": 1, "refused": bool(each.refused), "warned": bool(each.warned)} | each.checked)
    return counts
