"""The flags of nsqfast-nsq-stat: those of Go's nsq_stat, and more."""

import os
import sys
from dataclasses import dataclass

from nsqfast.program.options import BOOL, DURATION, INT, STRING, STRINGS, PlainError, one_of, option
from nsqfast.tools.nsq_stat.rates import COLUMNS
from nsqfast.tools.shared.options import LOOKUPD_HELP, parse_tool
from nsqfast.wire.names import describe_invalid, is_valid_name

PROGRAM = "nsq_stat"
ABOUT = "Reports depths, rates and clients of channels, again and again."


@dataclass(slots=True)
class Options:
    """One run."""

    # fmt: off
    nsqd_http_address: list[str] = option(
        STRINGS, [], "HTTP <addr>:<port> of an nsqd (repeatable)", group="Source")
    lookupd_http_address: list[str] = option(STRINGS, [], LOOKUPD_HELP)
    http_client_connect_timeout_ns: int = option(DURATION, "2s", "longest time to connect to one of them")
    http_client_request_timeout_ns: int = option(DURATION, "5s", "longest time for a whole request to one of them")

    http_client_tls_root_ca_file: str = option(
        STRING, "", "path to the authorities of https:// addresses, in PEM; empty = the system's")
    http_client_tls_cert: str = option(STRING, "", "path to the certificate to show them, in PEM")
    http_client_tls_key: str = option(STRING, "", "path to that certificate's private key, in PEM")

    topic: str = option(
        STRING, "", "topic to report; empty, on a terminal or with --json = all", group="Topics and channels")
    channel: str = option(STRING, "", "channel to report; empty, on a terminal or with --json = all")

    interval_ns: int = option(DURATION, "2s", "time between two reports", group="Output")
    count: int | None = option(INT, None, "number of reports; not given = no end")
    json: bool = option(BOOL, False, "print a JSON object for each report")
    sort: str = option(one_of(*COLUMNS), "total", f"column to sort the table by: {', '.join(COLUMNS)}")
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
    options = parse_tool(Options, argv, PROGRAM, ABOUT)
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
            raise PlainError(f"--{word}: {describe_invalid(name, word)}")


def _check_addresses(options: Options) -> None:
    nsqd, lookupd = options.nsqd_http_address, options.lookupd_http_address
    if not (nsqd or lookupd):
        raise PlainError("--nsqd-http-address or --lookupd-http-address required")
    if nsqd and lookupd:
        raise PlainError("use --nsqd-http-address or --lookupd-http-address not both")
    for flag, addresses in (("nsqd", nsqd), ("lookupd", lookupd)):
        if any("://" in address and not address.startswith("https://") for address in addresses):
            raise PlainError(f"--{flag}-http-address error - address should not contain scheme")
