"""A program's TOML file: one key for each setting.

Go's NSQ accepts files that make no sense: `deflate = 0` switches deflate *on*, and a list with a wrong element ends in
a stack trace. Here an integer boolean means what it says, and every invalid value is refused by name.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from nsqfast.errors import OptionsError
from nsqfast.gotext import INT64_MAX, os_error
from nsqfast.options import BOOL, CoercionError, Option

_ACRONYMS = frozenset(("id", "tcp", "http", "https", "tls", "ca", "udp", "e2e"))


def read_config(options: Iterable[Option], path: str, defaults: dict[str, Any]) -> dict[str, Any]:
    """Values, by attribute, of the settings in a TOML file; unknown keys are ignored, as in NSQ."""
    table = _load(path)
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
