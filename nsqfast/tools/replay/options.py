"""The flags of nsqfast-replay, and their parsed values."""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from nsqfast.archives.files import FORMATS
from nsqfast.archives.names import DATETIME_FORMAT, FILENAME_FORMAT
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
from nsqfast.tools.shared.options import AUTH_SECRET_HELP, CLIENT_OPTIONS, PRODUCER_HELP, parse_tool
from nsqfast.wire.names import RULE, describe_invalid, is_valid_name

PROGRAM = "nsqfast-replay"
ABOUT = "Publishes archives of nsq_to_file again. Words after the flags are files, folders or globs; - is stdin."
BATCH_BYTES = 2 << 20
BATCH_BYTES_MAX = 1 << 30
WINDOW = 8
DEDUPE_MEMORY = 256 << 20
DEDUPE_MEMORY_MIN = 1 << 20
NONE, ID, BODY = "none", "id", "body"
AUTO = "auto"
SKIP, PUBLISH = "skip", "publish"
FAILOVER, SPREAD = "failover", "spread"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NEVER_NS = -(1 << 63) + 1  # before and after all possible times of records
FOREVER_NS = (1 << 63) - 1


@dataclass(slots=True)
class Options:
    """The command line; `words` are the files."""

    # fmt: off
    nsqd_tcp_address: list[str] = option(
        STRINGS, [], "TCP <addr>:<port> of an nsqd to publish to (repeatable)", group="Destination")
    mode: str = option(
        text_such_as(FAILOVER, SPREAD), FAILOVER,
        "with several nsqd: failover (the first one, in this order, that is connected) or spread")
    topic: str = option(
        STRING, "", "topic to publish to; required unless the records or the names of the files say it")
    topic_map: list[str] = option(
        STRINGS, [], "publish to topic <new> what was in topic <old>, as <old>:<new> (repeatable)")
    producer_opt: list[str] = option(CLIENT_OPTIONS, [], PRODUCER_HELP)
    auth_secret_file: str = option(STRING, "", AUTH_SECRET_HELP)

    since: str = option(
        STRING, "", "publish only messages from this time on: RFC 3339 or a date; UTC unless it has an offset",
        group="Which messages")
    until: str = option(STRING, "", "publish only messages before this time")
    dedupe: str = option(
        text_such_as(ID, BODY, NONE), NONE, "leave out messages that a topic had already: by id, by body, or none")
    dedupe_memory: int = option(
        INT, DEDUPE_MEMORY, "bytes of memory for messages to recognize; the oldest are forgotten beyond it")

    format: str = option(
        text_such_as(AUTO, *FORMATS), AUTO,
        f"format of all files: {', '.join(FORMATS)}, or auto to go by the name and the first bytes of each",
        group="Files")
    filename_format: str = option(STRING, FILENAME_FORMAT, "--filename-format of nsq_to_file when it wrote them")
    datetime_format: str = option(STRING, DATETIME_FORMAT, "--datetime-format of nsq_to_file when it wrote them")
    datetime_zone: str = option(
        STRING, "UTC", "time zone of the dates in the names: UTC, local, or a name such as Europe/Berlin")
    work_dir: str = option(
        STRING, "", "--work-dir of nsq_to_file, to name what it has not finished; <folder>.work is looked at anyway")
    unterminated: str = option(
        text_such_as(SKIP, PUBLISH), SKIP, "what to do with a file's last line if it has no newline: skip or publish")

    rate: float = option(
        FLOAT, 0.0, "most messages per second; 0 = as fast as nsqd takes them", group="How")
    dry_run: bool = option(BOOL, False, "publish nothing; count the messages of each file and topic")
    state: str = option(STRING, "", "file to note what was published in, so that the same command goes on from there")
    batch_bytes: int = option(INT, BATCH_BYTES, "most bytes of an MPUB; nsqd's --max-body-size limits it, too")
    window: int = option(INT, WINDOW, "batches that may wait for their answers at a time; with --state always 1")
    retry_for_ns: int = option(DURATION, "1m", "time to try a batch while no nsqd takes it; 0s = for ever")
    # fmt: on
    words: list[str] = field(default_factory=list)
    since_ns: int = field(default=NEVER_NS, init=False)
    until_ns: int = field(default=FOREVER_NS, init=False)
    topics: dict[str, str] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        if self.since:
            self.since_ns = parse_time_ns("since", self.since)
        if self.until:
            self.until_ns = parse_time_ns("until", self.until)
        self.topics = parse_topic_map(self.topic_map)

    @property
    def is_bounded(self) -> bool:
        """Whether a message's time matters."""
        return bool(self.since or self.until)

    def check(self) -> None:
        """PlainError: something is invalid or missing."""
        for name, known in _CHOICES.items():
            if (value := getattr(self, name)) not in known:
                raise PlainError(f"--{name} is {value!r}; it is {' or '.join(known)}")
        if not self.words:
            raise PlainError("no files to replay; name files, folders or globs, or - for stdin")
        if late := [word for word in self.words if len(word) > 1 and word.startswith("-")]:
            raise PlainError(
                f"{late[0]}: flags stand before the files (a file's name may be ./{late[0]})"
            )
        if not (self.nsqd_tcp_address or self.dry_run):
            raise PlainError("--nsqd-tcp-address required (or --dry-run)")
        if self.topic and not is_valid_name(self.topic):
            raise PlainError(f"--topic: {describe_invalid(self.topic)}")
        if self.topic and self.topics:
            raise PlainError("use --topic or --topic-map not both")
        if self.since_ns >= self.until_ns:
            raise PlainError("--since is not before --until: there is nothing between them")
        self._check_numbers()
        if self.state and "-" in self.words:
            raise PlainError("--state needs files: stdin cannot be read again")

    def _check_numbers(self) -> None:
        if not 0 <= self.rate < 1e12:
            raise PlainError(f"--rate is {self.rate}; it is 0 or more")
        if self.dedupe_memory < DEDUPE_MEMORY_MIN:
            raise PlainError(f"--dedupe-memory is at least {DEDUPE_MEMORY_MIN}")
        if not 1 <= self.batch_bytes <= BATCH_BYTES_MAX:
            raise PlainError(f"--batch-bytes is {self.batch_bytes}; it is 1 to {BATCH_BYTES_MAX}")
        if self.window < 1:
            raise PlainError(f"--window is {self.window}; it is 1 or more")
        if self.retry_for_ns < 0:
            raise PlainError("--retry-for is 0 or more")


_CHOICES = {
    "dedupe": (ID, BODY, NONE),
    "format": (AUTO, *FORMATS),
    "mode": (FAILOVER, SPREAD),
    "unterminated": (SKIP, PUBLISH),
}


def parse(argv: list[str]) -> Options:
    """Parse the words after the program's name."""
    words: list[str] = []
    options = parse_tool(Options, argv, PROGRAM, ABOUT, on_words=words.extend)
    options.words = words
    options.check()
    return options


def parse_time_ns(flag: str, text: str) -> int:
    """Parse RFC 3339, or a date alone; UTC unless it has an offset."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise PlainError(
            f"--{flag}: {text!r} is no time; say 2026-11-22, or 2026-11-22T08:00:00Z"
        ) from None
    if time.tzinfo is None:
        time = time.replace(tzinfo=UTC)
    return (time - EPOCH) // timedelta(microseconds=1) * 1000


def parse_topic_map(items: list[str]) -> dict[str, str]:
    """Parse `old:new`."""
    found: dict[str, str] = {}
    for item in items:
        old, colon, new = item.partition(":")
        if not (colon and is_valid_name(old) and is_valid_name(new)):
            raise PlainError(f"--topic-map: {item!r} is not <old>:<new>, two topics of {RULE}")
        if found.setdefault(old, new) != new:
            raise PlainError(f"--topic-map: {old} goes to {found[old]} and to {new}")
    return found
