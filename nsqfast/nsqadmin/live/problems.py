"""What is wrong now: the rules, and since when each of them is broken."""

from nsqfast.nsqadmin.live.model import Cluster
from nsqfast.nsqadmin.options import Options


class Problems:
    """Takes each tick after History did."""

    def __init__(self, options: Options) -> None:
        self._options = options

    def take(self, cluster: Cluster) -> None:
        """One more tick."""
