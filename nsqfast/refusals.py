"""How often this process refused something, by reason: nsq_refused_total of /metrics."""

from collections import Counter

REFUSED = Counter(dict.fromkeys(("cross_site", "drain", "too_many_connections", "unknown_host"), 0))
