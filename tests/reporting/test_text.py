"""What the report says of trust, bounds and the learning curve."""

import re
from dataclasses import replace

import numpy as np
import pytest

import bigkpca
from bigkpca.reporting import figures, sections, text

pytest.importorskip("matplotlib", reason="a report needs matplotlib: pip install 'bigkpca[report]'")
pytest.importorskip("jinja2", reason="a report needs jinja2: pip install 'bigkpca[report]'")
SOUND, SHAKY = "solid", "doubtful"


@pytest.mark.parametrize(
    ("trust", "shares", "says"),
    [
        ([SOUND] * 8, [0.1] * 8, "Good: all 8 components can be trusted."),
        ([SOUND], [0.9], "Good: its only component can be trusted."),
        ([SOUND, "fair", SHAKY, SHAKY], [0.8, 0.15, 0.003, 0.002], "Good: 2 of 4 components can be trusted, and those "
         "hold 99.4% of what all do."),
        ([SHAKY, SOUND], [0.02, 0.9], "Good: 1 of 2 components can be trusted, and those hold 97.8% of what all do."),
        ([SOUND] * 8, [0.03] * 8, "Sound but incomplete: all 8 components can be trusted, but most of the variance lies"
         " outside."),
        ([SOUND, SOUND, SHAKY], [0.3, 0.3, 0.2], "Good in part: 2 of 3 components can be trusted, and those hold 75.0% "
         "of what all do; a larger size would help."),
        ([SOUND, SHAKY], [0.03, 0.02], "Of limited use: 1 of 2 components can be trusted, and those hold 60.0% of what "
         "all do; a larger size would help."),
        ([SHAKY, SOUND], [0.6, 0.3], "Not good: only 1 of 2 components can be trusted, and those hold 33.3% of what all"
         " do; a larger size would help."),
        ([SHAKY, SHAKY], [0.6, 0.3], "Not good: no component can be trusted; a larger size would help."),
    ],
)  # fmt: skip
def test_the_verdict_weighs_components_by_what_they_hold(trust, shares, says):
    assert text.components_verdict(tuple(trust), np.array(shares), "a larger size") == says


def test_doubtful_components_that_hold_next_to_nothing_do_not_spoil_a_model():
    rng = np.random.default_rng(0)
    amounts = np.stack([rng.exponential(10, 1500), rng.integers(0, 24, 1500), rng.normal(0, 1, 1500),
                        rng.gamma(1, 100, 1500)], axis=1)  # fmt: skip
    model = bigkpca.KernelPCA(40, size=300, random_state=0).fit(amounts).model_
    assert "doubtful" in (model.certificate.trust or ())
    said = text.verdict(model)
    assert re.match(
        r"Good: \d+ of 40 components can be trusted, and those hold 9\d\.\d% of what all do\. Trust: ", said
    )
    assert re.search(r"doubtful \(estimated\); the first doubtful one is component \d+\.", said)
    assert re.search(
        r"Together they hold at least 9\d\.\d% of the variance \(proven\)\. Further components would", said
    )
    assert "To hold more" not in said


def test_trustworthy_components_that_hold_little_are_called_incomplete(digits):
    few = bigkpca.KernelPCA(4, size=600, random_state=0).fit(digits).model_
    said = text.verdict(few)
    assert said.startswith("Sound but incomplete: all 4 components can be trusted, but most of the variance lies outsi")
    assert re.search(r"Further components would hold about \d\d\.\d%\.", said)
    assert "To hold more, keep more components or take a longer sigma." in said
    narrow = bigkpca.KernelPCA(4, size=100, sigma=18.0, random_state=0).fit(digits).model_
    assert "To hold more, fit with a larger size or take a longer sigma." in text.verdict(narrow)


def test_exact_is_said_of_the_method_and_not_of_a_number(digits):
    landmarks = bigkpca.KernelPCA(9, kernel="linear", size=80, dtype="float64", random_state=0).fit(digits[:300]).model_
    rounded = replace(landmarks, certificate=replace(landmarks.certificate, trace_error=0.0, relative_trace_error=0.0))
    for model in (landmarks, rounded):
        said = text.verdict(model)
        assert said.startswith("Good: all 9 components can be trusted.")
        assert "Less than 0.1% of the variance is out of reach of its" in said
        assert "Exact" not in said
        assert figures.trust(model) is not None
    exact = bigkpca.KernelPCA(3, method="exact", random_state=0).fit(digits[:300]).model_
    assert text.verdict(exact).startswith("Exact: the whole Gram matrix was solved, there is no error of approximation")
    assert "landmarks" not in text.verdict(exact)
    assert figures.trust(exact) is None


def test_the_last_point_of_the_learning_curve_is_the_bound(digits):
    model = bigkpca.KernelPCA(4, size=100, random_state=0).fit(digits).model_
    curve = figures.learning_curve(model)
    assert curve is not None
    shown = float(re.search(r"([\d.]+)% with 100\.$", curve.alt)[1])  # type: ignore[index]
    assert shown / 100 >= model.certificate.relative_trace_error  # type: ignore[operator]


def test_what_other_components_hold_is_not_said_of_these(digits):
    own = bigkpca.KernelPCA(4, size=100, random_state=0).fit(digits[:300]).model_
    columns = bigkpca.KernelPCA(4, size=100, method="columns", random_state=0).fit(digits[:300]).model_
    assert re.search(r"Together they hold at least \d\d\.\d% of the variance \(proven\)", text.verdict(own))
    assert re.search(r"The first 4 exact components hold at least \d\d\.\d% of the va", text.verdict(columns))


def test_bounds_in_the_table_are_no_nearer_than_they_are(digits):
    certificate = (model := bigkpca.KernelPCA(20, size=100, random_state=0).fit(digits).model_).certificate
    table = sections.quality(model).table
    shown = dict(zip(table.head, np.array(table.rows).T, strict=True))
    assert (shown["proven at least"].astype(float) <= certificate.eigenvalue_lower).all()
    assert (shown["proven at most"].astype(float) >= certificate.eigenvalue_upper).all()
    assert (shown["at most, 95%"].astype(float) >= certificate.eigenvalue_likely_upper).all()
