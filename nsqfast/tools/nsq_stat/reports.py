"""Reports: a sample after the other, each at its own time, as Go's lines or JSON if it is not a table."""

import asyncio
import time
from collections.abc import Mapping
from typing import Protocol

import orjson

from nsqfast.errors import ConnectError
from nsqfast.tools.nsq_stat.cluster import AllFailedError, Cluster, Sample
from nsqfast.tools.nsq_stat.options import Options
from nsqfast.tools.nsq_stat.rates import NONE, NS_PER_S, NUMBERS, History, Key, Row, sort_rows
from nsqfast.tools.shared.output import Output
from nsqfast.tools.shared.program import ToolError, log

HEAD = (
    b"------rate------+----------------depth----------------+--------------metadata---------------\n"
    b"ingress  egress |   total     mem    disk inflt   def |     req     t-o         msgs clients\n"
)
HEAD_EVERY = 25  # samples; the first one has no line of its own
LINE = "%7d %7d | %7d %7d %7d %5d %5d | %7d %7d %12d %7d"
MISSING = " *"  # marks a line that lacks some nsqd


class Report(Protocol):
    """An output for samples."""

    async def show(
        self, rows: dict[Key, Row], node_count: int, errors: Mapping[str, ConnectError]
    ) -> None:
        """Show the next sample; the first is only the reference for the next. `errors`: peers without an answer."""

    def close(self) -> None:
        """Finish the output."""


class Lines:
    """Go's lines, byte for byte, except for the mark of an incomplete line."""

    def __init__(self, options: Options) -> None:
        self._key = (options.topic, options.channel)
        self._output = Output()
        self._count = 0
        self._outages = Outages(f"lines that it is not in end with{MISSING}")

    async def show(
        self, rows: dict[Key, Row], node_count: int, errors: Mapping[str, ConnectError]
    ) -> None:
        """See Report; ToolError: there is no such channel."""
        del node_count
        self._outages.tell(errors)
        row = find_row(rows, self._key, is_whole=not errors or self._count == 0)
        text = HEAD if self._count % HEAD_EVERY == 0 else b""
        if self._count:
            mark = MISSING if errors else ""
            text += f"{format_row(row)}{mark}\n".encode()
        self._count += 1
        if text:
            await self._output.write(text)

    def close(self) -> None:
        """See Report."""


def find_row(rows: dict[Key, Row], key: Key, *, is_whole: bool) -> Row:
    """The row of the channel; ToolError if no nsqd has it, and every nsqd that may have it has answered."""
    if key not in rows and is_whole:
        topic, channel = key
        raise ToolError(
            f"ERROR: failed to find channel({channel}) in channel stats of topic({topic})"
        )
    return rows.get(key, Row(NONE, None, None))


def format_row(row: Row) -> str:
    """Format a line without the newline."""
    return LINE % tuple([value(row) for value in NUMBERS.values()])


class JsonLines:
    """One object for each sample except the first."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._output = Output()
        self._count = 0
        self._outages = Outages("it is among `missing`")

    async def show(
        self, rows: dict[Key, Row], node_count: int, errors: Mapping[str, ConnectError]
    ) -> None:
        """See Report; ToolError: there is no such channel."""
        options = self._options
        self._outages.tell(errors)
        if options.is_single:
            find_row(rows, (options.topic, options.channel), is_whole=not errors)
        self._count += 1
        if self._count > 1:
            await self._output.write(self._dump(rows, node_count, errors))

    def _dump(
        self, rows: dict[Key, Row], node_count: int, errors: Mapping[str, ConnectError]
    ) -> bytes:
        found = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "interval_s": self._options.interval_ns / 1e9,
            "nsqd_count": node_count,
            "missing": sorted(errors),
            "channels": [to_json(*item) for item in sort_rows(rows, self._options.sort)],
        }
        return orjson.dumps(found, option=orjson.OPT_APPEND_NEWLINE)

    def close(self) -> None:
        """See Report."""


def to_json(key: Key, row: Row) -> dict[str, object]:
    """Use the names of nsqd's /stats; rates are in messages per second, null while unknown."""
    topic, channel = key
    counters = row.counters
    return {
        "topic": topic,
        "channel": channel or None,
        "ingress": row.ingress,
        "egress": row.egress,
        "depth": counters.depth,
        "memory_depth": counters.memory_depth,
        "backend_depth": counters.backend_depth,
        "in_flight_count": counters.in_flight,
        "deferred_count": counters.deferred,
        "requeue_count": counters.requeued,
        "timeout_count": counters.timed_out,
        "message_count": counters.messages,
        "client_count": counters.clients,
    }


class Outages:
    """Reports on stderr which peers do not answer, once each time."""

    def __init__(self, consequence: str) -> None:
        self._consequence = consequence
        self._known: set[str] = set()

    def tell(self, errors: Mapping[str, ConnectError]) -> None:
        """Report the peers that did not answer at this sample."""
        for address, error in errors.items():
            if address not in self._known:
                log.warning("%s (%s)", error, self._consequence)
        for address in self._known - errors.keys():
            log.info("%s: answers again", address)
        self._known = set(errors)


async def watch(options: Options) -> None:
    """Run until `count` reports are out, or for ever. ToolError: there is nothing to report."""
    report = make_report(options)
    try:
        async with Cluster(options) as cluster:
            await _take_samples(cluster, report, options)
    finally:
        report.close()


def make_report(options: Options) -> Report:
    """Choose by the flags and standard output."""
    if options.json:
        return JsonLines(options)
    if not options.is_table:
        return Lines(options)
    from nsqfast.tools.nsq_stat.table import LiveTable  # importing rich takes a moment

    return LiveTable(options)


async def _take_samples(cluster: Cluster, report: Report, options: Options) -> None:
    """Sample n begins n intervals after the first; samples missed because one took long are skipped."""
    loop = asyncio.get_running_loop()
    history = History(options.interval_ns)
    interval_s = options.interval_ns / NS_PER_S
    begun_s = loop.time()
    number = shown = 0
    while True:
        sample = await _sample(cluster, is_patient=options.is_table and number > 0)
        rows = history.add(number, sample.nodes)
        await report.show(rows, len(sample.nodes), sample.errors)
        shown += number > 0
        if shown == options.count:
            return
        number = max(number, int((loop.time() - begun_s) / interval_s)) + 1
        await asyncio.sleep(begun_s + number * interval_s - loop.time())


async def _sample(cluster: Cluster, *, is_patient: bool) -> Sample:
    """With a table the viewer sees that nobody answers, and the program continues."""
    try:
        return await cluster.sample()
    except AllFailedError as error:
        if is_patient:
            return Sample({}, error.errors)
        raise
