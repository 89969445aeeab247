"""Headers in front of a body: NSQ's messages have none, and a trace or a tenant has to travel beside the body.

    NSQFAST-HEADERS/1 {"traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
    {"sku":"tea"}

The first line is the mark, a space and a JSON object of texts; after its newline comes the body as it would be without.
Whoever does not know the format has to skip a first line that begins with the mark. A body that does not begin with
such a line is one without headers. For any body, so for compressed ones, too:

    Producer(nsqd, middleware=[Tracing(inject=add_headers)])
    Consumer(topic, channel, nsqd=nsqd, middleware=[Tracing(extract=read_headers)], decoder=skip_headers(decode))
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import orjson

T = TypeVar("T")

MARK = b"NSQFAST-HEADERS/1 "
LINE_SIZE_MAX = 16 << 10


@dataclass(frozen=True, slots=True)
class Headed(Generic[T]):
    """What a producer with `encode_headed` publishes with headers."""

    value: T
    headers: Mapping[str, str] = field(default_factory=dict)


def add_headers(body: bytes, headers: Mapping[str, str]) -> bytes:
    """Put these in front, beside those that the body has. ValueError: they are no texts, or 16 KiB and more."""
    if not headers:
        return body
    found, rest = split_headers(body)
    if not all(isinstance(each, str) for pair in headers.items() for each in pair):
        raise ValueError(f"headers are texts by name, not {headers!r:.200}")
    line = b"%b%b\n" % (MARK, orjson.dumps({**found, **headers}))
    if len(line) > LINE_SIZE_MAX:
        raise ValueError(f"headers of {len(line)} bytes are too many: {LINE_SIZE_MAX} are allowed")
    return line + rest


def split_headers(body: bytes) -> tuple[dict[str, str], bytes]:
    """The headers, and the body without them."""
    if body.startswith(MARK) and (end := body.find(b"\n", 0, LINE_SIZE_MAX)) > 0:
        try:
            found = orjson.loads(body[len(MARK) : end])
        except ValueError:
            return {}, body
        if isinstance(found, dict) and all(isinstance(each, str) for each in found.values()):
            return found, body[end + 1 :]
    return {}, body


def read_headers(body: bytes) -> Mapping[str, str]:
    """The headers alone."""
    return split_headers(body)[0]


def encode_headed(encoder: Callable[[T], bytes]) -> Callable[[T | Headed[T]], bytes]:
    """The same encoder, which takes `Headed(value, headers)`, too."""

    def encode(value: T | Headed[T]) -> bytes:
        if isinstance(value, Headed):
            return add_headers(encoder(value.value), value.headers)
        return encoder(value)

    return encode


def skip_headers(decoder: Callable[[bytes], T]) -> Callable[[bytes], T]:
    """The same decoder, for bodies with headers and without."""
    return lambda body: decoder(split_headers(body)[1])
