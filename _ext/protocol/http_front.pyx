"""Input arrives here first. Subclasses of HttpFront get only what it leaves:

    receive(data) -> at_rest     bytes for the full parser; whether a request may be answered at once after them
    begin(body_size)             a request is held of whose body so many bytes came: its time limit starts
    end()                        it was answered
    replay(partial)              it will not be answered here after all, and these were its bytes
    paid()                       nothing is owed any more, and something waits for that

What the shortcut owes is answered first. Until then plain publishes are taken up to a limit; `receive` gets what
follows them, and keeps it.

A request is held only for a client that sends its head and its body separately, and only for one more read.
"""

from nsqfast._ext.core.budget cimport begin_part, is_spent
from nsqfast._ext.core.limits cimport HTTP_ANSWERS_MAX, HTTP_OWED_MAX
from nsqfast._ext.protocol.http_request cimport REQUEST_OTHER, REQUEST_PART, REQUEST_WHOLE, parse_request


cdef enum:
    # A request is so many units of a part, and one more for each 64 bytes of it.
    REQUEST_UNITS = 4
    UNIT_BITS = 6


OWED = b"owed"


cdef class Shortcut:
    """Answers plain publishes for all connections of a listener; this one none, as only a broker has topics."""

    cdef bint admits(self, PlainRequest *request) noexcept:
        """Whether it may answer this request once its body is whole."""
        return False

    cdef bytes publish(self, PlainRequest *request, HttpFront front):
        """Return the answer; None if this request is not answered here; OWED if front.pay() is called with it later."""
        return None

    cdef bint must_wait(self) noexcept:
        """Whether no more should be owed to anybody for now."""
        return False

    cdef int forget(self, HttpFront front) except -1:
        """What is owed to it is not wanted any more."""
        return 0


cdef class HttpFront:
    """Answers nothing before `attach`."""

    def __cinit__(self):
        self.last_active = 0.0

    def attach(self, Shortcut shortcut not None, write, time):
        """Answer through `write` from now on."""
        self.shortcut = self.debtor = shortcut
        self.write = write
        self.time = time
        self.at_rest = True

    def detach(self):
        """Answer nothing any more; a held request is dropped."""
        self.at_rest = False
        self.shortcut = self.partial = None

    def release(self):
        """Detach, and write nothing any more: what is owed is forgotten."""
        self.detach()
        self.write = self.time = None
        if self.owed_count:
            self.owed_count = 0
            self.debtor.forget(self)
        self.debtor = None

    def begin_part(self):
        """Start a part; it lasts until the next turn."""
        self.is_part_over = False
        self.budget = begin_part()

    def count(self, Py_ssize_t units):
        """Count units of work in the part."""
        self.is_part_over = self.is_part_over or is_spent(&self.budget, units)

    def get_buffer(self, sizehint):
        return self.room

    def buffer_updated(self, Py_ssize_t nbytes):
        self.data_received(self.room.data[:nbytes])

    def data_received(self, bytes data not None):
        if not self.is_part_over:
            self.begin_part()
        if self.partial is not None:
            data = self.resume(data)
        if self.at_rest:
            data = self.answer(data)
        if data is not None:
            self.at_rest = self.receive(data)

    cdef bytes answer(self, bytes data):
        """Answer the plain publishes at the front; return the rest, None for nothing."""
        cdef PlainRequest request
        cdef Outcome outcome = REQUEST_OTHER
        cdef Py_ssize_t taken = self.publish_all(data, len(data), &request, &outcome)
        if taken == len(data):
            self.last_active = self.time()
            self.is_part_over = False
            return None
        if taken:
            data = data[taken:]
        if outcome == REQUEST_PART and self.at_rest and self.shortcut.admits(&request):
            return self.keep_partial(data, &request)
        return data

    cdef Py_ssize_t publish_all(self, const char *data, Py_ssize_t size, PlainRequest *request,
                                Outcome *outcome) except -1:
        """Return how many bytes were answered; `request` and `outcome` describe what is behind them."""
        cdef Py_ssize_t offset = 0
        cdef bytes answer
        cdef list answers = []
        while offset < size and self.may_publish():
            outcome[0] = parse_request(data + offset, size - offset, request)
            answer = self.shortcut.publish(request, self) if outcome[0] == REQUEST_WHOLE else None
            if answer is None:
                break
            offset += request.size
            self.is_part_over = is_spent(&self.budget, REQUEST_UNITS + (request.size >> UNIT_BITS))
            if answer is OWED:
                self.owed_count += 1
                continue
            answers.append(answer)
            if len(answers) == HTTP_ANSWERS_MAX:
                self.send(answers)
        self.send(answers)
        return offset

    cdef bint may_publish(self) noexcept:
        """Whether the next request may be answered here, now."""
        if not self.at_rest or self.is_part_over:
            return False
        return self.owed_count == 0 or (self.owed_count < HTTP_OWED_MAX and not self.shortcut.must_wait())

    cdef int pay(self, bytes answers, Py_ssize_t count) except -1:
        """So many of the answers that were owed."""
        self.owed_count -= count
        self.last_active = self.time()
        self.write(answers)
        if self.owed_count == 0 and not self.at_rest:
            self.paid()
        return 0

    cdef int send(self, list answers) except -1:
        if len(answers) == 1:
            self.write(answers[0])
        elif answers:
            self.write(b"".join(answers))
        answers.clear()
        return 0

    cdef bytes keep_partial(self, bytes rest, PlainRequest *request):
        self.partial = rest
        self.partial_size_due = request.size
        self.begin(request.body_size - (request.size - len(rest)))
        return None

    cdef bytes resume(self, bytes data):
        """Complete the held request with `data`; if that does not complete it, the parser gets both."""
        cdef bytes partial = self.partial
        self.partial = None
        if self.at_rest and len(partial) + len(data) >= self.partial_size_due:
            self.end()
            return partial + data
        self.at_rest = False
        self.replay(partial)
        return data
