"""Answers to messages that were taken as arrays."""

cdef Py_ssize_t tell_rows(list connections, bytes identities, bytes sources, bytes chosen, bytes name, bytes tail,
                          bint is_answer) except -1
