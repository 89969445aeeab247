"""The user's options of the source, and its columns."""

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa
import re2

from nsqfast.client.config import Config
from nsqfast.client.discovery import lookup_url
from nsqfast.errors import OptionsError
from nsqfast.spark.spool.identity import list_subscription
from nsqfast.spark.spool.schema import DEATH_DDL, SCHEMA_WITH_DEATHS
from nsqfast.wire.gotext import parse_bool, parse_duration_ns
from nsqfast.wire.names import describe_invalid, is_valid_name

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from nsqfast.spark.receiver.child import ReceiverSettings

COLUMNS = (
    "topic string, channel string, id string, timestamp timestamp, timestamp_ns bigint, attempts int, nsqd string,"
    " body binary"
)
EMBEDDED = "embedded"
EXTERNAL = "external"
CLIENT_PREFIX = "nsq."

_SCHEME = re.compile(r"[A-Za-z][\w+.-]*:/")
_SIZE = re.compile(r"(\d+)(?:([kmgt])i?b?|b)?", re.IGNORECASE)
_EXPONENTS = {"k": 1, "m": 2, "g": 3, "t": 4}
_NS_PER_S = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """`topics` or `topic_pattern`, nsqd's or nsqlookupd's addresses; None: no limit."""

    topics: tuple[str, ...] = ()
    topic_pattern: str = ""
    channel: str
    nsqd_tcp_addresses: tuple[str, ...] = ()
    lookupd_http_addresses: tuple[str, ...] = ()
    spool: Path
    max_spool_bytes: int = 10 << 30
    max_rows: int | None = None
    max_bytes: int | None = None
    partition_count: int | None = None
    retention_s: float = 3600.0
    fail_on_data_loss: bool = True
    tells_deaths: bool = False
    is_embedded: bool = True
    client_options: tuple[str, ...] = field(default=(), repr=False)  # may contain secrets
    checkpoint: Path | None = None  # if Spark's file source reads what the receiver seals

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> Self:
        """OptionsError names all errors, in one line. The names are case-insensitive."""
        parsed = _Parsed({name.lower(): value for name, value in given.items()})
        _check_together(parsed)
        if parsed.problems:
            raise OptionsError(f"nsq source: {'; '.join(parsed.problems)}")
        return cls(**parsed.fields)

    @property
    def columns(self) -> str:
        """What a query may read, as DDL."""
        return f"{COLUMNS}, {DEATH_DDL}" if self.tells_deaths else COLUMNS

    @property
    def schema_ddl(self) -> str:
        """The same, whatever type spark.sql.timestampType gives to timestamps."""
        return self.columns.replace(" timestamp timestamp,", " timestamp timestamp_ltz,")

    @property
    def subscription(self) -> str:
        """As in the spool's identity."""
        return (
            f"/{self.topic_pattern}/" if self.topic_pattern else list_subscription([*self.topics])
        )

    def receiver_settings(self) -> "ReceiverSettings":
        """Return the settings of a query's own receiver."""
        from nsqfast.spark.receiver.child import ReceiverSettings

        return ReceiverSettings(
            spool=self.spool,
            channel=self.channel,
            topics=self.topics,
            topic_pattern=self.topic_pattern,
            nsqd_tcp_addresses=self.nsqd_tcp_addresses,
            lookupd_http_addresses=self.lookupd_http_addresses,
            consumer_options=self.client_options,
            max_spool_bytes=self.max_spool_bytes,
            retention_s=self.retention_s,
            checkpoint=self.checkpoint,
            tells_deaths=self.tells_deaths,
        )


def check_schema(schema: "StructType", columns: str = COLUMNS) -> pa.Schema:
    """Return the Arrow schema of a query's columns: some of these, in any order."""
    types = dict(column.split() for column in columns.split(", "))
    fields = [(field.name, field.dataType.simpleString()) for field in schema.fields]
    wrong = [f"{name} {type_}" for name, type_ in fields if types.get(name) != type_]
    wrong += [f"{field.name} NOT NULL" for field in schema.fields if not field.nullable]
    if wrong or not fields:
        raise OptionsError(
            f"nsq source: the schema does not fit ({', '.join(wrong) or 'it is empty'}); the columns are {columns}"
        )
    return pa.schema([SCHEMA_WITH_DEATHS.field(name) for name, _ in fields])


class _Parsed:
    """Parsed fields of SourceOptions by name, and the errors in the others."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self.given = given
        self.fields: dict[str, Any] = {}
        self.problems: list[str] = []
        client_options = []
        for name, value in given.items():
            if name.startswith(CLIENT_PREFIX):
                client_options.append(f"{name.removeprefix(CLIENT_PREFIX)},{value}")
            elif name in _KNOWN:
                self._read(name, value)
            else:
                self.problems.append(f"{name}: unknown option{_suggestion(name)}")
        self._check_client(client_options)

    def _read(self, name: str, value: str) -> None:
        shown, attribute, read = _KNOWN[name]
        try:
            self.fields[attribute] = read(value.strip())
        except ValueError as error:
            self.problems.append(f"{shown}: {error}")

    def _check_client(self, items: list[str]) -> None:
        self.fields["client_options"] = tuple(items)
        wrong = []
        for item in items:
            try:
                Config.check(item)
            except OptionsError as error:
                key = item.partition(",")[0]
                wrong.append(f"{CLIENT_PREFIX}{_without_list(key, str(error))}")
        if not wrong:
            try:
                Config.parse(items)
            except OptionsError as error:
                wrong.append(f"{CLIENT_PREFIX}{error}")
        self.problems += wrong

    def has(self, name: str) -> bool:
        """Whether it was given, even wrongly."""
        return name.lower() in self.given


def _check_together(parsed: _Parsed) -> None:
    problems = parsed.problems
    problems += [f"{name} is missing" for name in ("channel", "spoolDir") if not parsed.has(name)]
    is_pattern = parsed.has("subscribePattern")
    if is_pattern and parsed.has("subscribe"):
        problems.append("subscribe or subscribePattern, not both")
    elif not (is_pattern or parsed.has("subscribe")):
        problems.append("subscribe (topics with commas between) or subscribePattern is missing")
    if parsed.fields.get("is_embedded", True):
        _check_addresses(parsed, is_pattern=is_pattern)
        return
    # They would have no effect: another process receives the messages.
    named = [name for name in ("nsqdTcpAddresses", "lookupdHttpAddresses") if parsed.has(name)]
    named += [name for name in parsed.given if name.startswith(CLIENT_PREFIX)]
    if named:
        problems.append(
            f"{', '.join(named)}: not with receiver=external, say it to nsqfast-nsq-spool"
        )


def _check_addresses(parsed: _Parsed, *, is_pattern: bool) -> None:
    nsqd, lookupd = parsed.has("nsqdTcpAddresses"), parsed.has("lookupdHttpAddresses")
    if nsqd and lookupd:
        parsed.problems.append("nsqdTcpAddresses or lookupdHttpAddresses, not both")
    elif is_pattern and not lookupd:
        parsed.problems.append("subscribePattern needs lookupdHttpAddresses")
    elif not (nsqd or lookupd):
        parsed.problems.append(
            "nsqdTcpAddresses or lookupdHttpAddresses is missing (or receiver=external)"
        )


def _suggestion(name: str) -> str:
    if hint := _KAFKA.get(name.removeprefix("kafka.")):
        return f", here: {hint}"
    near = difflib.get_close_matches(name, _KNOWN, n=1)
    return f", did you mean {_KNOWN[near[0]][0]}?" if near else ""


def _without_list(key: str, error: str) -> str:
    """The error for an unknown key suggests the nearest one, without a list of all."""
    if "unknown option" not in error:
        return error
    known = error.partition("known are ")[2].split(", ")
    near = difflib.get_close_matches(key.replace("-", "_"), known, n=1)
    return f"{key}: unknown option" + (f", did you mean nsq.{near[0]}?" if near else "")


def _words(value: str) -> tuple[str, ...]:
    words = tuple(word.strip() for word in value.split(",") if word.strip())
    if not words:
        raise ValueError("is empty")
    return words


def _topics(value: str) -> tuple[str, ...]:
    topics = _words(value)
    for topic in topics:
        if not is_valid_name(topic):
            raise ValueError(describe_invalid(topic))
    return topics


def _pattern(value: str) -> str:
    if not value:
        raise ValueError("is empty")
    quiet = re2.Options()
    quiet.log_errors = False
    try:
        re2.compile(value, quiet)
    except re2.error as error:
        reason = error.args[0] if error.args else ""
        text = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        raise ValueError(f"{value!r} is not a regular expression: {text}") from None
    return value


def _channel(value: str) -> str:
    if not is_valid_name(value):
        raise ValueError(describe_invalid(value, "channel"))
    return value


def _nsqd_addresses(value: str) -> tuple[str, ...]:
    addresses = _words(value)
    for address in addresses:
        host, _, port = address.rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
            raise ValueError(f"{address!r} is not host:port")
    return addresses


def _lookupd_addresses(value: str) -> tuple[str, ...]:
    addresses = _words(value)
    for address in addresses:
        try:
            lookup_url(address, "t")
        except OptionsError as error:
            raise ValueError(str(error)) from None
    return addresses


def _spool(value: str) -> Path:
    """All processes that parse it are started in the folder of Spark's driver; what they hand on is absolute."""
    path = value.removeprefix("file://")
    if not path or _SCHEME.match(path) or (path != value and not path.startswith("/")):
        raise ValueError(f"{value!r} is not the path of a folder that every executor has, too")
    return Path(path).absolute()


def _size(value: str) -> int:
    found = _SIZE.fullmatch(value)
    if found is None or int(found[1]) == 0:
        raise ValueError(f"{value!r} is not a number of bytes (10g, 512m, 1048576)")
    return int(found[1]) << 10 * _EXPONENTS.get((found[2] or "").lower(), 0)


def _count(value: str) -> int:
    if not value.isascii() or not value.isdecimal() or int(value) == 0:
        raise ValueError(f"{value!r} is not a number from 1 on")
    return int(value)


def _duration_s(value: str) -> float:
    try:
        duration_ns = parse_duration_ns(value)
    except ValueError:
        duration_ns = -1
    if duration_ns < 0:
        raise ValueError(f"{value!r} is not a duration (1h, 90s)")
    return duration_ns / _NS_PER_S


def _parse_bool(value: str) -> bool:
    try:
        return parse_bool(value.lower())
    except ValueError:
        raise ValueError(f"{value!r} is neither true nor false") from None


def _is_embedded(value: str) -> bool:
    if value.lower() not in {EMBEDDED, EXTERNAL}:
        raise ValueError(f"{value!r} is neither {EMBEDDED} nor {EXTERNAL}")
    return value.lower() == EMBEDDED


_OLDER = (
    "a channel gets what is published after its creation; nsqfast-replay publishes archives again"
)
# What those who know Spark's Kafka source look for.
_KAFKA = {
    "startingoffsets": _OLDER,
    "startingtimestamp": _OLDER,
    "startingoffsetsbytimestamp": _OLDER,
    "endingoffsets": "trigger(availableNow=True) ends with what waits",
    "groupid": "channel",
    "group.id": "channel",
    "bootstrap.servers": "nsqdTcpAddresses or lookupdHttpAddresses",
    "minpartitions": "numPartitions",
    "maxoffsetspertrigger": "maxRowsPerTrigger",
    "includeheaders": "NSQ's messages have no headers",
    "headers": "NSQ's messages have no headers",
}
# The user's key, the field of SourceOptions, and its parser. Spark passes keys in lower case.
_KNOWN: dict[str, tuple[str, str, Callable[[str], Any]]] = {
    shown.lower(): (shown, attribute, read)
    for shown, attribute, read in (
        ("subscribe", "topics", _topics),
        ("subscribePattern", "topic_pattern", _pattern),
        ("channel", "channel", _channel),
        ("nsqdTcpAddresses", "nsqd_tcp_addresses", _nsqd_addresses),
        ("lookupdHttpAddresses", "lookupd_http_addresses", _lookupd_addresses),
        ("spoolDir", "spool", _spool),
        ("maxSpoolBytes", "max_spool_bytes", _size),
        ("maxRowsPerTrigger", "max_rows", _count),
        ("maxBytesPerTrigger", "max_bytes", _size),
        ("numPartitions", "partition_count", _count),
        ("retention", "retention_s", _duration_s),
        ("failOnDataLoss", "fail_on_data_loss", _parse_bool),
        ("receiver", "is_embedded", _is_embedded),
        ("deaths", "tells_deaths", _parse_bool),
    )
}
