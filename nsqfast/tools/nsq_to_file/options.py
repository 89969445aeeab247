"""The flags of nsq_to_file 1.3.0, with their names and defaults, and additional ones."""

import os
from dataclasses import dataclass

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
from nsqfast.tools.shared.client import client_config
from nsqfast.tools.shared.discovery import base_url
from nsqfast.tools.shared.options import (
    CONNECT_TIMEOUT_HELP,
    CONSUMER_HELP,
    METRICS_HELP,
    REQUEST_TIMEOUT_HELP,
    SourceOptions,
    parse_tool,
)
from nsqfast.tools.shared.topics import check_topics
from nsqfast.wire.names import describe_invalid, is_valid_name

PROGRAM = "nsq_to_file"
ABOUT = "Archives messages in files: as lines, JSON lines, Parquet or Arrow."
OUTPUT_DIR = "/tmp"  # noqa: S108 - Go's default
FILENAME_FORMAT = "<TOPIC>.<HOST><REV>.<DATETIME>.log"
FORMATS = ("lines", "jsonl", "parquet", "arrow")
COLUMN_FORMATS = ("parquet", "arrow")
COMPRESSIONS = ("none", "gzip", "zstd")
LEVELS_MAX = {"gzip": 9, "zstd": 19}


@dataclass(slots=True)
class Options(SourceOptions):
    """Durations are in nanoseconds, with the suffix `_ns`."""

    # fmt: off
    # Declared again, because its errors are reported in the tool's own words: Go's tool silently accepts them.
    consumer_opt: list[str] = option(STRINGS, [], CONSUMER_HELP, group="Consumer")

    topic: list[str] = option(STRINGS, [], "topic to archive (repeatable)", group="Topics and channel")
    topic_pattern: str = option(STRING, "", "archive only topics that this regular expression matches somewhere")
    topic_refresh_ns: int = option(DURATION, "1m", "time between two questions to nsqlookupd for topics")
    channel: str = option(STRING, PROGRAM, "channel to consume")

    output_dir: str = option(
        STRING, OUTPUT_DIR, "folder of finished files; the default is no place to keep any", group="Files")
    work_dir: str = option(STRING, "", "folder of unfinished files; empty = --output-dir")
    filename_format: str = option(
        STRING, FILENAME_FORMAT,
        "name of a file, in which <TOPIC>, <HOST>, <PID>, <DATETIME> and <REV> are replaced; "
        "<REV> counts up where a name is taken")
    datetime_format: str = option(STRING, "%Y-%m-%d_%H", "what <DATETIME> stands for, in strftime's codes")
    host_identifier: str = option(
        STRING, "", "what <HOST> stands for, may contain <SHORT_HOST> and <HOSTNAME>; empty = the short host name")
    recover_host: list[str] = option(
        STRINGS, [],
        "finish what nsq_to_file with this --host-identifier left in --work-dir, too (repeatable)")
    format: str = option(text_such_as(*FORMATS), "lines", "content of a file: lines, jsonl, parquet or arrow")
    deaths: bool = option(
        BOOL, False, "with each dead letter of nsqfast-nsqd what is known of it, as `death`; not for lines")
    compression: str = option(text_such_as(*COMPRESSIONS), "none", "compression of a file: none, gzip or zstd")
    gzip: bool = option(BOOL, False, "the same as --compression=gzip")
    gzip_level: int = option(INT, 6, "level of gzip, from 1 (fastest) to 9 (smallest)")
    zstd_level: int = option(INT, 3, "level of zstd, from 1 (fastest) to 19 (smallest)")
    skip_empty_files: bool = option(BOOL, False, "make a file only when there is a message for it")
    rotate_size: int = option(INT, 0, "size in uncompressed bytes after which the next file begins; 0 = any size")
    rotate_interval_ns: int = option(DURATION, "0s", "time after which the next file begins; 0s = none")
    sync_interval_ns: int = option(DURATION, "30s", "longest time until messages are on disk and finished")

    http_client_connect_timeout_ns: int = option(DURATION, "2s", CONNECT_TIMEOUT_HELP, group="Source")
    http_client_request_timeout_ns: int = option(DURATION, "5s", REQUEST_TIMEOUT_HELP)

    metrics_address: str = option(STRING, "", METRICS_HELP, group="Metrics and logging")
    log_level: str = option(text_such_as(*LEVELS), "info", LEVEL_HELP)
    log_prefix: str = option(STRING, f"[{PROGRAM}] ", LOG_PREFIX_HELP)
    # fmt: on

    @property
    def level(self) -> int:
        """The level of the chosen compression."""
        return self.zstd_level if self.compression == "zstd" else self.gzip_level


def parse(argv: list[str]) -> Options:
    """Parse the words after the program's name; OptionsError if they contradict each other."""
    options = parse_tool(Options, argv, PROGRAM, ABOUT, on_words=_refuse_words)
    options.log_level = options.log_level.lower()
    if options.log_level not in LEVELS:
        raise PlainError("--log-level is invalid")
    if not options.channel:
        raise PlainError("--channel is required")
    if not is_valid_name(options.channel):
        raise PlainError(f"--channel: {describe_invalid(options.channel, 'channel')}")
    _check_durations(options)
    options.check_source()
    check_topics(options)
    _check_files(options)
    options.work_dir = options.work_dir or options.output_dir
    _check_client(options)
    return options


def _refuse_words(words: list[str]) -> None:
    if words:
        raise PlainError(f"unknown arguments: [{' '.join(words)}]")


def _check_durations(options: Options) -> None:
    for name in (
        "http_client_connect_timeout",
        "http_client_request_timeout",
        "sync_interval",
        "topic_refresh",
    ):
        if getattr(options, f"{name}_ns") <= 0:
            raise PlainError(f"--{name.replace('_', '-')} should be positive")


def _check_files(options: Options) -> None:
    for name, given, known in (
        ("format", options.format, FORMATS),
        ("compression", options.compression, COMPRESSIONS),
    ):
        if given not in known:
            raise PlainError(f"--{name} is {given!r}; it is one of {', '.join(known)}")
    if options.deaths and options.format == "lines":
        raise PlainError("--deaths needs --format=jsonl, parquet or arrow: a line is a body alone")
    if options.gzip:
        if options.compression == "zstd":
            raise PlainError("use --gzip or --compression=zstd not both")
        options.compression = "gzip"
    for name, last in LEVELS_MAX.items():
        level = getattr(options, f"{name}_level")
        if not 1 <= level <= last:
            raise PlainError(f"invalid --{name}-level value ({level}), should be 1-{last}")
    if options.format == "arrow" and options.compression == "gzip":
        raise PlainError("--format=arrow knows no gzip; say --compression=zstd or none")
    if needs_revision(options) and "<REV>" not in options.filename_format:
        raise PlainError(
            "missing <REV> in --filename-format when compression, columns, rotation, or work dir enabled"
        )


def needs_revision(options: Options) -> bool:
    """Whether a name may be taken already by a file that cannot be continued."""
    work, output = (
        os.path.realpath(name or options.output_dir)
        for name in (options.work_dir, options.output_dir)
    )
    return (
        options.compression != "none"
        or options.format in COLUMN_FORMATS
        or options.rotate_size > 0
        or options.rotate_interval_ns > 0
        or work != output
    )


def _check_client(options: Options) -> None:
    """Report a wrong address or --consumer-opt before anything begins."""
    try:
        client_config(PROGRAM, options.consumer_opt, max_in_flight=options.max_in_flight)
    except OptionsError as error:
        raise PlainError(f"--consumer-opt: {error}") from None
    for address in options.lookupd_http_address:
        base_url(address, "--lookupd-http-address")
