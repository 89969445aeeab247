"""Query strings, read as strictly as NSQ reads them."""

from functools import lru_cache
from urllib.parse import unquote_to_bytes

from nsqfast.net.http_message import check_escapes

_CACHED_QUERY_SIZE_MAX = 256


def parse_query(query: bytes) -> dict[str, str]:
    """The first value of each key. ValueError on a broken escape or a `;` anywhere, in any key.

    The dict may be shared between requests: do not change it.
    """
    if len(query) <= _CACHED_QUERY_SIZE_MAX:
        return _parse_cached(query)
    return _parse(query)


def _parse(query: bytes) -> dict[str, str]:
    values: dict[str, str] = {}
    if b";" in query:
        raise ValueError("invalid semicolon separator in query")
    for pair in query.split(b"&"):
        if pair:
            key, _, value = pair.partition(b"=")
            values.setdefault(_unescape(key), _unescape(value))
    return values


_parse_cached = lru_cache(maxsize=1024)(_parse)


def _unescape(text: bytes) -> str:
    if b"%" in text:
        check_escapes(text)
        text = unquote_to_bytes(text.replace(b"+", b" "))
    elif b"+" in text:
        text = text.replace(b"+", b" ")
    return text.decode("utf-8", "surrogateescape")
