"""A program's TOML file: one key for each setting.

Go's NSQ accepts files that make no sense: `deflate = 0` switches deflate *on*, a list with a wrong element ends in a
stack trace, and a key that means nothing is ignored. Here an integer boolean means what it says, every invalid value is
refused by name, and so is an unknown key, because it is nearly always a misspelt one. Every complaint names the file,
the place in it, and says what to write.
"""

import contextlib
import json
import re
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

from nsqfast.errors import OptionsError
from nsqfast.program.options import Option, nearest_name, to_toml
from nsqfast.wire.gotext import INT64_MAX, os_error, quote

SHOWN_SIZE_MAX = 80  # characters of a value in a complaint

_LINE = re.compile(r"\(at line (\d+)")
# `key = value` or `key: value`, whether or not the value is in quotes.
_PAIR = re.compile(r"""\s*([\w-]+)\s*[=:]?\s*["']?([^\s\[{#=:"'][^#="']*)["']?\s*(#.*)?""")


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
    begin = f"failed to load config file {path} -"
    try:
        data = Path(path).read_bytes()
        table = parse_toml(data)
    except OSError as error:
        raise OptionsError(f"{begin} open {path}: {os_error(error)}") from None
    except ValueError as error:
        raise OptionsError(f"{begin} {error}") from None
    options = list(options)
    text = data.decode()
    if lines := _complain(options, table.keys() - set(old_keys), text):
        raise UnknownKeysError([f"{begin} {line}" for line in lines])
    values = {}
    for item in options:
        if item.key and item.key in table:
            default, place = defaults[item.attribute], _place(text, item.key)
            try:
                values[item.attribute] = _coerce(item, table[item.key], default, place)
            except ValueError as error:
                raise OptionsError(f"{begin} {error}") from None
    return values


def parse_toml(data: bytes) -> dict[str, Any]:
    """The table of a TOML file; ValueError says where it is wrong, and what to write."""
    import tomllib

    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ValueError(f"not a text in UTF-8 (at line {line}): save it as one") from None
    try:
        return tomllib.loads(f"{text}\n")  # so that a complaint about the last line names it
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"{error}: {_advise(text, str(error))}") from None


def _advise(text: str, complaint: str) -> str:
    """What to write instead of the line of which TOML's parser complains."""
    lines = text.rstrip("\n").split("\n")
    found = _LINE.search(complaint)
    line = lines[int(found[1]) - 1 if found else -1]
    if complaint.startswith("Cannot overwrite"):
        return f"{line.partition('=')[0].strip():.80} is there twice, leave one of them"
    pair = _PAIR.fullmatch(line) if len(line) <= SHOWN_SIZE_MAX else None
    if pair is None:
        return (
            'a line is a key, an equals sign and a value; a text is in quotes, as in key = "text"'
        )
    value = pair[2].strip()
    is_word = value.lower() in {"true", "false"}
    shown = value.lower() if is_word else json.dumps(value, ensure_ascii=False)
    return f"write {pair[1]} = {shown}"


def _place(text: str, key: str) -> str:
    """Where the key stands; nothing if it is written in an unusual way, with escapes in it."""
    spelt = rf"^[ \t]*\[?[\"']?({re.escape(key)})[\"']?[ \t]*[].=]"
    found = re.search(spelt, text, re.MULTILINE)
    if found is None:
        return ""
    line_start = text.rfind("\n", 0, found.start(1)) + 1
    return f" (at line {text.count(chr(10), 0, line_start) + 1}, column {found.start(1) - line_start + 1})"


def _complain(options: list[Option], keys: set[str], text: str) -> list[str]:
    """One line for each key that no option has, with the one that was probably meant."""
    known = {item.key for item in options if item.key}
    by_flag = {item.flag.replace("-", "_"): item.key for item in options if item.key}
    lines = []
    for key in sorted(keys - known):
        word = key.replace("-", "_")
        meant = by_flag.get(word) or nearest_name(word, known)
        hint = f", did you mean {meant}?" if meant else ""
        lines.append(f"unknown key {quote(key)}{_place(text, key)}{hint}")
    return lines


def _coerce(item: Option, value: object, default: object, place: str) -> Any:
    """The setting; ValueError says what the file may have there."""
    if not _fits_int64(value):
        raise ValueError(f"{item.key}{place}: an integer is out of range for int64")
    try:
        return item.kind.coerce(value)
    except ValueError:
        shown = json.dumps(value, ensure_ascii=False, default=str)[:SHOWN_SIZE_MAX]
        meant = _mend(item, value) or to_toml(item.kind, default)
        raise ValueError(
            f"{item.key} is {shown}{place}, but takes {item.kind.wanted}: write {item.key} = {meant}"
        ) from None


def _mend(item: Option, value: object) -> str:
    """What was probably meant, in TOML: the same as a text, or with a unit; empty if neither is valid."""
    same = [str(each) for each in value] if isinstance(value, list) else str(value)
    for guess in (same, f"{same}s"):
        with contextlib.suppress(ValueError):
            item.kind.coerce(guess)
            return json.dumps(guess, ensure_ascii=False)
    return ""


def _fits_int64(value: object) -> bool:
    """Whether TOML's 64 bits hold it; Python reads longer integers, some of which it then refuses to print."""
    if isinstance(value, list):
        return all(map(_fits_int64, value))
    if isinstance(value, dict):
        return all(map(_fits_int64, value.values()))
    return not isinstance(value, int) or -INT64_MAX - 1 <= value <= INT64_MAX
