"""Errors of commands: exceptions for their caller to raise."""

# Of a command, for a message; bytes that are no UTF-8 stay what they are.
cdef str text(const char *data, Py_ssize_t size)
cdef object invalid(str detail)
cdef object wrong_state(str command)

# Counts it, too.
cdef object publish_failed(str command, object error)
