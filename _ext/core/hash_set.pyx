"""The hash is SipHash-2-4 with 128 bits (https://github.com/veorq/SipHash).

If two different records had the same hash, one would be taken for a duplicate and lost; with 2^32 records the chance of
that is 2^-65.
"""

import os

cimport cython
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

cdef enum:
    SLOT_COUNT_MIN = 1024

cdef extern from *:
    """
    #define nsq_rotate_left(x, n) (((x) << (n)) | ((x) >> (64 - (n))))
    """
    uint64_t rotate_left "nsq_rotate_left"(uint64_t x, int n) noexcept nogil


cdef struct Sip:
    uint64_t v0
    uint64_t v1
    uint64_t v2
    uint64_t v3


cdef inline void mix_rounds(Sip *s, int rounds) noexcept nogil:
    for _ in range(rounds):
        s.v0 += s.v1
        s.v1 = rotate_left(s.v1, 13) ^ s.v0
        s.v0 = rotate_left(s.v0, 32)
        s.v2 += s.v3
        s.v3 = rotate_left(s.v3, 16) ^ s.v2
        s.v0 += s.v3
        s.v3 = rotate_left(s.v3, 21) ^ s.v0
        s.v2 += s.v1
        s.v1 = rotate_left(s.v1, 17) ^ s.v2
        s.v2 = rotate_left(s.v2, 32)


cdef Hash hash_128(const char *data, Py_ssize_t size, uint64_t key_low, uint64_t key_high) noexcept nogil:
    cdef Sip s
    cdef Hash found
    cdef uint64_t word
    cdef const char *place = data
    cdef const char *words_end = data + (size & ~<Py_ssize_t> 7)
    s.v0 = key_low ^ <uint64_t> 0x736f6d6570736575
    s.v1 = key_high ^ <uint64_t> 0x646f72616e646f6d ^ 0xee
    s.v2 = key_low ^ <uint64_t> 0x6c7967656e657261
    s.v3 = key_high ^ <uint64_t> 0x7465646279746573
    while place < words_end:
        memcpy(&word, place, 8)
        s.v3 ^= word
        mix_rounds(&s, 2)
        s.v0 ^= word
        place += 8
    word = 0
    if size & 7:
        memcpy(&word, place, size & 7)
    word |= <uint64_t> (size & 0xff) << 56
    s.v3 ^= word
    mix_rounds(&s, 2)
    s.v0 ^= word
    s.v2 ^= 0xee
    mix_rounds(&s, 4)
    found.low = s.v0 ^ s.v1 ^ s.v2 ^ s.v3
    s.v1 ^= 0xdd
    mix_rounds(&s, 4)
    found.high = s.v0 ^ s.v1 ^ s.v2 ^ s.v3
    return found


def siphash_128(bytes data not None, bytes key not None):
    """Return the hash itself, to be compared with published values."""
    cdef uint64_t keys[2]
    if len(key) != 16:
        raise ValueError("the key has 16 bytes")
    memcpy(keys, <const char *> key, 16)
    cdef Hash found = hash_128(data, len(data), keys[0], keys[1])
    return (<char *> &found)[:16]


@cython.final
cdef class Seen:
    """Its tables take at most `memory_size` bytes, or 32 KiB if that is more."""

    def __cinit__(self, Py_ssize_t memory_size):
        self.young.slots = self.old.slots = NULL

    def __init__(self, Py_ssize_t memory_size):
        if self.young.slots is not NULL:
            raise ValueError("it was begun already")
        key = os.urandom(16)
        memcpy(self.keys, <const char *> key, 16)
        self.slot_count_max = SLOT_COUNT_MIN
        while self.slot_count_max * 4 * <Py_ssize_t> sizeof(Hash) <= <uint64_t> max(memory_size, 0):
            self.slot_count_max *= 2
        make_table(&self.young, SLOT_COUNT_MIN)

    def __dealloc__(self):
        free(self.young.slots)
        free(self.old.slots)

    @property
    def count(self):
        """How many different records are remembered; one that came again lately may count twice."""
        return self.young.count + self.old.count

    @property
    def count_sure(self):
        """How many different records may come between two equal ones that are still recognized as equal."""
        return room_of(self.slot_count_max)

    @property
    def memory_size(self):
        """Bytes of both tables, now."""
        return (self.young.slot_count + self.old.slot_count) * sizeof(Hash)

    def unmark_seen(self, const unsigned char[::1] data not None, const int64_t[::1] starts not None,
                    const int64_t[::1] ends not None, uint8_t[::1] chosen not None, bytes scope not None,
                    const int64_t[::1] stamps=None):
        """Clear `chosen` for all records seen before and remember the others; return how many new ones there are.

        Records are equal only within the same scope (a topic), and, with `stamps`, only if their stamps are equal too.
        """
        cdef Hash key = hash_128(scope, len(scope), self.keys[0], self.keys[1])
        cdef Hash hash
        cdef Py_ssize_t index
        cdef int64_t before = self.duplicates
        cdef uint64_t stamp = 0
        for index in range(starts.shape[0]):
            if not chosen[index]:
                continue
            if stamps is not None:
                stamp = <uint64_t> stamps[index]
            hash = hash_128(<const char *> &data[0] + starts[index] if data.shape[0] else NULL,
                            ends[index] - starts[index], key.low, key.high ^ stamp)
            if not self.add(hash):
                chosen[index] = 0
                self.duplicates += 1
        return self.duplicates - before

    cdef bint add(self, Hash hash) except -1:
        """Add the hash; return whether it is new."""
        if hash.low == 0 and hash.high == 0:
            hash.low = 1  # zero marks a free slot
        if has(&self.young, hash):
            return False
        if self.young.count >= room_of(self.young.slot_count):
            if self.young.slot_count < self.slot_count_max:
                grow(&self.young)
            else:
                self.rotate()
        put(&self.young, hash)
        return self.old.slots is NULL or not has(&self.old, hash)

    cdef int rotate(self) except -1:
        """Forget the old table."""
        cdef Table fresh
        self.forgotten += self.old.count
        free(self.old.slots)
        self.old = self.young
        self.young.slots = NULL
        self.young.slot_count = self.young.count = 0
        make_table(&fresh, self.slot_count_max)
        self.young = fresh
        return 0


cdef inline uint64_t room_of(uint64_t slot_count) noexcept nogil:
    return slot_count // 4 * 3


cdef int make_table(Table *table, uint64_t slot_count) except -1:
    table.slots = <Hash *> calloc(slot_count, sizeof(Hash))
    if table.slots is NULL:
        raise MemoryError
    table.slot_count = slot_count
    table.count = 0
    return 0


cdef inline Hash *find(Table *table, Hash hash) noexcept nogil:
    """Return its slot, or the free one where it belongs."""
    cdef uint64_t mask = table.slot_count - 1
    cdef uint64_t index = hash.low & mask
    cdef Hash *slot
    while True:
        slot = &table.slots[index]
        if (slot.low == hash.low and slot.high == hash.high) or (slot.low == 0 and slot.high == 0):
            return slot
        index = (index + 1) & mask


cdef inline bint has(Table *table, Hash hash) noexcept nogil:
    if table.slot_count == 0:
        return False
    cdef Hash *slot = find(table, hash)
    return slot.low != 0 or slot.high != 0


cdef inline void put(Table *table, Hash hash) noexcept nogil:
    find(table, hash)[0] = hash
    table.count += 1


cdef int grow(Table *table) except -1:
    cdef Table larger
    cdef uint64_t index
    make_table(&larger, table.slot_count * 2)
    for index in range(table.slot_count):
        if table.slots[index].low or table.slots[index].high:
            put(&larger, table.slots[index])
    free(table.slots)
    table[0] = larger
    return 0
