"""The forms of HTTP answers that NSQ's daemons share, and reading a request's parameters."""

from typing import Any

from nsqfast.net.http_message import JSON, TEXT, Request, Response, parse_query
from nsqfast.wire.gojson import encode
from nsqfast.wire.names import is_valid_name

VERSION_HEADER = b"X-Nsq-Content-Type: nsq; version=1.0\r\n"
SWITCH = {"true": True, "1": True, "false": False, "0": False}

# NSQ's JSON never contains these, so that an answer shown as HTML stays harmless. All of them occur only in strings.
_ESCAPES = (
    (b"<", b"\\u003c"),
    (b">", b"\\u003e"),
    (b"&", b"\\u0026"),
    (b"\xe2\x80\xa8", b"\\u2028"),
    (b"\xe2\x80\xa9", b"\\u2029"),
)


class HttpError(Exception):
    """Ends a handler with a status and one of NSQ's error codes; see `error_answer`."""

    def __init__(self, status: int, code: str, reason: str = "") -> None:
        super().__init__(f"{status} {code}")
        self.status = status
        self.code = code
        self.reason = reason


def text_answer(text: str | bytes) -> Response:
    """200 with a raw body; an empty one has no content type."""
    body = text if isinstance(text, bytes) else text.encode("utf-8", "surrogateescape")
    return Response(200, body, TEXT if body else "", VERSION_HEADER)


def json_answer(value: Any) -> Response:
    """200 with compact JSON."""
    return Response(200, encode_json(value), JSON, VERSION_HEADER)


def error_answer(status: int, code: str, headers: bytes = b"", reason: str = "") -> Response:
    """`{"message": code}`, or with a `reason`, too."""
    more = b',"reason":%b' % encode_json(reason) if reason else b""
    body = b'{"message":"%b"%b}' % (code.encode(), more)
    return Response(status, body, JSON, headers + VERSION_HEADER)


def plain_answer(status: int, text: str) -> Response:
    """The form of /ping and /debug: text without the version header."""
    return Response(status, text.encode("utf-8", "replace"), TEXT)


def encode_json(value: Any) -> bytes:
    """Encode compactly, with keys in the given order."""
    encoded = encode(value)
    for character, escape in _ESCAPES:
        if character in encoded:
            encoded = encoded.replace(character, escape)
    return encoded


def parameters(request: Request) -> dict[str, str]:
    """The query's values; 400 if it cannot be parsed."""
    try:
        return parse_query(request.query)
    except ValueError:
        raise HttpError(400, "INVALID_REQUEST") from None


def required(values: dict[str, str], key: str) -> str:
    """A parameter that may be empty but must be present."""
    value = values.get(key)
    if value is None:
        raise HttpError(400, f"MISSING_ARG_{key.upper()}")
    return value


def read_switch(values: dict[str, str], key: str) -> bool:
    """Whether it is true; false without it. HttpError 400."""
    text = values.get(key, "false")
    if text not in SWITCH:
        raise HttpError(400, f"INVALID_ARG_{key.upper()}")
    return SWITCH[text]


def topic_name(values: dict[str, str]) -> str:
    """The parameter `topic`; 400 if it is missing or not a valid topic name."""
    name = required(values, "topic")
    if not is_valid_name(name):
        raise HttpError(400, "INVALID_ARG_TOPIC")
    return name


def topic_and_channel_name(values: dict[str, str]) -> tuple[str, str]:
    """The parameters `topic` and `channel`; 400 for the first fault."""
    topic = topic_name(values)
    channel = required(values, "channel")
    if not is_valid_name(channel):
        raise HttpError(400, "INVALID_ARG_CHANNEL")
    return topic, channel
