"""What the numbers of topics, channels and nodes were, for charts: rings of fixed size."""

from nsqfast.nsqadmin.live.model import Cluster
from nsqfast.nsqadmin.options import Options


class History:
    """Takes each tick; see `series` for what it gives."""

    def __init__(self, options: Options) -> None:
        self._options = options

    def take(self, cluster: Cluster) -> None:
        """One more tick."""

    def sparkline(self, _key: tuple[str, ...]) -> list[float | None]:
        """For a cell of a table."""
        return []
