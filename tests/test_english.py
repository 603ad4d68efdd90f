"""Pages, docstrings, comments and messages avoid phrases that are wrong almost everywhere in this project.

CONTRIBUTING.md has the rules behind them. Code is skipped: fenced blocks, names in backticks, expressions in strings.
"""

import io
import re
import tokenize

from tests.helpers.files import ROOT

BETTER = {
    r"told\b(?! apart)|tells? (of|how|what|whether|which|who)\b|must tell\b": "shows, reports, describes, defines",
    r"heed(s|ed|ing)?\b": "honour, respect",
    r"mend(s|ed|ing)?\b": "repair, fix",
    r"(is|are|was|were|lies|stands) in the way\b": "already exists",
    r"(?<!there )(is|are|was|were) no (?!longer|more|less|\w+er\b)": "is not a, are not",
    r"(ours|theirs)\b": "name it",
    r"of one's own\b": "custom, separate",
    r"that of those\b": "name it",
    r"nobody means\b": "probably missing, ambiguous",
    r"of whatever\b": "of any",
    r"till\b": "until",
}
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
CODE = [*(ROOT / "bigkpca").rglob("*.py"), *(ROOT / "docs" / "gallery").glob("*.py")]


def prose(path):
    """A page without its code, or the comments and strings of a module, with single spaces."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        text = re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S)
    else:
        tokens = tokenize.generate_tokens(io.StringIO(text).readline)
        kinds = {"COMMENT", "STRING", "FSTRING_MIDDLE"}
        text = "\n".join(token.string.lstrip("# ") for token in tokens if tokenize.tok_name[token.type] in kinds)
    return " ".join(re.sub(r"`[^`\n]*`|\{[^{}\n]*\}", "", text).split())


def test_the_phrases_of_the_list_are_not_used():
    found = [
        f"{path.relative_to(ROOT)}: ...{text[max(match.start() - 45, 0) : match.end() + 30]}... ({better})"
        for path in sorted(PAGES + CODE)
        for text in [prose(path)]
        for phrase, better in BETTER.items()
        for match in re.finditer(rf"\b(?:{phrase})", text, re.I)
    ]
    assert not found, "\n".join(found)
