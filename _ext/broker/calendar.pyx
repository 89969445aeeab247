"""Counted a part in each call, from the last entry of each heap to the first, while the channel goes on: what comes and
goes meanwhile moves others in the heap, so that a few may be counted twice, or not at all.
"""

from libc.stdlib cimport calloc, free

from nsqfast._ext.core.budget cimport Budget, begin_part, is_spent
from nsqfast._ext.core.clock cimport monotonic_ns, wall_ns
from nsqfast._ext.core.due_heap cimport Due
from nsqfast._ext.core.limits cimport CALENDAR_STEPS_MAX

# For Python.
STEPS_MAX = CALENDAR_STEPS_MAX


cdef class DeferralCalendar:
    """`count` steps of `step_ns`. The first begins at `first_ns` (Unix time), and has what is due before it, too.

        while not calendar.go_on(): let others go on
    """

    def __init__(self, Channel channel not None, int64_t first_ns, int64_t step_ns, int count):
        assert self.steps is NULL and step_ns > 0 and 0 < count <= CALENDAR_STEPS_MAX
        self.channel, self.first_ns, self.step_ns = channel, first_ns, step_ns
        self.to_wall_ns = wall_ns() - monotonic_ns()
        self.steps = <int64_t *> calloc(count, sizeof(int64_t))
        if self.steps is NULL:
            raise MemoryError
        self.step_count = count
        self.in_memory, self.stored = channel.deferred.size, channel.stored.heap.size

    def __dealloc__(self):
        free(self.steps)

    @property
    def counts(self):
        return [self.steps[i] for i in range(self.step_count)]

    def go_on(self):
        """Do a part; return whether that was the last one."""
        cdef Budget budget = begin_part()
        cdef Due *due
        self.in_memory = min(self.in_memory, self.channel.deferred.size)
        while self.in_memory:
            self.in_memory -= 1
            self.add(self.channel.deferred.nodes[self.in_memory].deadline_ns)
            if is_spent(&budget, 1):
                return False
        self.stored = min(self.stored, self.channel.stored.heap.size)
        while self.stored:
            self.stored -= 1
            due = &self.channel.stored.heap.entries[self.stored]
            if self.channel.backlog.is_unfinished(due.ordinal):
                self.add(due.deadline_ns)
            if is_spent(&budget, 1):
                return False
        return True

    cdef void add(self, int64_t deadline_ns) noexcept:
        cdef int64_t due_ns = deadline_ns + self.to_wall_ns
        cdef int64_t step = max(due_ns - self.first_ns, 0) // self.step_ns
        self.last_ns = max(self.last_ns, due_ns)
        if step < self.step_count:
            self.steps[step] += 1
        else:
            self.later_count += 1
