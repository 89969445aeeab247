"""What ends a connection whose client sent a wrong command (spec nsqd-tcp §4)."""

from nsqfast.errors import ProtocolError
from nsqfast.wire.refusals import PUBLISH_REFUSED


cdef str text(const char *data, Py_ssize_t size):
    return data[:size].decode("utf-8", "surrogateescape")


cdef object invalid(str detail):
    return ProtocolError("E_INVALID", detail)


cdef object wrong_state(str command):
    return ProtocolError("E_INVALID", f"cannot {command} in current state")


cdef object publish_failed(str command, object error):
    PUBLISH_REFUSED[error.kind] += 1
    return ProtocolError(f"E_{command}_FAILED", f"{command} failed {error}")
