from typing import Any

class Settings:
    data_path: str
    mem_queue_size: int
    max_bytes_per_file: int
    sync_every: int
    sync_timeout_ns: int
    msg_timeout_ns: int
    max_msg_timeout_ns: int
    max_msg_size: int
    max_body_size: int
    defer_ns_max: int
    max_rdy_count: int
    max_channel_consumers: int
    node_id: int
    latency_window_ns: int
    has_histogram: bool
    is_topology_aware: bool
    has_log: bool
    is_interval: bool
    durable_interval_ns: int
    commit_log_size: int
    options: Any
    def __init__(self, options: object) -> None: ...
