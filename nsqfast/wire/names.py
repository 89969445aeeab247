"""Topic and channel names (spec nsqd-tcp §3): 1 to 64 of . a-z A-Z 0-9 _ - with an optional suffix #ephemeral."""

import re

from nsqfast.errors import InvalidNameError

NAME_SIZE_MAX = 64
EPHEMERAL = "#ephemeral"

RULE = "1 to 64 of . a-z A-Z 0-9 _ -, with #ephemeral at its end if it may vanish"

_NAME = re.compile(r"[.a-zA-Z0-9_-]+(#ephemeral)?")


def is_valid_name(name: str) -> bool:
    """Whether this is a valid name for a topic or channel; the suffix counts towards the 64."""
    return len(name) <= NAME_SIZE_MAX and _NAME.fullmatch(name) is not None


def check_name(kind: str, name: object) -> str:
    """Return the name of a `kind`, "topic" or "channel".

    InvalidNameError, which says the rule: no nsqd would take it. TypeError: it is no str.
    """
    if not isinstance(name, str):
        decoded = repr(name.decode("ascii", "replace")) if isinstance(name, bytes) else "its name"
        raise TypeError(f"a {kind} is a str, not {name!r:.80}: write {decoded:.80}")
    if not is_valid_name(name):
        raise InvalidNameError(kind, describe_invalid(name, kind))
    return name


def describe_invalid(name: str, kind: str = "topic") -> str:
    """What is wrong with a name of a `kind` that is not valid."""
    return f"{name!r:.80} is no name of a {kind}; it is {RULE}"


def is_ephemeral(name: str) -> bool:
    """Whether it exists in memory only and disappears with its last user."""
    return name.endswith(EPHEMERAL)


def quote(name: bytes) -> str:
    """`name` as Go's %q prints it: unprintable characters, and bytes that are not UTF-8, become escapes."""
    return '"' + "".join(_quoted(char) for char in name.decode("utf-8", "surrogateescape")) + '"'


_ESCAPES = {
    '"': '\\"',
    "\\": "\\\\",
    "\a": "\\a",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\v": "\\v",
}


def _quoted(char: str) -> str:
    code = ord(char)
    if char in _ESCAPES:
        return _ESCAPES[char]
    if 0xDC80 <= code <= 0xDCFF:  # a byte preserved by surrogateescape
        return f"\\x{code - 0xDC00:02x}"
    if char.isprintable():
        return char
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
