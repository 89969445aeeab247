"""The flags of nsq_to_http 1.3.0, with their names and defaults, and additional ones."""

from dataclasses import dataclass

from nsqfast.net.http_target import parse_target
from nsqfast.program.options import (
    DURATION,
    FLOAT,
    INT,
    STRING,
    STRINGS,
    PlainError,
    one_of,
    option,
    text_such_as,
)
from nsqfast.tools.nsq_to_http.batch import FORMATS
from nsqfast.tools.nsq_to_http.target import parse_header, parse_template
from nsqfast.tools.shared.hostpool import MODES
from nsqfast.tools.shared.options import SourceOptions, parse_tool
from nsqfast.wire.names import describe_invalid, is_valid_name

PROGRAM = "nsq_to_http"
ABOUT = "Sends the messages of a channel to HTTP servers."
CONTENT_TYPE = "application/octet-stream"


@dataclass(slots=True)
class Options(SourceOptions):
    """The command line."""

    # fmt: off
    topic: str = option(STRING, "", "topic to consume", group="Topic and channel")
    channel: str = option(STRING, "nsq_to_http", "channel to consume")

    post: list[str] = option(
        STRINGS, [], "URL to POST each message to, as the body (repeatable)", group="Requests")
    get: list[str] = option(
        STRINGS, [], "URL to GET for each message; %s stands for the escaped message, %% for a % (repeatable)")
    mode: str = option(
        text_such_as(*MODES), "hostpool",
        "which URL receives a message: round-robin, hostpool or epsilon-greedy; any other word = all of them")
    n: int = option(INT, 100, "most requests under way at a time")
    sample: float = option(FLOAT, 1.0, "share of the messages to send, from 0 to 1")
    content_type: str = option(STRING, CONTENT_TYPE, "Content-Type of POST requests")
    header: list[str] = option(STRINGS, [], "header of every request, as <name>: <value> (repeatable)")
    http_client_connect_timeout_ns: int = option(DURATION, "2s", "longest time to connect; 0s = no limit")
    http_client_request_timeout_ns: int = option(DURATION, "20s", "longest time for a whole request; 0s = no limit")

    batch: int = option(INT, 1, "most messages in one POST request", group="Batches")
    batch_format: str = option(
        one_of(*FORMATS), FORMATS[0], f"how a body holds several messages: {', '.join(FORMATS)}")
    batch_timeout_ns: int = option(DURATION, "100ms", "longest time that a batch waits until it is full")

    status_every: int = option(INT, 250, "requests between two lines of status; 0 = none", group="Logging")
    # fmt: on

    def check(self) -> None:
        """PlainError names an invalid setting."""
        for text in self.header:
            _check(parse_header, text, "--header")
        if not self.topic or not self.channel:
            raise PlainError("--topic and --channel are required")
        for kind, name in (("topic", self.topic), ("channel", self.channel)):
            if not is_valid_name(name):
                raise PlainError(f"--{kind}: {describe_invalid(name, kind)}")
        if self.content_type != CONTENT_TYPE:
            if not self.post:
                raise PlainError("--content-type only used with --post")
            if not self.content_type:
                raise PlainError("--content-type requires a value when used")
            _check(parse_header, f"Content-Type: {self.content_type}", "--content-type")
        self.check_source()
        self._check_destinations()
        if not 0.0 <= self.sample <= 1.0:
            raise PlainError("ERROR: --sample must be between 0.0 and 1.0")
        if self.n < 1:
            raise PlainError(f"--n is {self.n}; it is 1 or more")
        for name in ("http_client_connect_timeout", "http_client_request_timeout", "batch_timeout"):
            if getattr(self, f"{name}_ns") < 0:
                raise PlainError(f"--{name.replace('_', '-')} is negative")
        self._check_batch()

    def _check_destinations(self) -> None:
        if not self.get and not self.post:
            raise PlainError("--get or --post required")
        if self.get and self.post:
            raise PlainError("use --get or --post not both")
        for url in self.post:
            _check(parse_target, url, "--post")
        for url in self.get:
            _check(parse_template, url, "--get")

    def _check_batch(self) -> None:
        if self.batch < 1:
            raise PlainError(f"--batch is {self.batch}; it is 1 or more")
        if self.batch > 1 and self.get:
            raise PlainError("--batch only used with --post")
        if self.batch > self.max_in_flight:
            raise PlainError(
                f"--batch={self.batch} never fills with --max-in-flight={self.max_in_flight}; "
                "let several batches be in flight"
            )

    def headers(self) -> dict[str, str]:
        """The headers of every request that is not a batch."""
        found = {"User-Agent": "nsq_to_http v1.3.0"}
        if self.post:
            found["Content-Type"] = self.content_type
        return found | dict(map(parse_header, self.header))


def _check(parse: object, text: str, flag: str) -> None:
    assert callable(parse)
    try:
        parse(text)
    except ValueError as error:
        raise PlainError(f"{flag}: {text}: {error}") from None


def parse(argv: list[str]) -> Options:
    """Parse the command line; PlainError names an invalid setting."""
    options = parse_tool(Options, argv, PROGRAM, ABOUT)
    options.check()
    return options
