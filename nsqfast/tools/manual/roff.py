"""The few requests of roff that a man page needs; see man(7) and groff_man(7)."""

import textwrap

WIDTH = 78


def escape(text: str) -> str:
    """Text that shows as it is: a hyphen can be copied as a minus, and no line is taken for a request."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{text}" if text[:1] in {".", "'"} else text


def title(name: str, date: str) -> list[str]:
    """The head of a page of section 1."""
    return [f'.TH "{escape(name.upper())}" "1" "{date}" "nsqfast" "NSQ"']


def section(name: str) -> list[str]:
    """A section."""
    return [f".SH {_quote(name.upper())}"]


def subsection(name: str) -> list[str]:
    """A part of a section."""
    return [f".SS {_quote(name)}"]


def paragraph(text: str) -> list[str]:
    """A paragraph."""
    return [".PP", *_lines(text)]


def entry(tag: str, text: str) -> list[str]:
    """One of a list: a tag, which is roff already, and its explanation."""
    return [".TP", tag, *_lines(text)]


def example(command: str) -> list[str]:
    """Lines that are shown as they are, indented."""
    shown = [escape(line) for line in command.splitlines()]
    return [".PP", ".RS 4", ".nf", *shown, ".fi", ".RE"]


def bold(text: str) -> str:
    """Text in bold."""
    return f"\\fB{escape(text)}\\fR"


def italic(text: str) -> str:
    """Text in italics."""
    return f"\\fI{escape(text)}\\fR"


def _lines(text: str) -> list[str]:
    wrapped = textwrap.wrap(text, WIDTH, break_long_words=False, break_on_hyphens=False)
    return [escape(line) for line in wrapped]


def _quote(text: str) -> str:
    return f'"{escape(text)}"' if " " in text else escape(text)
