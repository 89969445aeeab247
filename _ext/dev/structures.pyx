"""Compiled structures as Python objects whose members are numbers."""

from libc.stdint cimport INT64_MAX, int64_t, uint32_t, uint64_t
from libc.string cimport memset

from nsqfast._ext.broker.mpub_bodies cimport Bodies
from nsqfast._ext.broker.topic cimport Topic
from nsqfast._ext.core.budget cimport Budget
from nsqfast._ext.core.heap cimport DeadlineHeap, HeapNode, Timed, TimedNode
from nsqfast._ext.core.in_flight cimport Entry, InFlightQueue, InFlightTable
from nsqfast._ext.core.memory cimport Account, account_of
from nsqfast._ext.core.message cimport (
    Delivery, Message, delivery_free, delivery_new, message_drop, message_load, message_new, message_put_record,
    tries_before,
)
from nsqfast._ext.protocol.http_request cimport REQUEST_WHOLE, Outcome as RequestOutcome, PlainRequest, parse_request
from nsqfast._ext.protocol.v2 cimport PARSE_BROKEN, PARSE_MORE, Line, Parse, parse_decimal, parse_line
from nsqfast._ext.storage.diskqueue.hollow cimport is_hollow, is_sealed, seal

cdef Account *account = account_of(None)


cdef class NumberedDeadlineHeap:
    """A DeadlineHeap of numbered deadlines."""
    cdef DeadlineHeap heap
    cdef dict timed

    def __init__(self):
        self.heap = DeadlineHeap()
        self.timed = {}

    def push(self, number, int64_t deadline_ns):
        cdef Timed timed = Timed()
        timed.node.deadline_ns = deadline_ns
        timed.node.timed = <void *> number
        self.timed[number] = (timed, number)
        self.heap.push(<HeapNode *> &timed.node)

    def remove(self, number):
        cdef Timed timed = self.timed.pop(number)[0]
        self.heap.remove(<HeapNode *> &timed.node)

    def move(self, number, int64_t deadline_ns):
        cdef Timed timed = self.timed[number][0]
        timed.node.deadline_ns = deadline_ns
        self.heap.moved(<HeapNode *> &timed.node)

    def peek(self):
        """Return (deadline, number) of the earliest, or None."""
        cdef TimedNode *node = <TimedNode *> self.heap.peek()
        return None if node is NULL else (node.deadline_ns, <object> node.timed)

    def __len__(self):
        return self.heap.size


cdef class NumberedInFlightQueue:
    """An InFlightQueue of numbered deliveries."""
    cdef InFlightQueue queue
    cdef dict by_number

    def __init__(self):
        self.queue = InFlightQueue()
        self.by_number = {}

    def push(self, uint64_t number, int64_t deadline_ns):
        cdef Message *message = message_new(account, NULL, 0, <int64_t> number + 1, number)
        cdef Delivery *delivery = delivery_new(account, message)
        delivery.deadline_ns = deadline_ns
        self.queue.push(delivery)
        self.by_number[number] = <size_t> delivery

    def remove(self, uint64_t number):
        cdef Delivery *delivery = <Delivery *> <size_t> self.by_number.pop(number)
        self.queue.remove(delivery)
        delivery_free(delivery)

    def move(self, uint64_t number, int64_t deadline_ns):
        cdef Delivery *delivery = <Delivery *> <size_t> self.by_number[number]
        self.queue.remove(delivery)
        delivery.deadline_ns = deadline_ns
        self.queue.push(delivery)

    def peek(self):
        """Return (deadline, number) of the earliest, or None."""
        cdef Delivery *delivery = self.queue.peek()
        return None if delivery is NULL else (delivery.deadline_ns, delivery.message.id)

    def oldest(self, uint32_t most):
        """When the oldest was published, here one more than its number; 0 = there is none."""
        return self.queue.oldest(most, False)

    def take_all(self):
        """Move everything into another NumberedInFlightQueue and return that."""
        cdef NumberedInFlightQueue taken = NumberedInFlightQueue()
        taken.queue = self.queue.take_all()
        taken.by_number, self.by_number = self.by_number, {}
        return taken

    def __len__(self):
        return self.queue.size


cdef class NumberedInFlightTable:
    """An InFlightTable of numbered deliveries."""
    cdef InFlightTable table

    def __init__(self):
        self.table = InFlightTable()

    def insert(self, uint64_t id, uint64_t owner):
        cdef Message *message = message_new(account, NULL, 0, 0, id)
        cdef Delivery *delivery = delivery_new(account, message)
        delivery.owner = owner
        self.table.insert(delivery)

    def find(self, uint64_t id, uint64_t owner):
        """Return the owner found, or None."""
        cdef Entry *entry = self.table.find(id, owner)
        return None if entry is NULL else entry.delivery.owner

    def remove(self, uint64_t id, uint64_t owner):
        """Remove that delivery; return whether it was there."""
        cdef Entry *entry = self.table.find(id, owner)
        if entry is NULL or entry.delivery.owner != owner:
            return False
        delivery = entry.delivery
        if id & 1:
            self.table.remove(delivery)
        else:
            self.table.remove_at(entry)
        delivery_free(delivery)
        return True

    def copied(self):
        """(capacity, homes copied) while it grows, else (capacity, 0)."""
        return self.table.capacity, self.table.copied if self.table.larger is not NULL else 0

    def __len__(self):
        return self.table.size


cdef class NumberedMessages:
    """Numbered messages whose bytes follow from their numbers."""
    cdef dict by_number

    def __init__(self):
        self.by_number = {}

    def add(self, uint64_t number, uint32_t size):
        cdef Message *message = message_new(account, NULL, size, <int64_t> number, number)
        memset(message.body, <int> (number % 251), size)
        self.by_number[number] = <size_t> message

    def check(self, uint64_t number):
        """Return its size; ValueError if its bytes have changed."""
        cdef Message *message = <Message *> <size_t> self.by_number[number]
        cdef uint32_t i
        if message.id != number or message.timestamp_ns != <int64_t> number:
            raise ValueError(f"message {number} has another's header")
        for i in range(message.size):
            if <unsigned char> message.body[i] != number % 251:
                raise ValueError(f"message {number} has another's bytes at {i}")
        return message.size

    def drop(self, uint64_t number):
        message_drop(<Message *> <size_t> self.by_number.pop(number))


def encode_record(bytes body, int64_t timestamp_ns, uint32_t tries, uint64_t message_id):
    """Return the stored form of a message (spec nsqd-core §1); tries: attempts | failures << 16."""
    cdef Message *message = message_new(account, body, <uint32_t> len(body), timestamp_ns, message_id)
    cdef char header[26]
    if message is NULL:
        raise MemoryError
    message_put_record(message, tries, header)
    message_drop(message)
    return header[:26] + body


def decode_record(bytes record):
    """Return (timestamp_ns, tries, id, body) of a stored form; ValueError if it is shorter than its header."""
    cdef Message *message = message_load(account, record, <size_t> len(record))
    if message is NULL:
        raise ValueError(f"a record of {len(record)} bytes is shorter than its header")
    decoded = (message.timestamp_ns, tries_before(message), message.id, message.body[:message.size])
    message_drop(message)
    return decoded


def parse_command(bytes data, Py_ssize_t scanned=0):
    """Return (line size, name, parameter count, first three parameters), None for more, ValueError for broken."""
    cdef Line line
    cdef Parse outcome = parse_line(data, len(data), scanned, &line)
    if outcome == PARSE_BROKEN:
        raise ValueError(f"no newline in {len(data)} bytes")
    if outcome == PARSE_MORE:
        return None
    parameters = [line.parameter[i][:line.parameter_size[i]] for i in range(min(line.parameter_count, 3))]
    return line.size, line.name[:line.name_size], line.parameter_count, parameters


def decimal(bytes text):
    """Return the number that a parameter spells, or None."""
    cdef uint64_t value = 0
    return value if parse_decimal(text, len(text), &value) else None


def parse_http_request(bytes data not None):
    """Return (is_many, is_binary, topic, defer_ms, body, size) of a whole request, else the outcome."""
    cdef PlainRequest request
    cdef RequestOutcome outcome = parse_request(data, len(data), &request)
    if outcome != REQUEST_WHOLE:
        return <int> outcome
    topic = request.topic[:request.topic_size]
    body = request.body[:request.body_size]
    return bool(request.is_many), bool(request.is_binary), topic, request.defer_ms, body, request.size


def put_all(Topic topic, bytes data, bint is_binary):
    """Check and put all at once; return the ticket of the last."""
    cdef Budget endless = Budget(0, INT64_MAX)
    cdef Bodies bodies = Bodies(topic, data, is_binary)
    bodies.check_some(&endless)
    ticket = bodies.put_next()
    while not bodies.is_done:
        ticket = bodies.put_next()
    return ticket


def seal_record(bytes record):
    """Return what the writer makes of a hollow record."""
    cdef bytearray sealed = bytearray(record)
    seal(sealed, len(sealed))
    return bytes(sealed)


def is_hollow_record(bytes record, int64_t position):
    return bool(is_hollow(record, len(record), position))


def is_sealed_record(bytes record):
    return bool(is_sealed(record, len(record)))
