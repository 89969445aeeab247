"""The flags of ingest."""

import os
from dataclasses import dataclass

from nsqfast.program.options import BOOL, DURATION, INT, STRING, PlainError, option, text_such_as
from nsqfast.spark.spool.segments import ARROW
from nsqfast.spark.spool.segments import FORMATS as SEGMENT_FORMATS
from nsqfast.spark_jobs.layout import FORMATS, PARQUET
from nsqfast.spark_jobs.options import ANY_NUMBER, AddressOptions, JobOptions, TopicOptions
from nsqfast.tools.shared.options import AUTH_SECRET_HELP, CLIENT_OPTIONS, CONSUMER_HELP
from nsqfast.wire.names import describe_invalid, is_valid_name

EMBEDDED, EXTERNAL = "embedded", "external"
RECEIVERS = (EMBEDDED, EXTERNAL)
RESTARTS = 5
_REQUIRED = ("channel", "spool", "output", "checkpoint")


@dataclass(slots=True)
class Options(TopicOptions, AddressOptions, JobOptions):
    """As on the command line. 0 or "" leaves the choice to the source."""

    # fmt: off
    max_bad: int = option(
        INT, ANY_NUMBER, "most bad bodies of a run; with more it ends, with exit status 3; -1 = any number")

    channel: str = option(STRING, "", "channel to consume", group="Consumer")
    consumer_opt: list[str] = option(CLIENT_OPTIONS, [], CONSUMER_HELP)
    auth_secret_file: str = option(STRING, "", AUTH_SECRET_HELP)
    receiver: str = option(
        text_such_as(*RECEIVERS), EMBEDDED, "what consumes: embedded, or external for nsqfast-nsq-spool")

    spool: str = option(
        STRING, "", "folder that keeps messages until they are written; every executor must have it", group="Spool")
    segment_format: str = option(
        text_such_as(*SEGMENT_FORMATS), ARROW,
        'what the spool has: arrow for format("nsq"), or parquet, which Spark reads faster, by itself')
    max_spool_bytes: str = option(STRING, "", "size of the spool, such as 10g, from which messages stay in nsqd")
    retention_ns: int = option(DURATION, "0s", "time that the spool keeps messages that are written")
    ignore_data_loss: bool = option(BOOL, False, "go on with a warning where the spool has lost messages")

    output: str = option(
        STRING, "", "folder to write to, by topic, date, hour and batch", group="Output")
    checkpoint: str = option(STRING, "", "folder in which Spark notes its progress; it belongs to one output")
    format: str = option(text_such_as(*FORMATS), PARQUET, "format to write: parquet or delta")
    json_schema: str = option(
        STRING, "",
        "file with the schema of the bodies, which become the column `value`: DDL, Spark's JSON or JSON Schema")
    dead_letter: str = option(
        STRING, "", "folder for messages whose bodies do not fit the schema; empty = they are written with an `error`")

    available_now: bool = option(BOOL, False, "take the messages that wait now, then end", group="Batches")
    interval_ns: int = option(DURATION, "1s", "time between two batches; 0s = as soon as there are messages")
    max_rows_per_trigger: int = option(INT, 0, "most messages of a batch; 0 = no limit")
    max_bytes_per_trigger: str = option(STRING, "", "most bytes of a batch, such as 512m; empty = no limit")
    num_partitions: int = option(INT, 0, "most tasks of a batch; 0 = as the source decides")
    restarts: int = option(
        INT, RESTARTS, "how many times in a row a query that failed for a passing reason is started again")
    # fmt: on

    def check(self) -> None:
        """PlainError: an option is missing or cannot be honoured."""
        JobOptions.check(self)
        self.check_topics()
        if not (self.topic or self.topic_pattern):
            raise PlainError("--topic or --topic-pattern required")
        for name in _REQUIRED:
            if not getattr(self, name):
                raise PlainError(f"--{name} required")
        if not is_valid_name(self.channel):
            raise PlainError(f"--channel: {describe_invalid(self.channel, 'channel')}")
        if self.format not in FORMATS:
            raise PlainError(f"--format is {self.format!r}; it is {' or '.join(FORMATS)}")
        if self.receiver not in RECEIVERS:
            raise PlainError(f"--receiver is {self.receiver!r}; it is {' or '.join(RECEIVERS)}")
        if self.receiver == EMBEDDED:
            self.check_addresses()
        if self.dead_letter and not self.json_schema:
            raise PlainError("--dead-letter needs --json-schema, which says what a good body is")
        self._check_numbers()
        self._check_segment_format()
        self._check_source()

    def _check_numbers(self) -> None:
        for name in (
            "interval_ns",
            "retention_ns",
            "max_rows_per_trigger",
            "num_partitions",
            "restarts",
        ):
            if getattr(self, name) < 0:
                flag = name.removesuffix("_ns").replace("_", "-")
                raise PlainError(f"--{flag} is 0 or more")

    def _check_segment_format(self) -> None:
        if self.segment_format not in SEGMENT_FORMATS:
            raise PlainError(
                f"--segment-format is {self.segment_format!r}; it is {' or '.join(SEGMENT_FORMATS)}"
            )
        if self.segment_format == ARROW:
            return
        if self.max_rows_per_trigger or self.num_partitions:
            raise PlainError(
                "--max-rows-per-trigger and --num-partitions need --segment-format=arrow; Spark's file source has"
                " --max-bytes-per-trigger"
            )
        if ":/" in self.checkpoint:
            raise PlainError(
                f"--checkpoint {self.checkpoint}: with --segment-format=parquet the receiver reads it, so it is a"
                " folder of this machine, also a mounted one"
            )

    def _check_source(self) -> None:
        """Check them before Spark is started, which takes a while."""
        from nsqfast.spark.source.options import SourceOptions

        SourceOptions.parse(self.source_options())

    def source_options(self) -> dict[str, str]:
        """Return the options of format("nsq")."""
        found = {
            "subscribe": ",".join(self.topic),
            "subscribePattern": self.topic_pattern,
            "channel": self.channel,
            "nsqdTcpAddresses": ",".join(self.nsqd_tcp_address),
            "lookupdHttpAddresses": ",".join(self.lookupd_http_address),
            "spoolDir": os.path.abspath(self.spool),  # noqa: PTH100 - a text
            "receiver": self.receiver,
            "maxSpoolBytes": self.max_spool_bytes,
            "maxRowsPerTrigger": str(self.max_rows_per_trigger or ""),
            "maxBytesPerTrigger": self.max_bytes_per_trigger,
            "numPartitions": str(self.num_partitions or ""),
            "retention": f"{self.retention_ns}ns" if self.retention_ns else "",
            "failOnDataLoss": "false" if self.ignore_data_loss else "",
        }
        for item in self.consumer_opt:
            key, _, value = item.partition(",")
            found[f"nsq.{key}"] = value or "true"
        return {key: value for key, value in found.items() if value}
