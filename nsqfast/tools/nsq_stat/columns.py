"""The columns of a report, with the names that Go's nsq_stat uses."""

from collections.abc import Callable

from nsqfast.tools.nsq_stat.counters import Key
from nsqfast.tools.nsq_stat.rates import Row

Value = Callable[[Key, Row], str | int]


def _rate(rate: float | None) -> int:
    """Truncated to whole messages, as in Go; an unknown rate counts as 0."""
    return 0 if rate is None else int(rate)


NAMES: dict[str, Value] = {
    "topic": lambda key, _: key[0],
    "channel": lambda key, _: key[1],
}
NUMBERS: dict[str, Callable[[Row], int]] = {
    "ingress": lambda row: _rate(row.ingress),
    "egress": lambda row: _rate(row.egress),
    "total": lambda row: row.counters.depth,
    "mem": lambda row: row.counters.memory_depth,
    "disk": lambda row: row.counters.backend_depth,
    "inflt": lambda row: row.counters.in_flight,
    "def": lambda row: row.counters.deferred,
    "req": lambda row: row.counters.requeued,
    "t-o": lambda row: row.counters.timed_out,
    "msgs": lambda row: row.counters.messages,
    "clients": lambda row: row.counters.clients,
}
COLUMNS = (*NAMES, *NUMBERS)


def sort_rows(rows: dict[Key, Row], column: str) -> list[tuple[Key, Row]]:
    """Sort names from A on, numbers from the largest on; equal ones by name."""
    by_name = sorted(rows.items())
    if column in NAMES:
        value = NAMES[column]
        return sorted(by_name, key=lambda item: value(*item))
    number = NUMBERS[column]
    return sorted(by_name, key=lambda item: number(item[1]), reverse=True)
