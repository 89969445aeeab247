# cython: cdivision=False
"""These loops time a structure, not the Python calls around it. Each loop returns a count or a sum that only the work
gives, as a proof. The loop itself costs a nanosecond or two per message."""

from libc.stdint cimport INT64_MIN, int64_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset

from nsqfast._ext.broker.channel cimport DONE, Channel
from nsqfast._ext.broker.topic cimport Topic
from nsqfast._ext.core.clock cimport monotonic_ns, wall_ns
from nsqfast._ext.core.guid cimport GuidFactory
from nsqfast._ext.core.heap cimport DeadlineHeap, HeapNode
from nsqfast._ext.core.in_flight cimport Entry, InFlightQueue, InFlightTable
from nsqfast._ext.core.limits cimport FIN_SIZE, FRAME_HEADER_SIZE, FRAME_MESSAGE, MESSAGE_HEADER_SIZE, MESSAGE_ID_SIZE
from nsqfast._ext.core.memory cimport Account, account_of
from nsqfast._ext.core.message cimport (
    Delivery, Message, delivery_free, delivery_new, get_be32, id_from_hex, message_drop, message_new,
)
from nsqfast._ext.core.ring cimport Ring
from nsqfast._ext.protocol.buffer cimport ReadBuffer, WriteBuffer
from nsqfast._ext.protocol.v2 cimport (
    COMMAND_FIN, COMMAND_PUB, COMMAND_RDY, PARSE_WHOLE, Line, parse_decimal, parse_line, write_message,
)
from nsqfast._ext.server.connection cimport BrokerConnection
from nsqfast._ext.server.session cimport Session
from nsqfast._ext.storage.diskqueue.queue cimport DiskQueue

cdef enum:
    OWNER = 1
    ID_AT = 10              # in a message's header

cdef Account *account = account_of(None)
cdef int64_t START_NS = 1750000000 * <int64_t> 1000000000
cdef int64_t STEP_NS = 1000     # between two messages
cdef int64_t TIMEOUT_NS = 60 * <int64_t> 1000000000


cdef class Loop:
    """`count` deliveries, each of its own message with `size` bytes."""

    def __cinit__(self, uint32_t count, uint32_t size, *_):
        cdef Message *message
        if count == 0:
            raise ValueError("a loop without messages")
        self.dice = 0x2545F4914F6CDD1D
        self.ids = GuidFactory(0)
        self.now_ns = START_NS
        self.deliveries = <Delivery **> calloc(count, sizeof(Delivery *))
        if self.deliveries is NULL:
            raise MemoryError
        while self.count < count:
            self.now_ns += STEP_NS
            message = message_new(account, NULL, size, self.now_ns, self.ids.next(self.now_ns))
            if message is NULL:
                raise MemoryError
            self.deliveries[self.count] = delivery_new(account, message)
            self.deliveries[self.count].owner = OWNER
            self.deliveries[self.count].deadline_ns = self.now_ns + TIMEOUT_NS
            self.count += 1

    def __dealloc__(self):
        cdef uint32_t i
        for i in range(self.count):
            delivery_free(self.deliveries[i])
        free(self.deliveries)

    cdef uint64_t random_below(self, uint64_t end) noexcept:
        """0..end-1, from a xorshift generator; `end` is below 2**32."""
        self.dice ^= self.dice << 13
        self.dice ^= self.dice >> 7
        self.dice ^= self.dice << 17
        return (self.dice >> 32) * end >> 32

    cdef uint32_t choose(self, bint scattered) noexcept:
        """Return a random delivery, or the one that waited longest."""
        cdef uint32_t chosen = self.next_index
        if scattered:
            return <uint32_t> self.random_below(self.count)
        self.next_index = chosen + 1 if chosen + 1 < self.count else 0
        return chosen


# -- frames and lines --------------------------------------------------------------------------------------------------

cdef class FrameLoop(Loop):
    """Messages on their way to a consumer."""

    def __init__(self, uint32_t count, uint32_t size):
        cdef uint32_t i
        self.out = WriteBuffer()
        self.written = b""
        for i in range(count):
            memset(self.deliveries[i].message.body, c"a" + i % 26, size)

    def encode(self, uint32_t per_turn):
        """Write each message once, taking the buffer after every `per_turn` of them. Return bytes taken."""
        cdef uint32_t i
        cdef int64_t taken = 0
        for i in range(self.count):
            write_message(self.out, self.deliveries[i].message, self.deliveries[i].attempts)
            if (i + 1) % per_turn == 0 or i + 1 == self.count:
                self.written = self.out.take()
                taken += len(self.written)
        return taken


def parse_commands(bytes data not None):
    """Return (commands, sum of their arguments) of whole commands: ids of FIN, counts of RDY, body sizes of PUB."""
    cdef Line line
    cdef const char *place = data
    cdef const char *end = place + len(data)
    cdef uint64_t value, named = 0
    cdef int64_t commands = 0
    while place < end and parse_line(place, end - place, 0, &line) == PARSE_WHOLE:
        place += line.size
        value = 0
        if line.kind == COMMAND_FIN and line.parameter_count and line.parameter_size[0] == MESSAGE_ID_SIZE:
            id_from_hex(line.parameter[0], &value)
        elif line.kind == COMMAND_RDY and line.parameter_count:
            parse_decimal(line.parameter[0], line.parameter_size[0], &value)
        elif line.kind == COMMAND_PUB and end - place >= 4:
            value = get_be32(place)
            place += 4 + value
        named += value
        commands += 1
    return commands, named


def answer(bytes frames not None):
    """Return the FINs of all messages in a stream of whole frames, as a client would send them."""
    cdef WriteBuffer out = WriteBuffer()
    cdef const char *place = frames
    cdef const char *end = place + len(frames)
    cdef char *line
    while end - place >= FRAME_HEADER_SIZE:
        if get_be32(place + 4) == FRAME_MESSAGE and end - place >= FRAME_HEADER_SIZE + MESSAGE_HEADER_SIZE:
            line = out.reserve(FIN_SIZE)
            memcpy(line, b"FIN ", 4)
            memcpy(line + 4, place + FRAME_HEADER_SIZE + ID_AT, MESSAGE_ID_SIZE)
            line[FIN_SIZE - 1] = c"\n"
        place += 4 + get_be32(place)
    return out.take()


# -- structures --------------------------------------------------------------------------------------------------------

def make_ids(int64_t count, int64_t now_ns, int64_t step_ns):
    """Return the sum (modulo 2**64) of ids made at now_ns, now_ns + step_ns..."""
    cdef GuidFactory factory = GuidFactory(0)
    cdef uint64_t total = 0
    for _ in range(count):
        total += factory.next(now_ns)
        now_ns += step_ns
    return total


def stamp(int64_t count):
    """Make ids as for a PUB, reading both clocks for each; return how many increased."""
    cdef GuidFactory factory = GuidFactory(0)
    cdef uint64_t id, last = 0
    cdef int64_t grown = 0, now_ns = 0
    for _ in range(count):
        id = factory.next(wall_ns())
        grown += id > last and monotonic_ns() >= now_ns
        last = id
    return grown


def pass_through(Ring ring not None, size_t count, size_t together):
    """Push 1..count, and pop `together` of them after each `together`. Return the sum of what was popped."""
    cdef size_t item, total = 0
    for item in range(1, count + 1):
        ring.push(<void *> item)
        if item % together == 0:
            for _ in range(together):
                total += <size_t> ring.pop()
    return total


cdef class HeapLoop(Loop):
    """A heap that always contains `count` deadlines."""

    def __init__(self, uint32_t count, uint32_t size):
        cdef uint32_t i
        self.heap = DeadlineHeap()
        for i in range(count):
            self.heap.push(<HeapNode *> self.deliveries[i])

    def expire(self, uint32_t count):
        """Expire the first deferred one and defer another with a random delay; return how many expired in order."""
        cdef HeapNode *node
        cdef int64_t last_ns = INT64_MIN
        cdef uint32_t in_order = 0
        for _ in range(count if self.heap.size else 0):
            node = self.heap.peek()
            in_order += node.deadline_ns >= last_ns
            last_ns = node.deadline_ns
            self.heap.remove(node)
            # On average a delay is as long as it takes until all were due once.
            node.deadline_ns = last_ns + <int64_t> self.random_below(2 * <uint64_t> self.count) * STEP_NS
            self.heap.push(node)
        return in_order

    def drain(self):
        """Return the deadlines, the earliest first; the heap is empty afterwards."""
        cdef list found = []
        while self.heap.size:
            found.append(self.heap.peek().deadline_ns)
            self.heap.remove(self.heap.peek())
        return found


cdef class InFlightQueueLoop(Loop):
    """A queue that always has `count` deliveries in flight; with `is_mixed` each second has half the timeout."""

    def __init__(self, uint32_t count, uint32_t size, bint is_mixed=False):
        cdef uint32_t i
        self.in_flight_queue = InFlightQueue()
        self.in_flight_queue.is_borrowed = True
        self.is_mixed = is_mixed
        for i in range(count):
            self.deliveries[i].deadline_ns += self.timeout_ns(i) - TIMEOUT_NS
            self.in_flight_queue.push(self.deliveries[i])

    cdef int64_t timeout_ns(self, uint32_t index) noexcept:
        return TIMEOUT_NS // 2 if self.is_mixed and index % 2 else TIMEOUT_NS

    def remove_and_push(self, uint32_t count, bint scattered):
        """Finish one, the oldest or a random one, and deliver it again; return the growth of all deadlines in ns."""
        cdef Delivery *delivery
        cdef uint32_t chosen
        cdef int64_t grown_ns = 0
        for _ in range(count if self.in_flight_queue.size else 0):
            chosen = self.choose(scattered)
            delivery = self.deliveries[chosen]
            self.in_flight_queue.remove(delivery)
            grown_ns -= delivery.deadline_ns
            self.now_ns += STEP_NS
            delivery.deadline_ns = self.now_ns + self.timeout_ns(chosen)
            grown_ns += delivery.deadline_ns
            self.in_flight_queue.push(delivery)
        return grown_ns

    def drain(self):
        """Return the deadlines, the earliest first; the queue is empty afterwards."""
        cdef list found = []
        while self.in_flight_queue.size:
            found.append(self.in_flight_queue.peek().deadline_ns)
            self.in_flight_queue.remove(self.in_flight_queue.peek())
        return found


cdef class TableLoop(Loop):
    """A table that always contains `count` ids."""

    def __init__(self, uint32_t count, uint32_t size):
        cdef uint32_t i
        self.table = InFlightTable()
        self.known = <uint64_t *> calloc(count, sizeof(uint64_t))
        if self.known is NULL:
            raise MemoryError
        for i in range(count):
            self.known[i] = self.deliveries[i].message.id
            self.table.insert(self.deliveries[i])

    def __dealloc__(self):
        free(self.known)

    def find(self, uint32_t count, bint scattered):
        """Look up so many ids; return how many were found."""
        cdef Entry *entry
        cdef uint32_t chosen, found = 0
        for _ in range(count):
            chosen = self.choose(scattered)
            entry = self.table.find(self.known[chosen], OWNER)
            found += entry is not NULL and entry.delivery is self.deliveries[chosen]
        return found

    def find_remove_insert(self, uint32_t count, bint scattered):
        """Find one by its id and remove it, and insert another with a new id; return how many were found."""
        cdef Entry *entry
        cdef uint32_t chosen, found = 0
        for _ in range(count):
            chosen = self.choose(scattered)
            delivery = self.deliveries[chosen]
            entry = self.table.find(self.known[chosen], OWNER)
            if entry is NULL or entry.delivery is not delivery:
                continue
            self.table.remove_at(entry)
            self.now_ns += STEP_NS
            self.known[chosen] = delivery.message.id = self.ids.next(self.now_ns)
            self.table.insert(delivery)
            found += 1
        return found

    def __len__(self):
        return self.table.size


# -- disk --------------------------------------------------------------------------------------------------------------

def append_records(DiskQueue queue not None, bytes body not None, uint64_t count, uint64_t per_batch):
    """Append messages with the ids 1..count, gathered in batches (1: each by itself); return how many are unread."""
    cdef Message *message = message_new(account, body, <uint32_t> len(body), START_NS, 0)
    cdef int64_t before = queue.reader.depth
    cdef uint64_t number
    if message is NULL:
        raise MemoryError
    try:
        for number in range(count):
            if per_batch > 1 and number % per_batch == 0:
                queue.writer.begin_batch()
            message.id = number + 1
            queue.writer.append(message, 0, False)
            if per_batch > 1 and (number % per_batch == per_batch - 1 or number == count - 1):
                queue.writer.end_batch()
        return queue.reader.depth - before
    finally:
        message_drop(message)


def read_records(DiskQueue queue not None, uint64_t count, uint64_t in_flight):
    """Read up to `count` and finish them after every `in_flight`; return (how many, the sum of their ids)."""
    cdef uint64_t *ordinals = <uint64_t *> calloc(in_flight + 1, sizeof(uint64_t))
    cdef uint64_t number = 0, unfinished = 0, total = 0, i
    cdef Message *message
    if ordinals is NULL:
        raise MemoryError
    try:
        while number < count:
            message = queue.reader.pop(&ordinals[unfinished])
            if message is NULL:
                break
            total += message.id
            message_drop(message)
            number += 1
            unfinished += 1
            if unfinished >= in_flight or number == count:
                for i in range(unfinished):
                    queue.reader.ack(ordinals[i])
                unfinished = 0
        for i in range(unfinished):
            queue.reader.ack(ordinals[i])
    finally:
        free(ordinals)
    return number, total


# -- topics, channels, sessions ----------------------------------------------------------------------------------------

cdef class Taker(Consumer):
    """Ready for up to `window` messages of a channel; records their ids and nothing else."""

    def __cinit__(self, Channel channel not None, uint32_t window):
        self.taken = <uint64_t *> calloc(<size_t> window + 1, sizeof(uint64_t))
        if self.taken is NULL:
            raise MemoryError
        self.channel = channel
        self.rdy = window
        self.timeout_ns = TIMEOUT_NS

    def __init__(self, Channel channel not None, uint32_t window):
        channel.join(self)
        channel.add_ready(self)

    def __dealloc__(self):
        free(self.taken)

    cdef bint wants(self) noexcept:
        # Not `in_flight`: that decreases when messages time out, but their ids are still in `taken`.
        return self.taken_size < self.rdy

    cdef int deliver(self, Delivery *delivery) except -1:
        self.taken[self.taken_size] = delivery.message.id
        self.taken_sum += delivery.message.id
        self.taken_size += 1
        return 0

    cdef int finish(self) except -1:
        """Finish what is in flight, then take more; return how many were finished."""
        cdef uint32_t i, finished = 0, size = self.taken_size
        self.taken_size = 0
        for i in range(size):
            finished += self.channel.finish(self, self.taken[i]) == DONE
        self.channel.add_ready(self)
        self.channel.pump()
        return finished


def publish(Topic topic not None, list takers not None, bytes body not None, uint64_t count, uint64_t per_turn):
    """Do `count` PUBs; after every `per_turn`, Takers finish what they got. Return (published, finished)."""
    cdef Taker taker
    cdef uint64_t number, finished = 0, before = topic.message_count
    for number in range(1, count + 1):
        topic.publish(body, len(body), 0)
        if number % per_turn == 0 or number == count:
            for taker in takers:
                finished += <uint64_t> taker.finish()
    return topic.message_count - before, finished


def publish_batch(Topic topic not None, bytes bodies not None, uint64_t count, uint64_t times):
    """Publish a batch of `count` times {size, body} several times; return how many the topic counted."""
    cdef uint64_t before = topic.message_count
    cdef Py_ssize_t offset = 0
    for _ in range(count):
        if offset + 4 > len(bodies):
            raise ValueError("fewer messages than announced")
        offset += 4 + <Py_ssize_t> get_be32(<const char *> bodies + offset)
    if offset > len(bodies):
        raise ValueError("the last message is cut off")
    for _ in range(times):
        topic.publish_many(bodies, offset, count)
    return topic.message_count - before


def scan_batch(Session session not None, bytes command not None, uint64_t times):
    """Search several times for the end of a whole MPUB without publishing it; return how many messages were seen."""
    cdef Line line
    cdef uint64_t seen = 0
    for _ in range(times):
        if (parse_line(command, len(command), 0, &line) != PARSE_WHOLE
                or not session.mpub_head(command, len(command), &line)):
            break
        if session.mpub_bodies(command, len(command), line.size + 4):
            seen += session.scan.count
        session.scan.offset = session.need = 0
    return seen


def feed(BrokerConnection connection not None, bytes data not None):
    """Pass the data to the connection as a loop does, a buffer at a time; return the number of buffers."""
    cdef ReadBuffer input = connection.input
    cdef const char *place = data
    cdef Py_ssize_t left = len(data), size
    cdef int64_t reads = 0
    while left:
        input.make_room()
        size = min(left, input.capacity - input.end)
        memcpy(input.data + input.end, place, size)
        connection.buffer_updated(size)
        place += size
        left -= size
        reads += 1
    return reads
