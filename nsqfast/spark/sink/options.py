"""The options of the sink, as strings whose names Spark has put into lower case."""

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from nsqfast.client import Config
from nsqfast.client.addresses import check_address
from nsqfast.errors import OptionsError
from nsqfast.version import __version__
from nsqfast.wire.gotext import parse_duration_ns, parse_int
from nsqfast.wire.names import is_valid_name

CLIENT_PREFIX = "nsq."
INT_MAX = (1 << 31) - 1
SPARKS_OWN = frozenset(["checkpointlocation"])  # Spark passes it with a stream's options
USER_AGENT = f"spark nsqfast/{__version__}"


def _topic(text: str) -> str:
    if not is_valid_name(text):
        raise ValueError(f"{text!r} is no name of a topic: 1 to 64 of . a-z A-Z 0-9 _ -")
    return text


def _addresses(text: str) -> tuple[str, ...]:
    found = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    for address in found:
        check_address(address)
    if not found:
        raise ValueError("there is no address in it; they are host:port, with commas between")
    return found


def _count(text: str) -> int:
    return _number(text, 1)


def _count_or_zero(text: str) -> int:
    return _number(text, 0)


def _number(text: str, low: int) -> int:
    try:
        found = parse_int(text.strip())
    except ValueError:
        raise ValueError(f"{text!r} is no whole number") from None
    if not low <= found <= INT_MAX:
        raise ValueError(f"{text} is out of bounds, from {low} to {INT_MAX}")
    return found


def _milliseconds(text: str) -> int:
    try:
        found = parse_duration_ns(text.strip()) // 1_000_000
    except ValueError:
        raise ValueError(f"{text!r} is no duration: a number with its unit (30s)") from None
    if found < 1:
        raise ValueError(f"{text} is no duration of 1ms or more")
    return found


def _option(name: str, parse: Callable[[str], Any], default: Any) -> Any:
    return dataclasses.field(default=default, metadata={"name": name, "parse": parse})


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    """`client` has keys and values for Config.parse: strings, so that this can be sent to executors and compared."""

    # fmt: off
    addresses: tuple[str, ...] = _option("nsqdTcpAddresses", _addresses, ())
    topic: str = _option("topic", _topic, "")
    batch_rows_max: int = _option("maxBatchRows", _count, 1000)
    batch_size_max: int = _option("maxBatchBytes", _count, 1 << 20)  # of an MPUB behind its size field
    window: int = _option("window", _count, 8)
    retries: int = _option("retries", _count_or_zero, 3)
    timeout_ms: int = _option("timeout", _milliseconds, 30_000)
    # nsqd does not tell these to publishers: the defaults are nsqd's.
    message_size_max: int = _option("maxMsgSize", _count, 1 << 20)
    body_size_max: int = _option("maxBodySize", _count, 5 << 20)
    defer_ms_max: int = _option("maxReqTimeout", _milliseconds, 3_600_000)
    client: tuple[str, ...] = dataclasses.field(default=(), repr=False)  # it may contain an auth_secret
    # fmt: on

    def client_config(self) -> Config:
        """OptionsError names the key."""
        try:
            return Config.parse(self.client, Config(user_agent=USER_AGENT))
        except OptionsError as error:
            raise OptionsError(f"option {CLIENT_PREFIX}{error}") from None


def parse_options(given: Mapping[str, str]) -> SinkOptions:
    """OptionsError names what is unknown, missing, wrong or contradictory."""
    fields = {
        field.metadata["name"].lower(): field
        for field in dataclasses.fields(SinkOptions)
        if field.metadata
    }
    values: dict[str, Any] = {}
    client: list[str] = []
    for key in sorted(given):
        name, text = key.lower(), given[key]
        if name.startswith(CLIENT_PREFIX):
            client.append(f"{name.removeprefix(CLIENT_PREFIX)},{text}")
        elif field := fields.get(name):
            values[field.name] = _parse(field, text)
        elif name not in SPARKS_OWN:
            raise _unknown(key, (field.metadata["name"] for field in fields.values()))
    options = SinkOptions(**values, client=tuple(client))
    _check(options)
    return options


def _parse(field: dataclasses.Field[Any], text: str) -> Any:
    try:
        return field.metadata["parse"](text)
    except (ValueError, OptionsError) as error:
        raise OptionsError(f"option {field.metadata['name']}: {error}") from None


def _unknown(key: str, names: Iterable[str]) -> OptionsError:
    if key.lower() == "path":
        return OptionsError(
            "save() and start() take no path here: say .option('topic', ...) and save()"
        )
    return OptionsError(
        f"unknown option {key}: to publish there are {', '.join(names)} "
        f"and {CLIENT_PREFIX}<key of the client's configuration>"
    )


def _check(options: SinkOptions) -> None:
    if not options.addresses:
        raise OptionsError(
            "option nsqdTcpAddresses is missing: the nsqd to publish to, as host:port,host:port"
        )
    if options.batch_size_max > options.body_size_max:
        raise OptionsError(
            f"option maxBatchBytes ({options.batch_size_max}) is more than maxBodySize "
            f"({options.body_size_max}), above which nsqd refuses an MPUB"
        )
    options.client_config()
