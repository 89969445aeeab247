"""What is asked of the process that opens folders, and what it answers."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Request:
    folder: str
    flags: tuple[str, ...] = ()
    # Start, and be killed as if by kill -9 at this recorded call; 0: at none.
    die_at: int = 0
    start_only: bool = False
    # Tell what comes before the clock is put forward.
    is_timed: bool = False


@dataclass(slots=True)
class Found:
    """`bodies` by target, `topic:channel`; `left` is what did not come out although it is counted."""

    bodies: dict[str, list[bytes]] = field(default_factory=dict)
    is_started: bool = False
    left: int = 0
    health: str = ""
    error: str = ""
    lines: list[str] = field(default_factory=list)
    deferred: dict[str, int] = field(default_factory=dict)
    # Of what came: attempts by target and body, and what came by target at this wall time, before the clock was put
    # forward. `names`: the topics and channels, as targets.
    attempts: dict[str, dict[bytes, int]] = field(default_factory=dict)
    due: dict[str, set[bytes]] = field(default_factory=dict)
    due_ns: int = 0
    names: set[str] = field(default_factory=set)
