"""Listening addresses that everybody can reach, and what protects them."""

import logging
from collections.abc import Iterable, Iterator

from nsqfast.net.addresses import Inet, parse_address

WILDCARDS = frozenset(("", "0.0.0.0", "::"))  # noqa: S104 - this is what is looked for


def is_open(text: str) -> bool:
    """Whether it is an address on every interface."""
    address = parse_address(text)
    return bool(text) and isinstance(address, Inet) and address.host in WILDCARDS


def describe_open(ports: Iterable[tuple[str, str, str]]) -> Iterator[str]:
    """One line for each of (flag, its address, the flag that protects it) that is on every interface."""
    for flag, text, protection in ports:
        if is_open(text):
            yield (
                f"everybody who reaches this machine may use {flag}={text}: "
                f"give {flag} an address of the inner network, or set {protection}"
            )


def warn_if_open(log: logging.Logger, ports: Iterable[tuple[str, str, str]]) -> None:
    """One WARNING for each of them."""
    for text in describe_open(ports):
        log.warning("%s", text)
