"""A program's TOML file: one key for each setting.

Go's NSQ accepts files that make no sense: `deflate = 0` switches deflate *on*, a list with a wrong element ends in a
stack trace, and a key that means nothing is ignored. Here an integer boolean means what it says, every invalid value is
refused by name, and so is an unknown key, because it is nearly always a misspelt one.
"""

from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

from nsqfast.errors import OptionsError
from nsqfast.gotext import INT64_MAX, os_error, quote
from nsqfast.options import BOOL, CoercionError, Option, nearest_name

_ACRONYMS = frozenset(("id", "tcp", "http", "https", "tls", "ca", "udp", "e2e"))


class UnknownKeysError(OptionsError):
    """Keys that no setting has; `lines` has one text for each."""

    def __init__(self, lines: list[str]) -> None:
        super().__init__("\n".join(lines))
        self.lines = lines


def read_config(
    options: Iterable[Option], path: str, defaults: dict[str, Any], old_keys: Collection[str] = ()
) -> dict[str, Any]:
    """Values, by attribute, of the settings in a TOML file.

    `old_keys` are those of flags that have no effect, and of earlier releases of NSQ: they stand in files that work.
    """
    table = _load(path)
    options = list(options)
    if lines := _complain(options, table.keys() - set(old_keys)):
        raise UnknownKeysError([f"failed to load config file {path} - {line}" for line in lines])
    present = [item for item in options if item.key and item.key in table]
    for item in present:
        if not _fits_int64(table[item.key]):
            raise OptionsError(
                f"failed to load config file {path} - {item.key}: an integer is out of range for int64"
            )
    values = {}
    # NSQ checks the words first, so the first complaint of two is theirs.
    for item in sorted(present, key=lambda item: not item.kind.is_word):
        values[item.attribute] = _coerce(item, table[item.key], defaults[item.attribute])
    return values


def _load(path: str) -> dict[str, Any]:
    import tomllib

    try:
        with Path(path).open("rb") as file:
            return tomllib.load(file)
    except OSError as error:
        raise OptionsError(
            f"failed to load config file {path} - open {path}: {os_error(error)}"
        ) from None
    except ValueError as error:
        raise OptionsError(f"failed to load config file {path} - {error}") from None
    except RecursionError:
        raise OptionsError(f"failed to load config file {path} - nested too deeply") from None


def _complain(options: list[Option], keys: set[str]) -> list[str]:
    """One line for each key that no option has, with the one that was probably meant."""
    known = {item.key for item in options if item.key}
    by_flag = {item.flag.replace("-", "_"): item.key for item in options if item.key}
    lines = []
    for key in sorted(keys - known):
        word = key.replace("-", "_")
        meant = by_flag.get(word) or nearest_name(word, known)
        lines.append(f"unknown key {quote(key)}{f', did you mean {meant}?' if meant else ''}")
    return lines


def _coerce(item: Option, value: object, default: object) -> Any:
    try:
        return item.kind.coerce(value)
    except ValueError as error:
        shown = BOOL.show(value) if isinstance(value, bool) else value
        if item.kind.is_word:
            raise OptionsError(f"failed parsing {item.key} {shown}") from None
        raise CoercionError(
            f"Resolve failed to coerce value {shown} ({item.kind.show(default)}) "
            f"for field {_go_field(item.key)} - {error}"
        ) from None


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
