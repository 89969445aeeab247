"""A clean stop of all queues."""

from nsqfast._ext.storage.engine cimport Store


cdef class Shutdown:
    cdef Store store
    cdef list topics                # Topic
    cdef object on_progress         # (number of queues, those synced, those closed), called often; or None
    cdef Py_ssize_t count           # number of queues
    cdef Py_ssize_t synced_count    # those whose content is on disk
    cdef Py_ssize_t closed_count
    cdef list closings              # (name, Closing) of those that have files

    cdef object losses(self, list errors)
