"""With --mem-queue-size=0 and --sync-every=1 an operator asks that each message is on disk before its OK, which the
commit log does: they mean --durable=always, with as much in memory as by default.
"""

cdef int64_t MEM_QUEUE_SIZE = 10000

cdef str TOPOLOGY_AWARE = "topology-aware-consumption"


cdef class Settings:
    """Reads its fields once from `options`, whose attributes have the same names."""

    def __init__(self, object options):
        self.data_path = options.data_path
        self.mem_queue_size = options.mem_queue_size
        self.max_bytes_per_file = options.max_bytes_per_file
        self.sync_every = options.sync_every
        self.sync_timeout_ns = options.sync_timeout_ns
        self.msg_timeout_ns = options.msg_timeout_ns
        self.max_msg_timeout_ns = options.max_msg_timeout_ns
        self.max_msg_size = options.max_msg_size
        self.max_body_size = options.max_body_size
        self.defer_ns_max = options.max_defer_ns or options.max_req_timeout_ns
        self.max_rdy_count = options.max_rdy_count
        self.max_channel_consumers = options.max_channel_consumers
        self.node_id = options.node_id
        self.latency_window_ns = 0
        if options.e2e_processing_latency_percentiles:
            self.latency_window_ns = options.e2e_processing_latency_window_time_ns
        self.has_histogram = options.metrics_latency_histogram
        is_pair = self.mem_queue_size == 0 and self.sync_every == 1
        self.has_log = options.durable != "off" or is_pair
        if is_pair and options.durable == "off":
            self.mem_queue_size = MEM_QUEUE_SIZE
        self.is_interval = options.durable == "interval"
        self.durable_interval_ns = options.durable_interval_ns
        self.commit_log_size = options.commit_log_size
        self.is_topology_aware = TOPOLOGY_AWARE in options.enable_experiment
        self.options = options
