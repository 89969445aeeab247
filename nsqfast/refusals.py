"""How often this process refused something, by reason: nsq_refused_total of /metrics."""

from collections import Counter

REFUSED = Counter(dict.fromkeys(("cross_site", "drain", "no_memory", "stalled_command", "unknown_host"), 0))
