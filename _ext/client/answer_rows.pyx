"""FIN, REQ and TOUCH for rows of arrays, each on the connection that its message came from.

`sources` are uint16, the index of each row's connection in `connections`; `identities` are 16 bytes each; a row counts
if its byte in `chosen` is not 0. The connections are those of one consumer.
"""

from libc.stdint cimport int64_t, uint16_t

from nsqfast._ext.client.consume_connection cimport ConsumeConnection, MessageQueue
from nsqfast._ext.core.limits cimport MESSAGE_ID_SIZE

cdef bytes NEWLINE = b"\n"


cdef Py_ssize_t tell_rows(list connections, bytes identities, bytes sources, bytes chosen, bytes name, bytes tail,
                          bint is_answer) except -1:
    """Send each row's command to its own connection; return how many were sent. One pass: rows of a connection are
    adjacent."""
    cdef const uint16_t *source = <const uint16_t *> <const char *> sources
    cdef ConsumeConnection connection
    cdef Py_ssize_t count = len(chosen), first = 0, last, told = 0
    if len(sources) != 2 * count or len(identities) != MESSAGE_ID_SIZE * count:
        raise ValueError("one source, one id and one choice for each row")
    while first < count:
        if source[first] >= len(connections):
            raise IndexError(f"no connection {source[first]}")
        last = first + 1
        while last < count and source[last] == source[first]:
            last += 1
        connection = <ConsumeConnection?> connections[source[first]]
        told += connection.tell_run(name, identities, chosen, first, last, tail, is_answer)
        first = last
    return told


def finish_rows(list connections not None, bytes identities not None, bytes sources not None, bytes chosen not None):
    """Send FIN for the chosen rows; return how many were sent. In backoff they are one success."""
    cdef MessageQueue inbox
    cdef Py_ssize_t told
    if not connections:
        return 0
    inbox = (<ConsumeConnection?> connections[0]).inbox
    if inbox.reports_success and b"\1" in chosen:
        inbox.owner.on_success()
    told = tell_rows(connections, identities, sources, chosen, b"FIN ", NEWLINE, True)
    inbox.finished += told
    return told


def requeue_rows(list connections not None, bytes identities not None, bytes sources not None, bytes chosen not None,
                 int64_t delay_ms, bint backoff=False):
    """The same with REQ; with `backoff` each is a failure."""
    cdef MessageQueue inbox
    cdef Py_ssize_t told
    if not connections:
        return 0
    inbox = (<ConsumeConnection?> connections[0]).inbox
    if b"\1" in chosen:
        if backoff:
            inbox.owner.on_failure(len(chosen) - chosen.count(b"\0"))  # before REQ, so that no more comes meanwhile
        elif inbox.reports_success:
            inbox.owner.on_neutral()
    told = tell_rows(connections, identities, sources, chosen, b"REQ ", b" %d\n" % delay_ms, True)
    inbox.requeued += told
    return told


def touch_rows(list connections not None, bytes identities not None, bytes sources not None, bytes chosen not None):
    """The same with TOUCH."""
    cdef Py_ssize_t told = tell_rows(connections, identities, sources, chosen, b"TOUCH ", NEWLINE, False)
    if told:
        (<ConsumeConnection> connections[0]).inbox.touched += told
    return told
