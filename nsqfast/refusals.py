"""How often this process refused something, by reason: nsq_refused_total of /metrics."""

from collections import Counter

REFUSED: Counter[str] = Counter()
