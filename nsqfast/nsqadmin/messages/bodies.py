"""Bodies of messages as pages show them: text, bytes in hex, or the reason why they are hidden. docs/ADMIN.md says from
whom --mask-json hides what.
"""

import base64
import json
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import msgspec

MASK = "***"
# Limits the nesting of JSON within JSON strings.
INNER_DEPTH_MAX = 4
Kind = Literal["text", "binary", "hidden"]
NOT_ALLOWED = "Only admins may see bodies here (--viewer-sees-bodies changes that)."
HEX_ROW = 16
PREVIEW_SIZE = 200
SHOWN = bytes(byte if 32 <= byte < 127 else ord(".") for byte in range(256))


class Masked(NamedTuple):
    """`body` is the text to show; if `reason` is not '', the body is hidden, and it says why."""

    body: bytes
    is_changed: bool = False
    reason: str = ""


class Masks:
    """The keys of --mask-json, whose case does not matter."""

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
            is_named = self._mentions_key(value.encode("utf-8", "replace"))
            return (MASK, True) if is_named else (value, False)
        hidden, is_changed = self._hide_in(inner, inner_depth + 1)
        return (json.dumps(hidden, ensure_ascii=False), True) if is_changed else (value, False)


class Body(msgspec.Struct, frozen=True):
    """`body` is the text, or base64 of binary data; '' if it is hidden, and `reason` says why."""

    kind: Kind
    body: str = ""
    reason: str = ""
    is_masked: bool = False
    is_truncated: bool = False

    @property
    def data(self) -> bytes:
        """The bytes that may be shown."""
        return base64.b64decode(self.body) if self.kind == "binary" else self.body.encode()

    @property
    def preview(self) -> str:
        """Its beginning, in one line."""
        if self.kind == "hidden":
            return "Hidden"
        text = (
            self.body if self.kind == "text" else self.data[:PREVIEW_SIZE].translate(SHOWN).decode()
        )
        return " ".join(text[:PREVIEW_SIZE].split()) or "(blank)"

    @property
    def hex(self) -> str:
        """Sixteen bytes per line, with their offset before and ASCII characters after them."""
        return hex_dump(self.data)


def hex_dump(data: bytes) -> str:
    """`00000000  68 65 6c 6c 6f                                    |hello|`, a line each."""
    digits, shown = data.hex(" "), data.translate(SHOWN).decode("ascii")
    width = 3 * HEX_ROW - 1
    return "\n".join(
        f"{start:08x}  {digits[3 * start : 3 * start + width]:<{width}}  |{shown[start : start + HEX_ROW]}|"
        for start in range(0, len(data), HEX_ROW)
    )


def show_body(piece: bytes, *, is_whole: bool, masks: Masks, is_admin: bool) -> Body:
    masked = masks.hide(piece, is_whole=is_whole, is_admin=is_admin)
    if masked.reason:
        return Body("hidden", reason=masked.reason, is_truncated=not is_whole)
    text = _decode(masked.body, is_whole=is_whole)
    # HTML cannot represent a zero byte.
    if text is None or "\0" in text:
        encoded = base64.b64encode(masked.body).decode("ascii")
        return Body("binary", encoded, is_masked=masked.is_changed, is_truncated=not is_whole)
    return Body("text", text, is_masked=masked.is_changed, is_truncated=not is_whole)


def _decode(piece: bytes, *, is_whole: bool) -> str | None:
    """None if it is not UTF-8, except for a last character that was cut in two."""
    try:
        return piece.decode()
    except UnicodeDecodeError as error:
        if not is_whole and error.reason == "unexpected end of data":
            return piece[: error.start].decode()
    return None
