"""Every setting of nsqlookupd, with the names, defaults and meaning of nsqlookupd 1.3.0, and log lines as JSON."""

import socket
from collections.abc import Iterator
from dataclasses import dataclass

from nsqfast.command_line import parse_options
from nsqfast.logs import FORMAT, FORMAT_HELP, FORMATS, LEVEL, LEVEL_HELP, LEVELS, LOG_PREFIX_HELP
from nsqfast.options import BOOL, DURATION, STRING, STRINGS, option
from nsqfast.version import nsq_line, own_line

PROGRAM = "nsqlookupd"
# Without effect in nsqlookupd 1.3.0, and so here.
OLD_KEYS = ("verbose",)
ABOUT = "The directory: knows which broker has which topics, and tells clients."
VERSION_LINE = nsq_line(PROGRAM)
LOG_PREFIX = "[nsqlookupd] "
OPEN_ADVICE = "listen on an address of the inner network"


@dataclass(slots=True)
class Options:
    """Attribute = config key, durations in nanoseconds with `_ns` behind."""

    # fmt: off
    check: bool = option(
        BOOL, False, "check addresses and limits, print a line for each and exit", key="",
        group="General")

    tcp_address: str = option(
        STRING, "0.0.0.0:4160", "listen for nsqd on this <addr>:<port> or <path>", group="Addresses")
    http_address: str = option(STRING, "0.0.0.0:4161", "listen for HTTP clients on this <addr>:<port> or <path>")
    allowed_hosts: list[str] = option(
        STRINGS, None, "name of this machine in HTTP requests: then no others are served, but localhost and addresses "
        "(repeatable; on a loopback address this is always so)", flag="allowed-host")
    broadcast_address: str = option(STRING, socket.gethostname, "host name or address to tell nsqd")

    inactive_producer_timeout_ns: int = option(
        DURATION, "5m", "time since the last ping of an nsqd after which it is not listed any more", group="Producers")
    tombstone_lifetime_ns: int = option(DURATION, "45s", "time for which a tombstone hides an nsqd from a topic's list")

    log_level: int = option(LEVEL, LEVELS["info"], LEVEL_HELP, group="Logging")
    log_prefix: str = option(STRING, LOG_PREFIX, LOG_PREFIX_HELP)
    log_format: int = option(FORMAT, FORMATS["text"], FORMAT_HELP)

    verbose: bool = option(BOOL, False, "has no effect: use --log-level", key="", group="Accepted for compatibility")
    # fmt: on

    def listening(self) -> Iterator[tuple[str, str]]:
        """The addresses to listen on, by flag."""
        yield "--tcp-address", self.tcp_address
        yield "--http-address", self.http_address


def parse(argv: list[str]) -> Options:
    """Settings from the words behind the program's name."""
    return parse_options(Options, argv, PROGRAM, f"{VERSION_LINE}\n{own_line()}", ABOUT, OLD_KEYS)
