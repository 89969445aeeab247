"""Read a JSON object from a peer the way Go's decoder fills a struct, and write what may hold anybody's text."""

import json
import re
from collections.abc import Collection, Mapping
from typing import Any

import orjson

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1

_HALF_PAIR = re.compile("[\ud800-\udfff]")


def encode(value: Any) -> bytes:
    """Encode compactly, with keys in the given order. As in Go, U+FFFD stands for what is no Unicode: the words of a
    command line and the name of a machine may have any bytes.
    """
    try:
        return orjson.dumps(value)
    except TypeError:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        return _HALF_PAIR.sub("\ufffd", text).encode()


def decode_record(
    body: bytes,
    strings: Collection[str],
    integers: Mapping[str, int],
    booleans: Collection[str] = (),
) -> dict[str, Any]:
    """Every known name with its value; `integers` gives the largest value of each. ValueError for values that do not
    fit.

    As in Go: keys in any case, the last one wins, null and what is missing leave the default ("", 0, False), unknown
    keys are ignored, and invalid Unicode becomes U+FFFD.
    """
    try:
        # Not orjson: it reads 2**64 as a float, where Go refuses it; json keeps every integer exact.
        text = body.decode("utf-8", "replace")
        given = json.loads(text, parse_constant=_refuse, object_pairs_hook=_Members)
    except RecursionError:
        raise ValueError("too deep") from None
    if given is None:
        given = _Members()
    if not isinstance(given, _Members):
        raise ValueError("no object")  # noqa: TRY004 - the peer's fault like the others
    record: dict[str, Any] = dict.fromkeys(strings, "")
    record |= dict.fromkeys(booleans, False)
    record |= dict.fromkeys(integers, 0)
    for key, value in given:
        name = key.lower()
        if name in record and value is not None:
            record[name] = _fitting(value, type(record[name]), integers.get(name, 0))
    return record


class _Members(list[tuple[str, Any]]):
    """An object as Go's decoder reads it: in order, possibly with the same key twice."""


def _refuse(constant: str) -> float:
    raise ValueError(constant)


def _fitting(value: object, kind: type, largest: int) -> Any:
    if type(value) is not kind:
        raise ValueError(f"{value!r} is no {kind.__name__}")
    if isinstance(value, str):
        return _HALF_PAIR.sub("\ufffd", value)
    if isinstance(value, int) and kind is int and not -largest - 1 <= value <= largest:
        raise ValueError(f"{value} is out of range")
    return value
