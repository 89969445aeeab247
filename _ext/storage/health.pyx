"""The state of all data files of a process. `/ping` shows what fails; the log reports it at once, then once a minute,
and when it is over.

The texts are Go's: `write /path/orders.diskqueue.000000.dat: no space left on device`.

A full disk affects every queue, so the next successful write of any queue ends it. An error of one file belongs to its
queue: it lasts until that queue succeeds, or until others succeed and it has not failed for a minute.
"""

import errno
import logging
import os

from nsqfast._ext.core.clock cimport monotonic_ns

cdef int64_t SECOND_NS = 1000000000
cdef int64_t LINE_NS = 60 * SECOND_NS       # between two lines on the same trouble
cdef int64_t OWN_NS = 60 * SECOND_NS        # a queue that does not try again within this time is not waited for
cdef int64_t PAUSE_NS = 10 * SECOND_NS  # a failure so soon continues the old trouble: small writes fit, large do not

cdef frozenset SHARED = frozenset((
    errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EROFS,
))

log = logging.getLogger("nsqd")


cdef class Trouble:
    def __init__(self, str verb):
        self.verb = verb
        self.error = ""
        self.failing = {}
        self.queues = set()

    cdef int begin(self, str queue, str error, bint is_own, int64_t now_ns) except -1:
        """Begin or continue the trouble."""
        if not self.failing and (self.ended_ns == 0 or now_ns - self.ended_ns >= PAUSE_NS):
            self.begun_ns = now_ns
            self.refused_since = self.refused_count = 0
            self.queues.clear()
            self.told_ns = 0
        self.failing[queue] = (now_ns, is_own)
        self.queues.add(queue)
        self.error = error
        if self.told_ns == 0 or now_ns - self.told_ns >= LINE_NS:
            self.tell(now_ns)
        return 0

    cdef int tell(self, int64_t now_ns) except -1:
        if self.told_ns == 0:
            log.error("DISK: %s", self.error)
        else:
            log.error("DISK: %s; %d s later %d queue(s) fail%s", self.error, (now_ns - self.begun_ns) // SECOND_NS,
                      len(self.queues), refusals(self.refused_since))
        self.told_ns = now_ns
        self.is_told = True
        self.refused_since = 0
        self.queues = set(self.failing)
        return 0

    cdef int end(self, str queue, int64_t now_ns) except -1:
        """One operation succeeded; this changes nothing while others fail for reasons of their own."""
        if not self.failing:
            return 0
        self.failing = {
            name: (failed_ns, is_own) for name, (failed_ns, is_own) in self.failing.items()
            if is_own and name != queue and now_ns - failed_ns < OWN_NS
        }
        return self.check_over(now_ns)

    cdef int drop(self, str queue, int64_t now_ns) except -1:
        """The queue was deleted."""
        return 0 if self.failing.pop(queue, None) is None else self.check_over(now_ns)

    cdef int check_over(self, int64_t now_ns) except -1:
        if self.failing:
            return 0
        self.ended_ns = now_ns
        if self.is_told:
            self.is_told = False
            log.warning("DISK: %s works again after %d s%s", self.verb, (now_ns - self.begun_ns) // SECOND_NS,
                        refusals(self.refused_count))
        return 0


cdef class Health:
    def __init__(self):
        self.writing = Trouble("writing")
        self.syncing = Trouble("syncing")
        self.reading = Trouble("reading")
        self.given_up = ""

    @property
    def text(self):
        """'OK', or 'NOK - ' and the current error, or that little is left of the disk."""
        for trouble in (self.writing, self.syncing, self.reading):
            if (<Trouble> trouble).failing:
                return f"NOK - {(<Trouble> trouble).error}"
        reason = self.given_up or self.low_disk
        return f"NOK - {reason}" if reason else "OK"

    cdef OSError fail(self, str operation, str path, int error):
        text = f"{operation} {path}: {reason(error)}"
        self.note_failure(operation, path, text, error, monotonic_ns())
        return OSError(error, text)

    cdef int fail_reading(self, str path, object error) except -1:
        """Report an error that was already raised."""
        self.note_failure("read", path, error.strerror or str(error), error.errno, monotonic_ns())
        return 0

    cdef int wrote(self, str path) except -1:
        self.given_up = ""
        self.note_success("write", path, monotonic_ns())
        return 0

    cdef int give_up(self, str path, int error, str ranges, uint64_t size) except -1:
        """So many bytes are skipped; reported until the next successful write. ranges: '8192-12288, ...'."""
        self.unreadable_bytes += size
        self.given_up = f"read {path}: {reason(error)} at {ranges}"
        return self.update_is_failing()

    cdef int was_read(self, str path) except -1:
        self.note_success("read", path, monotonic_ns())
        return 0

    cdef int synced(self) except -1:
        self.note_success("sync", "", monotonic_ns())
        return 0

    cpdef int refused(self, uint64_t count) except -1:
        """So many messages were refused because of the last failure."""
        cdef Trouble trouble = self.writing if self.writing.failing else self.syncing
        if trouble.failing:
            trouble.refused_since += count
            trouble.refused_count += count
        return 0

    cdef int forget(self, str path) except -1:
        """Its files are gone."""
        for trouble in (self.writing, self.reading):
            (<Trouble> trouble).drop(queue_of(path), monotonic_ns())
        return self.update_is_failing()

    cdef int update_is_failing(self) except -1:
        self.is_failing = bool(
            self.writing.failing or self.syncing.failing or self.reading.failing or self.given_up)
        return 0

    cdef Trouble trouble(self, str operation):
        if operation == "sync":
            return self.syncing
        return self.reading if operation == "read" else self.writing

    # The same with the time as an argument, for tests, too.

    def note_failure(self, str operation, str path, str text, int error, int64_t now_ns):
        """The operation failed."""
        cdef bint is_own = operation != "sync" and error not in SHARED
        self.trouble(operation).begin(queue_of(path), text, is_own, now_ns)
        self.update_is_failing()

    def note_success(self, str operation, str path, int64_t now_ns):
        """The operation succeeded; this matters only while something fails."""
        self.trouble(operation).end(queue_of(path), now_ns)
        self.update_is_failing()


cdef str refusals(uint64_t count):
    return f", {count} message(s) refused" if count else ""


cdef str reason(int error):
    text = os.strerror(error)
    return text[:1].lower() + text[1:]


cdef str queue_of(str path):
    """Return the common part of the paths of a queue's files."""
    return path.partition(".diskqueue.")[0]
