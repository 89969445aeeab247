"""A page of nsqadmin as somebody without scripts has it: what /ui/live would keep up to date, by its keys."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import NamedTuple

VOID = frozenset({"meta", "link", "input", "img", "br", "path"})


class Element(NamedTuple):
    tag: str
    attributes: dict[str, str]
    pieces: list[str]

    @property
    def text(self) -> str:
        return " ".join("".join(self.pieces).split())


class PageHtml(HTMLParser):
    """`texts` by data-text, `hidden` by data-shown, `rows` by table and data-key as {column: text}, `links` by text."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.texts: dict[str, str] = {}
        self.hidden: dict[str, bool] = {}
        self.rows: dict[str, dict[str, dict[str, str]]] = {}
        self.links: dict[str, str] = {}
        self.elements: list[Element] = []
        self._open: list[Element] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = Element(tag, {name: value or "" for name, value in attrs}, [])
        self.elements.append(element)
        if "data-shown" in element.attributes:
            self.hidden[element.attributes["data-shown"]] = "hidden" in element.attributes
        if tag not in VOID:
            self._open.append(element)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(Element(tag, {name: value or "" for name, value in attrs}, []))

    def handle_data(self, data: str) -> None:
        for element in self._open:
            element.pieces.append(data)

    def handle_endtag(self, tag: str) -> None:
        element = self._open.pop()
        assert element.tag == tag, (element.tag, tag)
        attributes = element.attributes
        if "data-text" in attributes:
            self.texts[attributes["data-text"]] = element.text
        if tag == "a":
            self.links[element.text] = attributes.get("href", "")
        if "data-col" in attributes:
            self._take_cell(attributes["data-col"], element)

    def _take_cell(self, column: str, element: Element) -> None:
        if any(each.tag == "template" for each in self._open):
            return
        table = next(each for each in self._open if "data-table" in each.attributes)
        row = next(each for each in self._open if "data-key" in each.attributes)
        cells = self.rows.setdefault(table.attributes["data-table"], {})
        first = self.elements[self.elements.index(element) + 1] if element.tag == "th" else element
        cells.setdefault(row.attributes["data-key"], {})[column] = first.text
