"""Exact kernel PCA of MNIST without the Gram matrix: time and memory beside scikit-learn, and eigenvalues checked."""

import json
import shutil
from pathlib import Path

import numpy as np

from benchmarks.data import MEDIAN_DISTANCE, exact_eigenpairs, mnist, repeated_dataset, some_rows
from benchmarks.results import Found, Table, Target
from benchmarks.timing import child
from bigkpca import KernelPCA

COMPONENTS = 50
_SECONDS, _MEGABYTES = 50.0, 1000.0  # the most for 60,000 rows

_OURS = """
import json, sys, time
import numpy as np
import bigkpca
data, model, sigma, components = sys.argv[1:]
bigkpca.fit
started = time.perf_counter()
fitted = bigkpca.fit(data, model, method="exact", n_components=int(components), sigma=float(sigma), overwrite=True)
seconds = time.perf_counter() - started
residual = np.nan_to_num(fitted.certificate.residuals.max())  # NaN where the rows are so few that the matrix was held
print(json.dumps([seconds, fitted.provenance.get("products", 0), residual]))
"""

_SCIKIT_LEARN = """
import json, sys, time
import numpy as np
from sklearn.decomposition import KernelPCA
rows, sigma, components, count = sys.argv[1:]
X = np.load(rows)[:int(count)].astype(np.float64)
started = time.perf_counter()
KernelPCA(int(components), kernel="rbf", gamma=0.5 / float(sigma) ** 2, eigen_solver="arpack", random_state=0).fit(X)
print(json.dumps([time.perf_counter() - started, 0, 0.0]))
"""


def main(folder: Path, rows: int = 60_000, size: int = 1000) -> Found:
    data, model = repeated_dataset(folder, rows), str(folder / "exact.zarr")
    few, asked = max(rows // 5, 3 * COMPONENTS), (str(MEDIAN_DISTANCE), str(COMPONENTS))
    lines, took = [], {}
    for name, count, code, values in (
        ("bigkpca", rows, _OURS, (data, model, *asked)),
        ("scikit-learn", few, _SCIKIT_LEARN, (data.replace(".zarr", ".npy"), *asked, str(few))),
    ):
        printed, peak = child(code, *values)
        seconds, products, residual = json.loads(printed)
        took[name] = seconds, peak
        matrix = round(8e-6 * count**2)
        lines.append([name, count, round(seconds, 1), round(peak), matrix, products or "", residual or ""])
    shutil.rmtree(model, ignore_errors=True)
    what = f"exact kernel PCA of MNIST, {COMPONENTS} components, residuals below 1e-2"
    header = ["what", "rows", "seconds", "peak MB", "Gram matrix, MB", "products", "largest residual"]
    yield Table(what[0].upper() + what[1:], header, lines)
    seconds, peak = took["bigkpca"]
    yield Target(what, seconds, "at most", _SECONDS, "s")
    yield Target(f"{what}: peak", peak, "at most", _MEGABYTES, "MB")
    X = some_rows(mnist(), few)
    lanczos = exact_eigenpairs(X, MEDIAN_DISTANCE, COMPONENTS, folder / f"exact-{few}.npz").values
    lines = []
    for products in (0, 1, 2):
        kpca = KernelPCA(COMPONENTS, sigma=MEDIAN_DISTANCE, size=size, refine=products, random_state=0).fit(X)
        errors = np.abs(kpca.eigenvalues_ / lanczos - 1)
        lines.append([products, float(errors.max()), float(errors[-1])])
    title = f"Against a Lanczos solver on the matrix, {few} rows: relative error by products after Nyström"
    yield Table(title, ["refine", "largest of 50 eigenvalues", f"eigenvalue {COMPONENTS}"], lines)
