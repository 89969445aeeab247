"""The tabs of a channel: those of its page, and its messages, which are separate pages because they ask nodes."""

from collections.abc import Callable

from nsqfast.nsqadmin.cluster.model import Channel
from nsqfast.nsqadmin.web import texts
from nsqfast.nsqadmin.web.elements import Link
from nsqfast.nsqadmin.web.urls import Urls

COUNTS: dict[str, Callable[[Channel], int]] = {
    "nodes": lambda channel: len(channel.parts),
    "clients": lambda channel: channel.counts.client_count,
    "deferred": lambda channel: channel.counts.deferred_count,
}


def make_tab(name: str, label: str, href: str, *, is_current: bool = False) -> Link:
    """With its number, if it has one."""
    return Link(label, href, is_current, f"tab.{name}" if name in COUNTS else "")


def message_tabs(urls: Urls, topic: str, channel: str, current: str = "") -> list[Link]:
    """`current` is "messages" or "deferred"."""
    page = urls.channel(topic, channel)
    given = (("messages", "Messages"), ("deferred", "Deferred"))
    return [
        make_tab(name, label, f"{page}/{name}", is_current=name == current) for name, label in given
    ]


def tab_texts(channel: Channel | None) -> dict[str, str]:
    """For View.texts; unknown values for a channel that no tick has seen."""
    return {
        f"tab.{name}": texts.count(count(channel) if channel else None)
        for name, count in COUNTS.items()
    }
