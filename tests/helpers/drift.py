"""The drift of nights of rows like those of a fit of MNIST, and of other rows."""

import numpy as np
from scipy.ndimage import zoom

from benchmarks.data import mnist, usps
from bigkpca.numerics.calibration import CALIBRATION_ROWS
from tests.helpers.fits import fit

NIGHTS, NEW_ROWS = 30, 2000


def figures(seed, fitted, **options):
    """The drifts of nights of digits like the `fitted` ones, and of nights of others by what they are."""
    rng, X = np.random.default_rng(seed), np.concatenate([mnist(), mnist("t10k")]).astype(np.float32)
    X = X[rng.permutation(len(X))]
    model = fit(X[:fitted], random_state=seed, calibration_rows=CALIBRATION_ROWS, **options)
    calibration = model.check_calibrated()

    def scored(rows):
        """Scores, and in the last column residuals."""
        tiles = (rows[start : start + 500] for start in range(0, len(rows), 500))
        return np.concatenate([np.column_stack(pair) for pair in map(model.scoring(500, model.expansion()), tiles)])

    def drift(found):
        return calibration.drift(calibration.counted(found[:, :-1], found[:, -1])).figure

    own, some = scored(X[fitted:][:10_000]), X[fitted:][:NEW_ROWS]
    others = {
        "noisy": some + X[:1000].std() * rng.standard_normal(some.shape, np.float32),
        "scaled": 1.5 * some,
        "shuffled": some[:, rng.permutation(some.shape[1])],
        "USPS": (zoom(usps()[:NEW_ROWS].reshape(-1, 16, 16), (1, 1.75, 1.75), order=1).reshape(-1, 784) + 1) * 127.5,
    }
    same = [drift(own[rng.choice(len(own), NEW_ROWS, replace=False)]) for _ in range(NIGHTS)]
    return same, {name: drift(scored(rows)) for name, rows in others.items()}
