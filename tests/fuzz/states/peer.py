"""One client of protocol V2 that does as it likes, and notes in the books what it did and saw."""

import asyncio
import json
import socket
import struct
from collections import defaultdict, deque

from fuzz.states.books import DEAD_ATTEMPTS, SERIAL_SIZE, BrokenError
from support.packed import PACKED
from support.wire import (
    BARRIER_TOPIC,
    ERROR,
    HEARTBEAT,
    MAGIC,
    MESSAGE,
    encode_command,
    encode_messages,
)

NOT_SETTLED = (b"E_FIN_FAILED", b"E_REJ_FAILED", b"E_REQ_FAILED", b"E_TOUCH_FAILED")
ANSWER_SECONDS_MAX = 60.0
OUTPUT_SIZE_MAX = 4 << 20


class Pipe:
    """The socket below a packed one: what arrived, and where to write."""

    def __init__(self, transport):
        self.sendall = transport.write
        self.arrived = b""

    def recv(self, _size):
        data, self.arrived = self.arrived, b""
        return data


class Fin:
    """One FIN whose success is not known yet."""

    def __init__(self, identity, serial, attempts):
        self.identity, self.serial, self.attempts = identity, serial, attempts
        self.is_refused = False


class Peer(asyncio.Protocol):
    """A connection. `is_excused`: the broker may end it, because of what was sent or deleted."""

    def __init__(self, world):
        self.world = world
        self.books = (
            None  # of the channel that it is subscribed to, or whose dead letters it consumes
        )
        self.topic = None  # with ids of its own
        self.held = {}  # (serial, attempts) by id: delivered and not settled
        self.seen = {}  # attempts by id, of the latest delivery
        self.fins = defaultdict(deque)  # those of them that are not refused, by id
        self.waiting = deque()  # FINs, and what to call at each answer, in the order they were sent
        self.answers_open = 0
        self.is_excused = self.is_lost = self.is_half_closed = False
        self.says_nop = True
        self.may_reject = False
        self.calm = asyncio.Event()  # nothing is waited for
        self.calm.set()
        self.found = None  # a set: note the messages there, not in the books
        self._buffer = bytearray()
        self._pipe = self._packed = None
        self._kind = None  # of the packing that was asked for

    @classmethod
    async def connect(cls, world, **identity):
        loop = asyncio.get_running_loop()
        _, peer = await loop.create_connection(lambda: cls(world), *world.server.tcp)
        peer.transport.write(MAGIC)
        peer.identify(identity)
        await peer.until_answered()
        return peer

    # -- writing

    def write(self, data):
        if self.is_lost or self.is_half_closed:
            return
        if self._packed:
            self._packed.sendall(data)
        else:
            self.transport.write(data)

    def ask(self, data, on_answer=None):
        """A command that is answered."""
        self.await_answer(on_answer or (lambda _: None))
        self.write(data)

    def await_answer(self, on_answer):
        if not self.is_lost:
            self.waiting.append(on_answer)
            self.answers_open += 1
            self.calm.clear()

    async def until_answered(self):
        """All commands were, or the connection is gone."""
        try:
            await asyncio.wait_for(self.calm.wait(), ANSWER_SECONDS_MAX)
        except TimeoutError:
            raise BrokenError(
                f"{self} waits for {self.answers_open} answers",
                self.books,
            ) from None

    async def until_written(self):
        """The broker reads what it is sent."""
        while not self.is_lost and self.transport.get_write_buffer_size() > OUTPUT_SIZE_MAX:
            await asyncio.sleep(0.01)

    def identify(self, identity):
        self.may_reject = identity.get("reject", False)
        self._kind = next((kind for kind in PACKED if identity.get(kind)), None)
        body = json.dumps({"feature_negotiation": True, **identity}).encode()
        self.ask(encode_command("IDENTIFY", body=body), self._change_over)

    def _change_over(self, answer):
        if self._kind and json.loads(answer)[self._kind]:
            self._pipe = Pipe(self.transport)
            early = bytes(self._buffer)
            self._buffer.clear()
            self._packed = PACKED[self._kind](self._pipe, early)
            self.await_answer(lambda _: None)

    def subscribe(self, books, ready_count, *, to_dead_letters=False):
        self.books = books
        if to_dead_letters:
            self.topic, channel = books.dead_letters
            self.ask(encode_command("SUB", self.topic, channel))
        else:
            self.topic = books.topic
            self.is_excused |= books.wiping > 0  # it may be deleted under it
            wipes = books.begin_creation()
            command = encode_command("SUB", books.topic, books.name)
            self.ask(command, lambda _: books.end_creation(wipes))
        self.write(encode_command("RDY", str(ready_count)))

    def publish(self, topic, bodies_size, count=1, delay_ms=None):
        """PUB, DPUB, or MPUB where there are several; an OK for all of them."""
        serials, accept = self.world.books.send(topic, count, str(self))
        bodies = [serial.to_bytes(SERIAL_SIZE, "big") + bytes(bodies_size) for serial in serials]
        if count > 1:
            command = encode_command("MPUB", topic, body=encode_messages(bodies))
        elif delay_ms is not None:
            command = encode_command("DPUB", topic, str(delay_ms), body=bodies[0])
        else:
            command = encode_command("PUB", topic, body=bodies[0])
        self.ask(command, lambda _: accept())

    def fin(self, messages):
        """[(id, (serial, attempts))] of some that it holds, or that another one of its topic does."""
        if self.is_lost or self.is_half_closed:
            return
        for identity, (serial, attempts) in messages:
            self.held.pop(identity, None)
            fin = Fin(identity, serial, attempts)
            self.waiting.append(fin)
            self.fins[identity].append(fin)
            self.books.send_fin(serial)
        self.write(b"".join(b"FIN %s\n" % identity for identity, _ in messages))

    def fin_found(self):
        """Finish what was only noted."""
        self.write(b"".join(b"FIN %s\n" % identity for identity in self.held))
        self.held.clear()

    def barrier(self):
        """An answer that comes when all before it is done."""
        self.ask(encode_command("PUB", BARRIER_TOPIC, body=b"-"))

    # -- reading

    def connection_made(self, transport):
        self.transport = transport
        self.world.connected.add(self)
        self.address = transport.get_extra_info("sockname")
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __str__(self):
        return f"client {self.address[1]} of {self.topic or 'nothing'}, {self.books or ''}"

    def data_received(self, data):
        try:
            self._feed(data)
        except Exception as error:  # whatever it is, the run has found something
            self.world.complain(error)

    def _feed(self, data):
        if self._packed:
            self._pipe.arrived += data
            self._unpack()
        else:
            self._buffer += data
        start, size = 0, len(self._buffer)
        while size - start >= 8:
            length, kind = struct.unpack_from(">ii", self._buffer, start)
            if size - start < 4 + length:
                break
            body = bytes(self._buffer[start + 8 : start + 4 + length])
            start += 4 + length
            had_packing = self._packed
            if kind == MESSAGE:
                self._take(body)
            else:
                # What is behind an answer may be packed.
                del self._buffer[:start]
                self._answer(kind, body)
                if self._packed and not had_packing:
                    self._unpack()
                start, size = 0, len(self._buffer)
        del self._buffer[:start]

    def _unpack(self):
        while plain := self._packed.recv(1 << 16):
            self._buffer += plain

    def _take(self, data):
        attempts, identity = struct.unpack_from(">H16s", data, 8)
        serial = int.from_bytes(data[26 : 26 + SERIAL_SIZE], "big")
        if self.topic != self.books.topic:
            attempts += DEAD_ATTEMPTS
        if self.found is not None:
            self.found.add(serial)
            self.held[identity] = serial, attempts
            return
        self.books.deliver(serial, attempts)
        self.held[identity] = serial, attempts
        self.seen[identity] = attempts
        self.world.note_id(self.topic, identity, serial, attempts)

    def _answer(self, kind, data):
        if data == HEARTBEAT:
            if self.says_nop:
                self.write(b"NOP\n")
        elif kind != ERROR:
            self._confirm(data)
        elif data.startswith(NOT_SETTLED):
            self._refuse(data)
        elif not self.is_excused:
            raise BrokenError(f"{self} did nothing wrong and was told {data!r}", self.books)

    def _confirm(self, data):
        while isinstance(fin := self.waiting.popleft(), Fin):
            if fin.is_refused:
                self.books.refuse_fin(fin.serial)
            else:
                self._forget(fin.identity)
                attempts = self.seen.get(fin.identity, fin.attempts)
                self.books.confirm_fin(fin.serial, attempts, str(self))
        self.answers_open -= 1
        fin(data)
        if not self.answers_open:
            self.calm.set()

    def _refuse(self, data):
        command, identity = data.split()[1:3]
        if command == b"FIN" and identity in self.fins:
            self._forget(identity).is_refused = True

    def _forget(self, identity):
        """The earliest FIN of this id: its outcome is known."""
        found = self.fins[identity]
        fin = found.popleft()
        if not found:
            del self.fins[identity]
        return fin

    # -- the end

    def connection_lost(self, error):
        self.is_lost = True
        self.world.connected.discard(self)
        for one in self.waiting:
            if isinstance(one, Fin):
                self.books.lose_fin(one.serial)
        self.waiting.clear()
        self.calm.set()
        if not (self.is_excused or self.world.is_stopping or self.world.is_late()):
            self.world.complain(
                BrokenError(f"{self} did nothing wrong and was dropped: {error}", self.books)
            )

    def end(self, way):
        """Close, reset or half-close it."""
        self.is_excused = True
        if self.is_lost:
            return
        if way == "half" and self.transport.can_write_eof():
            self.transport.resume_reading()
            self.transport.write_eof()
            self.is_half_closed = True
        elif way == "reset":
            linger = struct.pack("ii", 1, 0)
            found = self.transport.get_extra_info("socket")
            found.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            self.transport.abort()
        else:
            self.transport.close()
