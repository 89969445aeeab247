"""Records that contain sectors of zeros: either a power cut tore them, or they were published so and sealed."""

from libc.stdint cimport int64_t


cdef extern from "storage/diskqueue/hollow.h" nogil:
    bint is_zeros "nsq_is_zeros"(const char *data, size_t size)    # at least one byte
    # record: its size field, header and body, `size` bytes in all; position: where it starts in the file.
    bint is_hollow "nsq_is_hollow"(const char *record, size_t size, int64_t position)
    void seal "nsq_seal"(char *record, size_t size)
    bint is_sealed "nsq_is_sealed"(const char *record, size_t size)
