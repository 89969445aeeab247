"""Bodies of messages as pages show them: text, bytes in hex, or the reason why they are hidden."""

import base64
from typing import Literal

import msgspec

from nsqfast.nsqadmin.messages.masks import Masks

Kind = Literal["text", "binary", "hidden"]

NOT_ALLOWED = "Only admins may see bodies here (--viewer-sees-bodies changes that)."
HEX_ROW = 16
PREVIEW_SIZE = 200
SHOWN = bytes(byte if 32 <= byte < 127 else ord(".") for byte in range(256))


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
    """Show a message's body, of which `piece` is the beginning, or all of it."""
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
