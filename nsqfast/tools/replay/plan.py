"""The input: the named archives that pass --since and --until, each with a destination topic."""

from dataclasses import dataclass

from nsqfast.archives import Archive, FileFinder, FileNames
from nsqfast.archives.files import ARROW, LINES, PARQUET
from nsqfast.archives.tables import load_arrow
from nsqfast.errors import OptionsError
from nsqfast.program.options import PlainError
from nsqfast.tools.replay.options import AUTO, ID, Options


@dataclass(frozen=True, slots=True)
class Plan:
    """The archives in reading order."""

    archives: list[Archive]
    outside: list[str]  # whose names give a time outside the requested span
    unknown: list[str]  # in folders, whose names do not identify them
    left: list[str]  # by a killed nsq_to_file, unfinished
    written: list[str]  # by nsq_to_file, now

    @property
    def size(self) -> int:
        """Bytes to read; 0 if unknown."""
        return (
            0
            if any(one.is_stdin for one in self.archives)
            else sum(one.size for one in self.archives)
        )


def make_plan(options: Options) -> Plan:
    """OptionsError: a request cannot be fulfilled, and nothing was published yet."""
    names = FileNames(options.filename_format, options.datetime_format, options.datetime_zone)
    finder = FileFinder(names, "" if options.format == AUTO else options.format)
    found = finder.find(options.words)
    chosen = [one for one in found if _is_within(one, options)]
    for archive in chosen:
        _check(archive, options)
    if any(one.format in {PARQUET, ARROW} for one in chosen):
        load_arrow()
    inside = {id(one) for one in chosen}
    outside = [one.path for one in found if id(one) not in inside]
    left, written = finder.find_unfinished(options.words, options.work_dir)
    return Plan(chosen, outside, finder.skipped, left, written)


def _is_within(archive: Archive, options: Options) -> bool:
    """Plain lines have no times: their file is taken if its time overlaps the requested span."""
    begin_ns, end_ns = archive.facts.begin_ns, archive.facts.end_ns
    if archive.format != LINES or not options.is_bounded:
        return True
    if begin_ns is None or end_ns is None:
        raise PlainError(
            f"{archive.path}: neither its lines nor its name say a time for --since and --until "
            f"(see --filename-format and --datetime-format)"
        )
    return begin_ns < options.until_ns and end_ns > options.since_ns


def _check(archive: Archive, options: Options) -> None:
    if archive.format != LINES:
        return
    if not (options.topic or archive.facts.topic):
        raise OptionsError(
            f"{archive.path}: its name says no topic; --topic is required (or see --filename-format)"
        )
    if options.dedupe == ID:
        raise OptionsError(f"{archive.path}: plain lines have no ids; use --dedupe=body")
