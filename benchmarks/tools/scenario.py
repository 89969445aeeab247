"""The scenarios of the utilities: our flags, Go's flags for the same work, and the figures to reach."""

from __future__ import annotations

from dataclasses import dataclass

SIZE = 200


@dataclass(frozen=True, slots=True)
class Scenario:
    """One row. `rate` is the minimum ratio of rates, `cpu` the maximum of CPU time per message; 0 = no target."""

    key: str
    words: str
    tool: str  # Go's name; only we have `replay`
    flags: tuple[str, ...] = ()
    go_flags: tuple[str, ...] | None = ()  # None: Go has no such tool
    count: int = 1_000_000
    go_count: int = 100_000
    rate: float = 0.0
    cpu: float = 0.0
    rate_alone: float = 0.0  # messages a second to reach, if there is nothing to compare with


FLIGHT = "--max-in-flight=2500"
GZIP = "--gzip"
TO_FILE = "nsq_to_file"

SCENARIOS = (
    Scenario(
        "file_plain", "nsq_to_file, lines, 2,500 in flight", TO_FILE,
        (FLIGHT,), (FLIGHT,), 1_500_000, 200_000, rate=8, cpu=0.15,
    ),
    Scenario(
        "file_gzip", "nsq_to_file, gzip level 6, 2,500 in flight", TO_FILE,
        (FLIGHT, GZIP), (FLIGHT, GZIP), 600_000, 200_000, rate=2,
    ),
    Scenario(
        "file_jsonl", "nsq_to_file, JSON lines (beside Go's plain lines)", TO_FILE,
        (FLIGHT, "--format=jsonl"), (FLIGHT,), 800_000, 200_000, rate=3,
    ),
    Scenario(
        "file_parquet", "nsq_to_file, Parquet (beside Go's plain lines)", TO_FILE,
        (FLIGHT, "--format=parquet"), (FLIGHT,), 800_000, 200_000, rate=3,
    ),
    Scenario(
        "file_default", "nsq_to_file, default flags", TO_FILE,
        (), (), 300_000, 100_000, rate=1.5,
    ),
    Scenario(
        "relay", "nsq_to_nsq, 2,500 in flight", "nsq_to_nsq",
        (FLIGHT,), (FLIGHT,), 1_000_000, 150_000, rate=6,
    ),
    Scenario(
        "relay_default", "nsq_to_nsq, default flags", "nsq_to_nsq",
        (), (), 500_000, 100_000, rate=6,
    ),
    Scenario("to_nsq", "to_nsq from a file", "to_nsq", (), (), 1_500_000, 40_000, rate=20),
    Scenario(
        "http", "nsq_to_http, a request per message, 100 at a time", "nsq_to_http",
        (), (), 60_000, 60_000, rate=1, cpu=1,
    ),
    Scenario(
        "http_batch", "nsq_to_http, 100 messages per request (beside Go's one)", "nsq_to_http",
        ("--batch=100", "--max-in-flight=2500"), (), 600_000, 60_000, rate=10,
    ),
    Scenario(
        "replay", "nsqfast-replay from plain lines", "replay",
        (), None, 2_000_000, 0, rate_alone=500_000,
    ),
)  # fmt: skip
