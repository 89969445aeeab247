"""The flags of nsqfast-nsq-tail: those of Go's nsq_tail, and more."""

import random
from dataclasses import dataclass

from nsqfast.names import is_valid_name
from nsqfast.options import BOOL, INT, STRING, STRINGS, PlainError, one_of, option
from nsqfast.tools.nsq_tail.formats import FORMATS
from nsqfast.tools.shared.options import SourceOptions, parse_tool

PROGRAM = "nsq_tail"


@dataclass(slots=True)
class Options(SourceOptions):
    """One run."""

    # fmt: off
    topic: list[str] = option(STRINGS, [], "NSQ topic (may be given multiple times)")
    channel: str = option(STRING, "", "NSQ channel (an ephemeral one with a random name if empty)")
    n: int = option(INT, 0, "messages to show of a topic before the end (will wait if starved; 0 = no end)")
    print_topic: bool = option(BOOL, False, "print topic name where message was received")
    format: str = option(
        one_of(*FORMATS), "text", "text: the body as it is; json: an object with all there is; hex: the body so")
    # fmt: on


def parse(argv: list[str]) -> Options:
    """Parse the command line; FlagError if it cannot be read, PlainError if it is invalid."""
    options = parse_tool(Options, argv, PROGRAM)
    options.check_source()
    if not options.topic:
        raise PlainError("--topic required")
    number = random.randrange(999999)  # noqa: S311 - no secret
    options.channel = options.channel or f"tail{number:06d}#ephemeral"
    if not is_valid_name(options.channel):
        raise PlainError(f"invalid channel name {options.channel!r}")
    for topic in options.topic:
        if not is_valid_name(topic):
            raise PlainError(f"invalid topic name {topic!r}")
    if options.n > 0:
        # Fetch no more messages than will be shown, as far as each nsqd can still deliver something.
        enough = max(options.n, len(options.nsqd_tcp_address))
        options.max_in_flight = min(options.max_in_flight, enough)
    return options
