"""The flags of nsqfast-nsq-stat: those of Go's nsq_stat, and more."""

import os
import sys
from dataclasses import dataclass

from nsqfast.names import is_valid_name
from nsqfast.options import BOOL, DURATION, INT, STRING, STRINGS, PlainError, one_of, option
from nsqfast.tools.nsq_stat.columns import COLUMNS
from nsqfast.tools.shared.options import parse_tool

PROGRAM = "nsq_stat"


@dataclass(slots=True)
class Options:
    """One run."""

    # fmt: off
    topic: str = option(STRING, "", "NSQ topic (all, on a terminal or with --json, if empty)")
    channel: str = option(STRING, "", "NSQ channel (all, on a terminal or with --json, if empty)")
    nsqd_http_address: list[str] = option(STRINGS, [], "nsqd HTTP address (may be given multiple times)")
    lookupd_http_address: list[str] = option(STRINGS, [], "lookupd HTTP address (may be given multiple times)")
    interval_ns: int = option(DURATION, "2s", "duration of time between polling/printing output")
    count: int | None = option(INT, None, "number of reports (no end if it is not given)")
    http_client_connect_timeout_ns: int = option(DURATION, "2s", "timeout for HTTP connect")
    http_client_request_timeout_ns: int = option(DURATION, "5s", "timeout for HTTP request")
    json: bool = option(BOOL, False, "print an object for each report")
    sort: str = option(one_of(*COLUMNS), "total", "column that the table is sorted by")
    # fmt: on

    @property
    def is_single(self) -> bool:
        """Whether it reports a single channel."""
        return bool(self.topic and self.channel)

    @property
    def is_table(self) -> bool:
        """Whether somebody watches, and wants more than one channel."""
        return not (self.json or self.is_single) and is_watched()


def is_watched() -> bool:
    """Whether standard output is a terminal on which a table can be drawn."""
    return os.isatty(sys.stdout.fileno()) and os.environ.get("TERM", "") not in {"", "dumb"}


def parse(argv: list[str]) -> Options:
    """Parse the command line; FlagError if it cannot be read, PlainError if it is invalid."""
    options = parse_tool(Options, argv, PROGRAM)
    _check_names(options)
    if options.interval_ns <= 0:
        raise PlainError("--interval should be positive")
    if options.count is not None and options.count <= 0:
        raise PlainError("--count should be positive")
    if options.http_client_connect_timeout_ns <= 0:
        raise PlainError("--http-client-connect-timeout should be positive")
    if options.http_client_request_timeout_ns <= 0:
        raise PlainError("--http-client-request-timeout should be positive")
    _check_addresses(options)
    return options


def _check_names(options: Options) -> None:
    if options.channel and not options.topic:
        raise PlainError("--topic is required with --channel")
    if not (options.is_single or options.json or options.is_table):
        raise PlainError("--topic and --channel are required")
    for word, name in (("topic", options.topic), ("channel", options.channel)):
        if name and not is_valid_name(name):
            raise PlainError(f"invalid {word} name {name!r}")


def _check_addresses(options: Options) -> None:
    nsqd, lookupd = options.nsqd_http_address, options.lookupd_http_address
    if not (nsqd or lookupd):
        raise PlainError("--nsqd-http-address or --lookupd-http-address required")
    if nsqd and lookupd:
        raise PlainError("use --nsqd-http-address or --lookupd-http-address not both")
    for flag, addresses in (("nsqd", nsqd), ("lookupd", lookupd)):
        if any("://" in address for address in addresses):
            raise PlainError(f"--{flag}-http-address error - address should not contain scheme")
