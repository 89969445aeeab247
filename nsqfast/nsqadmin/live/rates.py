"""Rates of one node's topics and channels, from two of its own answers.

    in/s        growth of its message_count
    out/s       messages that left the channel: that, minus the growth of depth, in-flight and deferred
    requeue/s, timeout/s   as nsqd counts them

Emptying removes messages that were never delivered, and nsqd does not count them. So the rates of a channel are unknown
over the time of a known empty, and whenever messages left although no consumer was there before or after.

All functions take `old` and `new`, [rows, VALUES], with a row of zeros for an entity that did not exist before, and
return [rows, RATES].
"""

import numpy as np

from nsqfast.nsqadmin.live.parts import DEPTH, RATES, Counts, Doubles, Ints

_COLUMNS = {name: column for column, name in enumerate(Counts.__struct_fields__)}
MESSAGES = _COLUMNS["message_count"]
IN_FLIGHT, DEFERRED = _COLUMNS["in_flight_count"], _COLUMNS["deferred_count"]
REQUEUES, TIMEOUTS = _COLUMNS["requeue_count"], _COLUMNS["timeout_count"]
CLIENTS = _COLUMNS["client_count"]
IN, OUT, REQUEUE, TIMEOUT = range(RATES)


def topic_rates(old: Ints, new: Ints, elapsed_s: float) -> Doubles:
    """Unknown (nan) if the counters began anew."""
    rates = np.zeros((len(new), RATES))
    messages = new[:, MESSAGES] - old[:, MESSAGES]
    rates[:, IN] = messages / elapsed_s
    rates[messages < 0] = np.nan
    return rates


def channel_rates(old: Ints, new: Ints, elapsed_s: float) -> Doubles:
    """Unknown (nan) if the counters began anew, or if messages left that nobody took."""
    grown = new - old
    counted = grown[:, [MESSAGES, MESSAGES, REQUEUES, TIMEOUTS]]
    is_new = (counted < 0).any(axis=1)
    left = counted[:, OUT]
    left -= grown[:, DEPTH] + grown[:, IN_FLIGHT] + grown[:, DEFERRED]
    is_emptied = (left > 0) & (old[:, CLIENTS] == 0) & (new[:, CLIENTS] == 0)
    # nsqd reads its counters one after another while messages move: a few may seem to appear from nowhere.
    np.maximum(left, 0, out=left)
    rates: Doubles = counted / elapsed_s
    rates[is_new | is_emptied] = np.nan
    return rates


def unknown_rates(rows: int) -> Doubles:
    """Unknown rates for this many rows."""
    return np.full((rows, RATES), np.nan)
