"""A daemon's config file for the systemd units: every setting with its help and its default, commented out, except that
nobody reaches it from elsewhere and that connections have a limit.
"""

import json
import textwrap
from typing import Any

from nsqfast.dev.settings import OF_HOST, list_settings
from nsqfast.program.options import Option, by_group, to_toml

WIDTH = 100
EVERYWHERE, HERE = "0.0.0.0:", "127.0.0.1:"
CONNECTIONS_MAX = 10_000


def compose_sample(program: str) -> str:
    """The text of a daemon's file."""
    (settings,) = list_settings(program)
    head = (
        f"Settings of {program}, for --config. A line that begins with # and a name is a setting with its default: "
        "remove the # to change it. The lines without # let only this machine reach the daemon and limit its "
        f"connections. A flag on the command line overrides this file. See {program}(1)."
    )
    lines = _comment(head)
    for title, items in by_group(settings.options).items():
        items = [item for item in items if item.key]  # noqa: PLW2901 - those that a file can set
        if items:
            lines += ["", "", f"# ---- {title}"]
        for item in items:
            value = settings.defaults[item.attribute]
            closed = _close(item, value)
            if closed is None:
                lines += [
                    "",
                    *_comment(_help(item)),
                    f"#{item.key} = {_value(item, settings.defaults)}",
                ]
            else:
                text = f"{item.help} (default {json.dumps(value)})"
                lines += ["", *_comment(text), f"{item.key} = {json.dumps(closed)}"]
    return "\n".join(lines) + "\n"


def _close(item: Option, value: object) -> str | int | None:
    """What stands there instead of an address on every interface, or of any number of connections; else None."""
    if isinstance(value, str) and value.startswith(EVERYWHERE):
        return value.replace(EVERYWHERE, HERE)
    return CONNECTIONS_MAX if item.key == "max_connections" and value == 0 else None


def _comment(text: str) -> list[str]:
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent="# ",
        subsequent_indent="# ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def _help(item: Option) -> str:
    words = OF_HOST.get(item.attribute)
    return f"{item.help} (default {words[0]})" if words else item.help


def _value(item: Option, defaults: dict[str, Any]) -> str:
    """The default as TOML writes it."""
    if item.attribute in OF_HOST:
        return json.dumps(OF_HOST[item.attribute][1])
    return to_toml(item.kind, defaults[item.attribute])
