"""`if NSQFAST_DEBUG:` guards assertions that only the debug and sanitizer builds pay for."""


cdef extern from "core/debug.h" nogil:
    const bint NSQFAST_DEBUG
