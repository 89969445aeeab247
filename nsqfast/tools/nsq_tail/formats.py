"""Messages as nsqfast-nsq-tail prints them: one line each, where the format allows."""

import base64
from collections.abc import Callable, Sequence
from typing import Protocol

import orjson

from nsqfast.client import Message
from nsqfast.program.logs import escape_controls, escape_json_controls

Render = Callable[[Sequence[Message]], bytes]  # for at least one message


class MakeRender(Protocol):
    """The formats that --format names."""

    def __call__(self, topic: str, *, is_topic_shown: bool) -> Render: ...


def text(topic: str, *, is_topic_shown: bool) -> Render:
    """Bodies byte for byte, each with a newline."""
    prefix = f"{topic} | ".encode() if is_topic_shown else b""
    between = b"\n" + prefix

    def render(messages: Sequence[Message]) -> bytes:
        return b"".join((prefix, between.join([message.body for message in messages]), b"\n"))

    return render


def hexadecimal(topic: str, *, is_topic_shown: bool) -> Render:
    """Two digits for each byte, so that every message is one line."""
    prefix = f"{topic} | " if is_topic_shown else ""

    def render(messages: Sequence[Message]) -> bytes:
        lines = [f"{prefix}{message.body.hex()}\n" for message in messages]
        return "".join(lines).encode("ascii")

    return render


def json(topic: str, *, is_topic_shown: bool) -> Render:  # noqa: ARG001 - always is
    """The records of nsqfast-nsq-to-file; a body that is not UTF-8 is in `body_base64`, and there is no `body`."""

    def render(messages: Sequence[Message]) -> bytes:
        return b"".join([_dump(topic, message) for message in messages])

    return render


def _dump(topic: str, message: Message) -> bytes:
    found: dict[str, object] = {
        "topic": topic,
        "id": message.id.decode(errors="backslashreplace"),
        "timestamp_ns": message.timestamp_ns,
        "attempts": message.attempts,
        "nsqd": message.nsqd,
    }
    try:
        found["body"] = message.body.decode()
    except UnicodeDecodeError:
        found["body_base64"] = base64.b64encode(message.body).decode()
    return orjson.dumps(found, option=orjson.OPT_APPEND_NEWLINE)


def render_for_terminal(render: Render, name: str) -> Render:
    """Escape what steers a terminal; a line end and a tab of a body stay what they are."""

    def escape(text: str) -> str:
        if name == "json":
            return escape_json_controls(text)
        return "\n".join(map(escape_controls, text.split("\n")))

    return lambda messages: escape(render(messages).decode(errors="backslashreplace")).encode()


FORMATS: dict[str, MakeRender] = {"text": text, "json": json, "hex": hexadecimal}
