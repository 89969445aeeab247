"""The data of charts: numbers over time of the cluster, a topic, a channel or a node."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

# () is the whole cluster; ("topic", T), ("channel", T, C), ("node", key of Cluster.nodes).
Key = tuple[str, ...]

TOPIC_COLUMNS = ("in_s", "memory_depth", "backend_depth")
CHANNEL_COLUMNS = (
    "in_s",
    "out_s",
    "requeue_s",
    "timeout_s",
    "memory_depth",
    "backend_depth",
    "in_flight",
    "deferred",
)
NODE_COLUMNS = (*CHANNEL_COLUMNS, "clients", "memory")  # used for the cluster as well


@dataclass(frozen=True, slots=True)
class Mark:
    """An event: an action, or a restart."""

    at: float  # unix time
    text: str
    key: Key

    def is_about(self, key: Key) -> bool:
        """Whether it belongs in the chart of `key`: a restart in those of all topics, a topic's in its channels'."""
        if not self.key or not key or self.key == key:
            return True
        if "node" in {self.key[0], key[0]}:
            return self.key[0] == "node" and key[0] != "node"
        return self.key[1] == key[1] and "topic" in {self.key[0], key[0]}


@dataclass(slots=True)
class Series:
    """`columns` by name, each as long as `times`; nan is unknown. Beyond the known range it is short, or empty."""

    step_s: float
    times: NDArray[np.float64]  # unix seconds, growing: the ends of the steps, the last one is now
    columns: dict[str, NDArray[np.float32]]
    marks: list[Mark] = field(default_factory=list)
