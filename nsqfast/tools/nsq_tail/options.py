"""The flags of nsqfast-nsq-tail, those of Go's nsq_tail and more; with them, how a message is printed."""

import base64
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import orjson

from nsqfast.client import Message
from nsqfast.program.logs import escape_controls, escape_json_controls
from nsqfast.program.options import BOOL, INT, STRING, STRINGS, PlainError, one_of, option
from nsqfast.tools.shared.options import SourceOptions, parse_tool
from nsqfast.wire.names import describe_invalid, is_valid_name

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


PROGRAM = "nsq_tail"
ABOUT = "Prints messages."


@dataclass(slots=True)
class Options(SourceOptions):
    """One run."""

    # fmt: off
    topic: list[str] = option(STRINGS, [], "topic to consume (repeatable)", group="Topics and channel")
    channel: str = option(STRING, "", "channel to consume; empty = an ephemeral one with a random name")

    n: int = option(INT, 0, "messages of a topic to print before the end, waiting for them if need be; 0 = no end",
                    group="Output")
    print_topic: bool = option(BOOL, False, "print the name of the topic with each message")
    format: str = option(
        one_of(*FORMATS), "text",
        "form of a message: text (the body as it is), json (an object with all there is) or hex (the body)")
    # fmt: on


def parse(argv: list[str]) -> Options:
    """Parse the command line; FlagError if it cannot be read, PlainError if it is invalid."""
    options = parse_tool(Options, argv, PROGRAM, ABOUT)
    options.check_source()
    if not options.topic:
        raise PlainError("--topic required")
    number = random.randrange(999999)  # noqa: S311 - no secret
    options.channel = options.channel or f"tail{number:06d}#ephemeral"
    if not is_valid_name(options.channel):
        raise PlainError(f"--channel: {describe_invalid(options.channel, 'channel')}")
    for topic in options.topic:
        if not is_valid_name(topic):
            raise PlainError(f"--topic: {describe_invalid(topic)}")
    if options.n > 0:
        # Fetch no more messages than will be shown, as far as each nsqd can still deliver something.
        enough = max(options.n, len(options.nsqd_tcp_address))
        options.max_in_flight = min(options.max_in_flight, enough)
    return options
