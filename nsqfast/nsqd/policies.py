"""Policies: which limits hold for which queues (docs/POLICIES.md).

A policy has a name, an expression for topics (RE2, found anywhere in the name), perhaps one for channels, a priority
and a definition. Of those that match a queue the one with the highest priority holds as a whole, and of several with
the same priority the first by name. One without an expression for channels is for a topic's own queue and all its
channels.
"""

import asyncio
import json
import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import re2

from nsqfast._ext.broker.breaker import Breaker
from nsqfast._ext.broker.channel import Channel
from nsqfast._ext.broker.dead_letter_topic import DEFAULT_NAME, DeadLetterTopic, name_dead_letters
from nsqfast._ext.broker.retry import Retry
from nsqfast._ext.broker.topic import Topic
from nsqfast.errors import OptionsError
from nsqfast.net.slices import Slices
from nsqfast.nsqd.metadata import keep_aside, read, write
from nsqfast.nsqd.options import POLICIES_NAME
from nsqfast.program.config_file import parse_toml
from nsqfast.wire.gotext import os_error, parse_duration_ns
from nsqfast.wire.names import is_ephemeral, is_valid_name

if TYPE_CHECKING:
    from nsqfast._ext.broker.topics import Topics

POLICIES_MAX = 256  # a new queue is compared with each of them
FILE_SIZE_MAX = 1 << 20
PATTERN_SIZE_MAX = 256
COUNT_MAX = 1 << 53  # what every JSON parser keeps
RATE_MAX = 1_000_000_000
_UNITS = {"": 1, "b": 1} | {
    f"{prefix}{unit}": base ** (1 + place)
    for unit, base in (("b", 1000), ("ib", 1024))
    for place, prefix in enumerate("kmgt")
}
_REJECT, _DROP = "reject_publish", "drop_head"
DELAY_MIN_NS, DELAY_MAX_NS = 1_000_000, 90 * 86400 * 10**9
DELAY_SIZE_MAX = 32  # characters
RETRY_MAX = "15m"  # as go-nsq's MaxRequeueDelay
RETRY_MULTIPLIER = 2
RETRY_JITTER = 0.2
PAUSE = "1m"
FAILURES_MAX = 100  # a record has room for 127
_OPTIONS = re2.Options()
_OPTIONS.log_errors = False
_OPTIONS.never_capture = True
_OPTIONS.max_mem = 1 << 20  # bytes of each expression

log = logging.getLogger("nsqd")

Definition = dict[str, int | float | str]


def _read_count(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= COUNT_MAX:
        raise ValueError(f"a number from 1 to {COUNT_MAX}")
    return value


def _read_size(value: object) -> int:
    if isinstance(value, str):
        digits = value.rstrip("BKMGTbikmgt").rstrip()
        scale = _UNITS.get(value[len(digits) :].strip().lower())
        if digits.isascii() and digits.isdigit() and len(digits) < len(str(COUNT_MAX)) and scale:
            value = int(digits) * scale
    try:
        return _read_count(value)
    except ValueError:
        raise ValueError('a number of bytes, or a text such as "10GiB"') from None


def _read_rate(value: object) -> int | float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= RATE_MAX:
        raise ValueError(f"a number of messages per second, above 0 and at most {RATE_MAX}")
    return value


def _read_overflow(value: object) -> str:
    if value not in (_REJECT, _DROP):
        raise ValueError(f"{_REJECT} or {_DROP}")
    return str(value)


def _read_delay(value: object) -> str:
    try:
        text = value if isinstance(value, str) and len(value) <= DELAY_SIZE_MAX else ""
        delay_ns = parse_duration_ns(text)
    except ValueError:
        delay_ns = 0
    if not DELAY_MIN_NS <= delay_ns <= DELAY_MAX_NS:
        raise ValueError('a time from "1ms" to "2160h", with its unit')
    return str(value)


def _read_number(least: int, most: int, value: object) -> int | float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        raise ValueError(f"a number from {least} to {most}")
    return value


def _read_share(value: object) -> int | float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1:
        raise ValueError("a share above 0, up to 1")
    return value


def _read_failures(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= FAILURES_MAX:
        raise ValueError(f"a number from 1 to {FAILURES_MAX}")
    return value


def _read_topic_name(value: object) -> str:
    example = name_dead_letters(value, "t", "c") if isinstance(value, str) else ""
    if not is_valid_name(example) or is_ephemeral(example) or value == "{topic}":
        raise ValueError(
            "the name of another topic, that does not vanish; {topic} and {channel} stand for names"
        )
    return str(value)


KEYS: dict[str, Callable[[object], int | float | str]] = {
    "max_messages": _read_count,
    "max_bytes": _read_size,
    "overflow": _read_overflow,
    "max_in_flight": _read_count,
    "max_rate": _read_rate,
    "max_age": _read_delay,
    "retry_min": _read_delay,
    "retry_max": _read_delay,
    "retry_multiplier": partial(_read_number, 1, 1000),
    "retry_jitter": partial(_read_number, 0, 1),
    "pause_when_failing": _read_share,
    "pause_window": _read_delay,
    "pause_time": _read_delay,
    "max_failures": _read_failures,
    "dead_letter_topic": _read_topic_name,
}


@dataclass(frozen=True, slots=True)
class Policy:
    """One of them; `topic` and `channel` are the texts of its expressions, `channel` None for all and the topic."""

    name: str
    topic: str
    channel: str | None
    priority: int
    definition: Definition
    _topic: Any
    _channel: Any

    def matches(self, topic: str) -> bool:
        """Whether it is for some queue of this topic."""
        return bool(self._topic.search(topic))

    def holds_for(self, channel: str | None) -> bool:
        """Whether it is for this channel of a topic that it matches; None: for the topic's own queue."""
        if self._channel is None:
            return True
        return channel is not None and bool(self._channel.search(channel))

    def effect(self) -> dict[str, Any]:
        """What it means for a queue."""
        return {"name": self.name, **self.definition}

    def name_dead_letters(self, topic: str, channel: str) -> str | None:
        """The topic that takes the dead letters of a channel; None: nothing dies."""
        if not self.definition.keys() & {"max_failures", "dead_letter_topic"}:
            return None
        pattern = str(self.definition.get("dead_letter_topic", DEFAULT_NAME))
        return name_dead_letters(pattern, topic, channel)

    def show(self) -> dict[str, Any]:
        """As it is in a file, and in answers."""
        channel = {} if self.channel is None else {"channel": self.channel}
        return {
            "name": self.name,
            "topic": self.topic,
            **channel,
            "priority": self.priority,
            "definition": self.definition,
        }


def parse(value: object, name: str | None = None) -> Policy:
    """The policy of a JSON object or TOML table; OptionsError says in a line what is wrong with it."""
    if not isinstance(value, dict):
        raise OptionsError("a policy is an object with topic, channel, priority and definition")
    given = dict(value)
    found = given.pop("name", name)
    if not isinstance(found, str) or not is_valid_name(found):
        raise OptionsError("the name of a policy is like that of a topic: letters, digits, . _ -")
    if name is not None and found != name:
        raise OptionsError(f"policy {name}: its body says that it is {found}")
    try:
        return _parse(found, given)
    except ValueError as error:
        raise OptionsError(f"policy {found}: {error}") from None


def _parse(name: str, given: dict[str, Any]) -> Policy:
    topic, channel = given.pop("topic", ""), given.pop("channel", None)
    priority, definition = given.pop("priority", 0), given.pop("definition", None)
    _refuse_unknown(given, ("topic", "channel", "priority", "definition"))
    if isinstance(priority, bool) or not isinstance(priority, int) or abs(priority) > COUNT_MAX:
        raise ValueError("priority has to be a whole number")
    if not isinstance(definition, dict) or not definition:
        raise ValueError(f"definition has to be an object with some of {', '.join(KEYS)}")
    _refuse_unknown(definition, KEYS)
    read_definition: Definition = {}
    for key, value in definition.items():
        try:
            read_definition[key] = KEYS[key](value)
        except ValueError as error:
            raise ValueError(f"{key} has to be {error}") from None
    if "overflow" in definition and not definition.keys() & {"max_messages", "max_bytes"}:
        raise ValueError("overflow says what max_messages or max_bytes do: give one of them")
    _make_retry(read_definition)
    _make_breaker(read_definition)
    compiled = None if channel is None else _compile("channel", channel)
    return Policy(
        name, topic, channel, priority, read_definition, _compile("topic", topic), compiled
    )


def _make_retry(definition: dict[str, Any]) -> Retry | None:
    """How long what fails waits; ValueError if its keys do not fit together."""
    given = sorted(key for key in definition if key.startswith("retry_"))
    if given and "retry_min" not in definition:
        raise ValueError(f"{', '.join(given)}: give retry_min, too")
    if not given:
        return None
    min_ns = parse_duration_ns(definition["retry_min"])
    max_ns = parse_duration_ns(definition.get("retry_max", RETRY_MAX))
    if "retry_max" in definition and max_ns < min_ns:
        raise ValueError("retry_max has to be at least retry_min")
    multiplier = definition.get("retry_multiplier", RETRY_MULTIPLIER)
    return Retry(
        min_ns, max(min_ns, max_ns), multiplier, definition.get("retry_jitter", RETRY_JITTER)
    )


def _make_breaker(definition: dict[str, Any]) -> Breaker | None:
    """When failures pause a channel; ValueError if its keys do not fit together."""
    given = sorted(key for key in definition if key.startswith("pause_"))
    if given and "pause_when_failing" not in definition:
        raise ValueError(f"{', '.join(given)}: give pause_when_failing, too")
    if not given:
        return None
    window, pause = (
        parse_duration_ns(definition.get(key, PAUSE)) for key in ("pause_window", "pause_time")
    )
    return Breaker(definition["pause_when_failing"], window, pause)


def _refuse_unknown(given: Iterable[str], known: Iterable[str]) -> None:
    for key in given:
        if key not in known:
            raise ValueError(f"{key!r:.80} is not known, but {', '.join(known)} are")


def _compile(key: str, pattern: object) -> Any:
    if not isinstance(pattern, str) or len(pattern) > PATTERN_SIZE_MAX:
        raise ValueError(f"{key} has to be an expression of at most {PATTERN_SIZE_MAX} characters")
    try:
        return re2.compile(pattern, _OPTIONS)
    except re2.error as error:
        reason = error.args[0] if error.args else error
        reason = reason.decode() if isinstance(reason, bytes) else reason
        raise ValueError(f"{key} is no expression of RE2: {reason}") from None


def parse_all(value: object, key: str) -> dict[str, Policy]:
    """Those of a whole file, whose list has that key, by name; OptionsError."""
    if (
        not isinstance(value, dict)
        or not isinstance(value.get(key, []), list)
        or value.keys() - {key}
    ):
        raise OptionsError(f"{key} has to be a list of policies, and nothing else is here")
    policies: dict[str, Policy] = {}
    for each in value.get(key, []):
        policy = parse(each)
        if policy.name in policies:
            raise OptionsError(f"policy {policy.name} is there twice")
        policies[policy.name] = policy
    _refuse_more(policies)
    return policies


def _refuse_more(policies: dict[str, Policy]) -> None:
    if len(policies) > POLICIES_MAX:
        raise OptionsError(f"there may be {POLICIES_MAX} policies, not {len(policies)}")


def read_file(path: str) -> dict[str, Policy]:
    """The policies of --policy-file, by name; OptionsError."""
    try:
        with Path(path).open("rb") as file:
            return parse_all(parse_toml(file.read(FILE_SIZE_MAX)), "policy")
    except OSError as error:
        raise OptionsError(f"--policy-file: {path} cannot be read - {os_error(error)}") from None
    except (ValueError, OptionsError) as error:
        raise OptionsError(f"--policy-file: {path}: {error}") from None


@dataclass(frozen=True, slots=True)
class Change:
    """What another set of policies means for one queue."""

    topic: str
    channel: str | None
    before: Policy | None
    after: Policy | None
    beyond: int  # so many messages wait there above the new limit

    @property
    def drops(self) -> bool:
        """Whether the oldest messages go from now on, wherever there are too many."""
        return self.after is not None and self.after.definition.get("overflow") == _DROP

    def show(self) -> dict[str, Any]:
        """For answers."""
        shown: dict[str, Any] = {"topic": self.topic}
        if self.channel is not None:
            shown["channel"] = self.channel
        shown["before"] = None if self.before is None else self.before.effect()
        shown["after"] = None if self.after is None else self.after.effect()
        if self.beyond:
            shown["beyond"] = self.beyond
        return shown


class Rules:
    """A set of policies, which never changes."""

    def __init__(self, by_name: dict[str, Policy], topics: "Topics") -> None:
        self.by_name = by_name
        self._topics = topics
        self._ordered = sorted(by_name.values(), key=lambda policy: (-policy.priority, policy.name))
        self._recent = ""  # the topic that was asked for last
        self._matching: list[Policy] = []  # its policies, in order

    def find(self, topic: str, channel: str | None) -> Policy | None:
        """The one that holds for a queue; None for the channel: the topic's own."""
        if topic != self._recent:
            self._recent = topic
            self._matching = [each for each in self._ordered if each.matches(topic)]
        return next((each for each in self._matching if each.holds_for(channel)), None)

    def apply(self, topic: Topic, channel: Channel | None) -> Change | None:
        """Let the right one hold for the queue; the change, if it is one."""
        change = self.compare(topic, channel)
        if change is not None:
            policy = change.after
            given: dict[str, Any] = {} if policy is None else policy.definition
            if channel is not None:
                rate = given.get("max_rate")
                channel.retry, channel.breaker = _make_retry(given), _make_breaker(given)
                channel.dead_letters = self._make_dead_letters(policy, channel)
                channel.failures_max = given.get("max_failures", 0)
                channel.set_flow(
                    given.get("max_in_flight", 0), max(1, round(1e9 / rate)) if rate else 0
                )
            queue: Topic | Channel = topic if channel is None else channel
            queue.policy = policy
            queue.set_age(parse_duration_ns(given["max_age"]) if "max_age" in given else 0)
            drops = given.get("overflow") == _DROP
            topic.set_limits(
                channel, given.get("max_messages", 0), given.get("max_bytes", 0), drops
            )
        return change

    def _make_dead_letters(self, policy: Policy | None, channel: Channel) -> DeadLetterTopic | None:
        topic, name = channel.topic_name, channel.name
        where = None if policy is None else policy.name_dead_letters(topic, name)
        if policy is None or where is None:
            return None
        takes_dropped = "dead_letter_topic" in policy.definition
        return DeadLetterTopic(self._topics, topic, name, where, takes_dropped=takes_dropped)

    def refuse_name(self, topic: Topic, channel: Channel | None) -> None:
        """OptionsError if the channel's dead letters would have no place, or could come back."""
        policy = self.find(topic.name, None if channel is None else channel.name)
        if channel is None or policy is None:
            return
        name = policy.name_dead_letters(topic.name, channel.name)
        if name is not None and not is_valid_name(name):
            raise OptionsError(
                f"policy {policy.name}: a topic cannot be called {name}, where the dead letters of"
                f" {topic.name}:{channel.name} go: it may have 64 characters; give dead_letter_topic"
            )
        way = [topic.name]
        while name is not None and is_valid_name(name) and name not in way:
            way.append(name)
            policy = self.find(name, None)
            name = None if policy is None else policy.name_dead_letters(name, "")
        if name == topic.name and len(way) > 1:
            raise OptionsError(f"dead letters would go round: {', '.join([*way, name])}")

    def compare(self, topic: Topic, channel: Channel | None) -> Change | None:
        """The change that `apply` would make."""
        queue: Topic | Channel = topic if channel is None else channel
        after = self.find(topic.name, None if channel is None else channel.name)
        before: Policy | None = queue.policy
        if before is after or (before and after and before.effect() == after.effect()):
            return None
        most = 0 if after is None else int(after.definition.get("max_messages", 0))
        waiting = queue.depth if channel is None else channel.depth + channel.deferred_count
        name = None if channel is None else channel.name
        return Change(topic.name, name, before, after, max(waiting - most, 0) if most else 0)


class Policies:
    """Those of a broker, kept in its data folder, or read from --policy-file."""

    def __init__(self, topics: "Topics", folder: str, file: str) -> None:
        self.rules = Rules({}, topics)
        self.health = "OK"
        self.file = file  # '' = they are kept in the folder, and may be changed
        self._topics = topics
        self._folder = folder
        self._changing = asyncio.Lock()
        self._reloading: asyncio.Task[None] | None = None

    def load(self) -> None:
        """Read them; OptionsError if --policy-file cannot be used. Nobody is served yet."""
        if self.file:
            self.rules = Rules(read_file(self.file), self._topics)
        else:
            self._load_kept()
        for topic in self._topics.sorted():
            self.apply_to(topic, None)
            for channel in topic.channels():
                self.apply_to(topic, channel)

    def _load_kept(self) -> None:
        try:
            data = read(self._folder, POLICIES_NAME)
            known = {} if data is None else parse_all(json.loads(data.decode()), "policies")
        except OSError as error:
            reason = os_error(error)
        except RecursionError:
            reason = "nested too deeply"
        except (ValueError, OptionsError) as error:
            reason = str(error)
        else:
            self.rules = Rules(known, self._topics)
            return
        try:
            kept = f"it is kept as {keep_aside(self._folder, POLICIES_NAME)}"
        except OSError as error:
            kept = f"it could not be put aside - {os_error(error)}"
        self.health = f"NOK - no policies hold: {POLICIES_NAME} cannot be used, {kept}"
        log.error(
            "POLICIES: %s cannot be used - %s; %s, and none hold", POLICIES_NAME, reason, kept
        )

    def apply_to(self, topic: Topic, channel: Channel | None) -> None:
        """To a queue that is new."""
        self.rules.apply(topic, channel)

    async def put(self, policy: Policy, *, is_trial: bool) -> list[Change]:
        """Add or replace one; with is_trial, say what that would change. OptionsError; OSError: all stays as it was."""
        async with self._changing:
            by_name = self.rules.by_name | {policy.name: policy}
            _refuse_more(by_name)
            rules = Rules(by_name, self._topics)
            async for _ in self._each(rules.refuse_name):
                pass
            return await self._change(rules, is_trial=is_trial)

    async def remove(self, name: str, *, is_trial: bool) -> list[Change]:
        """The same for its end; KeyError if there is none."""
        async with self._changing:
            by_name = dict(self.rules.by_name)
            del by_name[name]
            return await self._change(Rules(by_name, self._topics), is_trial=is_trial)

    def reload(self) -> None:
        """Read --policy-file again, which is in force soon; OptionsError: all stays as it was."""
        if self.file:
            rules = Rules(read_file(self.file), self._topics)
            self._reloading = asyncio.get_running_loop().create_task(self._hold_soon(rules))

    async def _hold_soon(self, rules: Rules) -> None:
        async with self._changing:
            changes = await self._hold(rules)
        log.info(
            "POLICIES: %d in force, other limits for %d queues", len(rules.by_name), len(changes)
        )

    async def _change(self, rules: Rules, *, is_trial: bool) -> list[Change]:
        if is_trial:
            return [change async for change in self._each(rules.compare)]
        text = json.dumps({"policies": [each.show() for each in rules.by_name.values()]}, indent=1)
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, write, self._folder, text.encode(), POLICIES_NAME)
        self.health = "OK"
        return await self._hold(rules)

    async def _hold(self, rules: Rules) -> list[Change]:
        self.rules = rules
        return [change async for change in self._each(rules.apply)]

    async def _each(self, do: "Callable[[Topic, Channel | None], Change | None]") -> Any:
        slices = Slices()
        for topic, channel in self._queues():
            change = do(topic, channel)
            if change is not None:
                yield change
            await slices.pause()

    def _queues(self) -> Iterator[tuple[Topic, Channel | None]]:
        for topic in self._topics.sorted():
            if self._topics.find(topic.name) is topic:
                yield topic, None
            for channel in topic.channels():
                if topic.find_channel(channel.name) is channel:
                    yield topic, channel
