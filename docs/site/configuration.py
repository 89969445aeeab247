"""Writes docs/reference/configuration.md: every program's options, from where the programs themselves have them.

configuration.py FILE
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nsqfast.program.options import Common, Option, by_group, declared, defaults
from nsqfast.spark_jobs.main import JOBS
from nsqfast.spark_jobs.options import ABOUTS
from nsqfast.tools.completion.programs import MODULES

if TYPE_CHECKING:
    from collections.abc import Iterator

# Defaults that differ from machine to machine.
OF_THE_MACHINE = {"broadcast-address": "the host's name", "node-id": "made of the host's name"}
AT_ONCE = {"version", "check"}  # print something and end
INTRODUCTION = """# Options

Made by `make docs` from the programs' own declarations; `--help` of each shows the same.

A flag begins with one hyphen or two; `--name value` and `--name=value` are the same, but a switch takes its value only
after an equals sign: `--name=false`. A flag that is *repeatable* adds to a list each time. Durations are written as
`250ms`, `90s` or `1h30m`.

The daemons (nsqd, nsqlookupd, nsqadmin) also read a TOML file, `--config=FILE`, in which a setting has the name of its
flag with underscores, unless the table says otherwise. A flag on the command line overrides the file, which overrides
the default. In TOML a duration is text (`"90s"`), a list is a list.

```toml title="nsqd.toml"
data_path = "/var/lib/nsqd"
broadcast_address = "nsqd-1.example.com"
nsqlookupd_tcp_addresses = ["lookup-1.example.com:4160", "lookup-2.example.com:4160"]
mem_queue_size = 0
msg_timeout = "90s"
```
"""


def main() -> None:
    Path(sys.argv[1]).write_text(write_page(), encoding="utf-8")


def write_page() -> str:
    parts = [INTRODUCTION]
    daemons = ("nsqfast-nsqd", "nsqfast-nsqlookupd", "nsqfast-nsqadmin")
    for name in (*daemons, *sorted(MODULES.keys() - set(daemons))):
        module = importlib.import_module(MODULES[name])
        parts += write_program(
            name, getattr(module, "ABOUT", ""), module.Options, has_keys=name in daemons
        )
    for job, module_name in JOBS.items():
        options = importlib.import_module(module_name).Options
        parts += write_program(f"nsqfast-spark {job}", ABOUTS[job], options, has_keys=False)
    return "\n".join(parts)


def write_program(name: str, about: str, cls: type[Any], *, has_keys: bool) -> Iterator[str]:
    """A section with a table for each group."""
    yield f"## {name}\n"
    if about:
        yield f"{about}\n"
    options, plain = declared(cls), defaults(cls)
    if has_keys:
        options, plain = [*declared(Common), *options], {**defaults(Common), **plain}
    for group, items in by_group(options).items():
        yield f"### {group} {{ #{anchor(name, group)} }}\n" if group else ""
        yield "| flag | default | |\n|---|---|---|"
        for item in items:
            key = describe_key(item) if has_keys else ""
            yield f"| `--{item.flag}` | {show_default(item, plain)} | {describe(item)}{key} |"
        yield ""


def anchor(name: str, group: str) -> str:
    return "-".join(f"{name} {group}".lower().replace("nsqfast-", "").split())


def show_default(item: Option, plain: dict[str, Any]) -> str:
    """As it is written on the command line; a dash for none."""
    if item.flag in OF_THE_MACHINE:
        return OF_THE_MACHINE[item.flag]
    value = plain[item.attribute]
    if value in ("", None, []) or item.flag in AT_ONCE:
        return "–"
    shown = item.kind.show(value).strip('"')
    return f"`{shown}`" if shown else "–"


def describe_key(item: Option) -> str:
    """Its key in the file, if that is not its flag with underscores."""
    if not item.key:
        return "" if item.flag in {"config", *AT_ONCE} else "; not in the file"
    return "" if item.key == item.flag.replace("-", "_") else f"; in the file `{item.key}`"


def describe(item: Option) -> str:
    """Its text; what stands in it like a flag is code."""
    words = []
    for word in item.help.replace("|", r"\|").split(" "):
        is_code = word.startswith("--") or "<" in word
        words.append(
            f"`{word.rstrip(',;.')}`{word[len(word.rstrip(',;.')) :]}" if is_code else word
        )
    return " ".join(words)


if __name__ == "__main__":
    main()
