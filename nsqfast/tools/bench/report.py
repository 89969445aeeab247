"""What a person sees of a run: a progress bar, and its result as a table or as one record for --json."""

import time
from dataclasses import asdict, dataclass
from typing import Any

from nsqfast.tools.bench.crew import Crew, Totals, counted
from nsqfast.tools.bench.options import NS_PER_S, Options, Plan
from nsqfast.tools.bench.worker import Latency, Report
from nsqfast.tools.shared.output import Progress

# From this share of the workers' time on, the generator was the limit.
BUSY_SHARE = 0.9


@dataclass(frozen=True, slots=True)
class Result:
    """The figures of a run; the names are those of the JSON object."""

    mode: str
    published: int
    received: int
    finished: int
    requeued: int
    seconds: float
    messages_per_s: float
    megabytes_per_s: float
    cpu_us_per_message: float
    cpu_us_user: float
    cpu_us_sys: float
    connections: int
    consumers: int
    workers: int
    size: int
    batch_size: int
    in_air: int
    latency_us: dict[str, float] | None
    ok_latency_us: dict[str, float] | None
    error: str | None

    @property
    def counted(self) -> int:
        """The messages that the rate counts."""
        return counted(self, self.mode)

    @property
    def busy_share(self) -> float:
        """The share of the workers' possible CPU time that they used."""
        could_us = self.workers * self.seconds * 1e6
        return (self.cpu_us_user + self.cpu_us_sys) / could_us if could_us else 0.0

    def to_json(self) -> dict[str, Any]:
        """One object, flat but for the latency."""
        return asdict(self)


def make_result(plan: Plan, totals: Totals, reports: list[Report], error: str | None) -> Result:
    """Add up the workers' measurements; `error` is an error of the run as a whole."""
    options = plan.options
    messages = counted(totals, options.mode)
    started = [report for report in reports if report.started_ns]
    seconds = 0.0
    if started:
        first_ns = min(report.started_ns for report in started)
        seconds = (max(report.ended_ns for report in started) - first_ns) / NS_PER_S
    rate = messages / seconds if seconds else 0.0
    moved = totals.received_bytes if options.consumes else totals.published * options.size
    user_us = sum(report.user_s for report in started) * 1e6
    sys_us = sum(report.sys_s for report in started) * 1e6
    return Result(
        mode=options.mode,
        published=totals.published,
        received=totals.received,
        finished=totals.finished,
        requeued=totals.requeued,
        seconds=seconds,
        messages_per_s=rate,
        megabytes_per_s=moved / seconds / 1e6 if seconds else 0.0,
        cpu_us_per_message=(user_us + sys_us) / messages if messages else 0.0,
        cpu_us_user=user_us,
        cpu_us_sys=sys_us,
        connections=plan.connections,
        consumers=plan.consumers,
        workers=len(plan.workers),
        size=options.size,
        batch_size=options.batch_size if options.publishes else 0,
        in_air=options.in_air if options.publishes else 0,
        latency_us=_latency(options, [report.latency for report in reports]),
        ok_latency_us=_latency(options, [report.ok_latency for report in reports]),
        error=error,
    )


def _latency(options: Options, latencies: list[Latency | None]) -> dict[str, float] | None:
    taken = [latency for latency in latencies if latency is not None]
    return {**asdict(taken[0]), "intended": options.intended} if taken else None


def first_error(reports: list[Report]) -> str | None:
    """The first error; the others follow from it."""
    return next((report.error for report in reports if report.error is not None), None)


def table(result: Result) -> str:
    """Aligned columns, one line of figures, and further pairs of lines for the latencies."""
    columns = {"mode": result.mode}
    for name in ("published", "received", "finished", "requeued"):
        if getattr(result, name):
            columns[name] = f"{getattr(result, name):,}"
    columns |= {
        "seconds": f"{result.seconds:.3f}",
        "messages/s": f"{result.messages_per_s:,.0f}",
        "MB/s": f"{result.megabytes_per_s:,.1f}",
        "CPU us/message": f"{result.cpu_us_per_message:.3f}",
    }
    lines = _aligned(columns)
    for until, taken in (("arrival", result.latency_us), ("OK", result.ok_latency_us)):
        if taken:
            lines += ["", *_aligned({"until": until} | _latency_columns(taken))]
    return "\n".join(lines)


def _latency_columns(taken: dict[str, float]) -> dict[str, str]:
    columns = {"samples": f"{taken['count']:,.0f}", "intended": f"{taken['intended']:,.0f}"}
    names = {"p50": "p50 us", "p99": "p99 us", "p999": "p99.9 us", "max": "max us"}
    return columns | {shown: f"{taken[name]:,.1f}" for name, shown in names.items()}


def _aligned(columns: dict[str, str]) -> list[str]:
    widths = [max(len(name), len(shown)) for name, shown in columns.items()]
    rows = [list(columns), list(columns.values())]
    return [
        "  ".join(text.rjust(width) for text, width in zip(row, widths, strict=True))
        for row in rows
    ]


def remarks(result: Result, goal: int) -> list[str]:
    """One line for each reason why the figures say less about the broker than they seem to."""
    found = []
    if result.error is None and result.counted < goal:
        found.append(
            f"time was up after {result.counted:,} of {goal:,} messages; a longer --runfor gives them more"
        )
    if result.latency_us and result.latency_us["stale"]:
        found.append(
            f"{result.latency_us['stale']:,} messages from before this run came first and were left out"
        )
    if result.busy_share >= BUSY_SHARE:
        cores = "1 core" if result.workers == 1 else f"{result.workers} cores"
        found.append(
            f"the generator, not the broker, was the limit: it kept {cores} busy for "
            f"{100 * result.busy_share:.0f} % of the time; try more --workers"
        )
    return found


class Meter(Progress):
    """A progress bar that shows the count if there is one, otherwise the time."""

    def __init__(self, plan: Plan, crew: Crew) -> None:
        self._crew = crew
        self._mode = plan.options.mode
        self._runfor_s = plan.options.runfor_ns / NS_PER_S
        self._goal = plan.goal
        self._before = (0.0, 0)
        super().__init__(self._mode, self._goal or self._runfor_s)

    def look(self) -> None:
        """Show the progress; the rate is that since the last call."""
        totals = self._crew.totals()
        if not totals.started_ns:
            return
        now_s, messages = time.monotonic(), counted(totals, self._mode)
        before_s, before = self._before
        self._before = (now_s, messages)
        rate = (messages - before) / (now_s - before_s) if before_s else 0.0
        elapsed_s = now_s - totals.started_ns / NS_PER_S
        done = messages if self._goal else min(elapsed_s, self._runfor_s)
        self.show(done, messages, rate)
