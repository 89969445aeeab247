"""The language in which nsqd and nsqadmin are asked for messages by what their bodies hold."""

import re

SIZE_MAX = 1024  # bytes of a search
TERMS_MAX = 7

_QUOTED = r'"((?:[^"\\]|\\.)*)"'
_FIRST = re.compile(_QUOTED + r'|([^\s":]+)', re.DOTALL)
_VALUE = re.compile(_QUOTED + r'|([^\s"]+)', re.DOTALL)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)


def parse_search(text: str) -> tuple[tuple[bytes, bytes], ...]:
    """The terms, all of which have to be met: a path of keys and its value, or an empty path and a text.

    `status:failed user.id:17 "card declined"`: what is quoted may have spaces, colons and, behind a backslash, quotes.
    ValueError: it is no search; its text says why, in one line.
    """
    terms = list[tuple[bytes, bytes]]()
    at = 0
    while at < len(text):
        if text[at].isspace():
            at += 1
            continue
        path, (value, at) = "", _read(_FIRST, text, at)
        if text[at : at + 1] == ":":
            path, (value, at) = value, _read(_VALUE, text, at + 1)
            if not path:
                raise ValueError('"" is no path of keys')
        elif not value:
            raise ValueError('"" is in every body')
        if at < len(text) and not text[at].isspace():
            raise ValueError(_explain(text, at))
        terms.append((_encode(path), _encode(value)))
    if len(terms) > TERMS_MAX:
        raise ValueError(f"it has more than {TERMS_MAX} terms")
    if len(_encode(text)) > SIZE_MAX:
        raise ValueError(f"it has more than {SIZE_MAX} bytes")
    return tuple(terms)


def _read(pattern: re.Pattern[str], text: str, at: int) -> tuple[str, int]:
    """What is there, and where it ends."""
    found = pattern.match(text, at)
    if found is None:
        raise ValueError(_explain(text, at))
    quoted, bare = found.groups()
    return (_ESCAPE.sub(r"\1", quoted) if bare is None else bare), found.end()


def _explain(text: str, at: int) -> str:
    if text.startswith('"', at) and not _FIRST.match(text, at):
        return "a quote is not closed"
    return 'what has colons, quotes or spaces needs quotes around it: "a:b", "\\"a\\": 1"'


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
