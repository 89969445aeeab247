"""Filter and reduce messages: --require-json-field, --require-json-value, --whitelist-json-field."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from nsqfast.tools.nsq_to_nsq.go_json import INT64_LIMIT, decode_object, encode, encode_members
from nsqfast.tools.shared.program import log

SHOWN_SIZE = 1000  # bytes of a body in a log line

_DECIMAL = re.compile(
    r"[+-]?(\d(_?\d)*(\.(\d(_?\d)*)?)?|\.\d(_?\d)*)([eE][+-]?\d(_?\d)*)?", re.ASCII
)
_HEX = re.compile(
    r"[+-]?0[xX]_?([\da-fA-F](_?[\da-fA-F])*\.?([\da-fA-F](_?[\da-fA-F])*)?|\.[\da-fA-F](_?[\da-fA-F])*)"
    r"[pP][+-]?\d(_?\d)*",
    re.ASCII,
)
_WORD = re.compile(r"[+-]?(inf|infinity)|nan", re.IGNORECASE)


class Verdict(Enum):
    """What happens to a message that does not pass."""

    DROP = "finished, without being published"
    FAIL = "requeued, with backoff"


def parse_go_float(text: str) -> float | None:
    """Like Go's ParseFloat; None = not a number, or too large for one."""
    if _WORD.fullmatch(text):
        return float(text)
    read = float if _DECIMAL.fullmatch(text) else float.fromhex if _HEX.fullmatch(text) else None
    if read is None:
        return None
    try:
        number = read(text.replace("_", ""))
    except OverflowError:
        return None
    return None if math.isinf(number) else number


@dataclass(frozen=True, slots=True)
class JsonFilter:
    """Requires `field` with `value` ("" = none), and publishes only the fields of `whitelist` ([] = all)."""

    field: str
    value: str
    whitelist: Sequence[str]

    @property
    def rewrites(self) -> bool:
        """Whether it changes the bodies that pass."""
        return bool(self.whitelist)

    def __bool__(self) -> bool:
        return bool(self.field or self.whitelist)

    def judge(self, body: bytes) -> bytes | Verdict:
        """The body to publish, or a Verdict."""
        try:
            message = decode_object(body)
            if verdict := self._check(message):
                return verdict
            return self._project(message) if self.whitelist else body
        except ValueError:
            shown = body[:SHOWN_SIZE].decode("utf-8", "replace")
            more = f"... ({len(body)} bytes)" if len(body) > SHOWN_SIZE else ""
            # Go's line unchanged; its tools' own lines have no level.
            log.info("ERROR: Unable to decode json: %s%s", shown, more)
            return Verdict.DROP
        except RecursionError:
            log.error("a body of %d bytes is nested too deeply to be read", len(body))
            return Verdict.FAIL

    def _check(self, message: dict[str, Any]) -> Verdict | None:
        if not self.field:
            return None
        if self.field not in message:
            if not self.value:
                return Verdict.DROP
            log.info("ERROR: missing field to check required value")
            return Verdict.FAIL
        if self.value and not self._matches(message[self.field]):
            return Verdict.DROP
        return None

    def _matches(self, found: Any) -> bool:
        if isinstance(found, str):
            return found == self.value
        is_number = isinstance(found, int | float) and not isinstance(found, bool)
        return is_number and float(found) == parse_go_float(self.value)

    def _project(self, message: dict[str, Any]) -> bytes:
        members = {key: _encode_member(message[key]) for key in self.whitelist if key in message}
        return encode_members(members).encode()


def _encode_member(value: Any) -> str:
    """A number at the top level is written as an integer, to the last digit, if it is one that 64 bits hold."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        number = float(value)
        if number.is_integer() and -INT64_LIMIT <= number < INT64_LIMIT:
            return str(int(number))
    return encode(value)
