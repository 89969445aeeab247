"""Actions of pages and scripts on a topic or a channel, as marks in its charts."""

from typing import Final

from nsqfast.nsqadmin.live.history import History

PAST: Final = {
    "create": "Created",
    "delete": "Deleted",
    "empty": "Emptied",
    "pause": "Paused",
    "unpause": "Unpaused",
    "tombstone": "Tombstoned",
}


def mark_action(history: History, verb: str, topic: str, channel: str = "", node: str = "") -> None:
    """`verb` is one of PAST; `node` is of a tombstone."""
    key: tuple[str, ...] = ("channel", topic, channel) if channel else ("topic", topic)
    if node:
        # A mark of the node would appear in the charts of all of its topics.
        history.mark(f"{PAST[verb]} on {node}", key)
    else:
        history.mark(f"{PAST[verb]} {key[0]} {key[-1]}", key)
