"""Topic and channel names (spec nsqd-tcp §3): 1 to 64 of . a-z A-Z 0-9 _ - with an optional suffix #ephemeral."""

import re

NAME_SIZE_MAX = 64
EPHEMERAL = "#ephemeral"

_NAME = re.compile(r"[.a-zA-Z0-9_-]+(#ephemeral)?")


def is_valid_name(name: str) -> bool:
    """Whether this is a valid name for a topic or channel; the suffix counts towards the 64."""
    return len(name) <= NAME_SIZE_MAX and _NAME.fullmatch(name) is not None


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
