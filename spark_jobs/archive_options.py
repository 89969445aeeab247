"""The flags of load-archives."""

import re
from dataclasses import dataclass, field

from nsqfast.archives.names import DATETIME_FORMAT, FILENAME_FORMAT, read_zone
from nsqfast.program.options import (
    BOOL,
    DURATION,
    INT,
    STRING,
    STRINGS,
    PlainError,
    option,
    text_such_as,
)
from nsqfast.spark_jobs.options import InputOptions, JobOptions
from nsqfast.tools.replay.options import parse_time_ns
from nsqfast.wire.names import describe_invalid, is_valid_name

SKIP, KEEP = "skip", "keep"


@dataclass(slots=True)
class Options(InputOptions, JobOptions):
    """Durations are in nanoseconds, with the suffix `_ns`."""

    # fmt: off
    input: list[str] = option(
        STRINGS, [], "file, folder or glob of archives (repeatable)", group="Input and output")
    output: str = option(STRING, "", "folder of Parquet to write, by topic, date, hour and batch")

    salvage: bool = option(
        BOOL, False, "load what is readable of damaged files, too, and report the rest", group="How files are read")
    settle_ns: int = option(
        DURATION, "1m",
        "leave a file for the next run if it changed within this time, or if the hour in its name ended within this "
        "time; 0s = take all files")
    filename_format: str = option(STRING, FILENAME_FORMAT, "--filename-format of nsq_to_file when it wrote them")
    datetime_format: str = option(STRING, DATETIME_FORMAT, "--datetime-format of nsq_to_file when it wrote them")
    datetime_zone: str = option(
        STRING, "UTC", "time zone of the dates in the names: UTC, local, or a name such as Europe/Berlin")
    work_dir: str = option(
        STRING, "", "--work-dir of nsq_to_file, to name what it has not finished; <folder>.work is looked at anyway")
    assume_topic: str = option(STRING, "", "topic of records where neither they nor the file's name say one")
    assume_time: str = option(STRING, "", "time of records where neither they nor the file's name say one")
    unterminated: str = option(
        text_such_as(SKIP, KEEP), SKIP,
        "what a file's last line is if it has no newline: skip (torn, and so damage) or keep (a record)")
    batch_files: int = option(INT, 1000, "most files of one batch")
    batch_bytes: int = option(INT, 1 << 30, "bytes of the files of one batch, roughly")
    # fmt: on
    assume_time_ns: int | None = field(default=None, init=False)

    def check(self) -> None:
        """PlainError: an option is missing or cannot be honoured."""
        JobOptions.check(self)
        self.check_input()
        if not self.output:
            raise PlainError("--output required")
        for word in self.input:
            if word == "-" or "://" in word:
                raise PlainError(
                    f"--input: {word}: give files that each machine of Spark has under this name"
                )
        if self.settle_ns < 0:
            raise PlainError("--settle is 0s or more")
        for name in ("batch_files", "batch_bytes"):
            if getattr(self, name) < 1:
                raise PlainError(f"--{name.replace('_', '-')} is 1 or more")
        if self.unterminated not in {SKIP, KEEP}:
            raise PlainError(f"--unterminated is {self.unterminated!r}; it is {SKIP} or {KEEP}")
        if self.assume_topic and not is_valid_name(self.assume_topic):
            raise PlainError(f"--assume-topic: {describe_invalid(self.assume_topic)}")
        if self.assume_time:
            self.assume_time_ns = parse_time_ns("--assume-time", self.assume_time)
        read_zone(self.datetime_zone)

    def is_topic(self, topic: str) -> bool:
        """Whether --topic and --topic-pattern include it."""
        if self.topic:
            return topic in self.topic
        return re.search(self.topic_pattern, topic) is not None
