"""What the clients of a broker know, and when they knew it, so that a crash at any moment can be judged.

A target is a queue: `topic:channel`, or `topic` for what was published while the topic had no channel. Times are
CLOCK_MONOTONIC in nanoseconds, and each is taken on the side that makes the promise weaker: an OK counts from when the
client has read it, a FIN from before it is sent, an empty or a delete from before it is asked until after its answer.
Bodies are unique: a message is known by its body.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

SENT = "sent"
ACCEPTED = "accepted"
FINISH_SENT = "finish sent"
FINISH_CONFIRMED = "finish confirmed"
DROPPED = "dropped"
DROP_ANSWERED = "drop answered"
# What only a broker with a commit log keeps: see owed.py.
TOGETHER = "published together"
RETURNED = "returned"
DUE = "due"
NAMED = "named"
UNNAMED = "unnamed"
# Their target is "from to": queues.
MOVING = "moving"
MOVED = "moved"


@dataclass(frozen=True, slots=True)
class Fact:
    time_ns: int
    kind: str
    target: str
    body: bytes = b""
    # FINISH_CONFIRMED: 1 if by an OK to a publish behind it; TOGETHER: of the publish; RETURNED: least attempts of the
    # next delivery; DUE: wall time in ns before which it must not come.
    number: int = 0


def topic_of(target: str) -> str:
    return target.partition(":")[0]


@dataclass(slots=True)
class _Queues:
    """The facts up to a moment, by target."""

    sent_ns: dict[bytes, int] = field(default_factory=dict)
    accepted: dict[str, list[bytes]] = field(default_factory=lambda: defaultdict(list))
    finish_sent: dict[str, set[bytes]] = field(default_factory=lambda: defaultdict(set))
    finish_confirmed: dict[str, set[bytes]] = field(default_factory=lambda: defaultdict(set))
    dropped_ns: dict[str, int] = field(default_factory=dict)  # what was sent before is excused

    def note(self, fact: Fact) -> None:
        if fact.kind == SENT:
            self.sent_ns[fact.body] = fact.time_ns
        elif fact.kind == ACCEPTED:
            self.accepted[fact.target].append(fact.body)
        elif fact.kind == FINISH_SENT:
            self.finish_sent[fact.target].add(fact.body)
        elif fact.kind == FINISH_CONFIRMED:
            self.finish_confirmed[fact.target].add(fact.body)
        elif fact.kind == MOVING:
            source, place = fact.target.split()
            self.finish_sent[source].add(fact.body)
            self.finish_confirmed[place].discard(fact.body)
        elif fact.kind == MOVED:
            source, place = fact.target.split()
            self.finish_confirmed[source].add(fact.body)
            self.finish_sent[place].discard(fact.body)
            self.accepted[place].append(fact.body)

    def excused(self, target: str) -> set[bytes]:
        """What the target need not have: a topic's own messages may stand in any of its channels by now."""
        related = {target}
        if target == topic_of(target):
            for names in (self.finish_sent, self.dropped_ns):
                related |= {other for other in names if topic_of(other) == target}
        excused: set[bytes] = set()
        for other in related:
            excused |= self.finish_sent.get(other, set())
            if other in self.dropped_ns:
                end_ns = self.dropped_ns[other]
                excused.update(body for body, sent_ns in self.sent_ns.items() if sent_ns < end_ns)
        return excused


class Ledger:
    """Written by the threads of a workload, read when it is over."""

    def __init__(self, facts: Iterable[Fact] = ()) -> None:
        self._lock = threading.Lock()
        self.facts: list[Fact] = list(facts)

    def _note(self, kind: str, target: str, bodies: Iterable[bytes], number: int = 0) -> None:
        with self._lock:
            now_ns = time.monotonic_ns()
            self.facts += [Fact(now_ns, kind, target, body, number) for body in bodies]

    # -- written by clients

    def sent(self, *bodies: bytes) -> None:
        """Before they are published."""
        self._note(SENT, "", bodies)

    def accepted(self, bodies: Iterable[bytes], targets: Iterable[str]) -> None:
        """When their OK was heard; `targets` are the queues that the topic had when they were sent."""
        bodies = list(bodies)
        for target in targets:
            self._note(ACCEPTED, target, bodies)

    def finish_sent(self, target: str, body: bytes) -> None:
        """Before its FIN is sent."""
        self._note(FINISH_SENT, target, [body])

    def finish_confirmed(self, target: str, *bodies: bytes, by_publish: bool = False) -> None:
        """A later answer on the same connection proved that the FIN was processed."""
        self._note(FINISH_CONFIRMED, target, bodies, int(by_publish))

    def moving(self, source: str, place: str, bodies: Iterable[bytes]) -> None:
        """Before what lets them go from one queue to the other: from now on one of the two has each."""
        self._note(MOVING, f"{source} {place}", bodies)

    def moved(self, source: str, place: str, bodies: Iterable[bytes]) -> None:
        """A later answer proved that they have gone."""
        self._note(MOVED, f"{source} {place}", bodies)

    def dropped(self, target: str) -> None:
        """Before its empty or delete is asked for."""
        self._note(DROPPED, target, [b""])

    def drop_answered(self, target: str) -> None:
        """Afterwards: what is sent from now on is not meant."""
        self._note(DROP_ANSWERED, target, [b""])

    def together(self, bodies: Iterable[bytes]) -> None:
        """Before one command publishes them, all or none."""
        self._note(TOGETHER, "", bodies, len(self.facts))

    def returned(self, target: str, body: bytes, attempts: int) -> None:
        """An OK to a publish behind it proved that the next delivery has so many attempts at least."""
        self._note(RETURNED, target, [body], attempts)

    def due(self, target: str, body: bytes, wall_ns: int) -> None:
        """It must not come before; 0: it may at any time. A DPUB: before it is sent; a REQ: when it is proved."""
        self._note(DUE, target, [body], wall_ns)

    def named(self, target: str) -> None:
        """The broker has answered that it exists."""
        self._note(NAMED, target, [b""])

    def unnamed(self, target: str) -> None:
        """Before its deletion is asked for."""
        self._note(UNNAMED, target, [b""])

    # -- asked by a judge

    def _until(self, state_ns: int) -> _Queues:
        queues = _Queues()
        asked_ns: dict[str, int] = {}
        for fact in self.facts:
            if fact.kind == DROP_ANSWERED and fact.target in asked_ns:
                queues.dropped_ns[fact.target] = fact.time_ns
            if fact.time_ns > state_ns:
                continue
            queues.note(fact)
            if fact.kind == DROPPED:
                # Until its answer is seen, whatever is sent may be dropped.
                asked_ns[fact.target] = fact.time_ns
                queues.dropped_ns[fact.target] = 1 << 62
        return queues

    def must_have(self, state_ns: int) -> dict[str, set[bytes]]:
        """What each queue owes after a crash at that time: accepted, no FIN sent, not asked to be dropped."""
        queues = self._until(state_ns)
        owed = {}
        for target, bodies in queues.accepted.items():
            left = set(bodies) - queues.excused(target)
            if left:
                owed[target] = left
        return owed

    def must_not_have(self, state_ns: int) -> dict[str, set[bytes]]:
        """What must not come back after a kill at that time: its FIN was processed."""
        return dict(self._until(state_ns).finish_confirmed)

    def all_sent(self) -> set[bytes]:
        """Anything else was never published: a torn record, say."""
        return {fact.body for fact in self.facts if fact.kind == SENT}
