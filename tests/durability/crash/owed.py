"""What a broker with a commit log owes after a crash, beside the messages.

An OK to a publish says that it was in a batch of the log that is on disk (in interval mode: in the kernel's cache), and
all that came before it in the log, too: FINs, attempts, deadlines. An empty, a delete, a create and a change of chosen
messages are answered when that holds for them.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from durability.crash.ledger import (
    ACCEPTED,
    DROP_ANSWERED,
    DROPPED,
    DUE,
    FINISH_CONFIRMED,
    FINISH_SENT,
    MOVED,
    MOVING,
    NAMED,
    RETURNED,
    TOGETHER,
    UNNAMED,
    topic_of,
)

if TYPE_CHECKING:
    from durability.crash.found import Found
    from durability.crash.ledger import Fact, Ledger

# What a deadline may lose where it is kept in milliseconds.
EARLY_NS_MAX = 5_000_000


@dataclass(slots=True)
class LogOwed:
    """`gone`: finished or dropped, by target. `groups`: published together, and not answered. `moves`: the two queues
    of which one has it, by body."""

    gone: dict[str, set[bytes]] = field(default_factory=lambda: defaultdict(set))
    attempts: dict[tuple[str, bytes], int] = field(default_factory=dict)
    due_ns: dict[tuple[str, bytes], int] = field(default_factory=dict)
    groups: dict[int, set[bytes]] = field(default_factory=lambda: defaultdict(set))
    names: set[str] = field(default_factory=set)
    moves: dict[bytes, tuple[str, str]] = field(default_factory=dict)

    def judge(self, found: Found) -> list[str]:
        """One line for each promise that is broken."""
        lines = [f"{name} is gone" for name in sorted(self.names - found.names)]
        for target, bodies in self.gone.items():
            back = bodies & _bodies(found, target)
            lines += [f"{len(back)} came back to {target}: {min(back)[:24]!r}"] if back else []
        for pair in sorted(set(self.moves.values())):
            source, place = (_bodies(found, target) for target in pair)
            moved = {body for body, other in self.moves.items() if other == pair}
            if twice := moved & source & place:
                lines.append(f"{' and '.join(pair)} both have {len(twice)}: {min(twice)[:24]!r}")
            if lost := moved - source - place:
                lines.append(f"neither {' nor '.join(pair)} has {len(lost)}: {min(lost)[:24]!r}")
        for (target, body), least in self.attempts.items():
            attempts = found.attempts.get(target, {}).get(body, least)
            if attempts < least:
                lines.append(f"{target}: attempt {attempts} instead of {least} of {body[:24]!r}")
        for (target, body), due_ns in self.due_ns.items():
            early_ns = due_ns - found.due_ns
            if early_ns > EARLY_NS_MAX and body in found.due.get(target, ()):
                lines.append(f"{target}: {early_ns / 1e9:.3f} s early {body[:24]!r}")
        for bodies in self.groups.values():
            for target in found.bodies:
                count = len(bodies & _bodies(found, target))
                if 0 < count < len(bodies):
                    lines.append(f"{target}: {count} of {len(bodies)} that were published together")
        return lines


def _bodies(found: Found, target: str) -> set[bytes]:
    """A topic's own messages are in the channel that the opening gave it, or in all of its channels."""
    if target == topic_of(target):
        targets = [name for name in found.bodies if topic_of(name) == target]
        return set().union(*(found.bodies[name] for name in targets))
    return set(found.bodies.get(target, ()))


class _Reading:
    """The facts up to a moment, one after the other."""

    def __init__(self) -> None:
        self.owed = LogOwed()
        self.accepted: dict[str, set[bytes]] = defaultdict(set)
        self.group_of: dict[bytes, int] = {}
        self.asked: dict[str, set[bytes]] = {}  # of a drop that is not answered

    def note(self, fact: Fact) -> None:
        owed, target, body = self.owed, fact.target, fact.body
        if fact.kind == ACCEPTED:
            self.accepted[target].add(body)
            owed.groups.pop(self.group_of.get(body, -1), None)
        elif fact.kind == FINISH_CONFIRMED:
            owed.gone[target].add(body)
        elif fact.kind == FINISH_SENT:
            # A consumer may have it before its publisher is answered.
            owed.groups.pop(self.group_of.get(body, -1), None)
        elif fact.kind == MOVING:
            source, place = target.split()
            owed.moves[body] = source, place
            owed.gone[place].discard(body)
        elif fact.kind == MOVED:
            source, place = target.split()
            del owed.moves[body]
            owed.gone[source].add(body)
            self.accepted[place].add(body)
        elif fact.kind == DROPPED:
            self.asked[target] = set(self.accepted[target])
        elif fact.kind == DROP_ANSWERED:
            owed.gone[target] |= self.asked.pop(target)
        elif fact.kind == TOGETHER:
            owed.groups[fact.number].add(body)
            self.group_of[body] = fact.number
        elif fact.kind == RETURNED:
            owed.attempts[target, body] = max(owed.attempts.get((target, body), 0), fact.number)
        elif fact.kind == DUE:
            owed.due_ns[target, body] = fact.number
        elif fact.kind == NAMED:
            owed.names.add(target)
        elif fact.kind == UNNAMED:
            owed.names.discard(target)


def log_owed(ledger: Ledger, state_ns: int) -> LogOwed:
    """After a crash at that time."""
    reading = _Reading()
    for fact in ledger.facts:
        if fact.time_ns <= state_ns:
            reading.note(fact)
    return reading.owed
