"""Settings of a program: declared once as dataclass fields; flags, config file and help derive from them.

    @dataclass(slots=True)
    class Options:
        mem_queue_size: int = option(INT, 10000, "messages kept in memory")
        sync_timeout_ns: int = option(DURATION, "2s", "longest time between two fsyncs")

A field's flag is its name with hyphens, its config key its name, both without the unit `_ns`; if NSQ uses another name,
the field says so. A flag on the command line overrides the config file, which overrides the default. The syntax is that
of Go's flag package, because unit files and scripts written for NSQ rely on it: one hyphen or two, `--name=value` or
`--name value`, booleans without a value, and everything after the first word that is not a flag is ignored.

Go's NSQ accepts config files that make no sense: `deflate = 0` switches deflate *on*, and a list with a wrong element
ends in a stack trace. Here an integer boolean means what it says, and every invalid value is refused by name.
"""

import dataclasses
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar, cast

from nsqfast.errors import OptionsError
from nsqfast.gotext import (
    INT64_MAX,
    format_duration,
    in_int64,
    os_error,
    parse_bool,
    parse_duration_ns,
    parse_int,
    quote,
)

T = TypeVar("T")

METADATA_KEY = "nsqfast.option"

_DECIMAL = re.compile(r"[+-]?[0-9]+")
_GO_TYPES = {bool: "bool", int: "int64", float: "float64", str: "string", list: "[]interface {}"}
_ACRONYMS = frozenset(("id", "tcp", "http", "https", "tls", "ca", "udp", "e2e"))


class FlagError(OptionsError):
    """The command line cannot be read; the usage text should follow, and the exit status is 2."""


class CoercionError(OptionsError):
    """A config value has the wrong type; NSQ prints this one without its log prefix."""


class PlainError(OptionsError):
    """An invalid flag value that NSQ reports with a bare dated line and exit status 1."""


@dataclasses.dataclass(frozen=True, slots=True)
class Kind:
    """A type of value: how to read it from a flag and from TOML, and how to show it in the help."""

    go_type: str
    hint: str  # the word after the flag in the usage text
    parse: Callable[[str], Any]
    coerce: Callable[[Any], Any]
    show: Callable[[Any], str] = str
    is_bool: bool = False  # the flag stands alone: a value needs `=`
    is_list: bool = False  # the flag may be repeated: `parse` returns what one occurrence adds
    is_word: bool = False  # an invalid config value is reported as `failed parsing KEY VALUE`
    choices: tuple[str, ...] = ()  # the allowed words, if there are only some


def _wrong_type(go_type: str, value: object) -> ValueError:
    return ValueError(
        f"invalid {go_type} value type {_GO_TYPES.get(type(value), type(value).__name__)}"
    )


def _coerce_int(value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return in_int64(value)
    if isinstance(value, str):
        if not _DECIMAL.fullmatch(value):
            raise ValueError(f"strconv.ParseInt: parsing {quote(value)}: invalid syntax")
        return in_int64(int(value))
    raise _wrong_type("int64", value)


def _coerce_duration_ns(value: object) -> int:
    if isinstance(value, str):
        try:
            return parse_duration_ns(value)
        except ValueError:
            raise ValueError(f"time: invalid duration {quote(value)}") from None
    if isinstance(value, int) and not isinstance(value, bool):
        return in_int64(value * 1_000_000)
    raise _wrong_type("time.Duration", value)


def _coerce_bool(value: object) -> bool:
    if isinstance(value, str):
        try:
            return parse_bool(value)
        except ValueError:
            raise ValueError(f"strconv.ParseBool: parsing {quote(value)}: invalid syntax") from None
    if isinstance(value, int):
        return bool(value)
    raise _wrong_type("bool", value)


def _coerce_string(value: object) -> str:
    if isinstance(value, str):
        return value
    raise _wrong_type("string", value)


def _items(value: object) -> list[Any]:
    if isinstance(value, str):
        return [item.strip() for item in value.split(",") if item.strip()]
    if isinstance(value, list):
        return value
    raise _wrong_type("[]string", value)


def _coerce_strings(value: object) -> list[str]:
    return [_coerce_string(item) for item in _items(value)]


def _coerce_floats(value: object) -> list[float]:
    return [_coerce_float(item) for item in _items(value)]


def _coerce_float(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise _wrong_type("float64", value)
    try:
        return float(value)
    except ValueError:
        raise ValueError(
            f"strconv.ParseFloat: parsing {quote(str(value))}: invalid syntax"
        ) from None


def _parse_float(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError("parse error") from None


def _parse_floats(text: str) -> list[float]:
    try:
        return [float(item) for item in text.split(",")]
    except ValueError:
        raise PlainError(f"Could not parse: {text}") from None


def _show_bool(value: bool) -> str:
    return "true" if value else "false"


STRING = Kind("string", "string", str, _coerce_string, show=quote)
INT = Kind("int64", "int", parse_int, _coerce_int)
BOOL = Kind("bool", "", parse_bool, _coerce_bool, show=_show_bool, is_bool=True)
DURATION = Kind(
    "time.Duration", "duration", parse_duration_ns, _coerce_duration_ns, show=format_duration
)
FLOAT = Kind("float64", "float", _parse_float, _coerce_float)
STRINGS = Kind("[]string", "value", lambda text: [text], _coerce_strings, is_list=True)
# Quantiles: sorted from the largest if given as flags, in the file's order otherwise.
FLOATS = Kind("[]float64", "value", _parse_floats, _coerce_floats, is_list=True)


def words(values: dict[str, int], complaint: Callable[[str], str], **extra: Any) -> Kind:
    """A kind for one of a few case-insensitive words, kept as a number."""

    def parse(text: str) -> int:
        try:
            return values[text.lower()]
        except KeyError:
            raise ValueError(complaint(text)) from None

    def coerce(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, str):
            raise _wrong_type("string", value)
        return parse(value)

    names = {number: word for word, number in reversed(values.items())}
    return Kind(
        "word",
        "value",
        parse,
        coerce,
        show=lambda value: names.get(value, ""),
        is_word=True,
        choices=tuple(values),
        **extra,
    )


def one_of(*choices: str) -> Kind:
    """A kind for one of a few words, kept unchanged."""

    def parse(text: str) -> str:
        if text not in choices:
            raise ValueError(f"one of {', '.join(choices)}")
        return text

    return Kind("string", "string", parse, parse, show=quote, choices=choices)


def text_such_as(*choices: str) -> Kind:
    """A text for which completion offers these words; its users check what it may be."""
    return dataclasses.replace(STRING, choices=choices)


@dataclasses.dataclass(frozen=True, slots=True)
class Option:
    """One setting, as the parser sees it."""

    attribute: str
    flag: str
    key: str  # '' = the config file cannot set it
    kind: Kind
    help: str


def option(
    kind: Kind, default: Any, text: str, *, flag: str | None = None, key: str | None = None
) -> Any:
    """Declare a dataclass field; a duration's default is written as in Go, a callable is a factory."""
    if kind is DURATION:
        default = parse_duration_ns(default)
    metadata = {METADATA_KEY: (kind, text, flag, key)}
    if kind.is_list:
        return dataclasses.field(default_factory=list, metadata=metadata)
    if callable(default):
        return dataclasses.field(default_factory=default, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def declared(cls: type[Any]) -> list[Option]:
    """Every option of a settings class, in the order of declaration."""
    found = []
    for field in dataclasses.fields(cls):
        if METADATA_KEY not in field.metadata:
            continue
        kind, text, flag, key = field.metadata[METADATA_KEY]
        name = field.name.removesuffix("_ns") if kind is DURATION else field.name
        flag = name.replace("_", "-") if flag is None else flag
        found.append(Option(field.name, flag, name if key is None else key, kind, text))
    return found


def by_key(cls: type[Any]) -> dict[str, Option]:
    """Options by config key, which is also the name under /config/."""
    return {item.key: item for item in declared(cls) if item.key}


class HelpRequested(Exception):  # noqa: N818 - not an error
    """-h or --help came before any error."""


def read_flags(options: Iterable[Option], argv: list[str]) -> dict[str, Any]:
    """Values, by attribute, of the given flags."""
    return split_flags(options, argv)[0]


def split_flags(options: Iterable[Option], argv: list[str]) -> tuple[dict[str, Any], list[str]]:
    """Values, by attribute, of the given flags, and the words from the first one that is not a flag."""
    known = {item.flag: item for item in options}
    values: dict[str, Any] = {}
    rest = list(argv)
    while rest and len(rest[0]) > 1 and rest[0][0] == "-":
        word = rest.pop(0)
        if word == "--":
            break
        name, equals, text = word.removeprefix("-").removeprefix("-").partition("=")
        if not name or name[0] == "-":
            raise FlagError(f"bad flag syntax: {word}")
        item = known.get(name)
        if item is None:
            if name in ("help", "h"):
                raise HelpRequested
            raise FlagError(f"flag provided but not defined: -{name}")
        if not equals:
            if item.kind.is_bool:
                text = "true"
            elif rest:
                text = rest.pop(0)
            else:
                raise FlagError(f"flag needs an argument: -{name}")
        _set_flag(values, item, text)
    return values, rest


def _set_flag(values: dict[str, Any], item: Option, text: str) -> None:
    try:
        value = item.kind.parse(text)
    except ValueError as error:
        if item.kind.is_bool:
            raise FlagError(
                f"invalid boolean value {quote(text)} for -{item.flag}: {error}"
            ) from None
        raise FlagError(f"invalid value {quote(text)} for flag -{item.flag}: {error}") from None
    if item.kind.is_list:
        value = values.get(item.attribute, []) + value
    if item.kind is FLOATS:
        value.sort(reverse=True)
    values[item.attribute] = value


def read_config(options: Iterable[Option], path: str, defaults: dict[str, Any]) -> dict[str, Any]:
    """Values, by attribute, of the settings in a TOML file; unknown keys are ignored, as in NSQ."""
    import tomllib

    try:
        with Path(path).open("rb") as file:
            table = tomllib.load(file)
    except OSError as error:
        raise OptionsError(
            f"failed to load config file {path} - open {path}: {os_error(error)}"
        ) from None
    except ValueError as error:
        raise OptionsError(f"failed to load config file {path} - {error}") from None
    except RecursionError:
        raise OptionsError(f"failed to load config file {path} - nested too deeply") from None
    present = [item for item in options if item.key and item.key in table]
    for item in present:
        if not _fits_int64(table[item.key]):
            raise OptionsError(
                f"failed to load config file {path} - {item.key}: an integer is out of range for int64"
            )
    values = {}
    # NSQ checks the words first, so the first complaint of two is theirs.
    for item in sorted(present, key=lambda item: not item.kind.is_word):
        value = table[item.key]
        try:
            values[item.attribute] = item.kind.coerce(value)
        except ValueError as error:
            shown = _show_bool(value) if isinstance(value, bool) else value
            if item.kind.is_word:
                raise OptionsError(f"failed parsing {item.key} {shown}") from None
            raise CoercionError(
                f"Resolve failed to coerce value {shown} ({item.kind.show(defaults[item.attribute])}) "
                f"for field {_go_field(item.key)} - {error}"
            ) from None
    return values


def _fits_int64(value: object) -> bool:
    """Whether TOML's 64 bits hold it; Python reads longer integers, some of which it then refuses to print."""
    if isinstance(value, list):
        return all(map(_fits_int64, value))
    if isinstance(value, dict):
        return all(map(_fits_int64, value.values()))
    return not isinstance(value, int) or -INT64_MAX - 1 <= value <= INT64_MAX


def _go_field(key: str) -> str:
    return "".join(
        part.upper() if part in _ACRONYMS else part.capitalize() for part in key.split("_")
    )


def usage(options: Iterable[Option], defaults: dict[str, Any], program: str) -> str:
    """The help text, in Go's layout: sorted, the default in brackets unless it is empty."""
    lines = [f"Usage of {program}:"]
    for item in sorted(options, key=lambda item: item.flag):
        lines.append(f"  -{item.flag} {item.kind.hint}".rstrip())
        default = defaults[item.attribute]
        shown = f" (default {item.kind.show(default)})" if default else ""
        lines.append(f"    \t{item.help}{shown}")
    return "\n".join(lines)


@dataclasses.dataclass(slots=True)
class Common:
    """Flags that control the parser itself."""

    config: str = option(STRING, "", "path to a TOML config file", key="")
    version: bool = option(BOOL, False, "print version string", key="")


def defaults(cls: type[Any]) -> dict[str, Any]:
    """Every field's default value."""
    return {
        field.name: field.default
        if field.default is not dataclasses.MISSING
        else cast("Any", field).default_factory()
        for field in dataclasses.fields(cls)
    }


def flags_or_usage(
    options: list[Option], plain: dict[str, Any], argv: list[str], program: str
) -> tuple[dict[str, Any], list[str]]:
    """Like `split_flags`; --help prints the usage and exits by SystemExit, and an error is followed by the usage."""
    try:
        return split_flags(options, argv)
    except HelpRequested:
        import sys

        print(usage(options, plain, program), file=sys.stderr)
        raise SystemExit(0) from None
    except FlagError as error:
        raise FlagError(f"{error}\n{usage(options, plain, program)}") from None


def parse_options(cls: type[T], argv: list[str], program: str, version: str) -> T:
    """Read flags and config file; --help and --version print and exit by SystemExit."""
    plain = {**defaults(Common), **defaults(cls)}
    given, _ = flags_or_usage([*declared(Common), *declared(cls)], plain, argv, program)
    if given.pop("version", False):
        print(version)
        raise SystemExit(0)
    path = given.pop("config", "")
    values = read_config(declared(cls), path, plain) if path else {}
    return cls(**{**values, **given})
