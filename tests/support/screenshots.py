"""Which pictures of docs/screenshots the documents show."""

import re

from support.imports import ROOT

FOLDER = ROOT / "docs" / "screenshots"


def list_shown() -> set[str]:
    """Return the names of the files."""
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    texts = [page.read_text(encoding="utf-8") for page in pages]
    return {name for text in texts for name in re.findall(r"\]\(\S*screenshots/(\S+)\)", text)}
