"""Flags of nsqfast-nsq-spool."""

import os
from dataclasses import dataclass
from typing import Any

from nsqfast.client import Config
from nsqfast.errors import OptionsError
from nsqfast.program.logs import LEVEL_HELP, LEVELS, LOG_PREFIX_HELP
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
from nsqfast.spark.receiver.child import CLIENT_OPTIONS_VARIABLE
from nsqfast.spark.spool.segments import ARROW, FORMATS, PARQUET
from nsqfast.tools.shared.client import client_config
from nsqfast.tools.shared.discovery import base_url
from nsqfast.tools.shared.options import (
    CONNECT_TIMEOUT_HELP,
    METRICS_HELP,
    REQUEST_TIMEOUT_HELP,
    ClientOptions,
    parse_tool,
)
from nsqfast.tools.shared.topics import check_topics
from nsqfast.wire.names import describe_invalid, is_valid_name

PROGRAM = "nsq_spool"
ABOUT = "Consumes a channel into a spool on disk, from which Spark reads."
NS = 1_000_000_000
FREE_SIZE = 1 << 30  # bytes left to others, if the disk is large
FREE_PART = 0.05  # of a small one


@dataclass(slots=True)
class Options(ClientOptions):
    """Durations are in nanoseconds, with the suffix `_ns`."""

    # fmt: off
    max_in_flight: int = option(INT, 10_000, "most messages of a topic in flight at a time")
    msg_timeout_ns: int = option(
        DURATION, "30s", "time after which nsqd delivers a message again that is not finished", group="Consumer")
    connections: int = option(INT, 4, "connections to each nsqd for each topic")

    topic: list[str] = option(STRINGS, [], "topic to consume (repeatable)", group="Topics and channel")
    topic_pattern: str = option(STRING, "", "consume only topics that this regular expression matches somewhere")
    topic_refresh_ns: int = option(DURATION, "15s", "time between two questions to nsqlookupd for topics")
    channel: str = option(STRING, "", "channel to consume")

    spool: str = option(STRING, "", "folder of the spool", group="Spool")
    store: str = option(
        STRING, "", "bucket and folder that sealed segments go to, s3://BUCKET/FOLDER?region=REGION or"
        " gs://BUCKET/FOLDER; needs parquet")
    receiver: str = option(STRING, "r0", "name of this receiver; each of several on one spool has its own")
    segment_format: str = option(
        text_such_as(*FORMATS), ARROW, 'format of segments: arrow for format("nsq"), parquet for other readers')
    deaths: bool = option(
        BOOL, False, "with each dead letter of nsqfast-nsqd what is known of it, in a column `death`")
    seal_rows: int = option(INT, 10_000, "messages after which a segment is sealed")
    seal_bytes: int = option(INT, 8 << 20, "bytes of bodies after which a segment is sealed")
    seal_interval_ns: int = option(DURATION, "200ms", "longest time until messages are on disk and finished")
    checkpoint: str = option(
        STRING, "", "folder of the checkpoint of the query over Spark's file source that reads this spool: what it has"
        " processed is released")
    max_spool_bytes: int = option(
        INT, 10 << 30, "stop consuming while the segments that Spark has not released have more bytes than this")
    min_free_bytes: int = option(
        INT, 0, "stop consuming while the disk has fewer bytes free; 0 = 1 GiB, or 5 % of a disk of less than 20 GiB")
    retention_ns: int = option(DURATION, "1h", "time to keep segments that Spark has taken")
    dedupe_memory: int = option(
        INT, 128 << 20, "bytes of memory for ids of messages, to drop those that arrive again")

    drain: bool = option(
        BOOL, False, "end when everything that was published before the start has arrived", group="When it ends")
    drain_idle_ns: int = option(DURATION, "2s", "end a drain when none of that has arrived for so long")
    drain_timeout_ns: int = option(DURATION, "10m", "end a drain after so long in any case")
    until_eof: bool = option(BOOL, False, "end when standard input ends")

    http_client_connect_timeout_ns: int = option(DURATION, "2s", CONNECT_TIMEOUT_HELP, group="Source")
    http_client_request_timeout_ns: int = option(DURATION, "5s", REQUEST_TIMEOUT_HELP)

    metrics_address: str = option(STRING, "", METRICS_HELP, group="Metrics and logging")
    status_interval_ns: int = option(DURATION, "1m", "time between two lines that say what was done; 0s = none")
    log_level: str = option(text_such_as(*LEVELS), "info", LEVEL_HELP)
    log_prefix: str = option(STRING, f"[{PROGRAM}] ", LOG_PREFIX_HELP)
    # fmt: on


def parse(argv: list[str]) -> Options:
    """Parse the words behind the program's name; OptionsError if they contradict each other."""
    inherited = os.environ.get(CLIENT_OPTIONS_VARIABLE, "").splitlines()
    options = parse_tool(Options, argv, PROGRAM, ABOUT, on_words=_refuse_words, inherited=inherited)
    options.log_level = options.log_level.lower()
    if options.log_level not in LEVELS:
        raise PlainError("--log-level is invalid")
    if options.segment_format not in FORMATS:
        raise PlainError(
            f"--segment-format is {options.segment_format!r}; it is {' or '.join(FORMATS)}"
        )
    _check_parquet(options)
    for name in ("spool", "channel"):
        if not getattr(options, name):
            raise PlainError(f"--{name} is required")
    if not is_valid_name(options.channel):
        raise PlainError(f"--channel: {describe_invalid(options.channel, 'channel')}")
    options.check_source()
    check_topics(options)
    _check_topic_names(options)
    _check_numbers(options)
    _check_client(options)
    return options


def _check_parquet(options: Options) -> None:
    for name in ("checkpoint", "store"):
        if getattr(options, name) and options.segment_format != PARQUET:
            raise PlainError(
                f"--{name} needs --segment-format=parquet: Spark's file source reads no Arrow"
            )
    if options.checkpoint and options.store:
        raise PlainError(
            "--checkpoint releases what is in the spool; for what is in a --store, set Spark's cleanSource"
        )


def _refuse_words(words: list[str]) -> None:
    if words:
        raise PlainError(f"unknown arguments: [{' '.join(words)}]")


def _check_topic_names(options: Options) -> None:
    for topic in options.topic:
        if not is_valid_name(topic):
            raise PlainError(f"--topic: {describe_invalid(topic)}")
    if options.topic and options.topic_pattern:
        raise PlainError("use --topic or --topic-pattern not both")


def _check_numbers(options: Options) -> None:
    for name in ("connections", "seal_rows", "seal_bytes", "max_spool_bytes"):
        if getattr(options, name) < 1:
            flag = name.replace("_", "-")
            raise PlainError(f"--{flag} is {getattr(options, name)}; it is 1 or more")
    for name in ("min_free_bytes", "dedupe_memory", "retention_ns", "status_interval_ns"):
        if getattr(options, name) < 0:
            raise PlainError(f"--{name.removesuffix('_ns').replace('_', '-')} is less than 0")
    for name in (
        "topic_refresh_ns",
        "msg_timeout_ns",
        "seal_interval_ns",
        "drain_idle_ns",
        "drain_timeout_ns",
        "http_client_connect_timeout_ns",
        "http_client_request_timeout_ns",
    ):
        if getattr(options, name) <= 0:
            flag = name.removesuffix("_ns").replace("_", "-")
            raise PlainError(f"--{flag} should be positive")


def make_config(options: Options, max_in_flight: int) -> Config:
    """Return each consumer's settings. No message is given up: that would finish it before it is on disk."""
    fixed: dict[str, Any] = {"max_in_flight": max_in_flight, "max_attempts": 0}
    if not {"msg_timeout", "msg_timeout_s"} & set(map(_key, options.consumer_opt)):
        fixed["msg_timeout_s"] = options.msg_timeout_ns / NS
    return client_config(PROGRAM, options.consumer_opt, **fixed)


def _key(item: str) -> str:
    return item.partition(",")[0].replace("-", "_")


def _check_client(options: Options) -> None:
    """Report a wrong address or --consumer-opt before anything starts."""
    for item in options.consumer_opt:
        if _key(item) == "max_attempts":
            raise PlainError("--consumer-opt: max_attempts: a receiver gives up no message")
        if _key(item) == "max_in_flight":
            raise PlainError("--consumer-opt: max_in_flight: say --max-in-flight")
    try:
        make_config(options, options.max_in_flight)
    except OptionsError as error:
        raise PlainError(f"--consumer-opt: {error}") from None
    for address in options.lookupd_http_address:
        base_url(address, "--lookupd-http-address")
