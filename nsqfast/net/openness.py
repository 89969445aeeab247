"""Listening addresses that everybody can reach, and what protects them."""

import logging
from collections.abc import Iterable

from nsqfast.net.addresses import Inet, parse_address

WILDCARDS = frozenset(("", "0.0.0.0", "::"))  # noqa: S104 - this is what is looked for


def is_open(text: str) -> bool:
    """Whether it is an address on every interface."""
    address = parse_address(text)
    return bool(text) and isinstance(address, Inet) and address.host in WILDCARDS


def warn_if_open(log: logging.Logger, flags: Iterable[tuple[str, str]], advice: str) -> None:
    """One WARNING for all addresses, by flag, that are on every interface; `advice` is what to do about it."""
    found = [f"{flag}={text}" for flag, text in flags if is_open(text)]
    if found:
        log.warning("everybody who reaches this machine may use %s: %s", ", ".join(found), advice)
