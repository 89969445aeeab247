"""The flags of stats."""

from dataclasses import dataclass

from nsqfast.options import STRING, STRINGS, PlainError, option
from nsqfast.spark_jobs.options import JobOptions, TopicOptions


@dataclass(slots=True)
class Options(TopicOptions, JobOptions):
    """As on the command line."""

    # fmt: off
    input: list[str] = option(
        STRINGS, [], "folder that ingest, load-archives or compact wrote (repeatable)", group="Input and output")
    output: str = option(STRING, "", "folder for the figures as Parquet, with a row for each topic and hour")
    html: str = option(STRING, "", "file for the figures as a page that needs no network")
    # fmt: on

    def check(self) -> None:
        """PlainError: an option is missing or cannot be honoured."""
        JobOptions.check(self)
        self.check_topics()
        if not self.input:
            raise PlainError("--input required")
