"""How many messages each connection may have in flight: numbers in, numbers out; time is an argument.

All of `max_in_flight` is distributed at any time, and never more: RDY that one connection gives up goes to another only
as its messages are answered, because nsqd's RDY is a window that does not recall delivered messages. Each connection
gets an equal share, the first ones one more if it does not divide evenly. With more connections than messages allowed,
RDY 1 rotates: from connections that were idle, or had it long enough, to those that have gone longest without.
"""

from collections.abc import Sequence
from dataclasses import dataclass

SECOND_NS = 1_000_000_000


@dataclass(slots=True)
class Share:
    """One connection, as the distribution sees it, which sets `rdy`."""

    rdy_max: int  # nsqd's max_rdy_count
    rdy: int = 0
    in_flight: int = 0
    message_ns: int = 0  # when the last message came, or when it was connected
    rdy_since_ns: int = 0  # when rdy last changed between 0 and more


def even_shares(max_in_flight: int, maxima: Sequence[int]) -> list[int]:
    """The share of each: equal up to one, within its maximum, `max_in_flight` in total if they can take it.

    With fewer messages than connections the first ones get 1 and the others 0.
    """
    shares = [0] * len(maxima)
    rest = max_in_flight
    open_ones = [index for index, most in enumerate(maxima) if most > 0]
    while rest > 0 and open_ones:
        each = rest // len(open_ones)
        for index in open_ones if each else open_ones[:rest]:
            given = min(max(each, 1), maxima[index] - shares[index])
            shares[index] += given
            rest -= given
        open_ones = [index for index in open_ones if shares[index] < maxima[index]]
    return shares


@dataclass(slots=True)
class Distribution:
    """The rule with its two timeouts."""

    idle_timeout_s: float  # low_rdy_idle_timeout
    turn_timeout_s: float  # low_rdy_timeout

    def wanted(self, max_in_flight: int, shares: Sequence[Share], now_ns: int) -> list[int]:
        """What each should have in the end."""
        if len(shares) <= max_in_flight:
            return even_shares(max_in_flight, [share.rdy_max for share in shares])
        return self._rotated(max_in_flight, shares, now_ns)

    def _rotated(self, max_in_flight: int, shares: Sequence[Share], now_ns: int) -> list[int]:
        holders = [i for i, share in enumerate(shares) if share.rdy > 0 and share.rdy_max > 0]
        without = [i for i, share in enumerate(shares) if share.rdy == 0 and share.rdy_max > 0]
        without.sort(key=lambda i: shares[i].rdy_since_ns)
        kept = [i for i in holders if not self._is_over(shares[i], now_ns)]
        # Connections whose turn is over come after all that wait, so that nothing is left undistributed.
        over = sorted(set(holders) - set(kept), key=lambda i: shares[i].rdy_since_ns)
        chosen = [*kept, *without, *over][:max_in_flight]
        return [int(i in chosen) for i in range(len(shares))]

    def _is_over(self, share: Share, now_ns: int) -> bool:
        idle_s = (now_ns - max(share.message_ns, share.rdy_since_ns)) / SECOND_NS
        held_s = (now_ns - share.rdy_since_ns) / SECOND_NS
        return idle_s >= self.idle_timeout_s or held_s >= self.turn_timeout_s


def possible(max_in_flight: int, shares: Sequence[Share], wanted: Sequence[int]) -> list[int]:
    """What can be set now: lower at once, raise as far as messages in flight leave room."""
    allowed = [min(share.rdy, want) for share, want in zip(shares, wanted, strict=True)]
    room = max_in_flight - sum(
        max(low, share.in_flight) for low, share in zip(allowed, shares, strict=True)
    )
    # Give one to each before any gets more: a new connection must not wait for a large old one.
    for limit in (1, None):
        for index, (share, want) in enumerate(zip(shares, wanted, strict=True)):
            target = want if limit is None else min(want, limit)
            # Messages in flight there already use up the room.
            used = max(allowed[index], share.in_flight)
            raised = min(target, used + max(room, 0))
            if raised > allowed[index]:
                room -= max(0, raised - used)
                allowed[index] = raised
    return allowed
