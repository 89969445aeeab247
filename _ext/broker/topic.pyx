"""A message goes from the publisher's buffer to every channel within one call; the topic keeps it only if it must."""

import logging

from cpython.unicode cimport PyUnicode_AsUTF8AndSize
from libc.stdint cimport uint32_t, uint64_t

from nsqfast._ext.broker.channel cimport Channel
from nsqfast._ext.broker.deferrals cimport begin_deferral
from nsqfast._ext.broker.fanout cimport Fanout
from nsqfast._ext.broker.takeover cimport AHEAD, PART_OVER, PASSED_ALL, PENDING, Progress, Takeover
from nsqfast._ext.core.budget cimport Budget, begin_part, is_spent
from nsqfast._ext.core.guid cimport next_id
from nsqfast._ext.core.limits cimport DISK_RETRY_NS
from nsqfast._ext.core.memory cimport MEMORY_SLOW
from nsqfast._ext.core.message cimport Delivery, delivery_new, get_be32, message_drop, message_new

from nsqfast.wire.names import is_ephemeral
from nsqfast.wire.refusals import NotTakenError

log = logging.getLogger("nsqd")

cdef int64_t WAIT_NS = 1000000      # for an fsync


cdef enum:
    # Messages that publishers owe before they pass some on, and the parts that this may take.
    OWED_MIN = 64
    HELP_PARTS = 4
    # Units that the deletion of a channel counts for: the clock is read after every fourth.
    DELETE_UNITS = 16


cdef class Topic(MessageQueue):
    """Topics creates it and learns of changes through the callables."""

    def __init__(self, str name, Durability durability, object on_change, object on_last_left, object on_deleted):
        self.name = name
        self.name_start = PyUnicode_AsUTF8AndSize(name, &self.name_size)
        self.ephemeral = is_ephemeral(name)
        self.durability = durability
        self.timers = durability.timers
        self.clock = self.timers.clock
        self.account = durability.store.broker_memory.account
        self.guid = GuidFactory(durability.settings.node_id, durability.store.latest_ns)
        self.store = durability.store.open_topic(name, self.ephemeral)
        self.has_log = durability.settings.has_log and not self.ephemeral
        self.backlog = self.store.own
        self.backlog.taker = self
        self.deferred = DeferredList(durability.store.broker_memory)
        self.channel_list, self.large_mpubs = [], []
        self.fanout = Fanout(self.store, self.channel_list)
        self.takeover = Takeover(durability, self.store, self.deferred, self.channel_list)
        self.channel_by_name = {}
        self.on_change = on_change
        self.on_last_left = on_last_left
        self.on_deleted = on_deleted
        self.restore_deferred()

    # -- publishing ----------------------------------------------------------------------------------------------------

    cdef uint64_t publish(self, const char *body, Py_ssize_t size, int64_t defer_ms, bint is_told=False) except? 0:
        """Publish one message; return the ticket that its OK has to wait for. NotTakenError: it was not taken."""
        cdef bint is_spread
        cdef uint64_t ticket
        self.refuse_if_exiting()
        if self.rejecting_count:
            self.refuse_if_full(1, <uint64_t> size)
        if defer_ms and self.account.level >= MEMORY_SLOW:
            # A deferred message takes memory until it is due.
            raise NotTakenError("no memory left for deferred messages", "memory")
        is_spread = self.is_open()
        if self.has_log:
            self.admit(1, size)
        try:
            is_spread = self.add(body, size, defer_ms, is_told, self.clock.wall_ns(), self.clock.monotonic_ns(),
                                 is_spread, True)
        except OSError as error:
            self.refuse(1, error)
        ticket = self.store.ticket()
        self.message_count += 1
        self.message_bytes += <uint64_t> size
        if not is_spread:
            self.pass_on_owed(1)
        elif defer_ms == 0:
            self.pump_channels()
        if self.dropping_count:
            self.drop_beyond()
        return ticket

    cdef uint64_t publish_many(self, const char *data, uint64_t size, uint64_t count, bint is_slice=False) except? 0:
        """Publish `count` times {4 bytes size, body}, which have that size together, checked by the caller."""
        cdef bint is_spread
        self.refuse_if_exiting()
        if self.rejecting_count and not is_slice:
            self.refuse_if_full(count, size - 4 * count)
        if self.has_log:
            # A record of the bodies, and one that says that they came into the queues.
            self.admit(2, size)
        self.fanout.begin()
        self.log_mark = self.store.mark()
        is_spread = self.is_open() and self.store.fits(count)
        try:
            if count and self.has_log:
                self.put_logged(data, size, count, is_spread)
            else:
                self.add_many(data, count, is_spread)
            self.store.end()
        except BaseException as error:
            self.store.cut(self.log_mark)
            self.fanout.roll_back()
            if isinstance(error, OSError):
                self.refuse(count, error)
            raise
        return self.finish_put(count, size - 4 * count, is_spread)

    cdef int add_many(self, const char *data, uint64_t count, bint is_spread) except -1:
        cdef uint64_t _
        cdef Py_ssize_t size
        cdef int64_t wall = self.clock.wall_ns(), monotonic = self.clock.monotonic_ns()
        for _ in range(count):
            size = get_be32(data)
            self.add(data + 4, size, 0, False, wall, monotonic, is_spread, False)
            data += 4 + size
        return 0

    cdef int put_logged(self, const char *data, uint64_t size, uint64_t count, bint is_spread) except -1:
        cdef int64_t wall = self.clock.wall_ns()
        cdef uint64_t first_id = self.guid.next_many(wall, count)
        self.put_bodies(data, count, wall, first_id, is_spread)
        self.store.note_piece(0, first_id, wall, first_id, data, size)
        return self.store.note_released(0, first_id, count, is_spread)

    # -- a large MPUB of a topic with a commit log ---------------------------------------------------------------------

    cdef LargeMpub begin_large(self, uint64_t count):
        """NotTakenError, as from the next three; then nothing of it is kept."""
        self.refuse_if_exiting()
        self.admit(1, 0)
        return LargeMpub(self.timers, self.store, self.guid, self.durability.store.broker_memory,
                         self.put_piece, count)

    cdef bint may_add_piece(self, LargeMpub mpub) except -1:
        """Whether storage takes another piece in this turn."""
        self.refuse_if_exiting()
        try:
            return self.store.may_note_piece(mpub.number)
        except OSError as error:
            self.refuse(mpub.count, error, "commit_log")

    cdef int add_piece(self, LargeMpub mpub, bytes bodies, uint64_t count) except -1:
        try:
            return mpub.add(bodies, count, self.clock.wall_ns())
        except OSError as error:
            self.refuse(mpub.count, error, "commit_log")

    cdef int release_large(self, LargeMpub mpub) except -1:
        """Let it go into the queues when the log has all pieces: a checkpoint may be ahead of the log."""
        mpub.is_logged = True
        self.durability.when_durable(mpub.ticket, mpub.release)
        return 0

    def put_piece(self, LargeMpub mpub not None):
        """OSError, and of the first one NotTakenError: no queue has any of it."""
        cdef uint64_t number, first_id, count, ticket
        cdef int64_t published_ns
        cdef bint is_spread
        if not mpub.is_releasing:
            self.refuse_if_exiting()
        number, published_ns, first_id, count, bodies = mpub.pieces[0]
        self.fanout.begin()
        self.log_mark = self.store.mark()
        is_spread = self.is_open() and self.store.fits(count)
        try:
            self.put_bodies(<const char *> <bytes> bodies, count, published_ns, first_id, is_spread)
            self.store.note_released(mpub.number, number, count, is_spread)
            self.store.end()
        except BaseException:
            self.store.cut(self.log_mark)
            self.fanout.roll_back()
            raise
        if not mpub.is_releasing:
            self.large_mpubs.append(mpub)
        ticket = self.finish_put(count, len(bodies) - 4 * count, is_spread)
        if len(mpub.pieces) == 1:
            self.large_mpubs.remove(mpub)
        mpub.drop_first(ticket)

    cdef int put_bodies(self, const char *data, uint64_t count, int64_t published_ns, uint64_t id,
                        bint is_spread) except -1:
        cdef int64_t monotonic = self.clock.monotonic_ns()
        cdef uint64_t _
        cdef Message *message
        for _ in range(count):
            message = message_new(self.account, data + 4, get_be32(data), published_ns, id)
            if message is NULL:
                raise MemoryError
            try:
                if is_spread:
                    self.spread(message, monotonic)
                else:
                    self.keep(message)
            finally:
                message_drop(message)
            data += 4 + get_be32(data)
            id = next_id(id)
        return 0

    cdef int refuse(self, uint64_t count, object error, str kind="disk") except -1:
        """With the error as the disk layer worded it: in Go's manner, with operation and path."""
        self.durability.store.health.refused(count)
        raise NotTakenError(error.strerror or str(error), kind) from None

    cdef uint64_t finish_put(self, uint64_t count, uint64_t size, bint is_spread) except? 0:
        """Hand out what was put, and count it."""
        # An /mpub of empty lines has no record whose commit will come.
        cdef uint64_t ticket = self.store.ticket() if count else 0
        cdef Channel channel
        self.pump_channels()
        self.message_count += count
        self.message_bytes += size
        if is_spread:
            for channel in self.channel_list:
                channel.message_count += count
        else:
            self.pass_on_owed(count)
        if self.dropping_count:
            self.drop_beyond()
        return ticket

    cdef int admit(self, uint64_t count, uint64_t size) except -1:
        """NotTakenError unless the log has room for them."""
        try:
            self.store.admit(count, size)
        except OSError as error:
            self.refuse(count, error, "commit_log")
        return 0

    cdef int refuse_if_exiting(self) except -1:
        if self.exiting:
            raise NotTakenError("exiting")
        return 0

    cdef int refuse_if_full(self, uint64_t count, uint64_t size) except -1:
        """Each queue that refuses has room for all of them, or none gets any."""
        cdef Channel channel
        if self.rejecting_count == 0:
            return 0
        if not self.drops_head and not self.has_room(count, size):
            raise NotTakenError("over limit", "over_limit")
        for channel in self.channel_list:
            if not channel.drops_head and not channel.has_room(count, size):
                raise NotTakenError("over limit", "over_limit")
        return 0

    cdef bint add(self, const char *body, Py_ssize_t size, int64_t defer_ms, bint is_told, int64_t wall,
                  int64_t monotonic, bint is_spread, bint is_alone) except -1:
        """Put the message; return whether it went to the channels. is_alone: unless a write is gathered, all of them
        have it when this returns, and none after an OSError."""
        cdef Message *message = message_new(self.account, body, <uint32_t> size, wall, self.guid.next(wall))
        if message is NULL:
            raise MemoryError
        message.defer_ms, message.is_told = <uint64_t> defer_ms, is_told
        try:
            if is_spread and is_alone:
                is_spread = self.fanout.put(message, monotonic)
            elif is_spread:
                self.spread(message, monotonic)
            if not is_spread:
                self.keep(message)
            if self.has_log:
                self.store.note_published(message, is_spread, None)
        finally:
            message_drop(message)
        return is_spread

    cdef bint is_open(self) noexcept:
        """Whether messages go straight to the channels."""
        return (len(self.channel_list) > 0 and not self.paused and not self.awaits_channels
                and self.backlog.depth() == 0 and self.deferred.queue.size == 0 and self.takeover.count == 0)

    cdef int spread(self, Message *message, int64_t now_ns) except -1:
        cdef Channel channel
        for channel in self.channel_list:
            channel.put(message, now_ns)
        return 0

    cdef int keep(self, Message *message) except -1:
        if message.defer_ms:
            self.deferred.push(begin_deferral(self.backlog, message))
        else:
            self.backlog.put(message, False)
        return self.rearm(self.clock.monotonic_ns() + self.max_age_ns) if self.max_age_ns else 0

    cdef int restore_deferred(self) except -1:
        """Restore deferred messages that waited for a channel when the broker stopped, for the rest of their delay."""
        cdef int64_t due_ns = 0, wall = self.clock.wall_ns()
        cdef Delivery *deferred = self.backlog.next_found(&due_ns)
        while deferred is not NULL:
            deferred.message.defer_ms = max(1, (due_ns - wall) // 1000000)
            self.deferred.push(deferred)
            deferred = self.backlog.next_found(&due_ns)
        return 0

    cdef int pump_channels(self) except -1:
        cdef Channel channel
        for channel in self.channel_list:
            if channel.ready.first is not None:
                channel.pump()
        return 0

    # -- the backlog of a topic that had no channel, or was paused -----------------------------------------------------

    cdef int on_deadline(self, int64_t now_ns) except -1:
        if self.is_deleted:
            self.delete_some()
        else:
            self.pass_on(False, now_ns)
            self.drop_old()
            if self.drops_head:
                self.drop_excess()
        return 0

    cdef bint is_flowing(self) noexcept:
        """Whether more of the backlog may go to the channels."""
        return not (self.paused or self.awaits_channels or self.exiting) and len(self.channel_list) > 0

    cdef bint pass_on(self, bint is_owed, int64_t now_ns) except -1:
        """Pass on a part of the backlog, and the rest in later turns; retry what a disk refused. Return whether another
        part may follow at once."""
        cdef Progress progress
        if self.exiting or not (self.is_flowing() or self.takeover.is_begun()):
            return False
        try:
            progress = self.takeover.run(is_owed, self.is_flowing(), now_ns)
        except OSError:  # the broker's health reports it
            self.timers.arm(self, now_ns + DISK_RETRY_NS)
            return False
        if progress == PASSED_ALL or progress == PENDING:
            self.timers.disarm(self)
        else:
            self.timers.arm(self, now_ns + (WAIT_NS if progress == AHEAD else 1))
        return progress == PART_OVER

    cdef int pass_on_owed(self, uint64_t count) except -1:
        """So many were put behind the backlog; their publisher passes on twice as many, so that it drains however fast
        others publish. If a disk has to be waited for, these messages wait, too."""
        cdef int _
        cdef int64_t now_ns = self.clock.monotonic_ns()
        if not self.is_flowing():
            return 0
        self.takeover.owed += 2 * count
        if not self.is_armed:
            self.pass_on(False, now_ns)
        elif self.takeover.owed >= OWED_MIN and self.node.deadline_ns <= now_ns + 1:
            for _ in range(HELP_PARTS):
                if self.takeover.owed == 0 or not self.pass_on(True, now_ns):
                    break
            self.takeover.owed = 0
        return 0

    cdef int open(self) except -1:
        """A first channel was created, or a pause ended: the backlog may go."""
        if self.backlog.depth() or self.deferred.queue.size or self.takeover.count:
            self.pass_on(False, self.clock.monotonic_ns())
        return 0

    # -- channels ------------------------------------------------------------------------------------------------------

    def channel(self, str name):
        """Return the channel of that (valid) name, created if need be."""
        cdef Channel channel = self.channel_by_name.get(name)
        if channel is None:
            backlog = self.store.open_channel(name, is_ephemeral(name))
            channel = Channel(self.name, name, self.durability.store, backlog, self.last_left)
            self.channel_by_name[name] = channel
            self.channel_list.append(channel)
            self.on_change("channel+", self.name, name)
            self.open()
        return channel

    def last_left(self, str name):
        """An ephemeral channel lost its last consumer."""
        if name in self.channel_by_name:
            self.delete_channel(name)

    def find_channel(self, str name):
        """Return the channel of that name, or None."""
        return self.channel_by_name.get(name)

    def channels(self):
        """Return all channels, by name."""
        return [self.channel_by_name[name] for name in sorted(self.channel_by_name)]

    def delete_channel(self, str name):
        """Disconnect its consumers, drop its messages and files; KeyError if there is none."""
        cdef Channel channel = self.channel_by_name.pop(name)
        self.takeover.forget(self.channel_list.index(channel))
        self.channel_list.remove(channel)
        self.store.stores.remove(channel.backlog)
        self.count_limits(channel, -1)
        channel.delete()
        self.on_change("channel-", self.name, name)
        if self.ephemeral and not self.channel_list and not self.exiting:
            self.on_last_left(self.name)

    def await_channels(self):
        """Hold messages until have_channels: other servers are still asked for its channels."""
        self.awaits_channels = True

    def have_channels(self):
        """All known channels were created."""
        self.awaits_channels = False
        if self.channel_list and not self.exiting:
            self.open()

    def take_dead_letters(self):
        """It has some, or will; they do not die again."""
        if self.deaths is None:
            self.deaths = Deaths(self.name)

    # -- limits --------------------------------------------------------------------------------------------------------

    def set_limits(self, Channel channel, int64_t max_messages, int64_t max_bytes, bint drops_head):
        """Limit what waits in the channel, or (None) in the topic's own queue; 0 = any number.

        What is beyond the limits is dropped if drops_head, the oldest first; else it stays, and publishes are refused.
        """
        cdef MessageQueue queue = self if channel is None else channel
        self.count_limits(queue, -1)
        queue.max_messages, queue.max_bytes, queue.drops_head = max_messages, max_bytes, drops_head
        self.count_limits(queue, 1)
        queue.drop_excess()

    cdef int count_limits(self, MessageQueue queue, int change) except -1:
        if queue.is_limited():
            self.dropping_count += change * queue.drops_head
            self.rejecting_count += change * (not queue.drops_head)
        return 0

    cdef int drop_beyond(self) except -1:
        cdef Channel channel
        if self.drops_head:
            self.drop_excess()
        for channel in self.channel_list:
            if channel.drops_head:
                channel.drop_excess()
        return 0

    cdef int64_t waiting_count(self) noexcept:
        return self.backlog.depth() + <int64_t> self.deferred.queue.size + self.takeover.count

    # -- the operator's commands ---------------------------------------------------------------------------------------

    def pause(self):
        """Publishing goes on; the channels get nothing but the rest of a batch that was begun."""
        self.paused = True

    def unpause(self):
        self.paused = False
        self.open()

    def empty(self):
        """Drop the topic's own queue; the channels keep theirs."""
        self.backlog.empty()
        self.durability.store.disposal.free_later(self.deferred.take_all())
        self.takeover.drop()

    cdef Closing close(self):
        """Write everything in memory to disk; nothing is accepted any more. None: it has no files."""
        cdef Closing closing
        cdef Delivery *deferred
        cdef int64_t wall = self.clock.wall_ns()
        self.exiting = True
        self.timers.disarm(self)
        closing = self.durability.store.begin_closing(self.backlog)
        if closing is None:
            self.durability.store.disposal.free_later(self.deferred.take_all())
            return None
        self.close_large(closing)
        while self.deferred.queue.size:
            deferred = self.deferred.pop()
            closing.add_deferred(deferred, wall + <int64_t> deferred.message.defer_ms * 1000000)
        closing.end()
        return closing

    cdef int close_large(self, Closing closing) except -1:
        """What is left of those that are being released goes behind the topic's own messages."""
        cdef LargeMpub mpub
        cdef uint64_t _, count, id
        cdef const char *data
        cdef Message *message
        for mpub in self.large_mpubs:
            for _, published_ns, id, count, bodies in mpub.pieces:
                data = <bytes> bodies
                for _ in range(count):
                    message = message_new(self.account, data + 4, get_be32(data), published_ns, id)
                    if message is NULL:
                        raise MemoryError
                    closing.add(delivery_new(self.account, message))
                    data += 4 + get_be32(data)
                    id = next_id(id)
            self.timers.disarm(mpub)
            mpub.leave()
        self.large_mpubs = []
        return 0

    cdef int delete(self) except -1:
        """Hide it at once, delete some of its channels now and the others in later turns."""
        cdef Channel channel
        self.exiting = self.is_deleted = True
        self.timers.disarm(self)
        for channel in self.channel_list:
            channel.exiting = True
        self.channel_list.reverse()
        self.durability.store.disposal.free_later(self.deferred.take_all())
        self.takeover.drop()
        for mpub in self.large_mpubs:
            (<LargeMpub> mpub).end("exiting")
        self.large_mpubs = []
        self.backlog.delete()
        self.durability.store.disposal.deletion_count += 1
        return self.delete_some()

    cdef int delete_some(self) except -1:
        cdef Budget budget = begin_part()
        while self.channel_list:
            self.delete_last()
            if is_spent(&budget, DELETE_UNITS) and self.channel_list:
                return self.timers.arm(self, self.clock.monotonic_ns())
        return self.end_deletion()

    cdef int end_deletion(self) except -1:
        self.on_deleted(self.name)
        return self.durability.store.disposal.note_topic_deleted()

    cdef int delete_last(self) except -1:
        cdef Channel channel = self.channel_list.pop()
        del self.channel_by_name[channel.name]
        channel.delete()
        self.on_change("channel-", self.name, channel.name)
        return 0

    cdef int finish_deletion(self) except -1:
        """Delete the rest, before another topic gets the name or the process ends."""
        self.timers.disarm(self)
        while self.channel_list:
            self.delete_last()
        return self.end_deletion()

    # -- figures -------------------------------------------------------------------------------------------------------

    cdef int64_t oldest(self) except -2:
        return self.takeover.oldest() or self.backlog.oldest()

    @property
    def depth(self):
        return self.waiting_count()

    def put(self, bytes body not None, int64_t defer_ms=0):
        """Publish one message; return a ticket (Durability.when_durable); NotTakenError."""
        return self.publish(body, len(body), defer_ms)
