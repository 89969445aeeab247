"""Settings of a Producer or Consumer, under the names that go-nsq gave them (spec client §1).

    Config(max_in_flight=256, msg_timeout="2m", tls_v1=True, tls_root_ca_file="/etc/nsq/ca.pem")
    Config.parse(["max_in_flight,256", "msg_timeout,2m", "tls-v1", ...])

A duration is a timedelta, or a string with a unit as Go writes it; the same key with the suffix `_s` takes a number of
seconds. A bare number is refused: it means milliseconds in go-nsq and seconds in pynsq. Reading a duration returns a
timedelta, under the name without `_s`. An invalid value or unknown key raises OptionsError, which names the key.
"""

import dataclasses
import math
import numbers
import socket
from collections.abc import Iterable
from dataclasses import InitVar
from datetime import timedelta
from typing import Any, Self

from nsqfast.errors import OptionsError
from nsqfast.wire.gotext import parse_bool, parse_duration_ns, parse_int

Duration = timedelta | str
Seconds = float | None

OFF = timedelta(milliseconds=-1)
TLS_VERSIONS = {"ssl3.0": 0x300, "tls1.0": 0x301, "tls1.1": 0x302, "tls1.2": 0x303}
STRATEGIES = ("exponential", "full_jitter")
ATTEMPTS_MAX = 65535  # of a message; the field has 16 bits
INT_MAX = (1 << 31) - 1
SECONDS_SUFFIX = "_s"


class NotGiven(int):
    """A number that nobody chose: a default that may be replaced by a better one."""


def duration(default: str, low: str = "", high: str = "", *, may_be_off: bool = False) -> Any:
    """A field that holds a duration within these bounds; '' = none."""
    bounds = (_duration(low) if low else None, _duration(high) if high else None)
    return _field("duration", _duration(default), bounds, may_be_off=may_be_off)


def number(default: int, low: int = 0, high: int = INT_MAX) -> Any:
    return _field("number", default, (low, high))


def fraction(default: float) -> Any:
    return _field("fraction", default, (0.0, 1.0))


def text(default: str = "", choices: Iterable[str] = ()) -> Any:
    return _field("text", default, (None, None), choices=tuple(choices))


def switch(*, default: bool) -> Any:
    return _field("switch", default, (None, None))


def _field(kind: str, default: Any, bounds: tuple[Any, Any], **more: Any) -> Any:
    return dataclasses.field(default=default, metadata={"kind": kind, "bounds": bounds, **more})


def _duration(value: object) -> timedelta:
    if isinstance(value, timedelta):
        return value
    if value == "-1":
        return OFF
    if isinstance(value, str):
        try:
            return timedelta(microseconds=parse_duration_ns(value) / 1000)
        except ValueError:
            raise ValueError(f"invalid duration {value!r}: a number with its unit (90s)") from None
    raise ValueError(f"invalid duration {value!r}: a text with a unit (90s), or a timedelta")


def _from_seconds(value: object) -> timedelta:
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            return timedelta(seconds=value)
        except (ValueError, OverflowError):
            pass
    elif isinstance(value, str):
        return _from_seconds(_fraction(value))
    raise ValueError(f"invalid number of seconds {value!r}")


def _without_unit(name: str, value: float) -> OptionsError:
    return OptionsError(
        f'{name}: {value!r} has no unit; say {name}="{value}s", {name}_s={value} '
        f"or {name}=timedelta(seconds={value})"
    )


def _number(value: object) -> int:
    if isinstance(value, str):
        return parse_int(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise ValueError(f"invalid number {value!r}")


def _fraction(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError(f"invalid number {value!r}")  # noqa: TRY004 - _checked says which key
    return float(value)


def _parse_bool(value: object) -> bool:
    if isinstance(value, str):
        try:
            return parse_bool(value)
        except ValueError:
            raise ValueError(f"invalid boolean {value!r}: true or false") from None
    if isinstance(value, int):
        return bool(value)
    raise ValueError(f"invalid boolean {value!r}")


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    raise ValueError(f"invalid text {value!r}")


_CONVERT = {
    "duration": _duration,
    "number": _number,
    "fraction": _fraction,
    "switch": _parse_bool,
    "text": _text,
}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Settings; immutable. `dataclasses.replace` makes a changed copy."""

    dial_timeout: Duration = duration("1s")
    read_timeout: Duration = duration("60s", "100ms", "5m")
    write_timeout: Duration = duration("1s", "100ms", "5m")
    local_addr: str = text()
    lookupd_poll_interval: Duration = duration("60s", "10ms", "5m")
    lookupd_poll_jitter: float = fraction(0.3)
    lookupd_poll_timeout: Duration = duration("1m")
    max_requeue_delay: Duration = duration("15m", "0s", "60m")
    default_requeue_delay: Duration = duration("90s", "0s", "60m")
    backoff_strategy: str = text("exponential", ("", *STRATEGIES))
    max_backoff_duration: Duration = duration("2m", "0s", "60m")
    backoff_multiplier: Duration = duration("1s", "0s", "60m")
    max_attempts: int = number(NotGiven(5), high=ATTEMPTS_MAX)
    low_rdy_idle_timeout: Duration = duration("10s", "1s", "5m")
    low_rdy_timeout: Duration = duration("30s", "1s", "5m")
    rdy_redistribute_interval: Duration = duration("5s", "1ms", "5s")
    client_id: str = text()
    hostname: str = text()
    user_agent: str = text()
    heartbeat_interval: Duration = duration("30s", may_be_off=True)
    sample_rate: int = number(0, high=99)
    tls_v1: bool = switch(default=False)
    tls_root_ca_file: str = text()
    tls_cert: str = text()
    tls_key: str = text()
    tls_insecure_skip_verify: bool = switch(default=False)
    tls_min_version: str = text("", ("", *TLS_VERSIONS))
    deflate: bool = switch(default=False)
    deflate_level: int = number(6, 1, 9)
    snappy: bool = switch(default=False)
    output_buffer_size: int = number(16384, -1)
    output_buffer_timeout: Duration = duration("250ms", may_be_off=True)
    max_in_flight: int = number(NotGiven(1))
    msg_timeout: Duration = duration("0s", "0s")
    auth_secret: str = text()
    skip_lookupd_authorization: bool = switch(default=True)
    # The durations again, as numbers of seconds, in the same order as above.
    dial_timeout_s: InitVar[Seconds] = None
    read_timeout_s: InitVar[Seconds] = None
    write_timeout_s: InitVar[Seconds] = None
    lookupd_poll_interval_s: InitVar[Seconds] = None
    lookupd_poll_timeout_s: InitVar[Seconds] = None
    max_requeue_delay_s: InitVar[Seconds] = None
    default_requeue_delay_s: InitVar[Seconds] = None
    max_backoff_duration_s: InitVar[Seconds] = None
    backoff_multiplier_s: InitVar[Seconds] = None
    low_rdy_idle_timeout_s: InitVar[Seconds] = None
    low_rdy_timeout_s: InitVar[Seconds] = None
    rdy_redistribute_interval_s: InitVar[Seconds] = None
    heartbeat_interval_s: InitVar[Seconds] = None
    output_buffer_timeout_s: InitVar[Seconds] = None
    msg_timeout_s: InitVar[Seconds] = None

    def __post_init__(self, *in_seconds: Seconds) -> None:
        for field in dataclasses.fields(self):
            object.__setattr__(self, field.name, _checked(field, getattr(self, field.name)))
        durations = [field for field in dataclasses.fields(self) if _is_duration(field)]
        for field, given_s in zip(durations, in_seconds, strict=True):
            if given_s is not None:
                object.__setattr__(self, field.name, _checked_seconds(field, given_s))
        host = socket.gethostname() if not (self.hostname and self.client_id) else ""
        for name, default in (
            ("hostname", host),
            ("client_id", host.partition(".")[0]),
            ("backoff_strategy", STRATEGIES[0]),
        ):
            if not getattr(self, name):
                object.__setattr__(self, name, default)
        if seconds(self.heartbeat_interval) > seconds(self.read_timeout):
            raise OptionsError(
                f"heartbeat_interval: {self.heartbeat_interval} is more than read_timeout ({self.read_timeout})"
            )
        if self.deflate and self.snappy:
            raise OptionsError("deflate: not together with snappy; nsqd takes one of them")
        if bool(self.tls_cert) != bool(self.tls_key):
            raise OptionsError("tls_cert: a certificate and its tls_key go together")

    @classmethod
    def given(cls, config: object) -> "Config":
        """The one that a producer or consumer was given, or the default; OptionsError for anything else."""
        if config is None:
            return cls()
        if not isinstance(config, cls):
            raise OptionsError(
                f"config is {config!r:.80}; it is a Config, such as Config(max_in_flight=8)"
            )
        return config

    @classmethod
    def parse(cls, items: Iterable[str], base: Self | None = None) -> Self:
        """Parse strings such as `max_in_flight,256`, as --consumer-opt takes them; a key alone means `true`."""
        given: dict[str, Any] = dict(map(cls._split, items))
        return cls(**given) if base is None else dataclasses.replace(base, **given)

    @classmethod
    def check(cls, item: str) -> None:
        """Raise OptionsError if this string is wrong by itself, whatever accompanies it."""
        name, value = cls._split(item)
        fields = {field.name: field for field in dataclasses.fields(cls)}
        if field := fields.get(name):
            _checked(field, value)
        else:
            _checked_seconds(fields[name.removesuffix(SECONDS_SUFFIX)], value)

    @classmethod
    def _split(cls, item: str) -> tuple[str, str]:
        """The name of the key, which must be known, and the value."""
        fields = dataclasses.fields(cls)
        known = {field.name for field in fields}
        known |= {field.name + SECONDS_SUFFIX for field in fields if _is_duration(field)}
        key, comma, value = item.partition(",")
        name = key.replace("-", "_")
        if name not in known:
            raise OptionsError(f"{key}: unknown option; known are {', '.join(sorted(known))}")
        return name, value if comma else "true"

    @property
    def is_max_in_flight_given(self) -> bool:
        """Whether somebody set it; if not, the way of consuming may choose a value."""
        return not isinstance(self.max_in_flight, NotGiven)

    @property
    def is_max_attempts_given(self) -> bool:
        """Whether somebody set it; if not, an nsqd that has rules of its own decides when a message dies."""
        return not isinstance(self.max_attempts, NotGiven)


def _is_duration(field: dataclasses.Field[Any]) -> bool:
    return bool(field.metadata["kind"] == "duration")


def _checked_seconds(field: dataclasses.Field[Any], given_s: object) -> Any:
    try:
        value = _from_seconds(given_s)
    except ValueError as error:
        raise OptionsError(f"{field.name}{SECONDS_SUFFIX}: {error}") from None
    return _checked(field, value)


def _checked(field: dataclasses.Field[Any], given: object) -> Any:
    value: Any
    if _is_duration(field) and isinstance(given, int | float) and not isinstance(given, bool):
        raise _without_unit(field.name, given)
    try:
        value = _CONVERT[field.metadata["kind"]](given)
    except ValueError as error:
        raise OptionsError(f"{field.name}: {error}") from None
    low, high = field.metadata["bounds"]
    if field.metadata.get("may_be_off"):
        if value < timedelta(0):
            return OFF
    elif not (
        (low is None or value >= low) and (high is None or value <= high)
    ):  # NaN fails both comparisons
        bounds = f"from {low}" if high is None else f"from {low} to {high}"
        raise OptionsError(f"{field.name}: {given!r} is out of bounds, {bounds}")
    choices = field.metadata.get("choices")
    if choices and value not in choices:
        raise OptionsError(f"{field.name}: {given!r} is none of {', '.join(filter(None, choices))}")
    return value


def check_delay_s(delay_s: object, low: float = -math.inf) -> float:
    """Return a delay that a user gave as `delay_s`: a TypeError says what to write if it is no number of seconds, a
    ValueError that it is below `low`.
    """
    if isinstance(delay_s, timedelta):
        raise TypeError(
            f"delay_s is a number of seconds: {delay_s.total_seconds():g}, not {delay_s!r}"
        )
    if not isinstance(delay_s, numbers.Real):
        raise TypeError(f"delay_s is a number of seconds, not {delay_s!r:.80}")
    number = float(delay_s)
    if not low <= number < math.inf:
        raise ValueError(f"a delay of {delay_s} s")
    return number


def check_reason(reason: object) -> None:
    """TypeError: what a user gave as `reason` is no text."""
    if not isinstance(reason, str):
        raise TypeError(f"a reason is a text, not {reason!r:.80}")


def seconds(value: Duration) -> float:
    """A duration of a Config."""
    assert isinstance(value, timedelta)
    return value.total_seconds()


def milliseconds(value: Duration) -> int:
    """A duration of a Config, truncated to whole milliseconds; -1 = off."""
    assert isinstance(value, timedelta)
    return value // timedelta(milliseconds=1)
