"""The flags of nsqfast-nsq-tail: those of Go's nsq_tail, and more."""

import random
from dataclasses import dataclass

from nsqfast.program.options import BOOL, INT, STRING, STRINGS, PlainError, one_of, option
from nsqfast.tools.nsq_tail.formats import FORMATS
from nsqfast.tools.shared.options import SourceOptions, parse_tool
from nsqfast.wire.names import describe_invalid, is_valid_name

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
