"""The asyncio seam of the client, and what producers and consumers share: framing, heartbeats, deadlines.

Heartbeats are answered here, as they are read: a slow handler delays no answer, unless it blocks the event loop.
"""

import os
from collections import deque

from libc.string cimport memcmp

from nsqfast._ext.core.clock cimport monotonic_ns
from nsqfast._ext.core.limits cimport (
    CLIENT_FRAME_SIZE_MAX, FRAME_ERROR, FRAME_HEADER_SIZE, FRAME_MESSAGE, FRAME_RESPONSE, INPUT_SIZE,
    MESSAGE_HEADER_SIZE, TRANSPORT_HIGH_WATER,
)
from nsqfast._ext.core.message cimport get_be32
from nsqfast._ext.protocol.v2 cimport HEARTBEAT, HEARTBEAT_SIZE

from nsqfast.errors import ConnectError, ProtocolError, RefusedError, WrongPeerError
from nsqfast.streams.adapter import Stacked, StreamError

cdef double SECOND_NS = 1e9


cdef object bad_frame(Py_ssize_t size):
    """Return the error for an impossible frame size."""
    if size == 0x48545450:  # HTTP
        return WrongPeerError("this is an HTTP port; give the TCP port of an nsqd (4150 as a rule)")
    return ProtocolError("E_BAD_FRAME", f"a frame of {size} bytes: is this the TCP port of an nsqd?")


cdef object bad_type(int frame_type, bytes data):
    """Return the error for an unknown frame type. nsqlookupd's answers have no type, so their text is in its place."""
    if frame_type == 0x455f4241 and data == b"D_PROTOCOL":  # E_BAD_PROTOCOL
        return WrongPeerError(
            "this is the TCP port of an nsqlookupd; give its HTTP port (4161 as a rule) as nsqlookupd=, "
            "or the TCP port of an nsqd (4150)"
        )
    return ProtocolError("E_BAD_FRAME", f"a frame of type {frame_type} with {len(data)} bytes")


cdef class ClientConnection:
    """A BufferedProtocol except for its base class, which asyncio's own loop wants; subclasses in Python add it."""

    def __init__(self, loop, on_closed):
        self.loop = loop
        self.call_soon = loop.call_soon
        self.on_closed = on_closed
        self.input = ReadBuffer(INPUT_SIZE)
        self.output = WriteBuffer()
        self.waiting = deque()
        self.layer = self.error = None

    # -- the asyncio seam ----------------------------------------------------------------------------------------------

    def connection_made(self, transport):
        self.transport = transport
        transport.set_write_buffer_limits(TRANSPORT_HIGH_WATER)
        self.flush_later = self.flush
        self.is_open = True
        self.read_ns = monotonic_ns()

    def get_buffer(self, sizehint):
        cdef ReadBuffer room = self.input if self.layer is None else self.packed
        room.make_room()
        return room

    def buffer_updated(self, nbytes):
        self.read_ns = monotonic_ns()
        if self.layer is None:
            self.input.end += <Py_ssize_t> nbytes
            self.parse()
        else:
            self.packed.end += <Py_ssize_t> nbytes
            data = self.packed.waiting()
            self.packed.consume(len(data))
            self.unpack(self.layer, data)
        self.after_read()

    def eof_received(self):
        return False

    def connection_lost(self, exc):
        self.is_open = False
        if self.error is None:
            self.error = ConnectError(f"the connection broke: {exc}" if exc else "nsqd closed the connection")
        self.end()

    def pause_writing(self):
        self.write_paused = True
        if self.write_timeout_s > 0:
            self.unsent_size = self.transport.get_write_buffer_size()
            self.write_timer = self.loop.call_later(self.write_timeout_s, self.check_write)

    def resume_writing(self):
        self.write_paused = False
        if self.write_timer is not None:
            self.write_timer.cancel()
            self.write_timer = None
        self.write()

    # -- in ------------------------------------------------------------------------------------------------------------

    cdef int unpack(self, object layer, bytes data) except -1:
        try:
            for piece in layer.unpack(data):
                self.input.append(piece, len(<bytes> piece))
                self.parse()
                if not self.is_open:
                    return 0
        except StreamError as error:
            # A failed handshake fails again: a certificate, a version.
            self.fail(ConnectError(str(error)) if layer.is_ready else RefusedError(str(error)))
        reply = self.layer.reply()
        if reply and self.transport is not None:
            self.transport.write(reply)
        if self.layer.at_end:
            self.close()
        return 0

    cdef int parse(self) except -1:
        cdef const char *data
        cdef Py_ssize_t size
        while self.input.end - self.input.start >= 4 and self.is_open and not self.frames_blocked:
            data = self.input.data + self.input.start
            size = get_be32(data)
            if size < 4 or size > CLIENT_FRAME_SIZE_MAX:
                self.fail(bad_frame(size))
                return 0
            if self.input.end - self.input.start < 4 + size:
                return 0
            try:
                self.frame(<int> get_be32(data + 4), data + FRAME_HEADER_SIZE, size - 4)
            finally:
                self.input.consume(4 + size)
        return 0

    cdef int frame(self, int frame_type, const char *data, Py_ssize_t size) except -1:
        if frame_type == FRAME_MESSAGE and size >= MESSAGE_HEADER_SIZE:
            return self.on_message(data, size)
        if frame_type == FRAME_RESPONSE:
            if size == HEARTBEAT_SIZE and memcmp(data, HEARTBEAT, HEARTBEAT_SIZE) == 0:
                self.output.append(b"NOP\n", 4)
                return self.schedule_flush()
            return self.on_response(data, size)
        if frame_type == FRAME_ERROR:
            return self.on_error(data[:size].decode("utf-8", "replace"))
        self.fail(bad_type(frame_type, data[:size]))
        return 0

    cdef int on_response(self, const char *data, Py_ssize_t size) except -1:
        if not self.waiting:
            self.fail(ProtocolError("E_BAD_FRAME", f"an answer without a question: {data[:size]!r}"))
            return 0
        future = self.waiting.popleft()
        if self.blocks_after_next:
            self.blocks_after_next = False
            self.frames_blocked = True
        if not future.done():
            future.set_result(data[:size])
        return 0

    cdef int on_error(self, str text) except -1:
        """All errors except those of FIN, REQ, REJ and TOUCH end the connection; nsqd is about to close it."""
        self.fail(RefusedError(text))
        return 0

    cdef int on_message(self, const char *data, Py_ssize_t size) except -1:
        self.fail(ProtocolError("E_BAD_FRAME", "a message without a subscription"))
        return 0

    cdef int after_read(self) except -1:
        """All input of one read was parsed."""
        return 0

    # -- out -----------------------------------------------------------------------------------------------------------

    def ask(self, bytes command, bint block_after=False):
        """Write a command and return a future of the answer's data; with `block_after` nothing behind that answer is
        processed until `put_layer` or `proceed`."""
        future = self.loop.create_future()
        if not self.is_open:
            future.set_exception(self.error or ConnectError("not connected"))
            return future
        self.blocks_after_next = block_after
        self.waiting.append(future)
        self.tell(command)
        return future

    def tell(self, bytes command):
        """Write a command that has no answer."""
        if len(command):
            self.output.append(command, len(command))
            self.schedule_flush()

    def proceed(self):
        """Process the rest of the input after an answer to a command with `block_after`."""
        self.frames_blocked = False
        self.parse()

    def put_layer(self, layer):
        """From here on everything is packed, including input behind the last answer."""
        early = self.input.data[self.input.start:self.input.end]
        self.input.consume(len(early))
        self.frames_blocked = False
        self.layer = layer if self.layer is None else Stacked(self.layer, layer)
        if self.packed is None:
            self.packed = ReadBuffer(INPUT_SIZE)
        self.unpack(layer, early)

    cdef int schedule_flush(self) except -1:
        """Have the output written at the end of this turn."""
        if not self.is_flushing and self.is_open:
            self.is_flushing = True
            self.call_soon(self.flush_later)
        return 0

    cdef int write(self) except -1:
        if not self.is_open or self.write_paused or self.output.size == 0:
            return 0
        data = self.output.take()
        self.transport.write(data if self.layer is None else self.layer.pack(data))
        return 0

    def flush(self):
        """Hand the gathered output to the transport."""
        self.is_flushing = False
        self.write()

    # -- time ----------------------------------------------------------------------------------------------------------

    def watch(self, double read_timeout_s, double write_timeout_s):
        """End the connection when nothing was received, or could be sent, for so long; 0 = wait for ever."""
        self.read_timeout_s = read_timeout_s
        self.write_timeout_s = write_timeout_s
        if read_timeout_s > 0 and self.is_open:
            self.check_read()

    def check_read(self):
        """Called when the last read may be too long ago."""
        cdef double rest_s = self.read_timeout_s - (monotonic_ns() - self.read_ns) / SECOND_NS
        if rest_s <= 0:
            self.read_timer = None
            self.fail(ConnectError(f"nothing came for {self.read_timeout_s:g} s"))
        else:
            self.read_timer = self.loop.call_later(rest_s, self.check_read)

    def check_write(self):
        """Called when writing has been paused for long; having less to send than before is progress."""
        cdef Py_ssize_t unsent_size = self.transport.get_write_buffer_size()
        if unsent_size >= self.unsent_size:
            self.write_timer = None
            self.fail(ConnectError(f"nothing could be written for {self.write_timeout_s:g} s"))
        else:
            self.unsent_size = unsent_size
            self.write_timer = self.loop.call_later(self.write_timeout_s, self.check_write)

    # -- the end -------------------------------------------------------------------------------------------------------

    def fail(self, error):
        """End the connection now, for this reason."""
        if self.error is None:
            self.error = error
        self.is_open = False
        if self.transport is not None:
            self.transport.abort()

    def close(self):
        """End it when all output was sent."""
        if self.transport is None or not self.is_open:
            return
        self.write_paused = False  # the transport keeps it until the peer takes it
        self.write()
        if self.layer is not None:
            end = self.layer.end()
            if end:
                self.transport.write(end)
        if self.error is None:
            self.error = ConnectError("closed")
        self.is_open = False
        self.transport.close()

    def detach(self):
        """Return a descriptor for use without an event loop; this object's connection ends.

        -1: TLS or compression is in use, or some input was not processed.
        """
        if not self.is_open or self.layer is not None or self.input.end > self.input.start or self.output.size:
            return -1
        fd = os.dup(self.transport.get_extra_info("socket").fileno())
        self.fail(ConnectError("detached"))
        return fd

    cdef int end(self) except -1:
        for timer in (self.read_timer, self.write_timer):
            if timer is not None:
                timer.cancel()
        waiting, self.waiting = self.waiting, deque()
        for future in waiting:
            if not future.done():
                future.set_exception(self.error)
        on_closed = self.on_closed
        # Both refer back to this object.
        self.on_closed = self.flush_later = self.transport = None
        self.read_timer = self.write_timer = None
        if on_closed is not None:
            on_closed(self)
        return 0
