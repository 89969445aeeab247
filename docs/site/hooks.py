"""What the site has beside docs/: files of the project that its pages link to, and a page with the examples.

A page keeps the links that it has in the repository, such as `../examples/worker.py` in docs/CLIENT.md. Here they get
the place that the file has on the site.
"""

from __future__ import annotations

import ast
import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING

from mkdocs.structure.files import File, Files

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
PAGES = (
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "RELEASING.md",
    "SECURITY.md",
    "benchmarks/NOTES.md",
    *(str(path.relative_to(ROOT)) for path in sorted(ROOT.glob("benchmarks/results/*.md"))),
)
EXAMPLES = "examples.md"
OPTIONS = "reference/configuration.md"
LANGUAGES = {".py": "python", ".go": "go", ".js": "js", ".mjs": "js", ".rs": "rust", ".sh": "sh"}
_LINK = re.compile(r"(?<=\]\()([^)\s#]+)(#[^)\s]*)?(?=[)\s])")
_CODE = re.compile(r"^([ \t]*)(```+|~~~+).*?^\1\2[ \t]*$|`[^`\n]+`", re.DOTALL | re.MULTILINE)
_DIAGRAM = re.compile(r"""<img\b[^>]*\bsrc="([^"]*diagrams/[\w-]+\.svg)"[^>]*>""")
# What the tests of the documents go by (tests/documents/harness).
_MARK = re.compile(
    r"^[ \t]*<!--\s*(?:not run|any order|terminal|fails|port|needs|run)\b.*?-->[ \t]*\n",
    re.DOTALL | re.MULTILINE,
)


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add what stands elsewhere."""
    for name in PAGES:
        if (ROOT / name).exists():
            files.append(File.generated(config, name, abs_src_path=str(ROOT / name)))
    files.append(File.generated(config, EXAMPLES, content=write_examples()))
    linked = {target for page in files.documentation_pages() for target in list_targets(page)}
    for path in sorted(linked):
        if not path.startswith("docs/") and is_copied(path):
            files.append(File.generated(config, path, abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown: str, *, page: Page, **_: object) -> str:
    """Links to the places on the site; comments for tests are left out."""
    markdown = _MARK.sub("", markdown)
    return outside_code(markdown, lambda text: _LINK.sub(lambda link: relink(link, page), text))


def on_page_content(html: str, *, page: Page, **_: object) -> str:
    """Diagrams become part of the page, so that they take the colours that its reader chose."""
    folder = Path(str(page.file.abs_src_path)).parent

    def include(picture: re.Match[str]) -> str:
        svg = (folder / picture[1]).read_text(encoding="utf-8")
        return re.sub(r"^\s+", "", svg, flags=re.MULTILINE)

    html = _DIAGRAM.sub(include, html)
    return f'<div class="options">{html}</div>' if page.file.src_uri == OPTIONS else html


def relink(link: re.Match[str], page: Page) -> str:
    """The same file, as seen from where the page is on the site."""
    target = resolve(link[1], repository_path(page.file))
    is_among_docs = target is not None and target.startswith("docs/")
    if target is None or (is_among_docs and repository_path(page.file).startswith("docs/")):
        return link[0]
    anchor = link[2] or ""
    if is_among_docs:
        target = target.removeprefix("docs/")
    elif target == "README.md":
        target = "index.md"
    elif target.startswith("examples") and not is_copied(target):
        target, anchor = EXAMPLES, anchor or example_anchor(target)
    return posixpath.relpath(target, posixpath.dirname(page.file.src_uri) or ".") + anchor


def list_targets(file: File) -> set[str]:
    """Files of the repository that a page links to, by their path in it."""
    found: set[str] = set()
    for link in _LINK.finditer(_CODE.sub("", file.content_string)):
        target = resolve(link[1], repository_path(file))
        if target is not None:
            found.add(target)
    return found


def repository_path(file: File) -> str:
    is_elsewhere = file.src_uri in PAGES or file.src_uri == EXAMPLES
    return file.src_uri if is_elsewhere else f"docs/{file.src_uri}"


def resolve(link: str, page: str) -> str | None:
    """The path in the repository of what a page links to; None if it is no file of ours."""
    if "://" in link or link.startswith(("/", "mailto:")):
        return None
    path = posixpath.normpath(posixpath.join(posixpath.dirname(page), link))
    return path if not path.startswith("..") and (ROOT / path).exists() else None


def is_copied(path: str) -> bool:
    """Whether it goes on the site as it is: neither a page, nor shown on the one with the examples."""
    is_example = path.startswith("examples/") and Path(path).suffix in LANGUAGES
    return (ROOT / path).is_file() and not path.endswith(".md") and not is_example


def outside_code(markdown: str, change: object) -> str:
    """Apply `change` to all that is not code."""
    assert callable(change)
    parts, end = [], 0
    for code in _CODE.finditer(markdown):
        parts += [change(markdown[end : code.start()]), code[0]]
        end = code.end()
    return "".join([*parts, change(markdown[end:])])


def example_anchor(path: str) -> str:
    name = path.removeprefix("examples").strip("/")
    return "#" + re.sub(r"\W+", "-", name).lower() if name else ""


def write_examples() -> str:
    """A page with every program in examples/: what it does, and its text."""
    parts = ["# Examples\n\nPrograms to start from. Each says in its first lines how to run it.\n"]
    for path in sorted((ROOT / "examples").rglob("*")):
        if path.suffix in LANGUAGES and not {"node_modules", "target"} & set(path.parts):
            name = str(path.relative_to(ROOT / "examples"))
            anchor = example_anchor(f"examples/{name}").removeprefix("#")
            parts.append(f"## {name} {{ #{anchor} }}\n\n{describe(path)}")
            text = path.read_text(encoding="utf-8").rstrip()
            parts.append(f"````{LANGUAGES[path.suffix]}\n{text}\n````\n")
    return "\n".join(parts)


def describe(path: Path) -> str:
    """The first sentence of a program's docstring."""
    if path.suffix != ".py":
        return ""
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return docstring.partition("\n\n")[0] + "\n"
