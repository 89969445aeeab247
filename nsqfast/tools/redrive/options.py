"""The flags of nsqfast-redrive."""

from dataclasses import dataclass

from nsqfast.program.options import BOOL, INT, STRING, STRINGS, PlainError, option
from nsqfast.tools.shared.options import AUTH_SECRET_HELP, LOOKUPD_HELP, parse_tool
from nsqfast.wire.names import describe_invalid, is_valid_name
from nsqfast.wire.search import parse_search

PROGRAM = "redrive"
ABOUT = (
    "Sends the dead letters of a channel back to it, or deletes them, and waits until that is done."
)


@dataclass(slots=True)
class Options:
    """One run."""

    # fmt: off
    topic: str = option(STRING, "", "topic of the channel", group="Channel")
    channel: str = option(STRING, "", "channel that they died in, and go back to")

    nsqd_http_address: list[str] = option(
        STRINGS, [], "HTTP <addr>:<port> of an nsqd (repeatable)", group="Brokers")
    lookupd_http_address: list[str] = option(STRINGS, [], LOOKUPD_HELP)
    secret_file: str = option(STRING, "", AUTH_SECRET_HELP)
    tls_root_ca_file: str = option(
        STRING, "", "path to the authorities of https:// addresses, in PEM; empty = the system's")
    tls_cert: str = option(STRING, "", "path to the certificate to show them, in PEM")
    tls_key: str = option(STRING, "", "path to that certificate's private key, in PEM")

    rate: int = option(INT, 0, "most messages a second at each nsqd; 0 = as fast as they can", group="What goes back")
    limit: int = option(INT, 0, "most messages at each nsqd; 0 = all that are there")
    filter: str = option(STRING, "", "text that is in the body of each message that goes back; empty = all")
    search: str = option(
        STRING, "", "what the body of each that goes back holds, as status:failed user.id:17 text; empty = any")
    reason: str = option(
        STRING, "", "reason of each that goes back: failed, expired, over_limit or rejected; empty = any")
    source_channel: str = option(
        STRING, "", "channel of the topic of dead letters to take them from, if it has several")

    delete: bool = option(BOOL, False, "delete them for ever instead", group="Run")
    cancel: bool = option(BOOL, False, "end what is running, and move nothing more")
    detach: bool = option(BOOL, False, "do not wait for the end")
    # fmt: on


def parse(argv: list[str]) -> Options:
    """Parse the command line; FlagError if it cannot be read, PlainError if it is invalid."""
    options = parse_tool(Options, argv, PROGRAM, ABOUT)
    for word, name in (("topic", options.topic), ("channel", options.channel)):
        if not name:
            raise PlainError(f"--{word} is required")
        if not is_valid_name(name):
            raise PlainError(f"--{word}: {describe_invalid(name, word)}")
    if options.rate < 0 or options.limit < 0:
        raise PlainError("--rate and --limit have to be 0 or more")
    try:
        parse_search(options.search)
    except ValueError as error:
        raise PlainError(f"--search: {error}") from None
    if options.delete and options.limit:
        raise PlainError("--delete has no --limit: it deletes all that match")
    if not (options.nsqd_http_address or options.lookupd_http_address):
        raise PlainError("--nsqd-http-address or --lookupd-http-address required")
    return options
