"""The site of the documentation: `sphinx-build -W -n -b html docs build/site`, with `pip install '.[docs]'`."""

from __future__ import annotations

import re
from importlib.metadata import version as version_of
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpydoc.xref

DOCS = Path(__file__).parent
ROOT = DOCS.parent

project = "bigkpca"
version = release = version_of("bigkpca")
extensions = ["myst_parser", "sphinx.ext.autodoc", "numpydoc", "matplotlib.sphinxext.plot_directive"]
html_theme = "furo"
html_title = f"bigkpca {release}"
html_copy_source = False
html_show_copyright = False
pygments_style = "friendly"
highlight_language = "none"
smartquotes = False  # quotes belong to values of options

# Pages.
myst_heading_anchors = 4  # links of the form page.md#heading, as forges know them
myst_enable_extensions = ["colon_fence"]

# The reference.
default_role = "py:obj"  # `name` in a docstring is a link where the name is documented, and code everywhere
nitpick_ignore_regex = [("py:obj", ".*")]
autodoc_typehints = "none"  # docstrings say more: shapes and units
autodoc_member_order = "bysource"
numpydoc_show_class_members = False
numpydoc_xref_param_type = True
numpydoc.xref.DEFAULT_LINKS.clear()  # to pages of Python and NumPy, whose inventories a build would have to fetch
numpydoc_xref_ignore = "all"  # but for these
numpydoc_xref_aliases = {
    name: f"bigkpca.{path}.{name}"
    for path, names in {
        "comparing": ["Comparison"],
        "comparing.results": ["TrialGroup"],
        "comparing.trials": ["TrialResult"],
        "errors": [
            "CorruptionError",
            "DataError",
            "DriftError",
            "IncompleteError",
            "LockedError",
            "MemoryLimitError",
            "SpecError",
        ],
        "evaluating": ["CrossValidation", "Setting"],
        "execution.planning": ["Plan"],
        "execution.progress": ["Progress"],
        "ingesting": ["Ingested"],
        "kernels": ["Kernel"],
        "numerics.bandwidth": ["Length"],
        "numerics.certificates": ["Certificate"],
        "numerics.eigenpairs": ["Solution"],
        "numerics.evaluation": ["Estimate", "Evaluation"],
        "numerics.model": ["Model"],
        "preimages": ["Decoder", "Preimage"],
        "workflows.export": ["Exported"],
        "workflows.verify": ["Verified"],
    }.items()
    for name in names
} | {"KernelPCA": "bigkpca.KernelPCA"}

# The gallery. Vector graphics are sharp at every width.
plot_formats = ["svg"]
plot_html_show_formats = False
plot_html_show_source_link = False
plot_apply_rcparams = True
plot_rcparams = dict(mpl.rc_params_from_file(DOCS / "gallery" / "gallery.mplstyle", use_default_template=False))

# Files outside this folder that are pages of the site.
PAGES = {
    "CHANGELOG.md": "repository/changelog.md",
    "CONTRIBUTING.md": "repository/contributing.md",
    "README.md": "index.md",
} | {f"deploy/{name}/README.md": "repository/deploy.md" for name in ("docker", "kubernetes", "prometheus", "slurm")}
PAGES["deploy/systemd/README.md"] = "repository/deploy.md"


def links_within_the_site(text: str, folder: Path) -> str:
    """A page of `folder` whose links to files outside this folder, or of such files, lead to pages of the site."""

    def link(found: re.Match[str]) -> str:
        target = (folder / found[1]).resolve()
        if not target.is_relative_to(ROOT):
            return found[0]
        path = target.relative_to(ROOT).as_posix()
        page = PAGES.get(path, path.removeprefix("docs/") if path.startswith("docs/") else None)
        return found[0] if page is None else f"](/{page}{found[2] or ''})"

    return re.sub(r"\]\(([\w./-]+\.md)(#[\w-]*)?\)", link, text)


def docstring_as_rest(lines: list[str]) -> None:
    """Plain text as reStructuredText: what is set off after a colon is shown as it stands, bars of norms and trailing
    underscores have no meaning, pages of this folder are links."""
    set_off_from = None  # the indent of the line with the colon
    for i, line in enumerate(lines):
        indent, below = (len(each) - len(each.lstrip()) for each in (line, "".join(lines[i + 2 : i + 3])))
        if set_off_from is not None and line and indent <= set_off_from:
            set_off_from = None
        if set_off_from is None and not line.lstrip().startswith((">>>", "...")):
            parts = re.split(r"(`[^`]*`)", line)  # every second one is code
            parts[::2] = [re.sub(r"\||(?<=\w)_(?!\w)", r"\\\g<0>", part) for part in parts[::2]]
            parts[1::2] = [re.sub(r"^`docs/([\w-]+)\.md`$", r":doc:`/\1`", part) for part in parts[1::2]]
            lines[i] = "".join(parts)
        if line.endswith(":") and lines[i + 1 : i + 2] == [""] and below > indent:
            set_off_from = indent
            lines[i] += ":"


def setup(app: Any) -> None:
    def read_page(app: Any, name: str, source: list[str]) -> None:
        source[0] = links_within_the_site(source[0], (DOCS / name).parent)

    def read_included(app: Any, path: Path, name: str, source: list[str]) -> None:
        source[0] = links_within_the_site(source[0], (DOCS / path).resolve().parent)

    def read_docstring(app: Any, what: str, name: str, value: Any, options: Any, lines: list[str]) -> None:
        docstring_as_rest(lines)
        if what == "module" and "Examples" in lines:  # numpydoc leaves these sections as they are
            start = lines.index("Examples")
            lines[start : start + 2] = [".. rubric:: Examples", ""]

    app.connect("source-read", read_page)
    app.connect("include-read", read_included)
    app.connect("autodoc-process-docstring", read_docstring, priority=400)  # before numpydoc
