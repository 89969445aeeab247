"""Protocol V1 of one connection, without its socket: bytes in, answers out.

    MAGIC ─► LINE ─► a command ─► LINE        every error but one is answered and ends the connection
               └─ IDENTIFY ─► SIZE ─► BODY ─► LINE

    command      before IDENTIFY   after
    PING         OK                OK, and the peer was seen now
    IDENTIFY     its answer        E_INVALID
    REGISTER     E_INVALID         OK, or the error that it is one too many, after which the connection goes on
    UNREGISTER   E_INVALID         OK

Unfinished input is bounded: a line by LINE_SIZE_MAX, a body by BODY_SIZE_MAX before any of it arrives.
"""

import logging
import struct
from collections import Counter
from dataclasses import dataclass, field
from enum import Enum, auto

from nsqfast._ext.core.budget import Part
from nsqfast._ext.core.log_quota import LogQuota
from nsqfast.errors import ProtocolError
from nsqfast.net.slices import Turns
from nsqfast.nsqlookupd.peer import Peer, identify
from nsqfast.nsqlookupd.registry import CeilingError, Registry
from nsqfast.wire.gotext import format_duration
from nsqfast.wire.names import is_valid_name
from nsqfast.wire.protocol import LENGTH_SIZE, LINE_SIZE_MAX, MAGIC_V1
from nsqfast.wire.refusals import REFUSED

log = logging.getLogger("nsqlookupd")

# An IDENTIFY has some 300 bytes.
BODY_SIZE_MAX = 64 * 1024

COMMAND_UNITS = 64  # of a budget: the clock is read after each command
OK = b"\0\0\0\2OK"
UNKNOWN = "other"


class State(Enum):
    """How to interpret the next bytes."""

    MAGIC = auto()
    LINE = auto()
    SIZE = auto()
    BODY = auto()
    OVER = auto()  # ignored


# By code, for nsqfast.wire.refusals.
_REASONS = {"E_BAD_BODY": "bad_identity", "E_UNAUTHORIZED": "wrong_registration_secret"}
# Those of nsqlookupd alone, which are shown while they are 0, too.
REFUSED.update(
    dict.fromkeys((*_REASONS.values(), "too_many_names", "too_many_topics", "too_many_channels"), 0)
)

# The error text when the stream ends in the middle of it.
_CUT = {
    State.SIZE: "IDENTIFY failed to read body size",
    State.BODY: "IDENTIFY failed to read body",
}


@dataclass(slots=True)
class Desk:
    """State shared by all sessions."""

    registry: Registry
    identity: bytes  # the data of the answer to IDENTIFY
    secret: str = ""  # that an IDENTIFY has to hold; '' = none
    commands: Counter[str] = field(default_factory=Counter)  # by name
    errors: Counter[str] = field(default_factory=Counter)  # by code
    turns: Turns = field(default_factory=Turns)  # of those that are held


class Session:
    """One connection. Times are nanoseconds of a monotonic clock."""

    def __init__(self, desk: Desk, remote: str) -> None:
        self.state = State.MAGIC
        self.remote = remote
        self._quota: LogQuota | None = (
            None  # of log lines; None = the peer has caused none that is counted
        )
        self._desk = desk
        self._registry = desk.registry
        self._peer: Peer | None = None
        self._input = bytearray()
        self._scanned = 0  # no end of line before this offset
        self._body_size = 0
        self._now_ns = 0
        self.is_held = False  # the next `receive` continues with the remaining input

    @property
    def is_over(self) -> bool:
        """Whether the peer's input is ignored from now on."""
        return self.state is State.OVER

    @property
    def is_waiting(self) -> bool:
        """Whether the peer has begun something and has to continue."""
        return self.state in (State.MAGIC, State.SIZE, State.BODY) or bool(self._input)

    def receive(self, data: bytes, now_ns: int, part: Part | None = None) -> bytes:
        """Answer all complete input, as far as the part of the turn allows: see `is_held`."""
        self._input += data
        self._now_ns = now_ns
        self.is_held = False
        answers: list[bytes] = []
        try:
            while (answer := self._step()) is not None:
                answers.append(answer)
                if part is not None and part.is_spent(COMMAND_UNITS):
                    self.is_held = bool(self._input)
                    break
        except ProtocolError as error:
            answers.append(self._fail(error))
        return b"".join(answers)

    def hold(self, data: bytes) -> None:
        """Take more input while it is held."""
        self._input += data

    def receive_end(self) -> bytes:
        """The peer has sent everything: the answer to an unfinished command."""
        cut = _CUT.get(self.state)
        return self._fail(ProtocolError("E_BAD_BODY", cut)) if cut else b""

    def end(self) -> None:
        """The connection is over; remove its registrations."""
        self.state = State.OVER
        self.is_held = False
        self._input.clear()
        if self._peer is not None:
            self._registry.remove(self._peer)
            self._peer = None

    @property
    def _lines(self) -> LogQuota:
        if self._quota is None:
            self._quota = LogQuota(self.remote.rpartition(":")[0])
        return self._quota

    def _fail(self, error: ProtocolError) -> bytes:
        self._desk.errors[error.code] += 1
        if error.code in _REASONS:
            REFUSED[_REASONS[error.code]] += 1
        if error.code != "E_BAD_PROTOCOL" and (note := self._lines.admit(True)) is not None:
            log.error("client(%s) - %s%s", self.remote, error, note)
        self.end()
        return encode(str(error).encode("utf-8", "surrogateescape"))

    # ---- reading

    def _step(self) -> bytes | None:
        """The answer to the next complete input, possibly empty; None if nothing is complete."""
        match self.state:
            case State.LINE:
                line = self._take_line()
                return None if line is None else self._run(line)
            case State.MAGIC:
                magic = self._take(len(MAGIC_V1))
                return None if magic is None else self._begin(magic)
            case State.SIZE:
                size = self._take(LENGTH_SIZE)
                return None if size is None else self._expect_body(size)
            case State.BODY:
                body = self._take(self._body_size)
                return None if body is None else self._identify(body)
            case State.OVER:
                return None

    def _take(self, size: int) -> bytes | None:
        if len(self._input) < size:
            return None
        taken = bytes(self._input[:size])
        del self._input[:size]
        return taken

    def _take_line(self) -> bytes | None:
        end = self._input.find(b"\n", self._scanned)
        size = len(self._input) if end < 0 else end + 1
        if size > LINE_SIZE_MAX:
            raise ProtocolError("E_INVALID", f"command longer than {LINE_SIZE_MAX} bytes")
        if end < 0:
            self._scanned = size
            return None
        self._scanned = 0
        return self._take(size)

    # ---- commands

    def _begin(self, magic: bytes) -> bytes:
        shown = magic.decode("latin-1")
        log.info("CLIENT(%s): desired protocol magic '%s'", self.remote, shown)
        if magic != MAGIC_V1:
            log.error("client(%s) bad protocol magic '%s'", self.remote, shown)
            raise ProtocolError("E_BAD_PROTOCOL")
        self.state = State.LINE
        return b""

    def _run(self, line: bytes) -> bytes:
        name, *words = line.strip().split(b" ")
        match name:
            case b"PING":
                return self._ping()
            case b"REGISTER":
                self._desk.commands["REGISTER"] += 1
                return self._register(*self._parse_names("REGISTER", words))
            case b"UNREGISTER":
                self._desk.commands["UNREGISTER"] += 1
                self._registry.unregister(*self._parse_names("UNREGISTER", words))
                return OK
            case b"IDENTIFY":
                if self._peer is not None:
                    raise ProtocolError("E_INVALID", "cannot IDENTIFY again")
                self.state = State.SIZE
                return b""
        self._desk.commands[UNKNOWN] += 1
        raise ProtocolError("E_INVALID", f"invalid command {_text(name)}")

    def _ping(self) -> bytes:
        self._desk.commands["PING"] += 1
        peer = self._peer
        if peer is not None:
            if log.isEnabledFor(logging.INFO):
                since = format_duration(self._now_ns - peer.seen_ns)
                log.info("CLIENT(%s): pinged (last ping %s)", self.remote, since)
            peer.seen_ns = self._now_ns
        return OK

    def _expect_body(self, size: bytes) -> bytes:
        (self._body_size,) = struct.unpack(">i", size)
        if not 0 <= self._body_size <= BODY_SIZE_MAX:
            raise ProtocolError("E_BAD_BODY", "IDENTIFY failed to read body size")
        self.state = State.BODY
        return b""

    def _identify(self, body: bytes) -> bytes:
        self._desk.commands["IDENTIFY"] += 1
        peer = identify(body, self.remote, self._now_ns, self._desk.secret)
        log.info(
            "CLIENT(%s): IDENTIFY Address:%s TCP:%d HTTP:%d Version:%s",
            self.remote,
            peer.broadcast_address,
            peer.tcp_port,
            peer.http_port,
            peer.version,
        )
        self._registry.add(peer)
        self._peer = peer
        self.state = State.LINE
        return encode(self._desk.identity)

    def _register(self, peer: Peer, topic: str, channel: str) -> bytes:
        """An nsqd is not sent away for what is too much: it would come back and register all the rest again. Go's does
        not even read the answer.
        """
        try:
            self._registry.register(peer, topic, channel)
        except CeilingError as error:
            names = " ".join(filter(None, (topic, channel)))
            text = f"{error.code} REGISTER {names} {error.detail}"
            REFUSED[error.reason] += 1
            if (note := self._lines.admit()) is not None:
                log.warning("client(%s) - %s%s", self.remote, text, note)
            return encode(text.encode())
        return OK

    def _parse_names(self, command: str, words: list[bytes]) -> tuple[Peer, str, str]:
        """Return the peer, and the topic and the channel (or "") that a command names."""
        if self._peer is None:
            raise ProtocolError("E_INVALID", "client must IDENTIFY")
        if not words:
            raise ProtocolError("E_INVALID", f"{command} insufficient number of params")
        topic = _text(words[0])
        channel = _text(words[1]) if len(words) > 1 else ""
        if not is_valid_name(topic):
            raise ProtocolError("E_BAD_TOPIC", f"{command} topic name '{topic}' is not valid")
        if channel and not is_valid_name(channel):
            raise ProtocolError("E_BAD_CHANNEL", f"{command} channel name '{channel}' is not valid")
        return self._peer, topic, channel


def encode(data: bytes) -> bytes:
    """Encode an answer: its length, then the data; V1 has no frame types."""
    return struct.pack(">i", len(data)) + data


def _text(word: bytes) -> str:
    return word.decode("utf-8", "surrogateescape")
