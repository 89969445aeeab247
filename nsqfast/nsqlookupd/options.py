"""Every setting of nsqlookupd, with the names, defaults and meaning of nsqlookupd 1.3.0, and log lines as JSON."""

import socket
from dataclasses import dataclass
from platform import python_version

from nsqfast.logs import FORMAT, FORMAT_HELP, FORMATS, LEVEL, LEVEL_HELP, LEVELS
from nsqfast.options import BOOL, DURATION, STRING, option, parse_options
from nsqfast.version import NSQ_VERSION

PROGRAM = "nsqlookupd"
VERSION_LINE = f"nsqlookupd v{NSQ_VERSION} (built w/python{python_version()})"
LOG_PREFIX = "[nsqlookupd] "


@dataclass(slots=True)
class Options:
    """Attribute = config key, durations in nanoseconds with `_ns` behind."""

    # fmt: off
    log_level: int = option(LEVEL, LEVELS["info"], LEVEL_HELP)
    log_prefix: str = option(STRING, LOG_PREFIX, "log message prefix")
    log_format: int = option(FORMAT, FORMATS["text"], FORMAT_HELP)
    verbose: bool = option(BOOL, False, "[deprecated] has no effect, use --log-level", key="")

    tcp_address: str = option(STRING, "0.0.0.0:4160", "where nsqd's connect (<addr>:<port> or <path>)")
    http_address: str = option(STRING, "0.0.0.0:4161", "where HTTP clients connect (same forms)")
    broadcast_address: str = option(STRING, socket.gethostname, "host name or address that nsqd's are told")

    inactive_producer_timeout_ns: int = option(
        DURATION, "5m", "time since its last ping after which a producer is not shown any more")
    tombstone_lifetime_ns: int = option(DURATION, "45s", "time for which a tombstone hides a producer of a topic")
    # fmt: on


def parse(argv: list[str]) -> Options:
    """Settings from the words behind the program's name."""
    return parse_options(Options, argv, PROGRAM, VERSION_LINE)
