"""Addresses of nsqd and nsqlookupd, as users write them.

An nsqd is `host:port` or the path of a Unix socket, or a URL: nsq://host:4150, or nsqs://host:4150 for one under TLS. A
list of them and a text with commas are the same. Where none is given, NSQFAST_NSQD and NSQFAST_LOOKUPD count.
"""

import dataclasses
import os
import re
from collections.abc import Iterable, Sequence
from typing import Any
from urllib.parse import urlsplit

from nsqfast.client.config import Config
from nsqfast.errors import OptionsError
from nsqfast.net.addresses import PORT_MAX, Inet, Unix, parse_address

NSQD = "NSQFAST_NSQD"
LOOKUPD = "NSQFAST_LOOKUPD"
PORT = re.compile(r"[0-9]{1,5}")
PORT_DEFAULT = 4150
PLAIN, TLS = "nsq", "nsqs"

Addresses = str | Sequence[str]


def as_list(addresses: str | Iterable[str]) -> list[str]:
    """A list of one or several addresses, given in any form; OptionsError for anything else."""
    is_one = isinstance(addresses, str) or not isinstance(addresses, Iterable)
    found: list[Any] = [addresses] if is_one else list(addresses)
    for address in found:
        if not isinstance(address, str):
            raise OptionsError(f"{address!r}: an address is a text, host:port")
    listed = (one.strip() for address in found for one in address.split(","))
    return list(dict.fromkeys(one for one in listed if one))


def find_nsqd(given: Iterable[str | Iterable[str]]) -> list[str]:
    """The given addresses of nsqd, or else the environment's; OptionsError if there is none."""
    listed = [address for each in given for address in as_list(each)]
    found = addresses_or_environment(listed, NSQD)
    if not found:
        raise OptionsError(
            f'a producer needs the address of an nsqd: Producer("127.0.0.1:4150"), or {NSQD} in the environment'
        )
    return found


def addresses_or_environment(given: str | Iterable[str], variable: str) -> list[str]:
    """The addresses that are given, or else those of the environment."""
    return as_list(given) or as_list(os.environ.get(variable, ""))


def find_addresses(
    nsqd: str | Iterable[str], nsqlookupd: str | Iterable[str]
) -> tuple[list[str], list[str]]:
    """Those of nsqd and of nsqlookupd that are given, or else the environment's; OptionsError if there is none."""
    found = as_list(nsqd), as_list(nsqlookupd)
    if not any(found):
        found = addresses_or_environment((), NSQD), addresses_or_environment((), LOOKUPD)
    if not any(found):
        raise OptionsError(
            'a consumer needs addresses: nsqd="127.0.0.1:4150" or nsqlookupd="127.0.0.1:4161", '
            f"or {NSQD} or {LOOKUPD} in the environment"
        )
    return found


def read_nsqd(addresses: Iterable[str], config: Config) -> tuple[list[str], Config]:
    """Turn URLs into host:port, and set `tls_v1` for nsqs://; OptionsError if only some are under TLS."""
    listed = list(addresses)
    is_tls = [address.startswith(f"{TLS}://") for address in listed]
    if any(is_tls) and not config.tls_v1:
        if not all(is_tls):
            raise OptionsError(
                f"{listed[is_tls.index(False)]!r}: some addresses are nsqs:// and this one is not; "
                "TLS is for all of them or for none"
            )
        config = dataclasses.replace(config, tls_v1=True)
    return list(dict.fromkeys(plain_address(address, config) for address in listed)), config


def plain_address(text: str, config: Config) -> str:
    """`host:port` or a path of what may be a URL; OptionsError if it is no address, or not one for this `config`."""
    scheme, mark, _ = text.partition("://")
    if mark and scheme in {PLAIN, TLS}:
        if (scheme == TLS) != config.tls_v1:
            other = (
                "nsqs:// is for Config(tls_v1=True)"
                if scheme == TLS
                else "nsq:// is without tls_v1"
            )
            raise OptionsError(f"{text!r}: {other}")
        try:
            parts = urlsplit(text)
        except ValueError as error:
            raise OptionsError(f"{text!r}: {error}") from None
        if parts.path.strip("/") or parts.query or parts.fragment or "@" in parts.netloc:
            raise OptionsError(f"{text!r}: it is {scheme}://host:port, with nothing behind it")
        text = (
            parts.netloc
            if parts.netloc.rpartition("]")[2].count(":")
            else f"{parts.netloc}:{PORT_DEFAULT}"
        )
    check_address(text)
    return text


def check_address(text: str) -> Inet | Unix:
    """Accept `host:port` or the path of a Unix socket; OptionsError for anything else."""
    scheme, mark, rest = text.partition("://")
    if mark:
        what = "nsqd's TCP port, 4150 as a rule" if scheme.startswith("http") else repr(rest)
        raise OptionsError(
            f"{text!r}: an address of nsqd is host:port, without {scheme}://; say {what}"
        )
    address = parse_address(text)
    if isinstance(address, Unix) and "/" not in text:
        raise OptionsError(
            f"{text!r}: an address of nsqd is host:port, or a path; the port is missing (4150 as a rule)"
        )
    if isinstance(address, Inet) and not (_is_host(address.host) and _is_port(address.port)):
        raise OptionsError(f"{text!r}: an address of nsqd is host:port, or a path")
    return address


def _is_host(text: str) -> bool:
    """Whether this can be a host name; none has more than 253 characters."""
    return 0 < len(text) < 254 and text.isprintable() and not any(sign in text for sign in " /[]")


def _is_port(text: str) -> bool:
    return PORT.fullmatch(text) is not None and 0 < int(text) <= PORT_MAX


def local_address(text: str) -> tuple[str, int] | None:
    """Parse local_addr, `ip:port` or an address alone; OptionsError if it is neither."""
    if not text:
        return None
    place = parse_address(text)
    if isinstance(place, Unix):
        return text, 0
    if place.port != "0" and not _is_port(place.port):
        raise OptionsError(f"local_addr: {text!r} is not ip:port")
    return place.host, int(place.port)
