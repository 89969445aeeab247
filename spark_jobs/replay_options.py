"""The flags of replay."""

from dataclasses import dataclass, field

from nsqfast.program.options import (
    BOOL,
    DURATION,
    FLOAT,
    INT,
    STRING,
    STRINGS,
    PlainError,
    option,
    text_such_as,
)
from nsqfast.spark_jobs.options import JobOptions, TopicOptions
from nsqfast.tools.replay.options import (
    BODY,
    FOREVER_NS,
    ID,
    NEVER_NS,
    NONE,
    parse_time_ns,
    parse_topic_map,
)
from nsqfast.tools.shared.options import AUTH_SECRET_HELP, CLIENT_OPTIONS, PRODUCER_HELP

DEDUPES = (ID, BODY, NONE)
MSG_SIZE_MAX = 1 << 20
BODY_SIZE_MAX = 5 << 20


@dataclass(slots=True)
class Options(TopicOptions, JobOptions):
    """As on the command line."""

    # fmt: off
    input: list[str] = option(
        STRINGS, [], "folder of ingest or load-archives, or a file, folder or glob of nsq_to_file (repeatable)",
        group="Input")
    since: str = option(
        STRING, "", "publish only messages from this time on: RFC 3339 or a date; UTC unless it has an offset")
    until: str = option(STRING, "", "publish only messages before this time")
    dedupe: str = option(
        text_such_as(*DEDUPES), NONE, "leave out messages that are there twice in a topic: by id, by body, or none")

    nsqd_tcp_address: list[str] = option(
        STRINGS, [], "TCP <addr>:<port> of an nsqd to publish to (repeatable)", group="Destination")
    topic_map: list[str] = option(
        STRINGS, [], "publish to topic <new> what was in topic <old>, as <old>:<new> (repeatable)")
    producer_opt: list[str] = option(CLIENT_OPTIONS, [], PRODUCER_HELP)
    auth_secret_file: str = option(STRING, "", AUTH_SECRET_HELP)
    max_msg_size: int = option(INT, MSG_SIZE_MAX, "nsqd's --max-msg-size; larger messages are left out, as bad records")
    max_body_size: int = option(INT, BODY_SIZE_MAX, "nsqd's --max-body-size")

    rate: float = option(
        FLOAT, 0.0, "most messages per second, over all tasks; 0 = as fast as nsqd takes them", group="How")
    dry_run: bool = option(BOOL, False, "publish nothing; count the messages of each topic")
    state: str = option(
        STRING, "", "folder to note what was published in, with a copy of what is still to be, "
        "so that the same command goes on from there")
    retry_for_ns: int = option(DURATION, "1m", "time to try a publish while no nsqd takes it")
    # fmt: on
    since_ns: int = field(default=NEVER_NS, init=False)
    until_ns: int = field(default=FOREVER_NS, init=False)
    topics: dict[str, str] = field(default_factory=dict, init=False)

    def check(self) -> None:
        """PlainError: an option is missing or cannot be honoured."""
        JobOptions.check(self)
        self.check_topics()
        if not self.input:
            raise PlainError("--input required")
        if not (self.nsqd_tcp_address or self.dry_run):
            raise PlainError("--nsqd-tcp-address required (or --dry-run)")
        if self.dedupe not in DEDUPES:
            raise PlainError(f"--dedupe is {self.dedupe!r}; it is {' or '.join(DEDUPES)}")
        self.topics = parse_topic_map([item.replace("=", ":", 1) for item in self.topic_map])
        if self.since:
            self.since_ns = parse_time_ns("since", self.since)
        if self.until:
            self.until_ns = parse_time_ns("until", self.until)
        if self.since_ns >= self.until_ns:
            raise PlainError("--since is not before --until: there is nothing between them")
        if not 0 <= self.rate < 1e12:
            raise PlainError(f"--rate is {self.rate}; it is 0 or more")
        if not self.dry_run:
            self._check_sink()

    def _check_sink(self) -> None:
        """Check them before Spark is started, which takes a while."""
        from nsqfast.spark.sink.options import parse_options

        parse_options(self.sink_options())

    def sink_options(self) -> dict[str, str]:
        """Return the options of format("nsq")."""
        found = {
            "nsqdTcpAddresses": ",".join(self.nsqd_tcp_address),
            "timeout": f"{self.retry_for_ns}ns",
            "maxMsgSize": str(self.max_msg_size),
            "maxBodySize": str(self.max_body_size),
        }
        for item in self.producer_opt:
            key, _, value = item.partition(",")
            found[f"nsq.{key}"] = value or "true"
        return found

    def binding(self) -> dict[str, object]:
        """Return what decides which messages go where; the rest may differ from run to run."""
        names = (
            "input",
            "topic",
            "topic_pattern",
            "topic_map",
            "since",
            "until",
            "dedupe",
            "max_msg_size",
        )
        return {name: getattr(self, name) for name in names}
