"""Parts of a View other than texts and tables: chips and links."""

from dataclasses import dataclass
from typing import Any, Literal

from nsqfast.nsqadmin.web.texts import pieces_of

Kind = Literal["ok", "warn", "crit", "info", "off"]


@dataclass(frozen=True, slots=True)
class State:
    """A chip: `kind` determines shape and colour, and `word` says the same."""

    kind: Kind
    word: str
    title: str = ""

    def to_json(self) -> dict[str, Any]:
        """As `/ui/live` sends it."""
        return {"kind": self.kind, "word": pieces_of(self.word), "title": self.title}


@dataclass(frozen=True, slots=True)
class Link:
    """A crumb, a tab, a filter; `count` is the key in View.texts of a number after the text."""

    text: str
    href: str
    is_current: bool = False
    count: str = ""
