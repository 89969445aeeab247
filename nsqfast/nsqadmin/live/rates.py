"""Rates of one node's topics and channels, from two of its own answers.

    in/s        what its message_count grew by
    out/s       what left the channel: that, less what depth, in-flight and deferred grew by
    requeue/s, timeout/s   as nsqd counts them

Emptying takes messages away that were never delivered. nsqd does not count them; so the rates of a channel are unknown
over the time of an empty that we were told of, and where messages went though no consumer was there before or after.

All take `old` and `new`, [rows, VALUES], where a row of zeros is what was not there before, and give [rows, RATES].
"""

import numpy as np

from nsqfast.nsqadmin.live.parts import RATES, Counts, Doubles, Ints

_COLUMNS = {name: column for column, name in enumerate(Counts.__struct_fields__)}
DEPTH, MESSAGES = _COLUMNS["depth"], _COLUMNS["message_count"]
IN_FLIGHT, DEFERRED = _COLUMNS["in_flight_count"], _COLUMNS["deferred_count"]
REQUEUES, TIMEOUTS = _COLUMNS["requeue_count"], _COLUMNS["timeout_count"]
CLIENTS = _COLUMNS["client_count"]
IN, OUT, REQUEUE, TIMEOUT = range(RATES)


def topic_rates(old: Ints, new: Ints, elapsed_s: float) -> Doubles:
    """Unknown (nan) where the counters began anew."""
    rates = np.zeros((len(new), RATES))
    messages = new[:, MESSAGES] - old[:, MESSAGES]
    rates[:, IN] = messages / elapsed_s
    rates[messages < 0] = np.nan
    return rates


def channel_rates(old: Ints, new: Ints, elapsed_s: float) -> Doubles:
    """Unknown (nan) where the counters began anew, or where messages went that nobody took."""
    grown = new - old
    counted = grown[:, [MESSAGES, MESSAGES, REQUEUES, TIMEOUTS]]
    is_new = (counted < 0).any(axis=1)
    left = counted[:, OUT]
    left -= grown[:, DEPTH] + grown[:, IN_FLIGHT] + grown[:, DEFERRED]
    is_emptied = (left > 0) & (old[:, CLIENTS] == 0) & (new[:, CLIENTS] == 0)
    # nsqd reads its counters one after another while messages move: a few may seem to come from nowhere.
    np.maximum(left, 0, out=left)
    rates: Doubles = counted / elapsed_s
    rates[is_new | is_emptied] = np.nan
    return rates


def unknown_rates(rows: int) -> Doubles:
    """Of so many rows, none is known."""
    return np.full((rows, RATES), np.nan)
