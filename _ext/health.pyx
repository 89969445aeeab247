"""What the data files have seen, shared by all queues of one process; `/ping` shows the last error.

The texts are Go's: `write /path/orders.diskqueue.000000.dat: no space left on device`.
"""

import os


cdef class Health:
    def __init__(self):
        self.error = ""
        self.failed = False

    @property
    def text(self):
        """'OK', or 'NOK - ' and the error of the last failed write or fsync; the next write that succeeds clears it."""
        return f"NOK - {self.error}" if self.failed else "OK"

    cdef OSError fail(self, str operation, str path, int error):
        cdef str reason = os.strerror(error)
        self.error = f"{operation} {path}: {reason[:1].lower()}{reason[1:]}"
        self.failed = True
        return OSError(error, self.error)

    cdef void clear(self) noexcept:
        self.failed = False
