"""Queues that nothing is kept of are those of `memory`; all others of a topic are put into together, by its rules."""

from libc.stdint cimport int64_t

from nsqfast._ext.core.budget cimport Budget
from nsqfast._ext.core.heap cimport Timers
from nsqfast._ext.core.memory cimport Memory
from nsqfast._ext.core.settings cimport Settings
from nsqfast._ext.storage.diskqueue.backlog cimport Backlog, has_room
from nsqfast._ext.storage.diskqueue.cold_reads cimport ColdReads
from nsqfast._ext.storage.diskqueue.closing cimport DiskClosing, GroupClosing
from nsqfast._ext.storage.diskqueue.segment import forget_folder
from nsqfast._ext.storage.diskqueue.unreadable import opened_at_start
from nsqfast._ext.storage.engine cimport ChannelStore, Closing, Tickets, TopicStore
from nsqfast._ext.storage.memory cimport MemoryQueue

cdef enum:
    # A queue's write to its disk costs as much as so many messages put into memory, and so many if its files do not
    # exist yet.
    WRITE_COST = 64
    BEGIN_COST = 4096


cdef class DiskStore(Store):
    def __init__(self, Settings settings, Timers timers, Memory memory not None):
        self.settings, self.timers, self.broker_memory = settings, timers, memory
        self.syncer = Syncer()
        self.syncer.on_pending = self.announce
        self.health = self.syncer.health
        self.disposal = DiskDisposal(timers, self.syncer, self.announce)
        self.sync_end = SyncEnd(timers, self.syncer)
        self.cold = ColdReads(self.syncer, timers)
        self.tick = SyncTick(timers, settings.sync_timeout_ns, self.sync_end)

    def announce(self):
        """The syncer has work to do."""
        if self.on_pending is not None:
            self.on_pending()

    def figures(self):
        return self.syncer.figures()

    def starting(self):
        return opened_at_start(self.settings.data_path or ".")

    cdef TopicStore open_topic(self, str name, bint is_ephemeral):
        return DiskTopic(self, name, is_ephemeral)

    cdef Tickets tickets(self) noexcept:
        cdef Syncer syncer = self.syncer
        return Tickets(syncer.open_ticket, syncer.done_ticket, syncer.failed_ticket, syncer.last_ticket(),
                       syncer.error_errno)

    cdef bint start_batch(self) except -1:
        self.syncer.start_batch()
        return self.syncer.is_running()

    cdef tuple completed(self):
        done, error = self.syncer.completed()
        self.sync_end.add(done, not error)
        self.cold.collect()
        return done, error

    cdef int fileno(self) except -1:
        return self.syncer.fileno()

    cdef bint wait(self, uint64_t ticket, int timeout_ms) except -1:
        return self.syncer.wait_some(ticket, timeout_ms)

    cdef int64_t count_unstored(self, ChannelStore queue, int64_t taken) noexcept:
        if not isinstance(queue, Backlog):
            return 0
        return max(queue.depth() + taken - (<Backlog> queue).disk.position.unacked, 0)

    cdef Closing begin_closing(self, ChannelStore queue):
        return DiskClosing(queue) if isinstance(queue, Backlog) else None

    cdef list close_queues(self, object queues, object on_progress):
        return GroupClosing(self.syncer, on_progress).run(queues)

    cdef int close(self) except -1:
        self.disposal.finish()
        self.cold.stop()
        self.syncer.close()
        self.timers.disarm(self.tick)
        self.timers.disarm(self.sync_end)
        forget_folder()
        return 0


cdef class DiskTopic(MemoryTopic):

    cdef ChannelStore open_queue(self, str name, bint is_ephemeral):
        cdef DiskStore store = self.store
        return MemoryQueue(store, True) if is_ephemeral else Backlog(
            store, name, store.syncer, store.tick, store.cold)

    cdef bint fits(self, uint64_t count, uint64_t put_max) noexcept:
        cdef Backlog backlog
        cdef uint64_t cost = count * <uint64_t> len(self.stores)
        for queue in self.stores:
            if cost > put_max:
                break
            if not isinstance(queue, Backlog):
                continue
            backlog = queue
            if not has_room(backlog) or backlog.memory.size + count > <uint64_t> backlog.memory_max:
                cost += BEGIN_COST if backlog.disk.position.acks is None else WRITE_COST
        return cost <= put_max

    cdef uint64_t ticket(self, bint is_own) except? 0:
        """The latest of the queues that got messages; 0 unless an OK promises messages on disk."""
        cdef uint64_t latest = 0, ticket
        if not self.store.settings.is_durable:
            return 0
        for queue in (self.own,) if is_own else self.stores:
            if isinstance(queue, Backlog):
                ticket = (<Backlog> queue).ticket()
                latest = max(latest, ticket)
        return latest

    cdef int note_copies(self, ChannelStore source, ChannelStore only) except -1:
        cdef uint64_t ticket
        if not isinstance(source, Backlog):
            return 0
        for queue in [only] if only is not None else [self.own] + self.stores:
            if isinstance(queue, Backlog):
                ticket = (<Backlog> queue).disk.writer.request_sync()
                if ticket:
                    (<Backlog> source).disk.position.note_copy(ticket)
        return 0

    cdef bint is_ahead(self) noexcept:
        return isinstance(self.own, Backlog) and (<Backlog> self.own).is_ahead()


cdef class DiskDisposal(Disposal):
    """Removes files, too."""

    def __init__(self, Timers timers, Syncer syncer, object on_freed):
        super().__init__(timers, on_freed)
        self.syncer = syncer
        syncer.on_removable = (<object> self).begin

    cdef bint has_files(self) noexcept:
        return len(self.syncer.removable) > 0

    cdef bint remove_files(self, Budget *budget) except -1:
        cdef dict removable = self.syncer.removable
        while removable:
            if not self.syncer.may_close():
                return False
            prefix, paths = removable.popitem()
            if not self.syncer.remove_some(prefix, paths, budget):
                removable[prefix] = paths
                return False
        return True

    cdef int finish(self) except -1:
        for prefix in list(self.syncer.removable):
            self.syncer.remove_now(prefix)
        return Disposal.finish(self)
