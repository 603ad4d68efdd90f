"""Kernel PCA for data that do not fit in memory.

    rows (n, d) --data--> block X_b --features--> v(X_b) --moments--> Moments       one pass, in a fixed order of sums
    Moments --solvers--> mean, components, eigenvalues = Model                      small, in memory
    rows (n, d) --> (v(X_b) - mean) @ components = scores (b, r) --storage--> zarr (n, r)
    scores --preimages--> zarr (n, d)

`KernelPCA` is an estimator with the scikit-learn interface. The command line runs `fit`, `transform`, `load` and the
other functions, with the same guarantees: a plan before anything runs, resume after a stop, and results that are
published completely or not at all.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bigkpca import arrays, plots
    from bigkpca.comparing import compare
    from bigkpca.estimator import KernelPCA
    from bigkpca.estimator.detector import KernelPCADetector
    from bigkpca.ingesting import ingest
    from bigkpca.numerics import kernels, landmarks, measures, methods, preimages
    from bigkpca.reporting import report
    from bigkpca.storage.describe import info
    from bigkpca.storage.models import load_model as load
    from bigkpca.workflows.estimates import evaluate, plan, sigma
    from bigkpca.workflows.export import export
    from bigkpca.workflows.fit import fit
    from bigkpca.workflows.scheduled import history, run
    from bigkpca.workflows.transform import denoise, reconstruct, transform
    from bigkpca.workflows.verify import verify

# Public names and their modules, loaded on first use, so that `import bigkpca` and `--help` are quick.
_PUBLIC = {
    "arrays": ("bigkpca.arrays", None),
    "KernelPCA": ("bigkpca.estimator", "KernelPCA"),
    "KernelPCADetector": ("bigkpca.estimator.detector", "KernelPCADetector"),
    "compare": ("bigkpca.comparing", "compare"),
    "denoise": ("bigkpca.workflows.transform", "denoise"),
    "evaluate": ("bigkpca.workflows.estimates", "evaluate"),
    "export": ("bigkpca.workflows.export", "export"),
    "fit": ("bigkpca.workflows.fit", "fit"),
    "history": ("bigkpca.workflows.scheduled", "history"),
    "info": ("bigkpca.storage.describe", "info"),
    "ingest": ("bigkpca.ingesting", "ingest"),
    "kernels": ("bigkpca.numerics.kernels", None),
    "landmarks": ("bigkpca.numerics.landmarks", None),
    "measures": ("bigkpca.numerics.measures", None),
    "merge": ("bigkpca.workflows.fit", "merge"),
    "methods": ("bigkpca.numerics.methods", None),
    "plan": ("bigkpca.workflows.estimates", "plan"),
    "plots": ("bigkpca.plots", None),
    "preimages": ("bigkpca.numerics.preimages", None),
    "reconstruct": ("bigkpca.workflows.transform", "reconstruct"),
    "run": ("bigkpca.workflows.scheduled", "run"),
    "sigma": ("bigkpca.workflows.estimates", "sigma"),
    "load": ("bigkpca.storage.models", "load_model"),
    "report": ("bigkpca.reporting", "report"),
    "transform": ("bigkpca.workflows.transform", "transform"),
    "verify": ("bigkpca.workflows.verify", "verify"),
}
__all__ = [
    "KernelPCA", "KernelPCADetector", "arrays", "compare", "denoise", "evaluate", "export", "fit", "history", "info",
    "ingest", "kernels", "landmarks", "load", "measures", "merge", "methods", "plan", "plots", "preimages",
    "reconstruct", "report", "run", "sigma", "transform", "verify",
]  # fmt: skip


def __dir__() -> list[str]:
    return sorted({*__all__, "__version__", *(name for name in globals() if name.startswith("__"))})


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return import_module("importlib.metadata").version("bigkpca")
    if name not in _PUBLIC:
        raise AttributeError(f"module 'bigkpca' has no attribute {name!r}")
    module, attribute = _PUBLIC[name]
    loaded = import_module(module)
    return loaded if attribute is None else getattr(loaded, attribute)
