"""Addresses: where to listen, which of them everybody reaches, and how they are shown without secrets.

A listening address is `host:port`, `:4150` (every interface), `[::1]:4150`, or the path of a Unix socket. As in NSQ, a
text that does not split into host and port is a path, but to listen on it there must be a slash in it: `127.0.0.1`
alone is a port forgotten. And as in Go, a wildcard host listens on IPv4 and IPv6 with one socket where the machine has
both, so an IPv4 peer may look like `::ffff:10.0.0.1`; `gotext.format_address` undoes that.
"""

import contextlib
import logging
import os
import socket
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from nsqfast.errors import OptionsError
from nsqfast.wire.gotext import format_address, os_error

# Connections that may wait for accept() while metadata is loaded; the kernel limits it to its own somaxconn.
BACKLOG_COUNT = 4096
PORT_MAX = 65535
KEEP_ALIVE_S = 15  # as Go has it; nine probes without an answer end the connection

Bound = tuple[str, int] | str


@dataclass(frozen=True, slots=True)
class Inet:
    """A TCP address; the host '' means every interface, the port may be the name of a service."""

    host: str
    port: str


@dataclass(frozen=True, slots=True)
class Unix:
    """A Unix socket; its mode follows the umask (0755 under 022)."""

    path: str


def parse_address(text: str) -> Inet | Unix:
    """Parse either form."""
    host, colon, port = text.rpartition(":")
    if colon and "/" not in port:
        if host.startswith("[") and host.endswith("]") and "[" not in host[1:]:
            return Inet(host[1:-1], port)
        if not any(sign in host for sign in ":[]"):
            return Inet(host, port)
    return Unix(text)


def format_bound(address: Bound) -> str:
    """Where a socket listens, as log lines show it."""
    return address if isinstance(address, str) else format_address(address)


def bound_address(listener: socket.socket) -> Bound:
    """The address that was really bound: the port is known even if 0 was requested."""
    name = listener.getsockname()
    return str(name) if listener.family == socket.AF_UNIX else (str(name[0]), int(name[1]))


def format_listeners(sockets: Mapping[str, socket.socket]) -> str:
    """Sockets by name as a sentence of a status: "listening on TCP [::]:4150, HTTP [::]:4151"."""
    found = [f"{name} {format_bound(bound_address(each))}" for name, each in sockets.items()]
    return f"listening on {', '.join(found)}"


def port_number(address: Bound | None) -> int:
    """The port number as NSQ reports it: -1 for a Unix socket, 0 for none."""
    if address is None:
        return 0
    return -1 if isinstance(address, str) else address[1]


def find_fault(text: str) -> str:
    """Why nobody can listen there, whatever the machine says; empty if there is no reason."""
    address = parse_address(text)
    # Go would make a Unix socket with the name of the host, or take any port.
    if (isinstance(address, Unix) and "/" not in text) or (
        isinstance(address, Inet) and not address.port
    ):
        return "an address is <addr>:<port>, or a path with a slash in it"
    return ""


def try_binding(address: Inet) -> None:
    """OptionsError if it is not free; nobody can connect meanwhile."""
    try:
        _listen_inet(address, is_trial=True).close()
    except OSError as error:
        known = isinstance(error, socket.gaierror)
        raise OptionsError(
            f"{address.host}:{address.port}: {'no such host' if known else os_error(error)}"
        ) from None
    except ValueError as error:
        raise OptionsError(f"listen tcp: {error}") from None


def listen(text: str) -> socket.socket:
    """Open a non-blocking listening socket; OptionsError says why that failed, in NSQ's words."""
    address = parse_address(text)
    if not text:
        # The kernel would take it for a Unix socket and invent a name that nobody knows.
        raise OptionsError("listen () failed - missing address")
    if fault := find_fault(text):
        raise OptionsError(f"listen ({text}) failed - {fault}")
    try:
        if isinstance(address, Unix):
            return _listen(socket.AF_UNIX, address.path)
        return _listen_inet(address)
    except OSError as error:
        kind = "unix" if isinstance(address, Unix) else "tcp"
        if isinstance(error, socket.gaierror):
            reason = f"lookup {text}: no such host"
        else:
            reason = f"{text}: bind: {os_error(error)}"
        raise OptionsError(f"listen ({text}) failed - listen {kind} {reason}") from None
    except ValueError as error:
        raise OptionsError(f"listen ({text}) failed - listen tcp: {error}") from None


def _listen_inet(address: Inet, is_trial: bool = False) -> socket.socket:
    port = parse_port(address.port)
    if address.host in ("", "0.0.0.0", "::"):  # noqa: S104 - the operator asked for it
        if socket.has_dualstack_ipv6():
            with contextlib.suppress(OSError):
                # A kernel booted without IPv6 reports that only now; a port in use is reported again below.
                return _listen(socket.AF_INET6, ("::", port), is_trial)
        return _listen(socket.AF_INET, ("0.0.0.0", port), is_trial)  # noqa: S104
    found = socket.getaddrinfo(address.host, port, type=socket.SOCK_STREAM)
    # Go prefers a name's IPv4 address.
    family, _, _, _, name = min(found, key=lambda info: info[0] != socket.AF_INET)
    return _listen(family, name, is_trial)


def parse_port(text: str) -> int:
    """A number, the name of a service, or 0 for ''; ValueError, in Go's words."""
    if not text:
        return 0
    if not (text.isascii() and text.isdigit()):
        try:
            return socket.getservbyname(text, "tcp")
        except (OSError, UnicodeError):
            raise ValueError(f"lookup tcp/{text}: unknown port") from None
    if int(text) > PORT_MAX:
        raise ValueError(f"address {text}: invalid port")
    return int(text)


def _listen(family: int, name: Any, is_trial: bool = False) -> socket.socket:
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        if family != socket.AF_UNIX:
            # A killed broker restarts at once on the same port.
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            _keep_alive(listener)
        if family == socket.AF_INET6:
            listener.setsockopt(
                socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if name[0] == "::" else 1
            )
        listener.setblocking(False)
        listener.bind(name)
        if not is_trial:
            listener.listen(BACKLOG_COUNT)
    except BaseException:
        listener.close()
        raise
    return listener


def _keep_alive(listener: socket.socket) -> None:
    """Enable keep-alive, which every accepted connection inherits: it detects vanished peers, heartbeats or not."""
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEP_ALIVE_S)
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, KEEP_ALIVE_S)


def remove_path(address: Bound | None) -> None:
    """Remove a Unix socket's file at a clean stop; nothing to do for other addresses."""
    if isinstance(address, str):
        with contextlib.suppress(OSError):
            os.unlink(address)  # noqa: PTH108 - the address is text


# Listening addresses that everybody can reach, and what protects them.
WILDCARDS = frozenset(("", "0.0.0.0", "::"))  # noqa: S104 - this is what is looked for


def is_wildcard(text: str) -> bool:
    """Whether it is an address on every interface."""
    address = parse_address(text)
    return bool(text) and isinstance(address, Inet) and address.host in WILDCARDS


def describe_open(ports: Iterable[tuple[str, str, str]]) -> Iterator[str]:
    """One line for each of (flag, its address, the flag that protects it) that is on every interface."""
    for flag, text, protection in ports:
        if is_wildcard(text):
            yield (
                f"everybody who reaches this machine may use {flag}={text}: "
                f"give {flag} an address of the inner network, or set {protection}"
            )


def warn_if_open(log: logging.Logger, ports: Iterable[tuple[str, str, str]]) -> None:
    """One WARNING for each of them."""
    for text in describe_open(ports):
        log.warning("%s", text)


# Addresses in the form that others may see: without secrets.
HIDDEN = "xxxxx"  # as in Go


def mask_address(address: str) -> str:
    """An address or URL without user, password, and the values of its query."""
    if address.startswith("/"):
        return address  # the path of a socket
    place, question, query = address.partition("?")
    scheme, mark, rest = place.partition("://")
    if not mark:
        scheme, rest = "", place
    _, at, rest = rest.rpartition("@")
    user = HIDDEN + at if at else ""
    fields = "&".join([_mask_query_value(field) for field in query.split("&")]) if query else ""
    return f"{scheme}{mark}{user}{rest.partition('#')[0]}{question}{fields}"


def place_of(address: str) -> str:
    """Scheme, host and port only: a path may be a secret as well."""
    scheme, mark, rest = mask_address(address).partition("?")[0].rpartition("://")
    return f"{scheme}{mark}{rest.partition('/')[0].removeprefix(HIDDEN + '@')}"


def mask_command_line(words: list[str]) -> list[str]:
    """A command line with its addresses masked."""
    found = []
    is_address = False
    for word in words:
        flag, equals, value = word.partition("=") if word.startswith("-") else ("", "", word)
        if equals and "address" in flag:
            found.append(f"{flag}={mask_address(value)}")
        elif is_address or "://" in word:
            found.append(f"{flag}{equals}{mask_address(value)}")
        else:
            found.append(word)
        is_address = not equals and "address" in flag
    return found


def _mask_query_value(field: str) -> str:
    name, equals, _ = field.partition("=")
    return f"{name}={HIDDEN}" if equals else HIDDEN
