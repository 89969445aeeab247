"""How often this process refused something, by reason: nsq_refused_total and nsqd_publish_refused_total of /metrics."""

from collections import Counter

REASONS = (
    "cross_site drain grant_withdrawn identity_connections identity_rate no_memory stalled_command "
    "too_many_connections unknown_host wrong_secrets"
).split()
REFUSED = Counter(dict.fromkeys(REASONS, 0))
# Of a publish: an answer with an error, whatever the number of its messages.
PUBLISH_REFUSED = Counter(dict.fromkeys(("disk", "draining", "exiting", "low_disk", "memory"), 0))
