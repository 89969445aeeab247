"""Listening addresses that everybody can reach, and what protects them."""

import logging
from collections.abc import Iterable

from nsqfast.net.addresses import Inet, parse_address

WILDCARDS = frozenset(("", "0.0.0.0", "::"))  # noqa: S104 - this is what is looked for


def is_open(text: str) -> bool:
    """Whether it is an address on every interface."""
    address = parse_address(text)
    return bool(text) and isinstance(address, Inet) and address.host in WILDCARDS


def describe_open(flags: Iterable[tuple[str, str]], advice: str) -> str:
    """The addresses, by flag, that are on every interface, and what to do about it; empty if there are none."""
    found = [f"{flag}={text}" for flag, text in flags if is_open(text)]
    return (
        f"everybody who reaches this machine may use {', '.join(found)}: {advice}" if found else ""
    )


def warn_if_open(log: logging.Logger, flags: Iterable[tuple[str, str]], advice: str) -> None:
    """One WARNING for all of them."""
    if text := describe_open(flags, advice):
        log.warning("%s", text)
