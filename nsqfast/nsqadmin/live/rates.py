"""Rates of one node's topics and channels, from two of its own answers.

    in/s        what its message_count grew by
    out/s       what left the channel: that, less what depth, in-flight and deferred grew by
    requeue/s, timeout/s   as nsqd counts them

Emptying takes messages away that were never delivered. nsqd does not count them; so the rates of a channel are unknown
over the time of an empty that we were told of, and where messages went though no consumer was there before or after.
"""

from nsqfast.nsqadmin.live.figures import ChannelFigures, TopicFigures
from nsqfast.nsqadmin.live.model import Rates

IDLE = Rates(0.0)
NOTHING = ChannelFigures(channel_name="")  # what a channel has counted before it is there
NO_TOPIC = TopicFigures(topic_name="")


def topic_rates(old: TopicFigures, new: TopicFigures, elapsed_s: float) -> Rates | None:
    """None if the counters began anew."""
    messages = new.message_count - old.message_count
    if messages < 0:
        return None
    return Rates(messages / elapsed_s) if messages else IDLE


def channel_rates(old: ChannelFigures, new: ChannelFigures, elapsed_s: float) -> Rates | None:
    """None if the counters began anew, or if messages went that nobody took."""
    messages = new.message_count - old.message_count
    requeued = new.requeue_count - old.requeue_count
    timed_out = new.timeout_count - old.timeout_count
    left = (
        messages
        - (new.depth - old.depth)
        - (new.in_flight_count - old.in_flight_count)
        - (new.deferred_count - old.deferred_count)
    )
    if not (messages or left or requeued or timed_out):
        return IDLE
    if messages < 0 or requeued < 0 or timed_out < 0:
        return None
    if left > 0 and not old.client_count and not new.client_count:
        return None
    # nsqd reads its counters one after another while messages move: a few may seem to come from nowhere.
    return Rates(
        messages / elapsed_s, max(left, 0) / elapsed_s, requeued / elapsed_s, timed_out / elapsed_s
    )
