"""The flags of compact."""

from dataclasses import dataclass

from nsqfast.program.options import BOOL, INT, STRING, STRINGS, PlainError, option
from nsqfast.spark_jobs.options import JobOptions, TopicOptions

TARGET_SIZE = 128 << 20


@dataclass(slots=True)
class Options(TopicOptions, JobOptions):
    """As on the command line."""

    # fmt: off
    input: list[str] = option(
        STRINGS, [], "folder that ingest, load-archives or compact wrote (repeatable)", group="Input and output")
    output: str = option(STRING, "", "folder to write to; empty, or left by a run of the same command that did not end")

    dedupe: bool = option(
        BOOL, False, "keep one of the messages with the same topic, id and timestamp_ns; "
        "what has no id has no duplicates", group="How files are written")
    target_size: int = option(INT, TARGET_SIZE, "bytes of a file, roughly")
    # fmt: on

    def check(self) -> None:
        """PlainError: an option is missing or cannot be honoured."""
        JobOptions.check(self)
        self.check_topics()
        if not self.input:
            raise PlainError("--input required")
        if not self.output:
            raise PlainError("--output required")
        if self.target_size < 1:
            raise PlainError("--target-size is 1 or more")
