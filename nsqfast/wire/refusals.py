"""How often this process refused something, by reason: nsq_refused_total and nsqd_publish_refused_total of /metrics."""

from collections import Counter

from nsqfast.errors import PublishError

REASONS = (
    "cross_site drain grant_withdrawn identity_connections identity_rate no_memory stalled_command "
    "too_many_connections unknown_host wrong_secrets"
).split()
REFUSED = Counter(dict.fromkeys(REASONS, 0))
# Of a publish: an answer with an error, whatever the number of its messages.
PUBLISH_REASONS = "commit_log disk draining exiting low_disk memory over_limit".split()
PUBLISH_REFUSED = Counter(dict.fromkeys(PUBLISH_REASONS, 0))


EXITING = "exiting"


class NotTakenError(PublishError):
    """nsqd does not take a message; `kind` is one of PUBLISH_REFUSED, by default what a disk is to blame for.

    A queue that is closed says so as a disk would.
    """

    def __init__(self, reason: str, kind: str = "disk") -> None:
        super().__init__(reason)
        self.kind = EXITING if reason == EXITING else kind
