"""The connection implements all of it; a session calls nothing else of its connection."""

from nsqfast._ext.core.memory cimport account, charge


cdef class Host(Client):

    cdef int mark_written(self) except -1:
        """There is something in `output`; it leaves at the end of the turn."""
        if not self.is_written:
            self.is_written = True
            self.registry.want_flush(self)
        return 0

    cdef int charge_bytes(self, int64_t size) except -1:
        """So many bytes more for what the client said of itself and for what packs its stream."""
        charge(&account, size)
        self.charged_size += size
        return 0

    cdef int greet(self) except -1:
        """The magic has come."""
        raise AssertionError("a Host without greet")

    cdef int keep_time(self, int64_t heartbeat_ns) except -1:
        """Send heartbeats so often from now on; 0 = none."""
        raise AssertionError("a Host without keep_time")

    cdef int upgrade_to(self, list upgrades) except -1:
        """Put these layers on the stream, one by one when all before has left."""
        raise AssertionError("a Host without upgrade_to")

    cdef int send(self, bytes frame) except -1:
        """A whole frame, behind the answers that wait."""
        raise AssertionError("a Host without send")

    cdef int answer_ok(self, uint64_t ticket, str command) except -1:
        """OK to a publish, as soon as the ticket's fsync is done; 0 = now."""
        raise AssertionError("a Host without answer_ok")

    cdef int await_ticket(self, uint64_t ticket, str command) except -1:
        """The ticket's fsync has no OK of its own, but its error is the command's."""
        raise AssertionError("a Host without await_ticket")

    cdef int refuse_oks(self, uint64_t count, str error) except -1:
        """The error stands where the first of the last `count` OKs stood."""
        raise AssertionError("a Host without refuse_oks")

    cdef str admit_line(self):
        """What stands behind a line of the log that the peer can cause again and again; None = no line."""
        raise AssertionError("a Host without admit_line")

    cdef int fail(self, object error) except -1:
        """A fatal error: tell the peer, then end in order."""
        raise AssertionError("a Host without fail")

    cdef int drain(self) except -1:
        """End in order, without a word."""
        raise AssertionError("a Host without drain")

    cdef int close(self) except -1:
        """No error frame; what was written leaves."""
        raise AssertionError("a Host without close")

    cdef int block_for_turn(self) except -1:
        """The part is spent: what is left goes on in a later turn, behind what others have asked for."""
        raise AssertionError("a Host without block_for_turn")

    cdef int unblock(self) except -1:
        """What was blocked is not run any more: the connection is ending."""
        raise AssertionError("a Host without unblock")

    cdef int release(self) except -1:
        """Run the command that was blocked, and those behind it."""
        raise AssertionError("a Host without release")
