"""Versions as nsqadmin compares them: semantic versioning (semver.org, 2.0.0); anything else counts as 0.0.0."""

import re
from functools import lru_cache
from typing import TypeAlias

_NUMBER = r"(0|[1-9][0-9]*)"
_WORD = r"(?:0|[1-9][0-9]*|[0-9]*[A-Za-z-][0-9A-Za-z-]*)"
_VERSION = re.compile(
    rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}(?:-({_WORD}(?:\.{_WORD})*))?(?:\+[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?"
)

Version: TypeAlias = tuple[int, int, int, bool, tuple[tuple[bool, int, str], ...]]
ZERO: Version = (0, 0, 0, True, ())


@lru_cache(maxsize=256)
def parse_version(text: str) -> Version:
    """A sort key: 1.3.0-alpha.2 < 1.3.0-alpha.beta < 1.3.0."""
    found = _VERSION.fullmatch(text)
    if found is None or len(text) > 256:
        return ZERO
    major, minor, patch, suffix = found.groups()
    words = tuple(
        (not word.isdigit(), int(word) if word.isdigit() else 0, word)
        for word in (suffix.split(".") if suffix else ())
    )
    return int(major), int(minor), int(patch), not words, words
