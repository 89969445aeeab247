"""What a broker under test was told of durability, and what it promises then."""

from __future__ import annotations

from dataclasses import dataclass

MEBIBYTE = 1 << 20


@dataclass(frozen=True, slots=True)
class Mode:
    """`has_log`: it promises what LogOwed says; `keeps_power`: after a power cut, too."""

    name: str
    flags: tuple[str, ...]
    has_log: bool = False
    keeps_power: bool = True


def _log_flags(durable: str) -> tuple[str, ...]:
    """The smallest log there is, so that checkpoints come soon."""
    sizes = f"--commit-log-size={16 * MEBIBYTE} --max-msg-size={MEBIBYTE} --max-body-size={2 * MEBIBYTE}"
    return (f"--durable={durable}", *sizes.split())


# Of Go's nsqd, the control: it syncs after each message.
GO = Mode("go", ("--mem-queue-size=0", "--sync-every=1"))
ALWAYS = Mode("always", _log_flags("always"), has_log=True)
# Nothing is synced by time during a test, so that a kill finds as much as possible in the kernel's cache alone.
INTERVAL = Mode(
    "interval",
    (*_log_flags("interval"), "--durable-interval=1m"),
    has_log=True,
    keeps_power=False,
)
