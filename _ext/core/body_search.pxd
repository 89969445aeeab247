"""What a body has to hold: texts anywhere in it, and fields of its JSON. Any thread may ask, and nothing is copied."""

from libc.stdint cimport uint32_t

from nsqfast._ext.core.limits cimport SEARCH_TERMS_MAX


ctypedef struct Term:
    const char *path        # keys with dots between them
    size_t path_size        # 0: the value may be anywhere
    const char *value
    size_t value_size


ctypedef struct Terms:
    Term terms[SEARCH_TERMS_MAX]
    size_t count
    uint32_t fields         # those with a path, a bit each


cdef class BodySearch:
    cdef tuple kept         # what `terms` points to
    cdef Terms terms

    # NULL: nothing is looked for.
    cdef const Terms *all(self) noexcept


# Whether all terms are met.
cdef bint is_met(const Terms *terms, const char *body, size_t size) noexcept nogil
