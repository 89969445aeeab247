"""Queues that nothing is kept of are ChannelStores; all others of a topic are put into together, by its rules."""

from libc.stdint cimport int64_t

import logging
import os
import select
from contextlib import contextmanager, suppress

from nsqfast._ext.commitlog.contents cimport RingContents
from nsqfast._ext.commitlog.format cimport BATCH_HEADER_SIZE
from nsqfast._ext.commitlog.recovery cimport Record, Recovery
from nsqfast._ext.commitlog.start import open_ring
from nsqfast._ext.core.budget cimport Budget
from nsqfast._ext.core.heap cimport Timers
from nsqfast._ext.core.clock cimport monotonic_ns, wall_ns
from nsqfast._ext.core.memory cimport Account, Memory
from nsqfast._ext.core.message cimport Message, tries_before
from nsqfast._ext.core.settings cimport Settings
from nsqfast._ext.storage.diskqueue.backlog cimport Backlog, has_room
from nsqfast._ext.storage.diskqueue.births cimport remove_unnamed, remove_without_metadata
from nsqfast._ext.storage.diskqueue.checkpoint cimport load_carried
from nsqfast._ext.storage.diskqueue.cold_reads cimport ColdReads
from nsqfast._ext.storage.diskqueue.closing cimport DiskClosing, GroupClosing
from nsqfast._ext.storage.diskqueue.deferred cimport kept_due
from nsqfast._ext.storage.diskqueue.eventlog cimport CLOSED, QueueLog
from nsqfast._ext.storage.diskqueue.position cimport DiskPosition
from nsqfast._ext.storage.diskqueue.replay cimport ReplayedQueue
from nsqfast._ext.storage.diskqueue.segment import forget_folder
from nsqfast._ext.storage.diskqueue.unreadable import opened_at_start
from nsqfast._ext.storage.engine cimport FAN_MAX, ChannelStore, Checkpoint, Closing, Tickets, TopicStore
from nsqfast.errors import OpenLogError, OptionsError

cdef enum:
    # A queue's write to its disk costs as much as so many messages put into memory, and so many if its files do not
    # exist yet.
    WRITE_COST = 64
    BEGIN_COST = 4096
    # Its least size, in largest requests; nsqfast.nsqd.options has the same for a new one.
    LOG_BODIES = 6
    # Batches that do not wait for publishers after it was in vain.
    UNHELD_COUNT = 64

# The commit log's folder in the data folder.
LOG_NAME = "nsqd.commitlog"
# A checkpoint begins when so much of it is needed; it needs a quarter until its end.
cdef double BEGIN_SHARE = 0.5
cdef double KEPT_SHARE = 0.75
# What nobody waits for goes into a later batch than one of so many bytes.
cdef size_t ANSWERED_SIZE = 131072
# It begins so long after the files of a queue could go, or after one that failed.
cdef int64_t OLD_FILES_NS = 5000000000
cdef int64_t RETRY_NS = 1000000000
# A batch waits no longer for publishers. The loop goes round at the end of that, since its timers count milliseconds.
cdef int64_t HOLD_MAX_NS = 2000000
cdef int64_t ROUNDS_NS = 500000
# What files are removed for may not be in the log yet: then it is looked at again so much later.
cdef int64_t COMMIT_WAIT_NS = 1000000

log = logging.getLogger("nsqd")


cdef class LogSync(Timed):
    """What is written is synced so long after it at most."""

    def __init__(self, Timers timers, CommitRing ring, int64_t period_ns):
        self.timers, self.ring, self.period_ns = timers, ring, period_ns

    cdef int begin(self) except -1:
        if not self.is_armed:
            self.timers.arm(self, monotonic_ns() + self.period_ns)
        return 0

    cdef int on_deadline(self, int64_t now_ns) except -1:
        self.ring.sync()
        if self.ring.committed < self.ring.written and not self.ring.failed:
            self.begin()
        return 0


cdef class HoldEnd(Timed):
    def __init__(self, DiskStore store not None):
        self.store = store

    cdef int on_deadline(self, int64_t now_ns) except -1:
        return self.store.announce()


cdef class DiskStore(Store):
    def __init__(self, Settings settings, Timers timers, Memory memory not None):
        self.settings, self.timers, self.broker_memory = settings, timers, memory
        self.syncer = Syncer()
        self.syncer.on_pending = (<object> self).announce
        self.health = self.syncer.health
        self.disposal = DiskDisposal(timers, self.syncer, (<object> self).announce)
        self.sync_end = SyncEnd(timers, self.syncer)
        self.cold = ColdReads(self.syncer, timers)
        self.tick = SyncTick(timers, settings.sync_timeout_ns, self.sync_end)
        self.trouble = ""
        self.log_folder = os.path.join(settings.data_path or ".", LOG_NAME)
        if settings.has_log:
            self.open_log()
        elif os.path.exists(self.log_folder):
            self.refuse_open_log()

    # -- the commit log ------------------------------------------------------------------------------------------------

    cdef int open_log(self) except -1:
        """Open the log, or make it, and repeat what it says."""
        cdef CommitRing ring
        cdef Recovery recovery
        cdef bint is_interval = self.settings.is_interval
        try:
            ring, recovery = open_ring(self.log_folder, self.settings.commit_log_size, None,
                                       512 if is_interval else 4096, False, None, is_interval)
            self.replay = self.repeat(recovery)
        except OSError as error:
            raise self.refuse_log(error) from None
        self.refuse_small_log(ring)
        if recovery.is_torn:
            log.warning("%s: cutting off a batch that was not written to its end", self.log_folder)
        for path, start, end, (first, last) in recovery.damaged:
            log.error("%s is damaged from %d to %d, batches %d to %d: what is whole of it is kept", path, start, end,
                      first, last)
        # A clock that was set back must not give an id twice: the log finds by it what is finished.
        self.latest_ns = max(ring.latest_ns, self.replay.latest_ns)
        self.log = EventLog(ring, self.replay.has_begun, (<object> self).announce)
        self.syncer.ring = ring
        self.remove_deleted()
        self.names_all = self.replay.has_begun and not recovery.damaged
        if self.names_all:
            remove_unnamed(self.settings.data_path or ".", self.replay.by_name, ring.folder.epoch(),
                           max(recovery.first, self.replay.closed_in + 1))
        self.limit_memory(ring)
        self.poll = select.epoll()
        self.poll.register(self.syncer.fileno(), select.EPOLLIN)
        self.poll.register(ring.fileno(), select.EPOLLIN)
        self.log_sync = LogSync(self.timers, ring, self.settings.durable_interval_ns)
        self.hold_end = HoldEnd(self)
        self.log.begin(self.replay.life + 1, self.replay.last_number)
        return 0

    def refuse_small_log(self, CommitRing ring):
        """One that exists keeps its size, and a batch may be as large as a quarter of it."""
        cdef int64_t least = LOG_BODIES * max(self.settings.max_body_size, self.settings.max_msg_size)
        if <int64_t> ring.folder.quarter_size < least // 4 // 4096 * 4096:
            ring.close()
            raise OptionsError(f"{self.log_folder} has {ring.folder.size()} bytes, and --max-body-size and "
                               f"--max-msg-size need {least}: start with lower ones, stop, and remove that folder")

    cdef Replay repeat(self, Recovery recovery):
        cdef Replay replay = Replay(self.broker_memory)
        cdef Record record
        load_carried(recovery.folder, recovery.first, replay)
        while recovery.next(&record):
            replay.apply(record.kind, record.flags, record.extra, record.subject, record.payload, record.size,
                         record.sequence)
        replay.end()
        return replay

    cdef int refuse_open_log(self) except -1:
        """Without a log, refuse the folder if its log has what the other files lack."""
        cdef RingContents ring = RingContents(self.log_folder)
        try:
            ring.open_to_read()
            has_begun = self.repeat(Recovery(ring)).has_begun
        except OSError as error:
            raise self.refuse_log(error) from None
        finally:
            ring.close()
        if has_begun:
            raise OpenLogError(f"{self.log_folder} has messages that the other files lack")
        return 0

    cdef object refuse_log(self, object error):
        return OptionsError(f"the commit log {self.log_folder} cannot be opened - {error.strerror or error}")

    def remove_deleted(self):
        """A kill came before the files of queues were removed that had been deleted."""
        folder = self.settings.data_path or "."
        if self.replay.deleted:
            for file in os.listdir(folder):
                if file.partition(".diskqueue.")[0] in self.replay.deleted:
                    os.unlink(os.path.join(folder, file))

    def limit_memory(self, CommitRing ring):
        """What only memory has is carried by each checkpoint: beyond a quarter of the log messages go to files."""
        cdef Account *account = self.broker_memory.account
        account.spill = min(account.spill, <int64_t> ring.folder.quarter_size)

    cdef bint must_wait(self) noexcept:
        """While a queue is shown to a checkpoint in parts the rest of the log is for what is needed to end it."""
        return self.log is not None and (self.log.is_crowded() or (
            self.checkpoint is not None and self.checkpoint.is_parted and self.log.ring.fill() >= KEPT_SHARE))

    cdef bint delays_answers(self) noexcept:
        return (self.log is not None and not self.log.is_interval and self.log.refusal is None
                and self.log.ring.used > ANSWERED_SIZE)

    cdef bint write_log(self) except -1:
        if self.log is None or not self.log.is_interval or not self.log.ring.write(wall_ns()):
            return False
        self.log_sync.begin()
        return True

    cdef int check_log(self) except -1:
        """A turn ends: hand over its batch, and ask for a checkpoint if there should be one."""
        cdef CommitRing ring = self.log.ring
        if not self.log.is_interval:
            self.commit_log()
        elif ring.count and not (ring.is_in_flight or ring.failing or ring.failed or ring.is_full()):
            # What waited for a sync, or for room: the end of a turn writes it.
            self.announce()
        self.log.note_room(self.trouble)
        if ring.failed:
            self.health.fail("write", self.log_folder, ring.failed)
        return self.ask_checkpoint()

    cdef int commit_log(self) except -1:
        cdef CommitRing ring = self.log.ring
        if ring.is_in_flight or ring.count == 0:
            return 0
        if self.is_holding():
            return self.hold()
        ring.commit(wall_ns())
        return 0

    cdef int begin_hold(self) except -1:
        """A batch is committed. Its publishers may come back at once: the next batch waits for them as long as a commit
        takes. Otherwise two groups of them would take turns, with a commit for each."""
        cdef int64_t took_ns = <int64_t> (self.log.ring.figures.times.sum_ns - self.commits_ns)
        self.commits_ns = self.log.ring.figures.times.sum_ns
        self.hold_until_ns = 0
        if self.log.is_interval or self.waiting_count < 2 or self.log.ring.failed:
            return 0
        if self.unheld_count:
            self.unheld_count -= 1
            return 0
        self.expected_count, self.is_telling = self.waiting_count, True
        self.hold_until_ns = monotonic_ns() + min(took_ns, HOLD_MAX_NS)
        return self.announce()

    cdef int hold(self) except -1:
        """Look again when somebody has come back, and in the end."""
        if self.hold_until_ns - monotonic_ns() < ROUNDS_NS:
            return self.announce()
        return 0 if self.hold_end.is_armed else self.timers.arm(self.hold_end, self.hold_until_ns)

    cdef bint is_holding(self) noexcept:
        if self.hold_until_ns == 0:
            return False
        if self.is_telling or (self.waiting_count < self.expected_count and monotonic_ns() < self.hold_until_ns
                               and not self.log.is_crowded()):
            return True
        if self.waiting_count * 4 < self.expected_count * 3:
            self.unheld_count = UNHELD_COUNT
        self.hold_until_ns = 0
        return False

    cdef int write_files(self) except -1:
        """Write what the turn put into data files."""
        cdef DiskPosition position
        cdef list unwritten = self.log.unwritten
        if unwritten:
            self.log.unwritten = []
        for position in unwritten:
            with suppress(OSError):     # the broker's health reports it; the next put, read or sync tries again
                position.write_unwritten()
        return 0

    cdef int ask_checkpoint(self) except -1:
        cdef bint is_urgent = self.log.ring.fill() >= BEGIN_SHARE
        if self.on_checkpoint is None or self.log.ring.failed or (self.is_asked and not (is_urgent and self.is_slow)):
            return 0
        if is_urgent or self.log.has_old_files:
            self.is_asked, self.is_slow = True, not is_urgent
            self.on_checkpoint(OLD_FILES_NS if not is_urgent else RETRY_NS if self.trouble else 0)
        return 0

    cdef Checkpoint begin_checkpoint(self):
        if self.log is None or self.log.is_closing or self.log.ring.failed:
            self.is_asked = False
            return None
        self.checkpoint = DiskCheckpoint(self.log, self.syncer, self.log_folder)
        return self.checkpoint

    cdef int end_checkpoint(self, str error) except -1:
        if error and not self.trouble:
            log.error("COMMIT LOG: no checkpoint - %s", error)
        elif self.trouble and not error:
            log.warning("COMMIT LOG: checkpoints work again")
        self.trouble = error
        self.is_asked = False
        self.checkpoint = None
        if self.log.is_closing:
            return 0
        self.check_log()
        return self.write_later()

    cdef int write_later(self) except -1:
        """In interval mode a turn's end writes, and there may be none soon for a batch that had to wait."""
        if self.log.is_interval and self.log.ring.count and not self.log.ring.failed:
            self.announce()
        return 0

    cdef list logged_names(self):
        return self.replay.names() if self.replay is not None else []

    cdef bint remove_cut(self, str queue) except -1:
        return self.names_all and remove_without_metadata(self.settings.data_path or ".", self.replay.by_name, queue)

    cdef object close_log(self):
        """All queues are in their files: nothing of the log counts any more. Return why the next start repeats it."""
        cdef CommitRing ring = self.log.ring
        cdef bint is_closed = False
        self.checkpoint = None
        self.timers.disarm(self.log_sync)
        self.timers.disarm(self.hold_end)
        if self.log.kept_error is None and not ring.failed:
            # What gathers is in the files, too. A full log has no room for it, and it none for one more record.
            ring.cut(BATCH_HEADER_SIZE)
            ring.checkpoint(ring.filling)
            ring.append(CLOSED, 0, 0, 0, 0)
            is_closed = ring.wait(ring.filling, -1)
        elif ring.count:
            ring.wait(ring.filling, -1)
        if is_closed:
            with suppress(FileNotFoundError):
                os.unlink(self.log_folder + "/carried")
        else:
            self.syncer.removable.clear()
            log.error("COMMIT LOG: it was not closed, the next start repeats what it says")
        self.poll.close()
        self.syncer.ring = None
        ring.close()
        if not is_closed:
            error = self.log.kept_error or OSError(ring.failed, os.strerror(ring.failed))
            return OSError(error.errno, "the commit log is not closed, start once more before Go takes the folder - "
                           f"{str(error.strerror or error).lower()}")

    def figures(self):
        return self.syncer.figures()

    def log_figures(self):
        return None if self.log is None else self.log.figures() | {"checkpoint_error": self.trouble}

    @contextmanager
    def starting(self):
        with opened_at_start(self.settings.data_path or "."):
            yield
        if self.log is not None and self.log.has_new_metadata:
            # Before a first record: where it ends tells the records of another broker from ours.
            self.syncer.all_ticket = 0      # one that was requested before may have run before the last was written
            self.syncer.wait(self.syncer.request_all(self.settings.data_path or "."))

    cdef TopicStore open_topic(self, str name, bint is_ephemeral):
        return DiskTopic(self, name, is_ephemeral)

    cdef Tickets tickets(self) noexcept:
        cdef Syncer syncer = self.syncer
        if self.log is not None:
            # Nothing waits for a batch that has no records: nobody knows when it will be written.
            return Tickets(self.log.done(), syncer.failed_ticket, self.log.ticket() - (self.log.ring.count == 0),
                           self.log.ring.failed)
        return Tickets(syncer.done_ticket, syncer.failed_ticket, syncer.last_ticket(), syncer.error_errno)

    cdef bint start_batch(self) except -1:
        self.syncer.start_batch()
        if self.log is not None:
            self.is_telling = False
            self.check_log()
            self.write_files()
            return self.log.ring.is_in_flight or self.syncer.is_running()
        return self.syncer.is_running()

    cdef tuple completed(self):
        done, error = self.syncer.completed()
        self.sync_end.add(done, not error)
        self.cold.collect()
        if self.log is None:
            return done, error
        if self.log.ring.end_write():
            self.begin_hold()
        self.check_log()
        self.write_later()
        if self.log.ring.failed and not self.is_failure_told:
            self.is_failure_told = True
            return self.log.ticket(), "the commit log cannot be written: " + os.strerror(self.log.ring.failed).lower()
        return self.log.done(), ""

    cdef int fileno(self) except -1:
        return self.syncer.fileno() if self.poll is None else self.poll.fileno()

    cdef int64_t count_unstored(self, ChannelStore queue, int64_t taken) noexcept:
        if not isinstance(queue, Backlog) or self.log is not None:
            return 0
        return max(queue.depth() + taken - (<Backlog> queue).disk.position.unacked, 0)

    cdef Closing begin_closing(self, ChannelStore queue):
        if self.log is not None and not self.log.is_closing:
            self.syncer.remove_all()    # CLOSED makes a start forget why
            self.log.is_closing = True
        return DiskClosing(queue) if isinstance(queue, Backlog) else None

    cdef list close_queues(self, object queues, object on_progress):
        cdef list errors = GroupClosing(self.syncer, on_progress).run(queues)
        if self.log is not None and errors:
            self.log.keep(errors[0])
        return errors

    cdef object close(self):
        cdef object error = None if self.log is None else self.close_log()
        self.disposal.finish()
        self.cold.stop()
        self.syncer.close()
        self.timers.disarm(self.tick)
        self.timers.disarm(self.sync_end)
        forget_folder()
        return error


cdef class DiskTopic(TopicStore):

    cdef ChannelStore open_queue(self, str name, bint is_ephemeral):
        cdef DiskStore store = self.store
        cdef ReplayedQueue logged = None
        cdef QueueLog queue_log = None
        if is_ephemeral:
            return ChannelStore(store, True)
        if store.log is not None and (self.own is None or isinstance(self.own, Backlog)):
            self.log = store.log
            logged = store.replay.by_name.pop(name, None)
            queue_log = store.log.add_queue(name) if logged is None else QueueLog(store.log, logged.number)
        return Backlog(store, name, store.syncer, store.tick, store.cold, queue_log, logged)

    cdef int admit(self, uint64_t count, uint64_t size) except -1:
        return 0 if self.log is None else self.log.admit(count, size)

    cdef int note_published(self, Message *message, bint is_spread, ChannelStore only) except -1:
        cdef ChannelStore queue = self.own if only is None else only
        cdef int64_t due_ns = 0
        if self.log is not None and isinstance(queue, Backlog):
            if message.defer_ms:
                due_ns = kept_due(wall_ns() + <int64_t> message.defer_ms * 1000000, message.is_told)
            (<Backlog> queue).log.publish(message, tries_before(message), due_ns, is_spread)
            # What goes from a topic's backlog to a channel was counted before.
            self.log.message_count += only is None
        return 0

    cdef uint64_t begin_pieces(self) except? 0:
        return 0 if self.log is None else self.log.begin_mpub()

    cdef bint may_note_piece(self, uint64_t mpub) except -1:
        self.log.check_mpub(mpub)
        return not self.log.is_crowded()

    cdef int note_piece(self, uint64_t mpub, uint64_t piece, int64_t published_ns, uint64_t first_id,
                        const char *bodies, size_t size) except -1:
        return (<Backlog> self.own).log.add_piece(mpub, piece, published_ns, first_id, bodies, size)

    cdef int note_released(self, uint64_t mpub, uint64_t piece, uint64_t count, bint is_spread) except -1:
        (<Backlog> self.own).log.release(mpub, piece, is_spread)
        self.log.message_count += count
        return 0

    cdef int end_pieces(self, uint64_t mpub) except -1:
        self.log.begun_mpubs.pop(mpub, None)
        return 0

    cdef uint64_t mark(self) noexcept:
        return 0 if self.log is None else self.log.mark()

    cdef int cut(self, uint64_t mark) except -1:
        return 0 if self.log is None else self.log.cut(mark)

    cdef bint fits(self, uint64_t count) noexcept:
        cdef Backlog backlog
        cdef uint64_t cost = count * <uint64_t> len(self.stores)
        for queue in self.stores:
            if cost > FAN_MAX:
                break
            if not isinstance(queue, Backlog):
                continue
            backlog = queue
            if not has_room(backlog) or backlog.memory.size + count > <uint64_t> backlog.memory_max:
                cost += BEGIN_COST if backlog.disk.position.acks is None else WRITE_COST
        return cost <= FAN_MAX

    cdef uint64_t ticket(self) noexcept:
        return 0 if self.log is None else self.log.ticket()

    cdef int note_copies(self, ChannelStore source, ChannelStore only) except -1:
        cdef uint64_t ticket
        if not isinstance(source, Backlog) or self.log is not None:
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

    cdef int on_deadline(self, int64_t now_ns) except -1:
        if self.has_files() and self.syncer.next_removable() is None:
            return self.timers.arm(self, now_ns + COMMIT_WAIT_NS)
        return Disposal.on_deadline(self, now_ns)

    cdef bint has_files(self) noexcept:
        return len(self.syncer.removable) > 0

    cdef bint remove_files(self, Budget *budget) except -1:
        prefix = self.syncer.next_removable()
        while prefix is not None:
            if not self.syncer.may_close() or not self.syncer.remove_next(prefix, budget):
                return False
            prefix = self.syncer.next_removable()
        return not self.has_files()

    cdef int finish(self) except -1:
        self.syncer.remove_all()
        return Disposal.finish(self)
