"""The socket of one connection: the asyncio side, and the time limits for a peer."""

import asyncio
import logging
import time
from dataclasses import dataclass
from typing import cast

from nsqfast._ext.core.budget import Part
from nsqfast.net.refusal import Refusal
from nsqfast.nsqlookupd.session import Desk, Session, State, encode
from nsqfast.wire.gotext import format_address

log = logging.getLogger("nsqlookupd")

# Size of one read. From a pipelining peer it holds about 100 commands, a few milliseconds with their log lines. If they
# exceed a part of a turn, nothing more is read from that peer until the rest is done.
INPUT_SIZE = 2 * 1024
TURN_S = 0.001  # until the loop has polled its sockets once more


@dataclass(frozen=True, slots=True)
class TcpLimits:
    """How long a peer may take, in seconds. Between commands it may be silent for ever, as with NSQ's."""

    magic_timeout_s: float = 10.0  # from the start to the last byte of the magic
    command_timeout_s: float = 30.0  # from a command's first byte to its last, and to read answers
    linger_s: float = 1.0  # after the last answer, for a peer that is still sending


DEFAULT_LIMITS = TcpLimits()


class PeerConnection(asyncio.BufferedProtocol):
    """One peer."""

    # Nothing runs between get_buffer and buffer_updated, so all connections share one buffer.
    _room = memoryview(bytearray(INPUT_SIZE))

    def __init__(
        self,
        desk: Desk,
        connections: "set[PeerConnection]",
        limits: TcpLimits = DEFAULT_LIMITS,
    ) -> None:
        self._desk = desk
        self._connections = connections
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._session = Session(desk, "")
        self._timer: asyncio.TimerHandle | None = None
        self._allowed_s = 0.0
        self._is_write_paused = False
        self._is_read_paused = False

    # asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._session.remote = format_address(transport.get_extra_info("peername"))
        self._connections.add(self)
        log.info("TCP: new client(%s)", self._session.remote)
        self._arm(self._limits.magic_timeout_s)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - as asyncio calls it
        return self._room

    def buffer_updated(self, nbytes: int) -> None:
        if not self._session.is_over:  # input after an error is read and ignored
            self._run(bytes(self._room[:nbytes]))

    def data_received(self, data: bytes) -> None:
        """What came under TLS, of which one read of the socket brings many pieces."""
        if self._session.is_held:
            self._session.hold(data)
        elif not self._session.is_over:
            self._run(data)

    def eof_received(self) -> bool:
        """All answers are on their way; the transport closes when they are sent."""
        self._write(self._session.receive_end())
        return False

    def pause_writing(self) -> None:
        self._is_write_paused = True
        self._choose_reading()
        self._arm(self._limits.command_timeout_s)

    def resume_writing(self) -> None:
        self._is_write_paused = False
        if self._session.is_over:
            return
        if self._session.is_held:
            self._wait_turn()
        else:
            self._choose_reading()
            self._watch(begins_anew=True)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - likewise
        self._transport = None
        self._disarm()
        self._session.end()
        self._connections.discard(self)
        log.info("PROTOCOL(V1): [%s] exiting ioloop", self._session.remote)

    def abort(self) -> None:
        """End the connection at once, without an answer."""
        if self._transport is not None:
            self._transport.abort()

    # inside

    def _run(self, data: bytes) -> None:
        """Run as many commands as fit into a part of a turn; the rest follows in later turns."""
        session = self._session
        was_magic = session.state is State.MAGIC
        answers = session.receive(data, time.monotonic_ns(), Part())
        self._write(answers)
        if session.is_over:
            self._finish()
            return
        self._choose_reading()
        if self._is_write_paused:
            return
        if session.is_held:
            self._wait_turn()
        else:
            self._watch(bool(answers) or (was_magic and session.state is not State.MAGIC))

    def _wait_turn(self) -> None:
        self._disarm()  # the delay is not the peer's
        self._desk.turns.join(self._go_on)

    def _go_on(self) -> None:
        if self._session.is_held and not self._is_write_paused:
            self._run(b"")

    def _choose_reading(self) -> None:
        waits = self._is_write_paused or self._session.is_held
        if self._transport is None or waits == self._is_read_paused:
            return
        self._is_read_paused = waits
        if waits:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def _write(self, answers: bytes) -> None:
        if answers and self._transport is not None:
            self._transport.write(answers)

    def _finish(self) -> None:
        """Close after the last answer, an error.

        Closing while the peer still sends would reset the connection and might take the answer with it. So we first
        shut our side, and read and discard the peer's input until it closes too.
        """
        transport = self._transport
        if transport is None:
            return
        if not transport.can_write_eof():
            transport.close()
            return
        transport.write_eof()
        if self._is_read_paused:
            self._is_read_paused = False
            transport.resume_reading()
        self._arm(self._limits.linger_s)

    def _watch(self, begins_anew: bool) -> None:
        """Set a timer while the peer owes the rest of something; partial input does not extend it."""
        if not self._session.is_waiting:
            self._disarm()
        elif begins_anew or self._timer is None:
            self._arm(self._limits.command_timeout_s)

    def _arm(self, seconds: float) -> None:
        self._disarm()
        self._allowed_s = seconds
        self._timer = self._loop.call_later(seconds, self._listen_on)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _listen_on(self) -> None:
        """Time is up, but the timer may fire before the sockets are polled: read waiting input first.

        A loop that stood still listens for an extra period as long as its delay.
        """
        assert self._timer is not None
        late_s = self._loop.time() - self._timer.when()
        self._timer = self._loop.call_later(
            max(TURN_S, min(late_s, self._allowed_s)), self._give_up
        )

    def _give_up(self) -> None:
        self._timer = None
        if not self._session.is_over:
            does = "reads no answers" if self._is_write_paused else "does not finish what it began"
            log.warning("client(%s) %s, closing", self._session.remote, does)
        self.abort()


def refuse(count_max: int) -> Refusal:
    """The answer to who is beyond --max-connections."""
    return Refusal(encode(b"E_INVALID too many connections, the limit is %d" % count_max))
