"""What the report says about trust, bounds and labels."""

import re
from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest

import bigkpca
from bigkpca.data.rows import ArrayRows, OneHot
from bigkpca.errors import DominantVariableWarning
from bigkpca.numerics.certificate import accuracy
from bigkpca.plots.rows import RowLabels
from bigkpca.reporting import figures, page, text
from bigkpca.reporting.report_data import ReportData
from tests.helpers.fits import fit

SOUND, SHAKY = "solid", "doubtful"


def test_the_accuracy_weighs_components_by_what_they_hold():
    for trust, shares, says, part in (
        ([SOUND] * 8, [0.1] * 8, "accurate", 1),
        ([SOUND], [0.9], "accurate", 1),
        ([SHAKY], [0.0], "inaccurate", 0),
        ([SHAKY, SOUND], [0.02, 0.9], "accurate", 90 / 92),
        ([SOUND] * 8, [0.03] * 8, "accurate", 1),
        ([SOUND, SOUND, SHAKY], [0.3, 0.3, 0.2], "accurate in part", 0.75),
        ([SOUND, SHAKY], [0.03, 0.02], "accurate in part", 0.6),
        ([SHAKY, SOUND], [0.6, 0.3], "inaccurate", 1 / 3),
        ([SHAKY, SHAKY], [0.6, 0.3], "inaccurate", 0),
    ):
        assert accuracy(tuple(trust), np.array(shares)) == (says, pytest.approx(part))


def test_a_weight_of_one_category_is_a_weight_in_fit_and_report():
    """Weights by name and by column end the warning alike."""
    codes = np.random.default_rng(0).integers(0, 2, 90)
    X = np.column_stack([np.random.default_rng(1).normal(0, 1e-3, 90), np.eye(2)[codes]])
    rows = ArrayRows(X, names=("a", "kind=u", "kind=v"), one_hot=(OneHot("kind", 1, 3),))
    for weights, warned in (({"kind=u": 4}, False), ({"a": 0.5}, True)):
        options = {"column_weights": weights, "n_components": 1, "size": 9}
        with pytest.warns(DominantVariableWarning) if warned else nullcontext():
            model = fit(rows, **options)
        data = ReportData(90, np.arange(90), None, rows, None, None, None, (), sample=(np.arange(90), X))
        found = text.dominant_column(model, data)
        assert ("The column of categories 'kind' makes " in found) == warned


def said(model):
    """The tiles of a model, each as one text, by name."""
    return {tile.name: f"{tile.value}: {tile.note}" for tile in text.tiles(model)}


def fitted(X, components, **options):
    return bigkpca.KernelPCA(components, random_state=0, **options).fit(X).model_


@pytest.mark.filterwarnings("ignore::bigkpca.errors.DominantVariableWarning")
def test_doubtful_components_that_hold_next_to_nothing_do_not_spoil_a_model():
    rng = np.random.default_rng(0)
    columns = rng.exponential(10, 1500), rng.integers(0, 24, 1500), rng.normal(0, 1, 1500), rng.gamma(1, 100, 1500)
    model = fitted(np.stack(columns, axis=1), 40, size=300)
    assert "doubtful" in model.certificate.trust
    tiles = said(model)
    assert len(tiles) == 3
    counts = (
        r"Accurate: \d+ of 40 components are solid or fair: .*\d+ doubtful \(estimated\)\. "
        r"These \d+ hold 9\d\.\d% of the variance that all 40 hold\. "
    )
    counts += r"The first doubtful one is component \d+\. It says how well kernel PCA is known, not how useful it is\.$"
    assert re.match(counts, tiles["Approximation"])
    assert re.match(r"at least 9\d\.\d%: Proven\. More components would add", tiles["Captured in feature space"])


def test_accurate_components_that_hold_little_are_said_to_hold_little(digits):
    tiles = said(fitted(digits[:900], 4, size=450))
    assert tiles["Approximation"].startswith("Accurate: 4 of 4 components are solid or fair: ")
    held = tiles["Captured in feature space"]
    assert re.search(r"More components would add about \d\d\.\d%\. To hold more, keep more components or use a", held)
    narrow = said(fitted(digits[:900], 4, size=100, sigma=18.0))["Captured in feature space"]
    assert narrow.endswith("To hold more, fit with a larger size or use a longer sigma.")


def test_exact_is_said_of_the_method_and_not_of_a_number(digits):
    landmarks = fitted(digits[:150], 9, kernel="linear", size=80, dtype="float64")
    rounded = replace(landmarks, certificate=replace(landmarks.certificate, unexplained=0.0))
    for model in (landmarks, rounded):
        tiles = said(model)
        assert tiles["Approximation"].startswith("Accurate: ")
        error = tiles["Error of approximation"]
        assert re.match(r"less than 0\.1%: Variance out of reach of its \d\d landmarks \(proven\)\.", error)
        assert figures.trust(model) is not None
    exact = fitted(digits[:150], 3, method="exact")
    tiles = said(exact)
    solved = "Exact: The whole Gram matrix was solved: there is no error of approximation."
    assert tiles["Approximation"].startswith(solved)
    assert tiles["Error of approximation"].startswith("none: ")
    assert "landmarks" not in tiles["Error of approximation"]
    assert figures.trust(exact) is None


def test_bounds_in_the_table_are_no_nearer_than_they_are(digits):
    model = fitted(digits[:300], 20, size=100)
    certificate, table = model.certificate, page.quality(model).table
    shown = dict(zip(table.head, np.array(table.rows).T, strict=True))
    assert (shown["at most, 95%"].astype(float) >= certificate.upper).all()


def test_what_other_components_hold_is_not_said_of_these(digits):
    own, columns = (said(fitted(digits[:200], 4, size=70, method=method)) for method in ("nystroem", "columns"))
    assert re.match(r"at least \d\d\.\d%: Proven\. ", own["Captured in feature space"])
    assert re.match(
        r"at least \d\d\.\d%: Proven for the first 4 exact components\.", columns["Captured in feature space"]
    )


def test_labels_explain_what_they_explain_and_name_the_ends_that_agree():
    labels = RowLabels(np.array(["a", "a", "b", "b"]), ("a", "b"))
    scores = np.array([[1.0, 1, 0], [1, -1, 0], [-1, 1, 0], [-1, -1, 0]])
    np.testing.assert_allclose(text.explained_by_labels(scores, labels), [1, 0, 0])
    y = np.arange(20.0)
    for words, says in (
        (["a"] * 8 + ["b"] * 12, " The 6 lowest scores have label a and the 6 highest scores have label b."),
        (["b", *["a"] * 12, *["b"] * 7], " The 6 highest scores have label b."),  # though the lowest mean is that of a
        (["a", "b"] * 10, ""),
    ):
        assert text.extreme_labels(y, RowLabels(np.array(words), ("a", "b"))) == says
