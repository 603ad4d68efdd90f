"""What the report says of trust, bounds and the learning curve."""

import re
from dataclasses import replace

import numpy as np

import bigkpca
from bigkpca.reporting import figures, page, text

SOUND, SHAKY = "solid", "doubtful"


def test_the_verdict_weighs_components_by_what_they_hold():
    trusted, larger = "components can be trusted", " of what all do; a larger size would help."
    for trust, shares, says in (
        ([SOUND] * 8, [0.1] * 8, "Good: all 8 components can be trusted."),
        ([SOUND], [0.9], "Good: its only component can be trusted."),
        ([SHAKY], [0.0], "Not good: no component can be trusted; a larger size would help."),
        ([SHAKY, SOUND], [0.02, 0.9], "Good: 1 of 2 components can be trusted, and those hold 97.8% of what all do."),
        ([SOUND] * 8, [0.03] * 8, f"Sound but incomplete: all 8 {trusted}, but most of the variance lies outside."),
        ([SOUND, SOUND, SHAKY], [0.3, 0.3, 0.2], f"Good in part: 2 of 3 {trusted}, and those hold 75.0%{larger}"),
        ([SOUND, SHAKY], [0.03, 0.02], f"Of limited use: 1 of 2 {trusted}, and those hold 60.0%{larger}"),
        ([SHAKY, SOUND], [0.6, 0.3], f"Not good: only 1 of 2 {trusted}, and those hold 33.3%{larger}"),
        ([SHAKY, SHAKY], [0.6, 0.3], "Not good: no component can be trusted; a larger size would help."),
    ):
        assert text.components_verdict(tuple(trust), np.array(shares), "a larger size") == says


def fitted(X, components, **options):
    return bigkpca.KernelPCA(components, random_state=0, **options).fit(X).model_


def test_doubtful_components_that_hold_next_to_nothing_do_not_spoil_a_model():
    rng = np.random.default_rng(0)
    columns = rng.exponential(10, 1500), rng.integers(0, 24, 1500), rng.normal(0, 1, 1500), rng.gamma(1, 100, 1500)
    model = fitted(np.stack(columns, axis=1), 40, size=300)
    assert "doubtful" in model.certificate.trust
    said = text.verdict(model)
    assert re.match(r"Good: \d+ of 40 components can be trusted, and those hold 9\d\.\d% of what all do\. Tr", said)
    assert re.search(r"doubtful \(estimated\); the first doubtful one is component \d+\.", said)
    assert re.search(r"they hold at least 9\d\.\d% of the variance \(proven\)\. Further components would", said)
    assert "To hold more" not in said


def test_trustworthy_components_that_hold_little_are_called_incomplete(digits):
    said = text.verdict(fitted(digits[:900], 4, size=450))
    assert said.startswith("Sound but incomplete: all 4 components can be trusted, but most of the variance lies outsi")
    assert re.search(r"Further components would hold about \d\d\.\d%\.", said)
    assert "To hold more, keep more components or take a longer sigma." in said
    narrow = text.verdict(fitted(digits[:900], 4, size=100, sigma=18.0))
    assert "To hold more, fit with a larger size or take a longer sigma." in narrow


def test_exact_is_said_of_the_method_and_not_of_a_number(digits):
    landmarks = fitted(digits[:150], 9, kernel="linear", size=80, dtype="float64")
    rounded = replace(landmarks, certificate=replace(landmarks.certificate, trace_error=0.0, relative_trace_error=0.0))
    for model in (landmarks, rounded):
        said = text.verdict(model)
        assert said.startswith("Good: all 9 components can be trusted.")
        assert "Less than 0.1% of the variance is out of reach of its" in said
        assert "Exact" not in said
        assert figures.trust(model) is not None
    exact = fitted(digits[:150], 3, method="exact")
    assert text.verdict(exact).startswith("Exact: the whole Gram matrix was solved, there is no error of approximation")
    assert "landmarks" not in text.verdict(exact)
    assert figures.trust(exact) is None


def test_the_learning_curve_ends_at_the_bound_and_bounds_in_the_table_are_no_nearer_than_they_are(digits):
    model = fitted(digits[:300], 20, size=100)
    certificate, curve = model.certificate, figures.learning_curve(model)
    shown = float(re.search(r"([\d.]+)% with 100\.$", curve.alt)[1])
    assert shown / 100 >= certificate.relative_trace_error
    table = page.quality(model).table
    shown = dict(zip(table.head, np.array(table.rows).T, strict=True))
    assert (shown["proven at least"].astype(float) <= certificate.eigenvalue_lower).all()
    assert (shown["proven at most"].astype(float) >= certificate.eigenvalue_upper).all()
    assert (shown["at most, 95%"].astype(float) >= certificate.eigenvalue_likely_upper).all()


def test_what_other_components_hold_is_not_said_of_these(digits):
    own, columns = (text.verdict(fitted(digits[:200], 4, size=70, method=method)) for method in ("nystroem", "columns"))
    assert re.search(r"Together they hold at least \d\d\.\d% of the variance \(proven\)", own)
    assert re.search(r"The first 4 exact components hold at least \d\d\.\d% of the va", columns)
