"""What a broker asks of the storage of its messages: three classes, which an engine derives its own from.

    Store          of a broker: opens the others, gives tickets for what is written, closes all queues at a stop
    TopicStore     the queues of a topic as one: either all of them keep what is put, or none
    ChannelStore   one queue: of a channel, or of a topic that has no channel yet or may not pass on

One thread calls everything. Nothing below this module is known above it (tests/source/test_layers.py), except that the
broker of a program gets its engine from `engines`. The three are an engine themselves, which keeps all in memory.
"""

from libc.stdint cimport int64_t, uint32_t, uint64_t, uintptr_t

from nsqfast._ext.core.budget cimport Budget
from nsqfast._ext.core.heap cimport Timed, Timers
from nsqfast._ext.core.memory cimport Memory
from nsqfast._ext.core.message cimport Delivery, Message, delivery_new, message_fetch, message_keep
from nsqfast._ext.core.ring cimport Ring
from nsqfast._ext.core.settings cimport Settings
from nsqfast._ext.storage.disposal cimport Disposal
from nsqfast._ext.storage.health cimport Health
from nsqfast._ext.storage.scan cimport QueuePlace, Reads, Scan


cdef enum:
    # How many messages ahead the processor prefetches.
    AHEAD_COUNT = 6
    # The most that is put into all channels at once, in messages to the memory of one; some milliseconds.
    FAN_MAX = 32768


ctypedef struct Tickets:
    # Numbers of batches of the log, or of fsyncs, which run in order.
    uint64_t done            # everything up to here was attempted
    uint64_t failed          # the last in which something failed; 0 = none
    uint64_t last            # when it is done, everything is
    int error                # errno of the first failure that completed() has not told; 0 = none


cdef class Store:
    cdef readonly Settings settings
    cdef readonly Timers timers
    cdef readonly Memory broker_memory   # which what it keeps in memory counts in
    cdef readonly Health health      # what fails, and what was read and written
    cdef Disposal disposal           # frees what was emptied or deleted
    cdef public object on_pending    # called without arguments: start_batch() has something to do
    cdef Py_ssize_t stored_count     # messages that came back and were written one by one, or died, in this turn
    cdef int64_t latest_ns           # messages of an earlier run may have ids of up to this Unix time; 0 = nobody knows
    cdef readonly uint64_t dropped_count   # messages that a policy let drop, ...
    cdef readonly uint64_t expired_count   # ... and because they were too old
    cdef Py_ssize_t waiting_count    # clients whose OK waits for a ticket
    cdef public object on_checkpoint # called with the delay in ns after which a checkpoint is wanted
    cdef int event_fd                # is never readable; 0: an engine has its own

    # Let the turn have an end, which calls start_batch().
    cpdef int announce(self) except -1

    # Open the queue of the topic with that name, and what is left of it from an earlier run.
    # An ephemeral one leaves nothing.
    cdef TopicStore open_topic(self, str name, bint is_ephemeral)

    # How far the fsyncs are: an OK waits until the ticket that it was given is done.
    cdef Tickets tickets(self) noexcept

    # At the end of a turn: start the fsyncs that it asked for, unless some are running; completed() will then.
    # Return whether any are running.
    cdef bint start_batch(self) except -1

    # Whether publishers should wait for later turns.
    cdef bint must_wait(self) noexcept

    # Whether what nobody waits for should not be added now, since the answers of others would come later for it.
    cdef bint delays_answers(self) noexcept

    # Before a turn's output goes out: whether tickets are done that were not before.
    cdef bint write_log(self) except -1

    # A checkpoint of all queues, which the caller feeds; None: there is nothing to be gained by one.
    cdef Checkpoint begin_checkpoint(self)

    # It ended, or there is none because of this error.
    cdef int end_checkpoint(self, str error) except -1

    # Names of queues that an earlier run made and nothing else may tell of, "topic" or "topic:channel".
    cdef list logged_names(self)

    # Whether nothing of this queue was ever answered, whose messages are there and which nothing else names; then its
    # files are removed.
    cdef bint remove_cut(self, str queue) except -1

    # When fileno() is readable: return the ticket up to which all is done, and the error of what failed since the last
    # call, or "". What follows from a finished fsync is done by the engine, in this and later turns.
    cdef tuple completed(self)
    cdef int fileno(self) except -1

    # How many of this queue's messages a kill would lose, of those in it and so many taken from it and not finished.
    cdef int64_t count_unstored(self, ChannelStore queue, int64_t taken) noexcept

    # A stop has begun: what is in memory is written, and what was taken from the queue is added by the caller.
    # None: nothing of it outlives the process.
    cdef Closing begin_closing(self, ChannelStore queue)

    # Close the queues of an iterator, each when it comes. on_progress(those synced, those closed) is called several
    # times a second. Return the OSErrors of those that could not be closed well.
    cdef list close_queues(self, object queues, object on_progress)

    # All queues are closed: free and remove what is left. Return an OSError if the next start has to repeat a log.
    cdef object close(self)


cdef class TopicStore:
    cdef Store store
    cdef str name
    cdef ChannelStore own            # what waits until it may be passed on
    cdef list stores                 # ChannelStore: all that is put goes to these
    cdef ChannelStore open_queue(self, str name, bint is_ephemeral)

    # Open the queue of a channel.
    cdef ChannelStore open_channel(self, str name, bint is_ephemeral)

    # Gather what is put into all of its queues until end() or roll_back().
    cdef int begin(self) except -1

    # Write what was gathered. OSError: none of the queues has any of it.
    cdef int end(self) except -1

    # Return to the state at the begin; after an end() that failed there is nothing left to do.
    cdef int roll_back(self) except -1

    # Whether so many may be put into all channels at once; meanwhile no client is served.
    cdef bint fits(self, uint64_t count) noexcept

    # Whether so many messages with so many bytes can be taken in this turn: OSError if not.
    cdef int admit(self, uint64_t count, uint64_t size) except -1

    # A message was put into all channels, into `only`, or (is_spread false, None) into its own queue.
    cdef int note_published(self, Message *message, bint is_spread, ChannelStore only) except -1

    # A large MPUB whose messages go into the log in pieces, {size (4), body} in a row, before any of them is
    # in a queue. Return its number; 0 = nothing is logged.
    cdef uint64_t begin_pieces(self) except? 0

    # Whether there is room for the next piece in this turn. OSError: there will be none.
    cdef bint may_note_piece(self, uint64_t mpub) except -1

    # Log a piece whose first message has that id, and the others those behind it. OSError if it is not taken.
    cdef int note_piece(self, uint64_t mpub, uint64_t piece, int64_t published_ns, uint64_t first_id,
                        const char *bodies, size_t size) except -1

    # Its so many messages were put into all channels, or into the topic's own queue. The first one decides that the
    # whole MPUB is kept. OSError: not in this turn.
    cdef int note_released(self, uint64_t mpub, uint64_t piece, uint64_t count, bint is_spread) except -1

    # All its pieces are released, or none ever will be.
    cdef int end_pieces(self, uint64_t mpub) except -1

    # The place behind what was noted, and back to it in the same turn.
    cdef uint64_t mark(self) noexcept
    cdef int cut(self, uint64_t mark) except -1

    # The ticket that an OK has to wait for after a put; 0 = none.
    cdef uint64_t ticket(self) noexcept

    # What was taken from that queue is in `only`, or in all queues of this topic, too, and about to be finished there:
    # after a power failure it comes again unless the new place is on disk.
    cdef int note_copies(self, ChannelStore source, ChannelStore only) except -1

    # Whether more was passed on than should be before an fsync.
    cdef bint is_ahead(self) noexcept


cdef class ChannelStore:
    cdef Store store
    cdef bint is_limited             # as ephemeral ones are: what does not fit is lost
    cdef int64_t memory_max
    cdef size_t mark_size            # of the memory at the begin of a put; NO_MARK: there is nothing to undo

    # Its next messages, for take_next(): Message * with its lowest bit set, or Delivery * of one that came back.
    cdef Ring memory
    cdef int64_t memory_bytes        # of their bodies
    cdef Timed taker                 # is armed as soon as a pending read_next() can go on
    cdef Checkpoint checkpoint       # which the queue is being shown to; None = to none

    # Keep one more reference. False: it is full, keeps nothing on disk, and nobody waits for the message.
    # OSError: not kept.
    cdef bint put(self, Message *message, bint is_wanted) except -1

    # Nothing is in its memory: remove and return the oldest; OSError: it cannot be read now. NULL: none is left, or,
    # with a depth, not yet. If is_pending, the taker is armed when it is there.
    cdef Delivery *read_next(self) except? NULL
    cdef bint is_pending

    # A message that was taken is finished, or is stored elsewhere now. It is freed.
    cdef int done(self, Delivery *delivery) except -1

    # A message that was taken goes behind all others. It is never lost: what a disk refuses stays in memory.
    cdef int requeue(self, Delivery *delivery) except -1

    # The same as another message with its id, whose reference is taken over.
    cdef int requeue_as(self, Delivery *delivery, Message *message) except -1

    # A message is kept outside the queue until it is due: a new one (OSError: it is not kept, but freed), or one that
    # was taken, with its new attempts, for that delay. done() or requeue() ends that.
    cdef int defer(self, Delivery *delivery, bint is_new, int64_t delay_ns) except -1

    # Whether messages can be deferred without being in memory: store_deferred() gives each of these a record, by one
    # write (False: the disk does not take them), and the deliveries may be freed then.
    cdef bint keeps_records
    cdef bint store_deferred(self, Delivery **deliveries, size_t count) except -1

    # Read such a message again; the record stays as it is. NULL: if is_loading(), not yet, and the taker is armed when
    # it is there; else it is finished or damaged. OSError: it cannot be read now.
    cdef Delivery *load(self, uint64_t ordinal, uint64_t id) except? NULL
    cdef bint is_loading(self) noexcept

    # Whether the message of that record is not finished, and finish it.
    cdef bint is_unfinished(self, uint64_t ordinal) noexcept
    cdef int finish_record(self, uint64_t ordinal, uint64_t id) except -1

    # The next of the messages that were deferred when the broker stopped, and when it is due (Unix time); NULL: no
    # more. Called before everything else.
    cdef Delivery *next_found(self, int64_t *due_ns) except? NULL

    # Of what was taken and is not finished, the records before this ordinal keep much that is finished from being
    # removed, and should be written again: of so many bytes, finished or not. 0 = none should. The taker is armed when
    # it is set.
    cdef uint64_t stale_before
    cdef int64_t stale_size

    # Write its record again, behind all others, and change nothing else. is_deferred: until its deadline. False: the
    # disk does not take it.
    cdef bint renew(self, Delivery *delivery, bint is_deferred) except -1

    # How many are in it, without those taken and deferred.
    cdef int64_t depth(self) noexcept

    # Bytes of what waits: bodies in memory, and the files from the next record on, with a header of 30 bytes each.
    cdef int64_t size(self) noexcept

    # When the oldest in it was published; 0 = there is none, -1 = unreadable.
    cdef int64_t oldest(self) except -2

    # Correct a place that was noted earlier, set how many messages a scan can see, and return the place's index behind
    # all of them.
    cdef uint64_t correct_place(self, QueuePlace *place, int64_t *visible_count) except? 0

    # Look at what is behind the memory's messages, from that place to that index, and change nothing; None: nothing
    # is there.
    cdef Scan scan(self, QueuePlace *place, uint64_t end)

    # Look at records that were taken, such as those of deferred messages, in a thread.
    cdef Reads reads(self)

    # Drop all that is in it; what was taken can still be finished.
    cdef int empty(self) except -1

    # The same, and remove its files. It forgets its taker, which refers to it.
    cdef int delete(self) except -1

    # Whether the next put is a write. If not, roll_back() undoes that put alone.
    cdef bint needs_write(self) noexcept

    # Gather what is put until it was written (OSError: none of it is kept) and confirmed, or rolled back. What is
    # written is not in the queue before confirm().
    cdef int begin(self) except -1
    cdef int write(self) except -1
    cdef int confirm(self) except -1
    cdef int roll_back(self) except -1


cdef class Checkpoint:
    # A queue is shown to it, in parts if need be: its files as they are now. False: nothing of it is kept.
    cdef bint begin_queue(self, ChannelStore queue) except -1
    # Then each message that is in its memory, taken from it, or deferred, at least once. One that comes back, or goes
    # to a file, between two parts is shown by the ChannelStore.
    cdef void add(self, Delivery *delivery) noexcept
    cdef void add_deferred(self, Delivery *delivery, int64_t due_ns) noexcept
    # A deferred one that is in its record alone.
    cdef void add_stored(self, uint64_t ordinal, int64_t due_ns, bint is_told) noexcept
    # One that has no record. due_ns: as the storage keeps it.
    cdef void keep(self, Message *message, uint32_t tries, int64_t due_ns) noexcept
    # Whether the part ends behind a message of that size.
    cdef bint ends_part(self, Budget *budget, uint64_t size) except -1
    # Something may have happened between two parts, and there are more.
    cdef bint is_parted
    # Ready messages were taken out, so that others moved up in the memory.
    cdef bint has_moved

    # All queues were added: go on with the rest; True: it is done. OSError: there is no checkpoint.
    cdef bint finish(self, Budget *budget) except -1


cdef class Closing:
    cdef readonly int64_t lost_count
    cdef readonly object error       # the OSError that lost messages; None = nothing is lost

    # Write it and free it, whether that succeeds or not.
    cdef int add(self, Delivery *delivery) except -1

    # The same for deferred ones, after all others: it is due at that Unix time.
    cdef int add_deferred(self, Delivery *delivery, int64_t due_ns) except -1

    # Write what is not written yet.
    cdef int end(self) except -1


# Inline, since they are asked for each message.
cdef inline int remember(ChannelStore queue, Message *message) except -1:
    queue.memory.push(<void *> (<uintptr_t> message | 1))
    queue.memory_bytes += message.size
    message_keep(message)
    return 0


cdef inline int remember_again(ChannelStore queue, Delivery *delivery) except -1:
    queue.memory.push(<void *> delivery)
    queue.memory_bytes += delivery.message.size
    return 0


cdef inline int64_t disk_depth(ChannelStore queue) noexcept:
    """How many of them are not in memory."""
    return queue.depth() - <int64_t> queue.memory.size


cdef inline bint has_next(ChannelStore queue) noexcept:
    """Whether there is a message to be taken, at once or soon."""
    return queue.memory.size > 0 or queue.depth() > 0


cdef inline Delivery *take_next(ChannelStore queue) except? NULL:
    """Remove and return the oldest: from its memory without a call, or as read_next() does."""
    cdef uintptr_t item
    if queue.memory.size == 0:
        return queue.read_next()
    item = <uintptr_t> queue.memory.ahead(AHEAD_COUNT)
    if item & 1:
        # In a long queue it has left the caches since it was published.
        message_fetch(<Message *> (item & ~<uintptr_t> 1))
    item = <uintptr_t> queue.memory.pop()
    if not item & 1:
        queue.memory_bytes -= (<Delivery *> item).message.size
        return <Delivery *> item
    queue.memory_bytes -= (<Message *> (item & ~<uintptr_t> 1)).size
    return delivery_new(queue.memory.account, <Message *> (item & ~<uintptr_t> 1))
