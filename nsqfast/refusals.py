"""How often this process refused something, by reason: nsq_refused_total of /metrics."""

from collections import Counter

REFUSED = Counter(
    dict.fromkeys(
        (
            "bad_identity",
            "cross_site",
            "drain",
            "too_many_channels",
            "too_many_connections",
            "too_many_names",
            "too_many_topics",
            "unknown_host",
            "wrong_registration_secret",
        ),
        0,
    )
)
