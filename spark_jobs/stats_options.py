"""The flags of stats."""

from dataclasses import dataclass
from pathlib import Path

from nsqfast.program import extras
from nsqfast.program.options import STRING, STRINGS, PlainError, option
from nsqfast.spark_jobs.options import JobOptions, TopicOptions

SUFFIXES = (".png", ".svg")


@dataclass(slots=True)
class Options(TopicOptions, JobOptions):
    """As on the command line."""

    # fmt: off
    input: list[str] = option(
        STRINGS, [], "folder that ingest, load-archives or compact wrote (repeatable)", group="Input and output")
    output: str = option(STRING, "", "folder for the figures as Parquet, with a row for each topic and hour")
    chart: str = option(STRING, "", "file for a chart of the messages per hour by topic, as .png or .svg")
    html: str = option(STRING, "", "deprecated: file for a page with that chart; it goes with 0.4")
    # fmt: on

    def check(self) -> None:
        """PlainError: an option is missing or cannot be honoured."""
        JobOptions.check(self)
        self.check_topics()
        if not self.input:
            raise PlainError("--input required")
        if self.chart and Path(self.chart).suffix.lower() not in SUFFIXES:
            raise PlainError(
                f"--chart: {self.chart}: its name has to end in {' or '.join(SUFFIXES)}"
            )
        for flag, path in (("--chart", self.chart), ("--html", self.html)):
            if path:
                extras.check(flag, "chart")
