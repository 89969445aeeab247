"""Take one sample after the other, each at its own time."""

import asyncio

from nsqfast.tools.nsq_stat.cluster import AllFailedError, Cluster, Sample
from nsqfast.tools.nsq_stat.options import Options
from nsqfast.tools.nsq_stat.rates import NS_PER_S, History
from nsqfast.tools.nsq_stat.reports import JsonLines, Lines, Report


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
    from nsqfast.tools.nsq_stat.table import Table  # importing rich takes a moment

    return Table(options)


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
