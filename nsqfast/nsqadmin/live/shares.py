"""What one node has of a topic: its last figures, as parts of the topic and of its channels."""

import msgspec

from nsqfast.nsqadmin.live.figures import ChannelFigures, TopicFigures
from nsqfast.nsqadmin.live.model import Part
from nsqfast.nsqadmin.live.rates import IDLE, NO_TOPIC, NOTHING, channel_rates, topic_rates


class Share(msgspec.Struct, gc=False):
    """`channels` are in the order of `figures.channels`, whose ChannelFigures are their counts."""

    figures: TopicFigures
    part: Part
    channels: tuple[Part, ...]
    is_idle: bool  # every rate is 0


def share_of(
    node: str, new: TopicFigures, old: Share | None, elapsed_s: float, emptied: frozenset[str]
) -> Share:
    """From this answer and the one before; elapsed_s is 0 where there is none to compare with.

    `emptied` are channels whose messages went meanwhile by being emptied.
    """
    if old is not None and old.is_idle and elapsed_s and not emptied and old.figures == new:
        return old
    if not elapsed_s:
        parts = [Part(node, channel, channel.paused, None) for channel in new.channels or ()]
        return Share(new, Part(node, new, new.paused, None), tuple(parts), is_idle=False)
    before = old.figures if old is not None else NO_TOPIC
    rates = topic_rates(before, new, elapsed_s)
    is_idle = rates is IDLE
    parts = []
    had = before.channels or ()
    for index, channel in enumerate(new.channels or ()):
        # nsqd sorts them, so it nearly always stands where it stood.
        same = had[index] if index < len(had) else NOTHING
        if same.channel_name != channel.channel_name:
            same = _find(had, channel.channel_name)
        channel_rate = channel_rates(same, channel, elapsed_s)
        if channel.channel_name in emptied:
            channel_rate = None
        is_idle = is_idle and channel_rate is IDLE
        parts.append(Part(node, channel, channel.paused, channel_rate))
    return Share(new, Part(node, new, new.paused, rates), tuple(parts), is_idle)


def without_rates(share: Share) -> Share:
    """Its node did not answer: the numbers stay, the rates are not known."""
    parts = tuple(Part(part.node, part.counts, part.paused, None) for part in share.channels)
    return Share(
        share.figures, Part(share.part.node, share.figures, share.part.paused, None), parts, False
    )


def _find(had: tuple[ChannelFigures, ...], name: str) -> ChannelFigures:
    for channel in had:
        if channel.channel_name == name:
            return channel
    return NOTHING
