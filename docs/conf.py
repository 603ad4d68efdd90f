"""The site of the documentation: `sphinx-build -W -n -b html docs build/site`, with `pip install '.[docs]'`."""

from __future__ import annotations

import inspect
import re
import shutil
from importlib.metadata import version as version_of
from pathlib import Path
from typing import Any

import matplotlib.style
import numpydoc.xref
from click.testing import CliRunner

from bigkpca.cli.demo import demo

DOCS = Path(__file__).parent
ROOT = DOCS.parent

project = "bigkpca"
version = release = version_of("bigkpca")
extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.intersphinx",
    "sphinx_click",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
]
html_theme = "furo"
html_title = f"bigkpca {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_copyright = False
pygments_style = "friendly"
highlight_language = "none"
smartquotes = False  # quotes belong to values of options
exclude_patterns = ["auto_gallery/*.ipynb", "gallery"]
copybutton_exclude = ".linenos, .gp, .go"
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

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
numpydoc.xref.DEFAULT_LINKS.clear()  # words such as "array", which here may also be of Dask or Zarr
numpydoc_xref_ignore = "all"  # but for these
numpydoc_xref_aliases = {
    name: f"bigkpca.{path}.{name}"
    for path, names in {
        "comparing": ["Comparison", "Trial"],
        "errors": [
            "CorruptionError",
            "DataError",
            "DriftError",
            "IncompleteError",
            "LockedError",
            "MemoryLimitError",
            "SpecError",
        ],
        "execution.plan": ["Plan"],
        "execution.progress": ["Progress"],
        "ingesting": ["Ingested"],
        "kernels": ["Kernel"],
        "numerics.bandwidth": ["Length", "Lengths"],
        "numerics.certificate": ["Certificate"],
        "numerics.eigenpairs": ["Solution"],
        "numerics.evaluation": ["Estimate", "Evaluation"],
        "numerics.model": ["Model"],
        "preimages": ["Decoder", "Preimage"],
        "workflows.export": ["Exported"],
        "workflows.verify": ["Verified"],
    }.items()
    for name in names
} | {
    "KernelPCA": "bigkpca.KernelPCA",
    "DataArray": "xarray.DataArray",
    "DataFrame": "pandas.DataFrame",
    "RandomState": "numpy.random.RandomState",
}

# Other projects: inventories of the names that pages use, so that a build needs no network.
intersphinx_mapping = {
    name: (address, f"inventories/{name}.inv")
    for name, address in {
        "dask": "https://docs.dask.org/en/stable/",
        "matplotlib": "https://matplotlib.org/stable/",
        "numpy": "https://numpy.org/doc/stable/",
        "pandas": "https://pandas.pydata.org/docs/",
        "sklearn": "https://scikit-learn.org/stable/",
        "xarray": "https://docs.xarray.dev/en/stable/",
    }.items()
}

# The gallery: each script of docs/gallery is run and becomes a page.
matplotlib.style.use(DOCS / "gallery" / "gallery.mplstyle")
sphinx_gallery_conf = {
    "examples_dirs": "gallery",
    "gallery_dirs": "auto_gallery",
    "filename_pattern": "",
    "ignore_pattern": "draw_",
    "within_subsection_order": "FileNameSortKey",
    "abort_on_example_error": True,
    "backreferences_dir": None,
    "reset_modules": (),  # which would reset the style
    "image_srcset": ["2x"],
    "capture_repr": (),
    "download_all_examples": False,
    "min_reported_time": 10_000,
    "show_signature": False,
    "write_computation_times": False,
}

# Files outside this folder that are pages of the site.
PAGES = {
    "CHANGELOG.md": "repository/changelog.md",
    "CONTRIBUTING.md": "repository/contributing.md",
    "README.md": "index.md",
} | {f"deploy/{name}/README.md": "scheduled.md" for name in ("docker", "kubernetes", "prometheus", "slurm", "systemd")}


def links_within_the_site(text: str, folder: Path) -> str:
    """A page of `folder` whose links to files outside this folder, or of such files, lead to pages of the site."""

    def link(found: re.Match[str]) -> str:
        target = (folder / found["path"]).resolve()
        if not target.is_relative_to(ROOT):
            return found[0]
        path = target.relative_to(ROOT).as_posix()
        page = PAGES.get(path, path.removeprefix("docs/") if path.startswith("docs/") else None)
        if page is None:
            return found[0]
        shown = "" if found["text"].endswith(target.name) else found["text"]  # the title in place of a file's name
        return f"[{shown}](/{page}{found['heading'] or ''})"

    return re.sub(r"\[(?P<text>[^\[\]]*)\]\((?P<path>[\w./-]+\.md)(?P<heading>#[\w-]*)?\)", link, text)


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


def with_defaults(value: Any, lines: list[str]) -> None:
    """Adds to the types of parameters their defaults, from the signature."""
    try:
        known = inspect.signature(value).parameters
    except (TypeError, ValueError):
        return
    for i, line in enumerate(lines):
        name, _, kind = line.partition(" : ")
        default = known[name].default if kind and name in known else inspect.Parameter.empty
        shown = f'"{default}"' if isinstance(default, str) else repr(default)
        if not shown.startswith("<") and not kind.endswith("optional"):  # such as <factory> and <class '..._empty'>
            lines[i] = f"{name} : {kind}, default: {shown}"


def as_plain_text(app: Any, context: Any, lines: list[str]) -> None:
    """Help texts of commands have no markup. What sphinx-click sets apart, defaults and choices, ends them instead."""
    text = -1  # the last line of the help of an option
    for i, line in enumerate(lines):
        apart = re.match(r"\s*:(default|options): (.*)", line)
        if not line.startswith(".. "):
            lines[i] = re.sub(r"([*`|\\]|(?<=\w)_(?!\w))", r"\\\1", line)
        if apart:
            lines[text] += "  [default: " if apart[1] == "default" else "  [one of: "
            lines[text] += apart[2].strip("`'").replace(" | ", ", ") + "]"
            lines[i] = ""
        elif line.strip():
            text = i


def examples_of_command(app: Any, context: Any, lines: list[str]) -> None:
    """The examples that end the help of a command."""
    block = [".. code-block:: console", "", *(f"   $ {line}" for line in context.command.examples), ""]
    lines += [".. rubric:: Examples", "", *block]


def setup(app: Any) -> None:
    def read_page(app: Any, name: str, source: list[str]) -> None:
        source[0] = links_within_the_site(source[0], (DOCS / name).parent)

    def read_included(app: Any, path: Path, name: str, source: list[str]) -> None:
        source[0] = links_within_the_site(source[0], (DOCS / path).resolve().parent)

    def read_docstring(app: Any, what: str, name: str, value: Any, options: Any, lines: list[str]) -> None:
        if what in ("class", "function", "method"):
            with_defaults(value, lines)
        docstring_as_rest(lines)
        if what == "module" and "Examples" in lines:  # numpydoc leaves these sections as they are
            start = lines.index("Examples")
            lines[start : start + 2] = [".. rubric:: Examples", ""]

    def add_report(app: Any, error: Exception | None) -> None:
        """The report of `bigkpca demo`, which the front page shows."""
        if error is None and app.builder.format == "html":
            folder = Path(app.doctreedir) / "demo"
            CliRunner().invoke(demo, [str(folder), "--quiet"], catch_exceptions=False)
            shutil.copy(folder / "report.html", app.outdir)

    app.connect("build-finished", add_report)
    app.connect("source-read", read_page)
    app.connect("include-read", read_included)
    app.connect("autodoc-process-docstring", read_docstring, priority=400)  # before numpydoc
    app.connect("sphinx-click-process-description", as_plain_text)
    app.connect("sphinx-click-process-options", as_plain_text)
    app.connect("sphinx-click-process-epilog", examples_of_command)
