"""The classes of the contract, without an engine: what each method promises stands in engine.pxd."""

from contextlib import nullcontext


cdef class Store:
    cdef TopicStore open_topic(self, str name, bint is_ephemeral):
        pass

    cdef Tickets tickets(self) noexcept:
        pass

    cdef bint start_batch(self) except -1:
        pass

    cdef bint must_wait(self) noexcept:
        return False

    cdef bint write_log(self) except -1:
        return False

    cdef Checkpoint begin_checkpoint(self):
        return None

    cdef int end_checkpoint(self, str error) except -1:
        pass

    cdef list logged_names(self):
        return []

    cdef tuple completed(self):
        pass

    cdef int fileno(self) except -1:
        pass

    cdef int64_t count_unstored(self, ChannelStore queue, int64_t taken) noexcept:
        pass

    cdef Closing begin_closing(self, ChannelStore queue):
        pass

    cdef list close_queues(self, object queues, object on_progress):
        pass

    cdef object close(self):
        pass

    def figures(self):
        """Return how many fsyncs were done, how many of them failed, and the seconds they took."""
        return 0, 0, 0.0

    def log_figures(self):
        """Return what a commit log has to say of itself (see EventLog.figures); None: there is none."""

    def starting(self):
        """Return a context in which many topics are opened, one after the other."""
        return nullcontext()


cdef class TopicStore:
    cdef ChannelStore open_channel(self, str name, bint is_ephemeral):
        pass

    cdef int forget_channel(self, ChannelStore channel) except -1:
        pass

    cdef int begin(self, ChannelStore only) except -1:
        pass

    cdef int end(self, ChannelStore only) except -1:
        pass

    cdef int roll_back(self, ChannelStore only) except -1:
        pass

    cdef bint needs_write(self, ChannelStore channel) noexcept:
        pass

    cdef bint fits(self, uint64_t count, uint64_t put_max) noexcept:
        pass

    cdef int admit(self, uint64_t count, uint64_t size) except -1:
        return 0

    cdef int note_published(self, Message *message, bint is_spread, ChannelStore only) except -1:
        return 0

    cdef uint64_t begin_pieces(self) except? 0:
        return 0

    cdef bint may_note_piece(self, uint64_t mpub) except -1:
        return True

    cdef int note_piece(self, uint64_t mpub, uint64_t piece, int64_t published_ns, uint64_t first_id,
                        bytes bodies) except -1:
        return 0

    cdef int note_released(self, uint64_t mpub, uint64_t piece, uint64_t count, bint is_spread) except -1:
        return 0

    cdef int end_pieces(self, uint64_t mpub) except -1:
        return 0

    cdef uint64_t mark(self) noexcept:
        return 0

    cdef int cut(self, uint64_t mark) except -1:
        return 0

    cdef uint64_t ticket(self) noexcept:
        pass

    cdef int note_copies(self, ChannelStore source, ChannelStore only) except -1:
        pass

    cdef bint is_ahead(self) noexcept:
        pass


cdef class ChannelStore:
    cdef bint put(self, Message *message, bint is_wanted) except -1:
        pass

    cdef Delivery *read_next(self) except? NULL:
        pass

    cdef int done(self, Delivery *delivery) except -1:
        pass

    cdef int requeue(self, Delivery *delivery) except -1:
        pass

    cdef int defer(self, Delivery *delivery, bint is_new, int64_t delay_ns) except -1:
        pass

    cdef bint store_deferred(self, Delivery **deliveries, size_t count) except -1:
        pass

    cdef Delivery *load(self, uint64_t ordinal, uint64_t id) except? NULL:
        pass

    cdef bint is_loading(self) noexcept:
        pass

    cdef bint is_unfinished(self, uint64_t ordinal) noexcept:
        pass

    cdef int finish_record(self, uint64_t ordinal, uint64_t id) except -1:
        pass

    cdef Delivery *next_found(self, int64_t *due_ns) except? NULL:
        pass

    cdef bint renew(self, Delivery *delivery, bint is_deferred) except -1:
        pass

    cdef int64_t depth(self) noexcept:
        pass

    cdef int64_t oldest(self) except -2:
        pass

    cdef uint64_t correct_place(self, QueuePlace *place, int64_t *visible_count) except? 0:
        pass

    cdef Scan scan(self, QueuePlace *place, uint64_t end):
        pass

    cdef Reads reads(self):
        pass

    cdef int empty(self) except -1:
        pass

    cdef int delete(self) except -1:
        pass


cdef class Checkpoint:
    cdef int begin_queue(self, ChannelStore queue) except -1:
        pass

    cdef int add(self, Delivery *delivery) except -1:
        pass

    cdef int add_deferred(self, Delivery *delivery, int64_t due_ns) except -1:
        pass

    cdef int add_stored(self, uint64_t ordinal, int64_t due_ns, bint is_told) except -1:
        pass

    cdef bint work(self, Budget *budget) except -1:
        pass

    cdef bint finish(self, Budget *budget) except -1:
        pass


cdef class Closing:
    cdef int add(self, Delivery *delivery) except -1:
        pass

    cdef int add_deferred(self, Delivery *delivery, int64_t due_ns) except -1:
        pass

    cdef int end(self) except -1:
        pass
