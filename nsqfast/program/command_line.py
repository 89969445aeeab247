"""The words behind a program's name.

The syntax is that of Go's flag package, because unit files and scripts written for NSQ rely on it: one hyphen or two,
`--name=value` or `--name value`, and booleans without a value. Go's programs ignore everything after the first word
that is not a flag, and so most flags of `--deflate false --node-id=9`; here such a word is an error.
"""

from collections.abc import Collection, Iterable
from typing import Any, TypeVar

from nsqfast.program.config_file import read_config
from nsqfast.program.options import (
    DURATION,
    FLOATS,
    Common,
    FlagError,
    Option,
    declared,
    defaults,
    nearest_name,
)
from nsqfast.program.stdout import print_text
from nsqfast.program.usage import command_name, usage
from nsqfast.wire.gotext import quote

T = TypeVar("T")


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
            raise FlagError(f"flag provided but not defined: -{name}{_suggest(name, known)}")
        if not equals:
            if item.kind.is_bool:
                text = "true"
            elif rest:
                text = rest.pop(0)
            else:
                raise FlagError(f"flag needs an argument: -{name}")
        _set_flag(values, item, text)
    return values, rest


def _suggest(name: str, known: Iterable[str]) -> str:
    nearest = nearest_name(name, known)
    return f" (did you mean --{nearest}?)" if nearest else ""


def _set_flag(values: dict[str, Any], item: Option, text: str) -> None:
    try:
        value = item.kind.parse(text)
    except ValueError as error:
        if item.kind.is_bool:
            raise FlagError(
                f"invalid boolean value {quote(text)} for -{item.flag}: {error}"
            ) from None
        hint = _suggest_duration(item, text) if item.kind.go_type == DURATION.go_type else ""
        raise FlagError(
            f"invalid value {quote(text)} for flag -{item.flag}: {error}{hint}"
        ) from None
    if item.kind.is_list:
        value = values.get(item.attribute, []) + value
    if item.kind is FLOATS:
        value.sort(reverse=True)
    values[item.attribute] = value


def _suggest_duration(item: Option, text: str) -> str:
    try:
        item.kind.parse(f"{text}s")
    except ValueError:
        return f" (write numbers with h, m, s, ms, us or ns, up to 2562047h: --{item.flag}=1m30s)"
    return f" (write --{item.flag}={text}s)"


def flags_or_help(
    options: list[Option], plain: dict[str, Any], argv: list[str], program: str, about: str
) -> tuple[dict[str, Any], list[str]]:
    """Like `split_flags`; --help prints the help text and exits by SystemExit, and an error says where to find it."""
    try:
        return split_flags(options, argv)
    except HelpRequested:
        print_text(usage(options, plain, program, about))
        raise SystemExit(0) from None
    except FlagError as error:
        raise FlagError(f"{error}\nsee {command_name(program)} --help") from None


def refuse_words(program: str, argv: list[str], words: list[str]) -> None:
    """FlagError for words behind the flags of a program that takes none."""
    if not words:
        return
    before = argv[: len(argv) - len(words)]
    is_value = before and before[-1].startswith("-") and words[0].lower() in ("true", "false")
    hint = f"write {before[-1]}={words[0]}" if is_value else "everything is a flag or its value"
    raise FlagError(
        f"unexpected word {quote(words[0])}: {hint}\nsee {command_name(program)} --help"
    )


def parse_options(
    cls: type[T],
    argv: list[str],
    program: str,
    version: str,
    about: str,
    old_keys: Collection[str] = (),
) -> T:
    """Read flags and config file; --help and --version print and exit by SystemExit."""
    plain = {**defaults(Common), **defaults(cls)}
    options = [*declared(Common), *declared(cls)]
    given, words = flags_or_help(options, plain, argv, program, about)
    if given.pop("version", False):
        print_text(version)
        raise SystemExit(0)
    refuse_words(program, argv, words)
    path = given.pop("config", "")
    values = read_config(declared(cls), path, plain, old_keys) if path else {}
    return cls(**{**values, **given})
