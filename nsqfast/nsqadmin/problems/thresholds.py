"""From when on something is a problem, and how bad it is: the flags, changed by --problem-file, a TOML file of which
docs/ADMIN.md has an example.
"""

import contextlib
import fnmatch
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import msgspec

from nsqfast.errors import OptionsError
from nsqfast.nsqadmin.options import Options
from nsqfast.program.config_file import parse_toml
from nsqfast.wire.gotext import os_error, parse_duration_ns

FILE_SIZE_MAX = 1 << 20
KNOWN_MAX = 100_000  # topics and channels of which the result is kept

Word = Literal["crit", "warn", "info", "off"]  # a rule's severity; "off" reports nothing


class Seconds(float):
    """A duration; in the file a text such as "10m"."""


Number = Annotated[float, msgspec.Meta(ge=0)]


class Thresholds(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Those of one topic or channel; docs/ADMIN.md says what they mean."""

    no_consumers: Seconds
    stuck: Seconds
    backlog_time: Seconds
    backlog_depth: Number
    backlog_growth: Number
    backlog_age: Seconds
    rate: Number
    requeue_warning: Number
    requeue_critical: Number
    timeout_warning: Number
    timeout_critical: Number
    paused: Seconds
    no_channel: Seconds
    not_ready: Seconds
    severity: dict[str, Word] = {}


class _TopicTable(NamedTuple):
    name: re.Pattern[str]
    channel: re.Pattern[str]
    given: dict[str, Any]


class _File(msgspec.Struct, forbid_unknown_fields=True):
    severity: dict[str, Word] = {}
    topic: list[dict[str, Any]] = []


class ThresholdTable:
    """Those of all topics and channels; OptionsError for a file that is not as above."""

    def __init__(self, options: Options, rules: Collection[str]) -> None:
        self._options = options
        self._rules = rules
        self._tables: list[_TopicTable] = []
        self.reload()

    def reload(self) -> None:
        """Read the file again; after an OptionsError all is as before."""
        base = _flags(self._options)
        tables: list[_TopicTable] = []
        if path := self._options.problem_file:
            try:
                base["severity"], tables = self._read(path, base)
            except (ValueError, RecursionError) as error:  # of msgspec, too
                raise OptionsError(f"--problem-file {path}: {error}") from None
            except OSError as error:
                raise OptionsError(f"--problem-file {path}: {os_error(error)}") from None
        self._base, self._tables = base, tables
        self.of_nodes = _convert(base)
        self._known: dict[tuple[str, str], Thresholds] = {}

    def of(self, topic: str, channel: str = "") -> Thresholds:
        """Of a topic itself without a channel, of nodes without a topic."""
        if not self._tables or not topic:
            return self.of_nodes
        found = self._known.get((topic, channel))
        if found is None:
            if len(self._known) >= KNOWN_MAX:
                self._known.clear()
            found = self._known[topic, channel] = self._find(topic, channel)
        return found

    def _find(self, topic: str, channel: str) -> Thresholds:
        merged = self._base
        for table in self._tables:
            if table.name.fullmatch(topic) and table.channel.fullmatch(channel):
                severity = merged["severity"] | table.given.get("severity", {})
                merged = merged | table.given | {"severity": severity}
        return _convert(merged)

    def _read(self, path: str, base: dict[str, Any]) -> tuple[dict[str, Word], list[_TopicTable]]:
        with Path(path).open("rb") as stream:
            body = stream.read(FILE_SIZE_MAX + 1)
        if len(body) > FILE_SIZE_MAX:
            raise ValueError("the file is too large")
        file = msgspec.convert(parse_toml(body), _File)
        self._check(file.severity)
        tables = []
        for number, given in enumerate(file.topic, 1):
            try:
                tables.append(self._make_table(dict(given), base))
            except ValueError as error:
                raise ValueError(f"topic {number}: {error}") from None
        return file.severity, tables

    def _make_table(self, given: dict[str, Any], base: dict[str, Any]) -> _TopicTable:
        patterns = [given.pop(key, "*") for key in ("name", "channel")]
        if not all(isinstance(pattern, str) for pattern in patterns):
            raise ValueError("name and channel have to be patterns")
        self._check(_convert(base | given).severity)
        name, channel = [re.compile(fnmatch.translate(pattern)) for pattern in patterns]
        return _TopicTable(name, channel, given)

    def _check(self, severity: Mapping[str, Word]) -> None:
        for rule in severity:
            if rule not in self._rules:
                raise ValueError(f"severity: there is no rule {rule}")


def _flags(options: Options) -> dict[str, Any]:
    found: dict[str, Any] = {"severity": {}}
    for name in Thresholds.__struct_fields__[:-1]:
        duration_ns: int | None = getattr(options, f"problem_{name}_ns", None)
        value = None if duration_ns is None else duration_ns / 1e9
        found[name] = getattr(options, f"problem_{name}") if value is None else value
        if not found[name] >= 0:
            raise OptionsError(f"--problem-{name.replace('_', '-')} must be at least 0")
    return found


def _convert(given: Mapping[str, Any]) -> Thresholds:
    return msgspec.convert(given, Thresholds, dec_hook=_seconds)


def _seconds(kind: type, value: object) -> object:
    if kind is Seconds and isinstance(value, str):
        with contextlib.suppress(ValueError):
            if (value_ns := parse_duration_ns(value)) >= 0:
                return Seconds(value_ns / 1e9)
    if kind is Seconds and isinstance(value, float):  # a flag's
        return Seconds(value)
    raise ValueError('a duration is a text such as "10m"')
