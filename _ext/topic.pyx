"""A message goes from the publisher's buffer to every channel within one call; the topic keeps it only if it must."""

import logging

from libc.stdint cimport uint32_t, uint64_t

from nsqfast._ext.backlog cimport Backlog
from nsqfast._ext.bodies cimport check_binary, check_lines, line_length
from nsqfast._ext.channel cimport Channel
from nsqfast._ext.clock cimport monotonic_ns, wall_ns
from nsqfast._ext.fanout cimport Fanout, count_put_off, is_large
from nsqfast._ext.memory cimport MEMORY_SLOW, account
from nsqfast._ext.diskdeferred cimport DiskDeferred
from nsqfast._ext.message cimport Delivery, delivery_free, get_be32, message_drop, message_new
from nsqfast._ext.settings cimport Settings

from nsqfast.errors import PublishError
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
        self.fanout = Fanout(self.backlog, self.channel_list)
        self.waiters = []
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
        cdef bint is_spread, is_durable = self.storage.settings.is_durable
        self.refuse_if_exiting()
        if defer_ms and account.level >= MEMORY_SLOW:
            # What is deferred stands in memory until it is due.
            raise PublishError("no memory left for deferred messages")
        if is_durable and defer_ms:
            self.storage.write_put_off()
        is_spread = self.is_open()
        try:
            self.add(body, size, defer_ms, wall_ns(), monotonic_ns(), is_spread, defer_ms > 0 or not is_durable)
        except OSError as error:
            self.refuse(1, error)
        if is_durable:
            return self.finish_put(1, size, is_spread, defer_ms == 0)
        if is_spread:
            self.pump_channels()
        self.message_count += 1
        self.message_bytes += <uint64_t> size
        return 0

    cdef uint64_t publish_many(self, const char *data, uint64_t count) except? 0:
        """`count` times {4 bytes size, body}, checked by the caller."""
        cdef uint64_t _, total = 0
        cdef Py_ssize_t size
        cdef int64_t wall = wall_ns(), monotonic = monotonic_ns()
        cdef bint is_spread = self.begin_many()
        try:
            for _ in range(count):
                size = get_be32(data)
                self.add(data + 4, size, 0, wall, monotonic, is_spread, False)
                data += 4 + size
                total += size
            self.end_many()
        except BaseException as error:
            self.break_off(count, error)
        return self.finish_put(count, total, is_spread, True)

    cdef bint begin_many(self) except -1:
        """Whether what comes goes to the channels."""
        self.refuse_if_exiting()
        self.make_room()
        if not self.storage.settings.is_durable:
            self.fanout.begin()
        return self.is_open()

    cdef int make_room(self) except -1:
        """What is put off fits into memory."""
        if self.is_unsettled and is_large(self.fanout):
            self.storage.write_put_off()
        return 0

    cdef int end_many(self) except -1:
        return 0 if self.storage.settings.is_durable else self.fanout.write()

    cdef int break_off(self, uint64_t count, object error) except -1:
        if not self.storage.settings.is_durable:
            self.fanout.take_back()
        if isinstance(error, OSError):
            self.refuse(count, error)
        raise error

    cdef int refuse(self, uint64_t count, object error) except -1:
        self.storage.syncer.health.refused(count)
        raise PublishError(error_text(error)) from None

    cdef uint64_t finish_put(self, uint64_t count, uint64_t size, bint is_spread, bint is_put_off) except? 0:
        """Hand out what was put and count it: now, or when the ticket's fsync is done."""
        cdef uint64_t ticket = 0
        self.pump_channels()
        if self.storage.settings.is_durable:
            ticket = self.ticket()
        if ticket == 0:
            self.count(count, size, self.channel_list if is_spread else None)
            return 0
        count_put_off(self.fanout, count, size, is_spread)
        if not is_put_off:
            self.storage.uncounted.append((ticket, self, self.fanout.take_counts()))
        elif not self.is_unsettled:
            self.is_unsettled = True
            self.storage.unsettled.append(self)
        return ticket

    cdef int count(self, uint64_t count, uint64_t size, list channels) except -1:
        self.message_count += count
        self.message_bytes += size
        if channels is not None:
            for channel in channels:
                (<Channel> channel).message_count += count
        return 0

    cdef int refuse_if_exiting(self) except -1:
        if self.exiting:
            raise PublishError("exiting")
        return 0

    cdef int add(self, const char *body, Py_ssize_t size, int64_t defer_ms, int64_t wall, int64_t monotonic,
                 bint is_spread, bint is_alone) except -1:
        """is_alone: what gathers nothing is in all channels when this returns, and in none after an OSError."""
        cdef Message *message = message_new(body, <uint32_t> size, wall, self.guid.next(wall))
        if message is NULL:
            raise MemoryError
        message.defer_ms = <uint64_t> defer_ms
        try:
            if not is_spread:
                self.keep(message)
            elif is_alone:
                self.fanout.put(message, monotonic, not self.storage.settings.is_durable)
            else:
                self.spread(message, monotonic)
        finally:
            message_drop(message)
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
        return 0

    cdef int restore_deferred(self) except -1:
        """What waited here for a channel, deferred, when the broker was stopped: for the rest of its time."""
        cdef DiskDeferred found = self.backlog.found_deferred()
        cdef int64_t due_ns = 0, wall = wall_ns()
        cdef Delivery *held = found.next(&due_ns) if found is not None else NULL
        while held is not NULL:
            held.message.defer_ms = max(1, (due_ns - wall) // 1000000)
            self.held.push(<void *> held)
            held = found.next(&due_ns)
        return 0

    # -- the end of a turn, in which a durable broker writes what was put off ------------------------------------------

    cdef int add_waiter(self, object publisher) except -1:
        """Its OK waits until what it put off here is written, and longer."""
        cdef Py_ssize_t size = len(self.waiters)
        if size == 0 or self.waiters[size - 1] is not publisher:
            self.waiters.append(publisher)
        return 0

    cdef object write_put_off(self):
        """To all the queues it is for; the OSError where it is in none of them."""
        try:
            self.fanout.write()
        except OSError as error:
            return error
        return None

    cdef int on_settled(self) except -1:
        self.is_unsettled = False
        if self.channel_list:
            self.open()
        return self.pump_channels()

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
        cdef Channel channel
        self.storage.write_put_off()
        self.fanout.begin()
        try:
            for i in range(count):
                self.spread(some[i].message, now_ns)
            self.fanout.write()
        except BaseException:
            self.fanout.take_back()
            for i in range(count):
                self.backlog.requeue(some[i])
            raise
        self.note_copies(some, count)
        for i in range(count):
            self.backlog.done(some[i])
        for channel in self.channel_list:
            channel.message_count += <uint64_t> count
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
            channel.missed_count = self.fanout.fresh_spread
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
        self.make_room()
        return self.publish(body, len(body), defer_ms)

    def put_binary(self, bytes body not None):
        """count(4) {size(4) body}...; ProtocolError BAD_BODY or BAD_MESSAGE (spec nsqd-http §3), PublishError."""
        cdef const char *data = body
        cdef Settings settings = self.storage.settings
        return self.publish_many(data + 4, check_binary(data, len(body), settings.max_msg_size, settings.max_body_size))

    def put_lines(self, bytes body not None, Py_ssize_t message_size_max):
        """A message a line, empty lines skipped; ProtocolError MSG_TOO_BIG before anything is queued, PublishError."""
        cdef const char *data = body
        cdef int64_t wall = wall_ns(), monotonic = monotonic_ns()
        cdef uint64_t count = check_lines(data, len(body), message_size_max)
        cdef Py_ssize_t size = 0
        cdef bint is_spread = self.begin_many()
        try:
            size = self.add_lines(data, len(body), wall, monotonic, is_spread)
            self.end_many()
        except BaseException as error:
            self.break_off(count, error)
        return self.finish_put(count, size, is_spread, True)

    cdef Py_ssize_t add_lines(self, const char *data, Py_ssize_t size, int64_t wall, int64_t monotonic,
                              bint is_spread) except -1:
        """How many bytes there were, without the ends of lines."""
        cdef Py_ssize_t line_size, total = 0
        while size > 0:
            line_size = line_length(data, size)
            if line_size:
                self.add(data, line_size, 0, wall, monotonic, is_spread, False)
                total += line_size
            data += line_size + 1
            size -= line_size + 1
        return total


cdef int drop_held(Ring held) noexcept:
    while held.size:
        delivery_free(<Delivery *> held.pop())
    return 0


cdef str error_text(object error):
    """As the disk layer worded it: in Go's manner, with operation and path."""
    return error.strerror or str(error)
