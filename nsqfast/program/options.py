"""Settings of a program: declared once as dataclass fields; flags, config file and help derive from them.

    @dataclass(slots=True)
    class Options:
        mem_queue_size: int = option(INT, 10000, "messages kept in memory", group="Queues")
        sync_timeout_ns: int = option(DURATION, "2s", "longest time between two fsyncs")

A field's flag is its name with hyphens, its config key its name, both without the unit `_ns`; if NSQ uses another name,
the field says so. The first option of a group names the group, and those declared after it belong to it, too.

`command_line` reads flags, `config_file` reads TOML and `usage` writes the help text from what is declared here. A flag
on the command line overrides the config file, which overrides the default.
"""

import dataclasses
import json
import re
from collections.abc import Callable, Iterable
from typing import Any, cast

from nsqfast.errors import OptionsError
from nsqfast.wire.gotext import (
    format_duration,
    in_int64,
    parse_bool,
    parse_duration_ns,
    parse_int,
    quote,
)

METADATA_KEY = "nsqfast.option"

_DECIMAL = re.compile(r"[+-]?[0-9]+")


class FlagError(OptionsError):
    """The command line cannot be read; the exit status is 2."""


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
    is_word: bool = False  # kept as a number, which `show` turns into its word
    choices: tuple[str, ...] = ()  # the allowed words, if there are only some
    wanted: str = ""  # what a config file may have: `a whole number`


def _coerce_int(value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return in_int64(value)
    if isinstance(value, str) and _DECIMAL.fullmatch(value):
        return in_int64(int(value))
    raise ValueError("no integer")


def _coerce_duration_ns(value: object) -> int:
    if isinstance(value, str):
        return parse_duration_ns(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return in_int64(value * 1_000_000)
    raise ValueError("no duration")


def _coerce_bool(value: object) -> bool:
    if isinstance(value, str):
        return parse_bool(value)
    if isinstance(value, int):
        return bool(value)
    raise ValueError("no boolean")


def _coerce_string(value: object) -> str:
    if isinstance(value, str):
        return value
    raise ValueError("no text")


def _items(value: object) -> list[Any]:
    if isinstance(value, str):
        return [item.strip() for item in value.split(",") if item.strip()]
    if isinstance(value, list):
        return value
    raise ValueError("no list")


def _coerce_strings(value: object) -> list[str]:
    return [_coerce_string(item) for item in _items(value)]


def _coerce_floats(value: object) -> list[float]:
    return [_coerce_float(item) for item in _items(value)]


def _coerce_float(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError("no number")  # noqa: TRY004 - read_config says which key
    return float(value)


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


STRING = Kind("string", "string", str, _coerce_string, show=quote, wanted="a text")
INT = Kind("int64", "int", parse_int, _coerce_int, wanted="a whole number of 64 bits")
BOOL = Kind(
    "bool",
    "",
    parse_bool,
    _coerce_bool,
    show=_show_bool,
    is_bool=True,
    wanted="true or false",
)
DURATION = Kind(
    "time.Duration",
    "duration",
    parse_duration_ns,
    _coerce_duration_ns,
    show=format_duration,
    wanted="a duration with its unit",
)
FLOAT = Kind("float64", "float", _parse_float, _coerce_float, wanted="a number")
STRINGS = Kind(
    "[]string",
    "value",
    lambda text: [text],
    _coerce_strings,
    is_list=True,
    wanted='a list such as ["text", "text"]',
)
# Quantiles: sorted from the largest if given as flags, in the file's order otherwise.
FLOATS = Kind(
    "[]float64",
    "value",
    _parse_floats,
    _coerce_floats,
    is_list=True,
    wanted="a list such as [0.5, 0.99]",
)


def to_toml(kind: Kind, value: Any) -> str:
    """A setting's value as a config file has it."""
    if kind.is_list:
        value = value or []
    elif kind.is_word or kind.go_type == DURATION.go_type:
        value = kind.show(value)
    # Booleans, numbers, texts and lists of them are the same in JSON.
    return json.dumps(value, ensure_ascii=False)


def words(values: dict[str, int], complaint: Callable[[str], str], **extra: Any) -> Kind:
    """A kind for one of a few case-insensitive words, kept as a number."""

    def parse(text: str) -> int:
        try:
            return values[text.lower()]
        except KeyError:
            raise ValueError(complaint(text)) from None

    def coerce(value: object) -> int:
        return parse(_coerce_string(value))

    names = {number: word for word, number in reversed(values.items())}
    return Kind(
        "word",
        "value",
        parse,
        coerce,
        show=lambda value: names.get(value, ""),
        is_word=True,
        choices=tuple(values),
        wanted=_list_words(tuple(values)),
        **extra,
    )


def one_of(*choices: str) -> Kind:
    """A kind for one of a few words, kept unchanged."""

    def parse(text: str) -> str:
        if text not in choices:
            raise ValueError(f"one of {', '.join(choices)}")
        return text

    return Kind(
        "string",
        "string",
        parse,
        parse,
        show=quote,
        choices=choices,
        wanted=_list_words(choices),
    )


def _list_words(choices: tuple[str, ...]) -> str:
    return f"one of {', '.join(map(quote, choices))}"


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
    group: str  # a title such as "Disk", under which the help text and the documents list it


def option(
    kind: Kind,
    default: Any,
    text: str,
    *,
    flag: str | None = None,
    key: str | None = None,
    group: str | None = None,
) -> Any:
    """Declare a dataclass field; a duration's default is written as in Go, a callable is a factory.

    Without a `group` it belongs to that of the option before it. A field that replaces one of a base class stands in
    the place of that one, so it repeats the group if that one named it.
    """
    if kind is DURATION:
        default = parse_duration_ns(default)
    metadata = {METADATA_KEY: (kind, text, flag, key, group)}
    if kind.is_list:
        return dataclasses.field(default_factory=list, metadata=metadata)
    if callable(default):
        return dataclasses.field(default_factory=default, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def declared(cls: type[Any]) -> list[Option]:
    """Every option of a settings class, in the order of declaration."""
    found = []
    group = ""
    for field in dataclasses.fields(cls):
        if METADATA_KEY not in field.metadata:
            continue
        kind, text, flag, key, title = field.metadata[METADATA_KEY]
        group = title or group
        name = field.name.removesuffix("_ns") if kind is DURATION else field.name
        flag = name.replace("_", "-") if flag is None else flag
        found.append(Option(field.name, flag, name if key is None else key, kind, text, group))
    return found


def defaults(cls: type[Any]) -> dict[str, Any]:
    """Every field's default value."""
    return {
        field.name: field.default
        if field.default is not dataclasses.MISSING
        else cast("Any", field).default_factory()
        for field in dataclasses.fields(cls)
    }


def by_key(cls: type[Any]) -> dict[str, Option]:
    """Options by config key, which is also the name under /config/."""
    return {item.key: item for item in declared(cls) if item.key}


def by_group(options: Iterable[Option]) -> dict[str, list[Option]]:
    """Options by group; groups and their options are in the order of declaration."""
    found: dict[str, list[Option]] = {}
    for item in options:
        found.setdefault(item.group, []).append(item)
    return found


@dataclasses.dataclass(slots=True)
class Common:
    """Flags that control the parser itself."""

    config: str = option(STRING, "", "read settings from this TOML file", key="", group="General")
    version: bool = option(BOOL, False, "print the version and exit", key="")


def nearest_name(name: str, known: Iterable[str]) -> str:
    """The known name that was probably meant; empty if none is similar."""
    import difflib

    return next(iter(difflib.get_close_matches(name, list(known), 1, cutoff=0.7)), "")
