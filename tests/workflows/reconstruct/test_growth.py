"""Ways back in models to which rows are added."""

import numpy as np
import pytest

from bigkpca import KernelPCA
from bigkpca.data.rows import ArrayRows
from bigkpca.execution.engine import Engine
from bigkpca.fitting.fit import fit_rows
from bigkpca.fitting.merge import extend
from bigkpca.spec import FitSpec
from tests.workflows.reconstruct.digits import OPTIONS, RIDGE, error_of, rows_of

SLOW = pytest.mark.full
pytestmark = pytest.mark.filterwarnings("ignore::bigkpca.errors.UniformLandmarksWarning")


@pytest.mark.parametrize(
    ("way", "method"),
    [("fixed-point", "columns"), (RIDGE, "nystroem"), ("fixed-point", "rff"), pytest.param("mds", "rff", marks=SLOW)],
)
def test_a_model_that_grew_leads_back_as_one_fitted_on_all(way, method, X):
    rows, given = X.astype(np.float64), {"method": method, "preimage": way}
    given |= {
        "columns": {"sigma": 30.0},
        "nystroem": {"sigma": 30.0, "landmarks": rows[:300:5], "size": "auto"},
        "rff": {"size": 400},
    }[method]
    spec = FitSpec.checked(**OPTIONS | given)
    grown = first = fit_rows(ArrayRows(rows[:300]), spec, Engine(threads=1))
    for piece in (rows[300:493], rows[493:]):  # however few are added
        grown = extend(grown, ArrayRows(piece), spec, Engine(threads=1))
    assert not np.allclose(rows_of(grown, rows[:50]), rows_of(first, rows[:50]), atol=1e-3)
    whole = fit_rows(ArrayRows(rows), spec, Engine(threads=1))
    assert error_of(grown, rows) < (0.4 if method == "columns" else 1.2 * error_of(whole, rows))
    if len(kept := first.decoder.kept_rows(first.features)):  # the decoder of the larger model is made from the same
        np.testing.assert_allclose(grown.decoder.kept_rows(grown.features), kept)


def test_a_model_without_a_way_back_takes_more_rows(X):
    laplacian = KernelPCA(4, size=30, kernel="laplacian", random_state=0)
    assert laplacian.partial_fit(X[:300]).partial_fit(X[300:]).model_.decoder is None
