"""Counts durations since the start in fixed buckets."""

from libc.stdint cimport int64_t, uint64_t


cdef extern from "core/histogram.h" nogil:
    enum:
        BOUND_COUNT "NSQ_BOUND_COUNT"

    ctypedef struct Steps "nsq_histogram":
        uint64_t *counts        # BOUND_COUNT + 1 of them
        double sum_ns

    const int64_t *bounds_ns "nsq_bounds_ns"
    void record "nsq_histogram_record"(Steps *steps, int64_t value_ns)


cdef class Histogram:
    cdef Steps steps
