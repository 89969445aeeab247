"""The tabs of a channel that are pages of their own, because they ask nodes each time: its messages."""

from nsqfast.nsqadmin.web.urls import Urls
from nsqfast.nsqadmin.web.view import Link


def message_tabs(urls: Urls, topic: str, channel: str, current: str = "") -> list[Link]:
    """`current` is "messages" or "deferred"."""
    page = urls.channel(topic, channel)
    given = (("messages", "Messages"), ("deferred", "Deferred"))
    return [Link(label, f"{page}/{name}", name == current) for name, label in given]
