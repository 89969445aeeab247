"""Hide values in bodies: --mask-json.

A JSON body is rewritten without them. A body that cannot be read as JSON may contain them undetected, so viewers do not
get it; admins get it unless the name of such a key occurs in it.
"""

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

MASK = "***"
# Limits the nesting of JSON within JSON strings.
INNER_DEPTH_MAX = 4


class Masked(NamedTuple):
    """`body` is the text to show; if `reason` is not '', the body is hidden, and it says why."""

    body: bytes
    is_changed: bool = False
    reason: str = ""


class Masks:
    """Compares keys ignoring case."""

    def __init__(self, keys: Sequence[str]) -> None:
        self._keys = frozenset(key.casefold() for key in keys)

    def __bool__(self) -> bool:
        return bool(self._keys)

    def hide(self, body: bytes, *, is_whole: bool, is_admin: bool) -> Masked:
        """The visible form of `body`; not `is_whole` means the beginning of a larger one."""
        if not self._keys:
            return Masked(body)
        if is_whole:
            try:
                value = json.loads(body)
                hidden, is_changed = self._hide_in(value, 0)
                if not is_changed:
                    return Masked(body)
                return Masked(
                    json.dumps(hidden, ensure_ascii=False).encode("utf-8", "replace"), True
                )
            except (ValueError, RecursionError):
                pass
        what = "is no JSON" if is_whole else "is too large to be read as JSON"
        if not is_admin:
            return Masked(b"", reason=f"It {what}, so nobody knows what --mask-json has to hide.")
        if self._mentions_key(body):
            return Masked(b"", reason=f"It {what}, and names a key that --mask-json hides.")
        return Masked(body)

    def _mentions_key(self, body: bytes) -> bool:
        text = body.decode("utf-8", "replace").casefold()
        return any(key in text for key in self._keys)

    def _hide_in(self, value: Any, inner_depth: int) -> tuple[Any, bool]:
        """The text with masks, and whether anything was hidden."""
        if isinstance(value, dict):
            return self._hide_in_object(value, inner_depth)
        if isinstance(value, list):
            pairs = [self._hide_in(each, inner_depth) for each in value]
            return [each for each, _ in pairs], any(changed for _, changed in pairs)
        if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
            return self._hide_in_text(value, inner_depth)
        return value, False

    def _hide_in_object(self, value: dict[str, Any], inner_depth: int) -> tuple[Any, bool]:
        found, is_changed = {}, False
        for key, member in value.items():
            if key.casefold() in self._keys:
                found[key], changed = MASK, True
            else:
                found[key], changed = self._hide_in(member, inner_depth)
            is_changed |= changed
        return found, is_changed

    def _hide_in_text(self, value: str, inner_depth: int) -> tuple[str, bool]:
        if inner_depth >= INNER_DEPTH_MAX:
            return MASK, True
        try:
            inner = json.loads(value)
        except ValueError:
            return (
                (MASK, True)
                if self._mentions_key(value.encode("utf-8", "replace"))
                else (value, False)
            )
        hidden, is_changed = self._hide_in(inner, inner_depth + 1)
        return (json.dumps(hidden, ensure_ascii=False), True) if is_changed else (value, False)
