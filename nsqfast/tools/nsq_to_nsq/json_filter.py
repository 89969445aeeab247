"""Filter and reduce messages: --require-json-field, --require-json-value, --whitelist-json-field."""

import codecs
import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import orjson

from nsqfast.tools.shared.program import log

# JSON objects as Go's encoding/json reads and writes them, byte for byte.
#
# Every number is a float64. Invalid Unicode becomes U+FFFD, one per byte. Keys are sorted, `<`, `>` and `&` escaped.

INT64_LIMIT = 2.0**63
EXPONENT_FROM = 1e21
EXPONENT_BELOW = 1e-6

_HALF_PAIR = re.compile("[\ud800-\udfff]")
_ESCAPED = {
    "<": "\\u003c",
    ">": "\\u003e",
    "&": "\\u0026",
    "\u2028": "\\u2028",
    "\u2029": "\\u2029",
}
_TO_ESCAPE = re.compile("[<>&\u2028\u2029]")
_SMALL_EXPONENT = re.compile(r"e-0(\d)$")


def _replace_each_byte(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeDecodeError)
    return "\ufffd" * (error.end - error.start), error.end


codecs.register_error("nsqfast.each_byte", _replace_each_byte)


def decode_object(body: bytes) -> dict[str, Any]:
    """ValueError: it is not an object; `null` counts as an empty one. RecursionError: it is nested too deep for us."""
    # orjson takes nothing that Go refuses, but reads -0 as 0 and refuses text that Go repairs.
    try:
        found = orjson.loads(body) if b"-0" not in body else _decode_slowly(body)
    except orjson.JSONDecodeError:
        found = _decode_slowly(body)
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise ValueError("no object")  # noqa: TRY004 - like all that is not an object in JSON
    return found


def _decode_slowly(body: bytes) -> Any:
    text = body.decode("utf-8", "nsqfast.each_byte")
    return json.loads(
        text,
        parse_int=_number,
        parse_float=_number,
        parse_constant=_refuse,
        object_pairs_hook=_repair_keys,
    )


def _refuse(text: str) -> float:
    raise ValueError(text)


def _number(text: str) -> float:
    number = float(text)
    if number in {float("inf"), float("-inf")}:
        raise ValueError(f"{text:.40} is out of range")
    return number


def _repair_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    return {repair(key): value for key, value in pairs}


def repair(text: str) -> str:
    """Replace unpaired surrogates."""
    return _HALF_PAIR.sub("\ufffd", text)


def encode(value: Any) -> str:
    """Encode compactly, like Go's Marshal; for results of `decode_object`, or parts of them."""
    if isinstance(value, str):
        return _encode_text(value)
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    if isinstance(value, int | float):
        return encode_float(float(value))
    # Loops, because a comprehension would need a second frame per level.
    if isinstance(value, list):
        texts = []
        for item in value:
            texts.append(encode(item))  # noqa: PERF401
        return f"[{','.join(texts)}]"
    members = {}
    for key, item in value.items():
        members[key] = encode(item)
    return encode_members(members)


def encode_members(members: dict[str, str]) -> str:
    """An object of values that are already encoded."""
    listed = [f"{_encode_text(key)}:{text}" for key, text in sorted(members.items())]
    return "{" + ",".join(listed) + "}"


def _encode_text(text: str) -> str:
    text = json.dumps(repair(text), ensure_ascii=False)
    return _TO_ESCAPE.sub(lambda found: _ESCAPED[found[0]], text)


def encode_float(number: float) -> str:
    """The shortest digits for this number, with an exponent where Go has one."""
    text = repr(number)
    if number and not EXPONENT_BELOW <= abs(number) < EXPONENT_FROM:
        return _SMALL_EXPONENT.sub(r"e-\1", text)
    if "e" in text:
        text = _without_exponent(text)
    return text.removesuffix(".0")


def _without_exponent(text: str) -> str:
    """1.25e-05 becomes 0.0000125, and 1.5e+16 becomes 15000000000000000."""
    mantissa, _, exponent = text.partition("e")
    sign = "-" if mantissa.startswith("-") else ""
    whole, _, fraction = mantissa.removeprefix("-").partition(".")
    if (power := int(exponent)) < 0:
        return f"{sign}0.{'0' * (-power - 1)}{whole}{fraction}"
    return f"{sign}{whole}{fraction.ljust(power, '0')}"


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
