"""Flags that several jobs share; syntax and exit status are those of nsqfast's other tools.

    @dataclass(slots=True)
    class Options(InputOptions, JobOptions):
        output: str = option(STRING, "", "folder to write to")

This module imports no pyspark: --help, completion and a wrong flag answer at once, even if Spark is not installed.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from nsqfast.program.options import INT, STRING, STRINGS, PlainError, option, text_such_as
from nsqfast.tools.shared.discovery import base_url
from nsqfast.tools.shared.options import LOOKUPD_HELP, METRICS_HELP, NSQD_HELP, parse_tool
from nsqfast.wire.names import describe_invalid, is_valid_name

T = TypeVar("T", bound="JobOptions")

PROGRAM = "nsqfast-spark"
ABOUTS = {
    "ingest": "Writes the messages of topics to Parquet or Delta, each message once.",
    "load-archives": "Turns archives of nsq_to_file into Parquet.",
    "compact": "Turns many small files into files of about one size, in another folder.",
    "replay": "Publishes again what ingest, load-archives or nsq_to_file wrote.",
    "stats": "Counts what is in folders of messages, by topic and hour.",
}
LOG_LEVELS = ("all", "trace", "debug", "info", "warn", "error", "fatal", "off")
ANY_NUMBER = -1


@dataclass(slots=True)
class JobOptions:
    """The flags of every job."""

    # fmt: off
    master: str = option(
        STRING, "", "where Spark runs; empty = local[*], or what spark-submit says", group="Spark")
    conf: list[str] = option(STRINGS, [], "setting of Spark as <key>=<value> (repeatable)")
    spark_log_level: str = option(
        text_such_as(*LOG_LEVELS), "",
        "lowest level that Spark itself logs: all, trace, debug, info, warn, error, fatal or off; "
        "empty = fatal in local mode, otherwise as Spark is set up")

    metrics_file: str = option(STRING, "", "file to which a line of JSON is added for each batch", group="Reports")
    metrics_address: str = option(STRING, "", METRICS_HELP)
    max_bad: int = option(
        INT, 0, "most bad records of a run; with more of them the exit status is 3; -1 = any number")
    # fmt: on

    def check(self) -> None:
        """PlainError: an option is missing or cannot be honoured. Subclasses call it, too."""
        self.settings()
        if self.spark_log_level and self.spark_log_level not in LOG_LEVELS:
            raise PlainError(
                f"--spark-log-level is {self.spark_log_level!r}; it is one of {', '.join(LOG_LEVELS)}"
            )
        if self.max_bad < ANY_NUMBER:
            raise PlainError(f"--max-bad is {self.max_bad}; it is 0 or more, or -1 for any number")

    def settings(self) -> dict[str, str]:
        """--conf, by key."""
        found = {}
        for item in self.conf:
            key, equals, value = item.partition("=")
            if not (key and equals):
                raise PlainError(f"--conf: {item!r} is not <key>=<value>")
            found[key] = value
        return found

    def is_too_bad(self, bad: int) -> bool:
        """Whether so many bad records are more than --max-bad."""
        return self.max_bad != ANY_NUMBER and bad > self.max_bad


@dataclass
class TopicOptions:
    """Selects topics; none stands for all, if a job supports that. It has no slots, so it can be combined with
    JobOptions."""

    # fmt: off
    topic: list[str] = option(STRINGS, [], "topic to take (repeatable)", group="Topics")
    topic_pattern: str = option(STRING, "", "take the topics that this regular expression matches somewhere")
    # fmt: on

    def check_topics(self) -> None:
        """PlainError: an invalid topic name, or both flags."""
        if self.topic and self.topic_pattern:
            raise PlainError("use --topic or --topic-pattern not both")
        for name in self.topic:
            if not is_valid_name(name):
                raise PlainError(f"--topic: {describe_invalid(name)}")
        try:
            re.compile(self.topic_pattern)
        except re.error as error:
            raise PlainError(f"--topic-pattern: {self.topic_pattern!r}: {error}") from None


@dataclass
class InputOptions(TopicOptions):
    """Folders of messages to read, and the topics of them to take; it has no slots, either."""

    # fmt: off
    input: list[str] = option(
        STRINGS, [], "folder that ingest, load-archives or compact wrote (repeatable)", group="Input and output")
    # fmt: on

    def check_input(self) -> None:
        """PlainError: there is no --input, or an invalid topic."""
        self.check_topics()
        if not self.input:
            raise PlainError("--input required")


@dataclass
class AddressOptions:
    """The addresses of nsqd; it has no slots, either."""

    # fmt: off
    nsqd_tcp_address: list[str] = option(STRINGS, [], NSQD_HELP, group="Source")
    lookupd_http_address: list[str] = option(STRINGS, [], LOOKUPD_HELP)
    # fmt: on

    def check_addresses(self) -> None:
        """PlainError unless there is exactly one kind of address."""
        if not (self.nsqd_tcp_address or self.lookupd_http_address):
            raise PlainError("--nsqd-tcp-address or --lookupd-http-address required")
        if self.nsqd_tcp_address and self.lookupd_http_address:
            raise PlainError("use --nsqd-tcp-address or --lookupd-http-address not both")
        for address in self.lookupd_http_address:
            base_url(address, "--lookupd-http-address")


def parser(cls: type[T], job: str, argv: list[str]) -> Callable[[], T]:
    """Return a function that parses and checks the command line of a job: FlagError, PlainError."""

    def parse() -> T:
        about = ABOUTS.get(job, "")
        options = parse_tool(cls, argv, f"{PROGRAM} {job}", about)
        options.check()
        return options

    return parse
