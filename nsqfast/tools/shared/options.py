"""Flags that several tools share, and the parsing of their command lines. Syntax and exit status are those of Go's
tools.

@dataclass(slots=True)
class Options(SourceOptions):
    topic: list[str] = option(STRINGS, [], "topic to consume (repeatable)", group="Topics")

options = parse_tool(Options, argv, "nsq_tail", "Prints messages.")
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from nsqfast.client.config import Config
from nsqfast.errors import OptionsError
from nsqfast.net.secret_file import read_secret
from nsqfast.program.command_line import flags_or_help, refuse_words
from nsqfast.program.options import (
    BOOL,
    INT,
    STRING,
    STRINGS,
    Kind,
    PlainError,
    declared,
    defaults,
    option,
    text_such_as,
)
from nsqfast.program.stdout import print_text
from nsqfast.version import NSQ_VERSION, own_line
from nsqfast.wire.names import describe_invalid, is_valid_name

T = TypeVar("T")

NSQD_HELP = "TCP <addr>:<port> of an nsqd (repeatable)"
LOOKUPD_HELP = "HTTP <addr>:<port> of an nsqlookupd to ask for nsqd (repeatable)"
CONSUMER_HELP = "setting of the consumer as <key>,<value> (repeatable)"
PRODUCER_HELP = "setting of the producer as <key>,<value> (repeatable)"
AUTH_SECRET_VARIABLE = "NSQ_AUTH_SECRET"  # noqa: S105 - a name
AUTH_SECRET_HELP = (
    f"file with the secret for AUTH; without it, {AUTH_SECRET_VARIABLE} of the environment has it"
)
CONNECT_TIMEOUT_HELP = "longest time to connect to an nsqlookupd"
REQUEST_TIMEOUT_HELP = "longest time for a whole request to an nsqlookupd"
METRICS_HELP = "serve GET /metrics on this <addr>:<port>; empty = off"


def _parse_client_option(text: str) -> list[str]:
    try:
        Config.check(text)
    except OptionsError as error:
        raise ValueError(str(error)) from None
    return [text]


def _coerce_nothing(value: object) -> Any:
    raise AssertionError(f"no tool reads {value!r} from a file")


# `key,value` for the client library; a key alone means true.
CLIENT_OPTIONS = Kind("[]string", "value", _parse_client_option, _coerce_nothing, is_list=True)


@dataclass(slots=True)
class ClientOptions:
    """The sources of messages, and the client's settings."""

    # fmt: off
    nsqd_tcp_address: list[str] = option(STRINGS, [], NSQD_HELP, group="Source")
    lookupd_http_address: list[str] = option(STRINGS, [], LOOKUPD_HELP)
    consumer_opt: list[str] = option(CLIENT_OPTIONS, [], CONSUMER_HELP, group="Consumer")
    auth_secret_file: str = option(STRING, "", AUTH_SECRET_HELP)
    max_in_flight: int = option(INT, 200, "most messages in flight at a time")
    # fmt: on

    def check_source(self) -> None:
        """PlainError unless there is exactly one kind of address and the rest is valid."""
        if not (self.nsqd_tcp_address or self.lookupd_http_address):
            raise PlainError("--nsqd-tcp-address or --lookupd-http-address required")
        if self.nsqd_tcp_address and self.lookupd_http_address:
            raise PlainError("use --nsqd-tcp-address or --lookupd-http-address not both")
        if self.max_in_flight < 1:
            raise PlainError(f"--max-in-flight is {self.max_in_flight}; it is 1 or more")


@dataclass(slots=True)
class SourceOptions(ClientOptions):
    """For tools that pass messages to a destination that may not take them."""

    # fmt: off
    on_give_up: str = option(
        text_such_as("finish", "requeue", "exit", "topic:"), "finish",
        "what to do with a message after its last attempt (max_attempts of --consumer-opt): finish, requeue, exit, or "
        "topic:<name> to publish it there", group="Consumer")
    # fmt: on

    def check_source(self) -> None:
        """PlainError unless there is exactly one kind of address and the rest is valid."""
        ClientOptions.check_source(self)
        parse_give_up(self.on_give_up)


def parse_give_up(text: str) -> tuple[str, str]:
    """The action and, for `topic`, its name; PlainError if it is neither."""
    action, colon, topic = text.partition(":")
    if action == "topic" and colon:
        if not is_valid_name(topic):
            raise PlainError(f"--on-give-up: {describe_invalid(topic)}")
    elif colon or action not in {"finish", "requeue", "exit"}:
        raise PlainError(f"--on-give-up is {text!r}; it is finish, requeue, exit or topic:<name>")
    return action, topic


@dataclass(slots=True)
class _Common:
    version: bool = option(BOOL, False, "print the version and exit", key="", group="General")


def parse_tool(
    cls: type[T],
    argv: list[str],
    program: str,
    about: str,
    *,
    has_version: bool = True,
    on_words: Callable[[list[str]], None] | None = None,
    inherited: Sequence[str] = (),
) -> T:
    """Parse the words after the program's name; --help and --version print and exit by SystemExit.

    `about` is the help's sentence on what the program does.

    `on_words` takes the words after the flags; without it there must be none. `inherited` are settings of the client,
    which those of the flags override.
    """
    options, plain = declared(cls), defaults(cls)
    if has_version:
        options = [*declared(_Common), *options]
        plain.update(defaults(_Common))
    given, words = flags_or_help(options, plain, argv, program, about)
    if given.pop("version", False):
        print_text(f"{program} v{NSQ_VERSION}\n{own_line()}")
        raise SystemExit(0)
    if on_words is None:
        refuse_words(program, argv, words)
    else:
        on_words(words)
    return cls(**_with_client_settings(given, plain, inherited))


def _with_client_settings(
    given: dict[str, Any], plain: dict[str, Any], inherited: Sequence[str]
) -> dict[str, Any]:
    """Put secrets in front of --consumer-opt and --producer-opt: command lines are visible to every user.

    The destinations of a tool that consumes get only a secret that is meant for them.
    """
    if "auth_secret_file" not in plain:
        return given
    own = "consumer_opt" if "consumer_opt" in plain else "producer_opt"
    path = given.get("auth_secret_file", "")
    secret = read_secret("--auth-secret-file", path) or os.environ.get(AUTH_SECRET_VARIABLE, "")
    found = {**given, own: [*_setting(secret), *inherited, *given.get(own, [])]}
    if path := given.get("destination_auth_secret_file", ""):
        secret = read_secret("--destination-auth-secret-file", path)
        found["producer_opt"] = [*_setting(secret), *given.get("producer_opt", [])]
    return found


def _setting(secret: str) -> list[str]:
    return [f"auth_secret,{secret}"] if secret else []
