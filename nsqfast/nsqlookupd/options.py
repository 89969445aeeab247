"""Every setting of nsqlookupd, with the names, defaults and meaning of nsqlookupd 1.3.0, and log lines as JSON."""

import socket
from collections.abc import Iterator
from dataclasses import dataclass

from nsqfast.errors import OptionsError
from nsqfast.program import logs
from nsqfast.program.command_line import parse_options
from nsqfast.program.options import BOOL, DURATION, INT, STRING, STRINGS, option
from nsqfast.version import nsq_line, own_line

PROGRAM = "nsqlookupd"
# Without effect in nsqlookupd 1.3.0, and so here.
OLD_KEYS = ("verbose",)
ABOUT = "The directory: knows which broker has which topics, and tells clients."
VERSION_LINE = nsq_line(PROGRAM)
LOG_PREFIX = "[nsqlookupd] "


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
        DURATION, "5m", "time since the last ping of an nsqd after which it is not listed any more, and for "
        "which names that none has are kept", group="Producers")
    tombstone_lifetime_ns: int = option(DURATION, "45s", "time for which a tombstone hides an nsqd from a topic's list")

    max_connections: int = option(
        INT, 0, "most connections of each listener (TCP, HTTP); further ones are refused; 0 = unlimited",
        group="Limits")
    max_names_per_peer: int = option(
        INT, 100_000, "most topics and channels that one nsqd may register; further ones are refused; 0 = unlimited")
    max_topics: int = option(INT, 0, "number of topics from which no more are created; 0 = unlimited")
    max_channels_per_topic: int = option(
        INT, 0, "number of channels of a topic from which no more are created; 0 = unlimited")

    registration_secret_file: str = option(
        STRING, "", "path to the secret that an nsqd has to send to register (its --registration-secret-file)",
        group="TLS and registration")

    tls_cert: str = option(
        STRING, "", "path to the certificate of this nsqlookupd, in PEM: TCP and HTTP speak TLS alone")
    tls_key: str = option(STRING, "", "path to the certificate's private key, in PEM")
    tls_client_ca: str = option(
        STRING, "", "path to certificate authorities, in PEM: only clients with a certificate of theirs are served")

    log_level: int = option(logs.LEVEL, logs.LEVELS["info"], logs.LEVEL_HELP, group="Logging")
    log_prefix: str = option(STRING, LOG_PREFIX, logs.LOG_PREFIX_HELP)
    log_format: int = option(logs.FORMAT, logs.FORMATS["text"], logs.FORMAT_HELP)

    verbose: bool = option(BOOL, False, "has no effect: use --log-level", key="", group="Accepted for compatibility")
    # fmt: on

    def listening(self) -> Iterator[tuple[str, str]]:
        """The addresses to listen on, by flag."""
        yield "--tcp-address", self.tcp_address
        yield "--http-address", self.http_address

    def unprotected(self) -> Iterator[tuple[str, str, str]]:
        """Those of them whose clients need neither a certificate nor a secret, with the flag that would demand one."""
        if self.tls_client_ca:
            return
        if not self.registration_secret_file:
            yield "--tcp-address", self.tcp_address, "--registration-secret-file"
        yield "--http-address", self.http_address, "--tls-client-ca"

    def ceilings(self) -> Iterator[tuple[str, int]]:
        """How much there may be, by flag."""
        yield "--max-connections", self.max_connections
        yield "--max-names-per-peer", self.max_names_per_peer
        yield "--max-topics", self.max_topics
        yield "--max-channels-per-topic", self.max_channels_per_topic


def parse(argv: list[str]) -> Options:
    """Settings from the words behind the program's name."""
    return parse_options(Options, argv, PROGRAM, f"{VERSION_LINE}\n{own_line()}", ABOUT, OLD_KEYS)


def validate(options: Options) -> None:
    """Raise OptionsError for settings that would refuse everybody."""
    for flag, count in options.ceilings():
        if count < 0:
            raise OptionsError(f"{flag} must be at least 0, not {count}")
    if bool(options.tls_cert) != bool(options.tls_key):
        raise OptionsError("--tls-cert and --tls-key go together: give both")
    if options.tls_client_ca and not options.tls_cert:
        raise OptionsError("--tls-client-ca needs TLS: give --tls-cert and --tls-key")
