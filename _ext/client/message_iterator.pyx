"""Makes `async for` over messages cheap: one small object that has the item, or waits on a future of the loop."""

from collections import deque

cimport cython
from libc.stdint cimport int64_t

from nsqfast._ext.core.clock cimport monotonic_ns


cdef extern from "Python.h":
    Py_ssize_t PY_SSIZE_T_MAX


# A task that never waits, because there is always an item, lets the loop run after this long.
cdef int64_t TURN_NS = 5000000


cdef class MessageIterator:
    """A subclass says how many items it has, returns the next one, and calls `wake`."""

    def __init__(self, loop):
        self.loop = loop
        self.thresholds = []
        self.waiters = deque()
        self.loop_ran_ns = monotonic_ns()

    cdef object pop(self):
        """Return the next item, or None."""
        return None

    cdef Py_ssize_t waiting(self) noexcept:
        return 0

    def __len__(self):
        return self.waiting()

    cdef int wake(self) except -1:
        cdef Py_ssize_t count = self.waiting()
        self.loop_ran_ns = monotonic_ns()
        if self.thresholds:
            for threshold in list(self.thresholds):
                if count >= threshold[0] or self.is_stopped:
                    self.thresholds.remove(threshold)
                    if not threshold[1].done():
                        threshold[1].set_result(None)
        if self.is_stopped:
            count = len(self.waiters)
        while count > 0 and self.waiters:
            future = self.waiters.popleft()
            if not future.done():
                future.set_result(None)
                count -= 1
        return 0

    cdef int note_left(self) except -1:
        """Count a waiter that gave up. Once half of them may have, remove those that did."""
        self.left_count += 1
        if self.left_count * 2 > len(self.waiters):
            self.waiters = deque([future for future in self.waiters if not future.done()])
            self.left_count = 0
        return 0

    def __aiter__(self):
        return self

    def __anext__(self):
        cdef Next awaited = Next.__new__(Next)
        awaited.source = self
        awaited.must_yield = monotonic_ns() - self.loop_ran_ns > TURN_NS
        return awaited

    def wait_for(self, Py_ssize_t count):
        """Return a future that is done when so many items are here, or no more will come."""
        future = self.loop.create_future()
        if self.is_stopped or self.waiting() >= count:
            future.set_result(None)
        else:
            self.thresholds = [entry for entry in self.thresholds if not entry[1].done()]
            self.thresholds.append([count, future])
        return future

    def end(self):
        """Give out nothing more. It touches nothing else, so a signal handler or another thread may call it, and have
        `stop` called on the loop."""
        self.is_stopped = True

    def stop(self):
        """Tell all who wait for a message that there will be none."""
        self.is_stopped = True
        self.wake()

    def wait_stopped(self):
        """Return a future that is done at the stop."""
        return self.wait_for(PY_SSIZE_T_MAX)


@cython.final
@cython.freelist(256)
cdef class Next:
    """An awaitable for the next item, to be awaited once: at once if it is there, else when it comes."""

    def __await__(self):
        return self

    def __iter__(self):
        return self

    def __next__(self):
        cdef MessageIterator source = self.source
        if self.must_yield:
            self.must_yield = False
            source.loop_ran_ns = monotonic_ns()
            return None
        while True:
            if self.waited is not None:
                try:
                    return next(self.waited)
                except StopIteration:
                    self.waited = None
            if source.is_stopped:
                raise StopAsyncIteration
            item = source.pop()
            if item is not None:
                raise StopIteration(item)
            future = source.loop.create_future()
            source.waiters.append(future)
            self.waited = iter(future)

    def throw(self, kind, value=None, traceback=None):
        """The task was cancelled; another one gets the item that it was woken for."""
        self.source.wake()
        self.source.note_left()
        raise kind if value is None else value
