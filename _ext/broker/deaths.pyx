"""Of each dead letter it is known where, why and when it died. The broker gathers that, in memory; it is written where
the program wants it to be (Durability.on_deaths)."""

from cpython.unicode cimport PyUnicode_AsUTF8AndSize
from libc.string cimport memcpy

cdef enum:
    CLIENT_SIZE_MAX = 64
    # Of what somebody reads who looks for one of them.
    PIECE_SIZE = 65536


cdef class Deaths:
    def __init__(self, str topic not None):
        self.topic, self.pieces, self.data = topic, [], bytearray()

    cdef int add(self, uint64_t id, const Delivery *delivery, Reason reason, str topic, str channel, str client,
                 bytes error, int64_t now_ns) except -1:
        """The ids grow. Of the client's name the first 64 bytes are kept."""
        cdef Py_ssize_t used = len(self.data), topic_size = 0, channel_size = 0, client_size = 0
        cdef const char *topic_text = PyUnicode_AsUTF8AndSize(topic, &topic_size)
        cdef const char *channel_text = PyUnicode_AsUTF8AndSize(channel, &channel_size)
        cdef const char *client_text = PyUnicode_AsUTF8AndSize(client, &client_size)
        cdef Death death
        cdef char *out
        client_size = min(client_size, <Py_ssize_t> CLIENT_SIZE_MAX)
        death = Death(id, now_ns, delivery.message.id, delivery.message.timestamp_ns,
                      <uint32_t> (<Py_ssize_t> sizeof(Death) + topic_size + channel_size + client_size + len(error)),
                      delivery.attempts, delivery.failures, <uint8_t> reason, <uint8_t> topic_size,
                      <uint8_t> channel_size, <uint8_t> client_size, 0, <uint32_t> len(error))
        self.first_id, self.last_id, self.died_ns = id if used == 0 else self.first_id, id, now_ns
        self.data.extend(bytes(death.size))
        out = <char *> self.data + used
        memcpy(out, &death, sizeof(Death))
        out += sizeof(Death)
        memcpy(out, topic_text, topic_size)
        memcpy(out + topic_size, channel_text, channel_size)
        memcpy(out + topic_size + channel_size, client_text, client_size)
        memcpy(out + topic_size + channel_size + client_size, <const char *> error, len(error))
        return self.end_piece() if len(self.data) >= PIECE_SIZE else 0

    cdef int end_piece(self) except -1:
        data, self.data = self.data, bytearray()
        self.pieces.append((self.first_id, self.last_id, self.died_ns, bytes(data)))
        return 0

    def take(self):
        """Remove what was added, in pieces: the first and the last id, when that died, and what is known of these and
        those between."""
        if self.data:
            self.end_piece()
        pieces, self.pieces = self.pieces, []
        return pieces
