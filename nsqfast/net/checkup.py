"""What every daemon's --check looks at: listening addresses, addresses of others, and limits of the machine."""

import os
import resource
import socket
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

from nsqfast.errors import OptionsError
from nsqfast.net.addresses import (
    BACKLOG_COUNT,
    Inet,
    Unix,
    describe_open,
    find_fault,
    mask_address,
    parse_address,
    try_binding,
)
from nsqfast.net.descriptor_reserve import RESERVE_COUNT_MAX
from nsqfast.program.findings import ERROR, OK, WARNING, Finding

DESCRIPTOR_COUNT_LEAST = 4096
MAP_COUNT_LEAST = 65530  # Linux's own default


def try_out(subject: str, act: Callable[[], object], text: str) -> Finding:
    """Whether what a start does fails; the text says what is so if not."""
    try:
        act()
    except OptionsError as error:
        return Finding(ERROR, subject, str(error))
    return Finding(OK, subject, text)


def check_listeners(flags: Iterable[tuple[str, str]]) -> Iterator[Finding]:
    """Whether a daemon could listen there; nothing listens, and no file is made."""
    for flag, text in flags:
        yield _check_listener(flag, text)


def _check_listener(flag: str, text: str) -> Finding:
    if fault := find_fault(text):
        return Finding(ERROR, flag, f"{text}: {fault}")
    address = parse_address(text)
    if isinstance(address, Unix):
        return _check_socket_path(flag, address.path)
    try:
        try_binding(address)
    except OptionsError as error:
        return Finding(ERROR, flag, str(error))
    return Finding(OK, flag, f"{text} is free")


def _check_socket_path(flag: str, path: str) -> Finding:
    folder = os.path.dirname(path) or "."  # noqa: PTH120 - text in, text out
    if os.path.lexists(path):
        return Finding(
            ERROR, flag, f"{path} exists; a daemon that runs owns it, or it can be removed"
        )
    if not os.access(folder, os.W_OK | os.X_OK):
        return Finding(ERROR, flag, f"{path}: {folder} is not there or not writable")
    return Finding(OK, flag, f"{path} is free")


def check_openness(ports: Iterable[tuple[str, str, str]]) -> Iterator[Finding]:
    """What a start warns of, too."""
    for text in describe_open(ports):
        yield Finding(WARNING, "listening addresses", text)


def check_peers(flag: str, addresses: Iterable[str]) -> Iterator[Finding]:
    """Whether addresses of others, as <addr>:<port> or URL, have the right form and a host that resolves."""
    for text in addresses:
        host, fault = _split_peer(text)
        if fault:
            yield Finding(ERROR, flag, f"{mask_address(text)}: {fault}")
        else:
            yield check_host(flag, mask_address(text), host)


def check_host(subject: str, text: str, host: str) -> Finding:
    """Whether a name resolves. A warning if not: names come and go while a daemon runs."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return Finding(WARNING, subject, f"{text}: no such host")
    return Finding(OK, subject, f"{text} is {found[0][4][0]}")


def _split_peer(text: str) -> tuple[str, str]:
    """Host and fault, of which one is empty."""
    if "://" in text:
        try:
            host = urlsplit(text).hostname or ""
        except ValueError:
            host = ""
        return host, "" if host else "it is no URL"
    address = parse_address(text)
    if not isinstance(address, Inet) or not address.port:
        return "", "an address is <addr>:<port>"
    return address.host or "127.0.0.1", ""


def check_limits(connection_count_max: int) -> Iterator[Finding]:
    """Descriptors, memory mappings, the queue of new connections; 0 connections = no ceiling."""
    yield _check_descriptors(connection_count_max)
    for name, least, use in (
        ("vm.max_map_count", MAP_COUNT_LEAST, "queues on disk have a mapping each"),
        ("net.core.somaxconn", BACKLOG_COUNT, "so many clients may connect at once"),
    ):
        number = _read_kernel_number(name)
        if number is None:
            yield Finding(WARNING, name, "it cannot be read here")
        elif number < least:
            advice = f"sysctl -w {name}={least}"
            yield Finding(WARNING, name, f"{number} is less than {least}, {use}: {advice}")
        else:
            yield Finding(OK, name, f"{number}")


def _check_descriptors(connection_count_max: int) -> Finding:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    least = max(DESCRIPTOR_COUNT_LEAST, connection_count_max + RESERVE_COUNT_MAX)
    if hard == resource.RLIM_INFINITY:
        return Finding(OK, "ulimit -Hn", "unlimited")
    if hard < least:
        text = f"{hard} is less than {least}: every connection and every busy queue needs one"
        return Finding(WARNING, "ulimit -Hn", text)
    return Finding(OK, "ulimit -Hn", f"{hard}")


def _read_kernel_number(name: str) -> int | None:
    try:
        return int(Path("/proc/sys", *name.split(".")).read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None
