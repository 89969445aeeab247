"""The options that the compiled core reads, as C numbers, fixed at the start."""

from libc.stdint cimport int64_t


cdef class Settings:
    cdef readonly str data_path
    cdef readonly int64_t mem_queue_size
    cdef readonly int64_t max_bytes_per_file
    cdef readonly int64_t sync_every
    cdef readonly int64_t sync_timeout_ns
    cdef readonly int64_t msg_timeout_ns
    cdef readonly int64_t max_msg_timeout_ns
    cdef readonly int64_t max_msg_size
    cdef readonly int64_t max_body_size
    cdef readonly int64_t defer_ns_max        # the longest delay of DPUB, REQ and defer=
    cdef readonly int64_t max_rdy_count
    cdef readonly int64_t max_channel_consumers
    cdef readonly int64_t node_id
    cdef readonly int64_t latency_window_ns   # 0: the time from publish to FIN is not measured
    cdef readonly bint has_histogram    # the time from publish to FIN is counted since the start
    cdef readonly bint is_topology_aware
    cdef readonly bint has_log          # events go to the commit log, and an OK promises what its mode says
    cdef readonly bint is_interval      # the log is synced by time, so an OK outlives a kill but not a power cut
    cdef readonly int64_t durable_interval_ns
    cdef readonly int64_t commit_log_size
    cdef readonly object options        # all of them; slower, so not for what is done per message
