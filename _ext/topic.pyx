"""A message goes from the publisher's buffer to every channel within one call; the topic keeps it only if it must."""

import logging

from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memchr

from nsqfast._ext.backlog cimport Backlog
from nsqfast._ext.channel cimport Channel
from nsqfast._ext.clock cimport monotonic_ns, wall_ns
from nsqfast._ext.memory cimport MEMORY_SLOW, account
from nsqfast._ext.diskdeferred cimport DiskDeferred
from nsqfast._ext.message cimport Delivery, delivery_free, delivery_new, get_be32, message_drop, message_new

from nsqfast.errors import ProtocolError, PublishError
from nsqfast.names import is_ephemeral

log = logging.getLogger("nsqd")

cdef int64_t RETRY_NS = 1000000000
cdef int64_t WAIT_NS = 1000000      # for an fsync


cdef enum:
    # Messages of a backlog that are spread in one go; the loop serves others in between.
    SPREAD_MAX = 512


cdef class Topic(Queue):
    """Made by the registry, which is told of changes through the two callables."""

    def __init__(self, str name, Storage storage, object on_change, object on_last_left):
        self.name = name
        self.name_bytes = name.encode()
        self.ephemeral = is_ephemeral(name)
        self.storage = storage
        self.guid = GuidFactory(storage.settings.node_id)
        self.backlog = Backlog(name, storage, self.ephemeral)
        self.held = Ring()
        self.channel_list = []
        self.channel_by_name = {}
        self.on_change = on_change
        self.on_last_left = on_last_left
        self.restore_deferred()

    def __dealloc__(self):
        if self.held is not None:
            drop_held(self.held)

    # -- publishing ----------------------------------------------------------------------------------------------------

    cdef uint64_t publish(self, const char *body, Py_ssize_t size, int64_t defer_ms) except? 0:
        """One message; returns the ticket that its OK has to wait for. PublishError: it was not taken."""
        self.refuse_if_exiting()
        if defer_ms and account.level >= MEMORY_SLOW:
            # What is deferred stands in memory until it is due.
            raise PublishError("no memory left for deferred messages")
        try:
            self.add(body, size, defer_ms, wall_ns(), monotonic_ns())
        except OSError as error:
            raise PublishError(error_text(error)) from None
        self.pump_channels()
        return self.ticket()

    cdef uint64_t publish_many(self, const char *data, uint64_t count) except? 0:
        """`count` times {4 bytes size, body}, checked by the caller."""
        cdef uint64_t _
        cdef Py_ssize_t size
        cdef int64_t wall = wall_ns(), monotonic = monotonic_ns()
        cdef uint64_t count_before = self.message_count, bytes_before = self.message_bytes
        self.refuse_if_exiting()
        try:
            self.begin()
            try:
                for _ in range(count):
                    size = get_be32(data)
                    self.add(data + 4, size, 0, wall, monotonic)
                    data += 4 + size
            finally:
                self.end()
        except OSError as error:
            self.message_count, self.message_bytes = count_before, bytes_before
            raise PublishError(error_text(error)) from None
        self.pump_channels()
        return self.ticket()

    cdef int refuse_if_exiting(self) except -1:
        if self.exiting:
            raise PublishError("exiting")
        return 0

    cdef int add(self, const char *body, Py_ssize_t size, int64_t defer_ms, int64_t wall, int64_t monotonic) except -1:
        cdef Message *message = message_new(body, <uint32_t> size, wall, self.guid.next(wall))
        if message is NULL:
            raise MemoryError
        message.defer_ms = <uint64_t> defer_ms
        try:
            if self.is_open():
                self.spread(message, monotonic)
            else:
                self.keep(message)
        finally:
            message_drop(message)
        self.message_count += 1
        self.message_bytes += size
        return 0

    cdef bint is_open(self) noexcept:
        """Whether messages pass through at once."""
        return (len(self.channel_list) > 0 and not self.paused and not self.awaits_channels
                and self.backlog.memory.size == 0 and self.backlog.disk_depth() == 0 and self.held.size == 0)

    cdef int spread(self, Message *message, int64_t now_ns) except -1:
        cdef Channel channel
        for channel in self.channel_list:
            channel.put(message, now_ns)
        return 0

    cdef int keep(self, Message *message) except -1:
        if message.defer_ms:
            self.held.push(<void *> self.backlog.defer(message))
        else:
            self.backlog.put(message, False)
            self.note_unsettled()
        return 0

    cdef int restore_deferred(self) except -1:
        """What waited here for a channel, deferred, when the broker was stopped: for the rest of its time."""
        cdef DiskDeferred found = self.backlog.found_deferred()
        cdef int64_t due_ns = 0, wall = wall_ns()
        cdef uint64_t ordinal = 0
        cdef Message *message
        cdef Delivery *held
        if found is None:
            return 0
        while True:
            message = found.next(&ordinal, &due_ns)
            if message is NULL:
                return 0
            message.defer_ms = max(1, (due_ns - wall) // 1000000)
            held = delivery_new(message)
            if held is NULL:
                raise MemoryError
            held.ordinal = ordinal
            self.held.push(<void *> held)

    cdef int on_settled(self) except -1:
        return self.open() if self.channel_list else 0

    cdef int begin(self) except -1:
        cdef Channel channel
        self.backlog.begin()
        for channel in self.channel_list:
            channel.backlog.begin()
        return 0

    cdef int end(self) except -1:
        """Every queue ends its batch, also when one of them fails."""
        cdef Channel channel
        cdef object failed = None
        for backlog in [self.backlog, *[(<Channel> channel).backlog for channel in self.channel_list]]:
            try:
                (<Backlog> backlog).end()
            except OSError as error:
                failed = error
        if failed is not None:
            raise failed
        return 0

    cdef int pump_channels(self) except -1:
        cdef Channel channel
        for channel in self.channel_list:
            if channel.ready.first is not None:
                channel.pump()
        return 0

    cdef uint64_t ticket(self) except? 0:
        """The latest ticket of the queues that got something; 0 unless an OK promises that the message is on disk."""
        cdef uint64_t latest, ticket
        cdef Channel channel
        if not self.storage.settings.is_durable:
            return 0
        if not self.is_open():
            return self.backlog.ticket()
        latest = 0
        for channel in self.channel_list:
            ticket = channel.backlog.ticket()
            latest = max(latest, ticket)
        return latest

    # -- the backlog of a topic that had no channel, or was paused -----------------------------------------------------

    cdef int on_deadline(self, int64_t now_ns) except -1:
        """Spread a part of the backlog, and the rest in later turns; what a disk refuses is tried again."""
        try:
            self.spread_backlog(now_ns)
        except OSError:  # the health of the broker tells
            self.storage.timers.arm(self, now_ns + RETRY_NS)
        return 0

    cdef int spread_backlog(self, int64_t now_ns) except -1:
        cdef Delivery *some[SPREAD_MAX]
        cdef Delivery *held
        cdef int count
        if self.paused or self.awaits_channels or not self.channel_list or self.exiting:
            return 0
        if self.backlog.is_ahead():
            self.storage.timers.arm(self, now_ns + WAIT_NS)
            return 0
        while self.held.size:
            held = <Delivery *> self.held.pop()
            self.pass_on(&held, 1, now_ns)
        count = self.take_some(some)
        if count:
            self.pass_on(some, count, now_ns)
            self.storage.timers.arm(self, now_ns + 1)
        return self.pump_channels()

    cdef int take_some(self, Delivery **some) except -1:
        """How many there were. Those before one that cannot be read are not kept waiting for it."""
        cdef int count = 0
        try:
            while count < SPREAD_MAX and (count == 0 or account.level < MEMORY_SLOW):
                some[count] = self.backlog.take()
                if some[count] is NULL:
                    break
                count += 1
        except OSError:
            if count == 0:
                raise
        return count

    cdef int pass_on(self, Delivery **some, int count, int64_t now_ns) except -1:
        """To all channels, written at once; what a full disk refuses waits here for the next attempt."""
        cdef int i
        try:
            self.begin()
            try:
                for i in range(count):
                    self.spread(some[i].message, now_ns)
            finally:
                self.end()
            self.settle_channels()
        except OSError:
            for i in range(count):
                self.backlog.requeue(some[i])
            raise
        self.note_copies(some, count)
        for i in range(count):
            self.backlog.done(some[i])
        return 0

    cdef int note_copies(self, Delivery **some, int count) except -1:
        """Their records here are needed until those in the channels are synced."""
        cdef Channel channel
        cdef uint64_t ticket = 0
        cdef int i
        for i in range(count):
            if some[i].ordinal:
                break
        else:
            return 0
        for channel in self.channel_list:
            if channel.backlog.disk is not None:
                ticket = max(ticket, channel.backlog.disk.request_sync())
        return self.backlog.note_copies(ticket) if ticket else 0

    cdef int settle_channels(self) except -1:
        """Only what stands in the channels may be finished here."""
        cdef Channel channel
        for channel in self.channel_list:
            error = channel.settle()
            if error is not None:
                # Publishers whose messages were put off with it hear of it at the end of the turn.
                channel.backlog.disk.lost = error
                raise error
        return 0

    cdef int open(self) except -1:
        """A first channel, or an end of a pause: what waits may go."""
        if self.backlog.depth() or self.held.size:
            self.on_deadline(monotonic_ns())
        return 0

    # -- channels ------------------------------------------------------------------------------------------------------

    def channel(self, str name):
        """The channel of that (valid) name, created if need be."""
        cdef Channel channel = self.channel_by_name.get(name)
        if channel is None:
            channel = Channel(self.name, name, self.storage, self.last_left)
            self.channel_by_name[name] = channel
            self.channel_list.append(channel)
            self.on_change("channel+", self.name, name)
            self.open()
        return channel

    def last_left(self, str name):
        """An ephemeral channel has no consumer any more."""
        if name in self.channel_by_name:
            self.delete_channel(name)

    def find_channel(self, str name):
        """The channel of that name, or None."""
        return self.channel_by_name.get(name)

    def channels(self):
        """All channels, by name."""
        return [self.channel_by_name[name] for name in sorted(self.channel_by_name)]

    def delete_channel(self, str name):
        """Cut its consumers off, drop its messages and files; KeyError if there is none."""
        cdef Channel channel = self.channel_by_name.pop(name)
        self.channel_list.remove(channel)
        channel.delete()
        self.on_change("channel-", self.name, name)
        if self.ephemeral and not self.channel_list and not self.exiting:
            self.on_last_left(self.name)

    def await_channels(self):
        """Keep messages back until have_channels: its channels are still being asked for."""
        self.awaits_channels = True

    def have_channels(self):
        """All that are known were made."""
        self.awaits_channels = False
        if self.channel_list and not self.exiting:
            self.open()

    # -- the operator's commands ---------------------------------------------------------------------------------------

    def pause(self):
        """Publishing goes on; the channels get nothing."""
        self.paused = True

    def unpause(self):
        self.paused = False
        self.open()

    def empty(self):
        """Drop the topic's own queue; the channels keep theirs."""
        self.backlog.empty()
        drop_held(self.held)

    cdef Flush flush(self):
        """All that is held in memory to disk; nothing is accepted any more. None: it has no files."""
        cdef Flush flush
        cdef Delivery *held
        cdef int64_t wall = wall_ns()
        self.exiting = True
        self.storage.timers.disarm(self)
        if self.backlog.disk is None:
            drop_held(self.held)
            return None
        flush = Flush(self.backlog)
        flush.add_memory()
        if self.held.size:
            flush.begin_deferred()
        while self.held.size:
            held = <Delivery *> self.held.pop()
            flush.add_deferred(held, wall + <int64_t> held.message.defer_ms * 1000000)
        flush.end()
        return flush

    cdef int delete(self) except -1:
        self.exiting = True
        self.storage.timers.disarm(self)
        for name in list(self.channel_by_name):
            self.delete_channel(name)
        drop_held(self.held)
        return self.backlog.delete_files()

    # -- figures -------------------------------------------------------------------------------------------------------

    @property
    def depth(self):
        return self.backlog.depth() + <int64_t> self.held.size

    @property
    def backend_depth(self):
        return self.backlog.disk_depth()

    # -- publishing over HTTP ------------------------------------------------------------------------------------------

    def put(self, bytes body not None, int64_t defer_ms=0):
        """One message; returns a ticket (Registry.when_durable); PublishError."""
        return self.publish(body, len(body), defer_ms)

    def put_binary(self, bytes body not None):
        """count(4) {size(4) body}...; ProtocolError BAD_BODY or BAD_MESSAGE (spec nsqd-http §3), PublishError."""
        cdef const char *data = body
        cdef Py_ssize_t size = len(body), offset = 4, message_size
        cdef Py_ssize_t size_max = self.storage.settings.max_msg_size
        cdef uint64_t count, _
        if size < 4:
            raise ProtocolError("BAD_BODY")
        count = get_be32(data)
        if not 0 < count <= <uint64_t> ((self.storage.settings.max_body_size - 4) // 5):
            raise ProtocolError("BAD_BODY")
        for _ in range(count):
            if size - offset < 4:
                raise ProtocolError("BAD_MESSAGE")
            message_size = get_be32(data + offset)
            if not 0 < message_size <= size_max or size - offset - 4 < message_size:
                raise ProtocolError("BAD_MESSAGE")
            offset += 4 + message_size
        return self.publish_many(data + 4, count)

    def put_lines(self, bytes body not None, Py_ssize_t message_size_max):
        """A message a line, empty lines skipped; ProtocolError MSG_TOO_BIG before anything is queued, PublishError."""
        cdef const char *data = body
        cdef int64_t wall = wall_ns(), monotonic = monotonic_ns()
        cdef uint64_t count_before = self.message_count, bytes_before = self.message_bytes
        check_lines(data, len(body), message_size_max)
        self.refuse_if_exiting()
        try:
            self.begin()
            try:
                self.add_lines(data, len(body), wall, monotonic)
            finally:
                self.end()
        except OSError as error:
            self.message_count, self.message_bytes = count_before, bytes_before
            raise PublishError(error_text(error)) from None
        self.pump_channels()
        return self.ticket()

    cdef int add_lines(self, const char *data, Py_ssize_t size, int64_t wall, int64_t monotonic) except -1:
        cdef Py_ssize_t line_size
        while size > 0:
            line_size = line_length(data, size)
            if line_size:
                self.add(data, line_size, 0, wall, monotonic)
            data += line_size + 1
            size -= line_size + 1
        return 0


cdef Py_ssize_t line_length(const char *data, Py_ssize_t size) noexcept:
    cdef const char *newline = <const char *> memchr(data, c"\n", size)
    return size if newline is NULL else newline - data


cdef int check_lines(const char *data, Py_ssize_t size, Py_ssize_t message_size_max) except -1:
    cdef Py_ssize_t line_size
    while size > 0:
        line_size = line_length(data, size)
        if line_size > message_size_max:
            raise ProtocolError("MSG_TOO_BIG")
        data += line_size + 1
        size -= line_size + 1
    return 0


cdef int drop_held(Ring held) noexcept:
    while held.size:
        delivery_free(<Delivery *> held.pop())
    return 0


cdef str error_text(object error):
    """As the disk layer worded it: in Go's manner, with operation and path."""
    return error.strerror or str(error)
