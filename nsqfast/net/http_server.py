"""The server's half of one HTTP/1 connection: bytes in, requests to a handler, answers out in order.

    HttpFront ─► receive ─► parser ─► queue ─► handler ─► ready ─► out ─► one transport.write
    Shortcut     in slices            only when           answers that    gathered per read
      └► owed    (input: the rest)    blocked             wait for a disk

On the common path nothing waits: a request is parsed, handled and answered inside data_received, without a task, a
timer or a queue. A broker's Shortcut answers plain publishes even without the parser and the handler, whenever nothing
is queued before them; what it owes until a disk has it goes before all other answers. Every other stage is bounded,
because the peer decides how much it sends: the parser gets the input in slices, and no further slice while more than a
few answers wait or the peer does not read.

Time is bounded too. One timer per connection is set to the earliest relevant deadline. It is moved only when a request
stays incomplete, so a busy connection never touches it.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import cast

from nsqfast._ext.core.log_quota import LogQuota
from nsqfast._ext.core.memory import Memory
from nsqfast._ext.protocol.http_front import HttpFront, Shortcut
from nsqfast.net.http_message import ANSWERED, TEXT, Request, Response, render
from nsqfast.net.http_receiver import Handler, HttpReceiver
from nsqfast.net.slices import Turns
from nsqfast.wire.gotext import format_address, format_peer_host
from nsqfast.wire.refusals import REFUSED

log = logging.getLogger(__name__)

SLICE_SIZE = 16 * 1024  # the smallest request has some 30 bytes, so a slice holds about 500
WAITING_SLICE_SIZE = 2 * 1024  # while an answer waits for the disk
WAITING_COUNT_MAX = 64  # answers of one connection that may wait
REQUEST_UNITS = 64  # cost of a request: the clock is read after each
OUT_SIZE_MAX = 256 * 1024  # answers gathered before they are written
RECEIVE_RATE_MIN = 64 * 1024  # bytes per second that earn a large body more time
TURN_S = 0.001  # until the loop has polled its sockets once more

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
INTERNAL_ERROR = Response(500, b"500 Internal Server Error", TEXT)
NO_MEMORY = Response(503, b"503 Service Unavailable: no memory left for the answer", TEXT)


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """How long a peer may take, in seconds."""

    receive_timeout_s: float = 30.0  # from a request's first byte to its last
    idle_timeout_s: float = 120.0  # between requests, and for a peer that does not read its answers
    linger_s: float = 1.0  # after the last answer, for a peer that is still sending

    def receive_s(self, body_size: int) -> float:
        """For a whole request."""
        return self.receive_timeout_s + body_size / RECEIVE_RATE_MIN


DEFAULT_LIMITS = HttpLimits()


class HttpProtocol(HttpFront, HttpReceiver, asyncio.BufferedProtocol):
    """One connection."""

    def __init__(
        self,
        handler: Handler,
        limits: HttpLimits = DEFAULT_LIMITS,
        connections: "set[HttpProtocol] | None" = None,
        turns: Turns | None = None,
        shortcut: Shortcut | None = None,
    ) -> None:
        super().__init__(handler, turns or Turns())
        self.room = self._turns.room
        self._limits = limits
        self._connections = connections
        self._shortcut = shortcut
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        # waiting requests and answers
        self._input = memoryview(b"")
        self._queue: deque[Request] = deque()
        # Those before the queue; answers of later ones wait for that of the first.
        self._unanswered: deque[Request] = deque()
        self._running: Request | None = None  # its request may still have effects: no other begins
        self._out: list[bytes] = []
        self._out_size = 0
        self._unsent = Unsent(self._turns.memory)
        self._is_write_paused = self._is_read_paused = self._is_held = False
        self._is_advance_due = False
        self._is_eof_due = False  # the peer's EOF came before its turn to run
        # state of the end
        self._is_finished = False  # the last answer was given
        self._timer: asyncio.TimerHandle | None = None
        self._linger_until = self._grace_until = 0.0

    # asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        peername = transport.get_extra_info("peername")
        self._remote = format_address(peername)
        self._lines = LogQuota(format_peer_host(peername))
        self.last_active = self._loop.time()
        self._arm(self.last_active + self._limits.idle_timeout_s)
        if self._shortcut is not None:
            self.attach(self._shortcut, self._transport.write, self._loop.time)
        if self._connections is not None:
            self._connections.add(self)

    def receive(self, data: bytes) -> bool:
        """Take the input that HttpFront leaves; returns whether HttpFront may answer the next input."""
        if self._is_input_over:
            return False
        was_large = self._is_large
        waits = self._input or self._queue or self.is_part_over or self.owed_count
        if waits or len(data) > SLICE_SIZE:
            self._input = memoryview(bytes(self._input) + data)
            self._advance()
        else:
            self._feed(data)
            if self._queue or self._unanswered or self._is_finished:
                self._advance()
            elif self._out:
                self._flush()
        if self._receiving:
            self._watch_receiving()
        else:
            self.last_active = self._loop.time()
        if (was_large or self._is_large) and not self._is_held:
            self._share_turn(len(data))
        self._end_part()
        return self._is_at_rest()

    def _share_turn(self, size: int) -> None:
        """The rest of a large body is read in a later turn if this one has read so much already, from whomever."""
        self._is_held = self._turns.hold(size, self._read_on)
        self._choose_reading()

    def _read_on(self) -> None:
        self._is_held = False
        begun = self._begun
        self._choose_reading()
        self._begun = begun  # a turn is short: the time limit still counts from the first byte

    def begin(self, body_size: int) -> None:
        """HttpFront holds a request back until its body has come; until then it counts like any other."""
        self._receiving, self._begun, self._body_size = True, 0.0, body_size
        self._watch_receiving()
        if self._is_large and not self._is_held:
            self._share_turn(body_size)

    def end(self) -> None:
        """HttpFront has received everything it held back."""
        self._receiving = False

    def replay(self, held: bytes) -> None:
        """HttpFront gives up what it held back; the time limit still counts from its arrival."""
        begun = self._begun
        self._feed(held)
        self._begun = begun

    def _is_at_rest(self) -> bool:
        return not self._input and self._is_idle()

    def _is_idle(self) -> bool:
        waits = (
            self._unanswered or self._queue or self._out or self._unsent or self._is_write_paused
        )
        ends = self._is_input_over or self._shortcut is None
        return not (waits or self._receiving or ends)

    def eof_received(self) -> bool:
        """A peer that has sent everything still gets its answers."""
        if self._is_lingering:
            return False
        if self._input:
            self._is_eof_due = True
            return True
        self._is_input_over = True
        self.at_rest = False
        return bool(self.owed_count or self._unanswered or self._queue or self._out or self._unsent)

    def pause_writing(self) -> None:
        self._is_write_paused = True
        self.at_rest = False
        self.last_active = self._loop.time()
        self._choose_reading()

    def resume_writing(self) -> None:
        self._is_write_paused = False
        self.last_active = self._loop.time()
        self._advance_soon()

    def paid(self) -> None:
        """HttpFront owes nothing any more: what waited for that goes on."""
        self._advance_soon()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self.release()
        self._release()
        self._transport = None
        self._is_input_over = self._is_finished = True
        self._input = memoryview(b"")
        self._queue.clear()
        self._unanswered.clear()
        self._running = None
        self._out.clear()
        self._unsent.drop()
        self._drop_body()
        if self._timer is not None:
            self._timer.cancel()
        if self._connections is not None:
            self._connections.discard(self)

    def close(self) -> None:
        """End the connection; existing answers are still sent, but no request begins."""
        self._emit_ready(despite_pause=True)
        self.release()
        self._is_input_over = self._is_finished = True
        self._queue.clear()
        if self._transport is not None:
            self._flush()
            self._transport.close()

    # answering

    def _pay_continue(self) -> None:
        """Send "100 Continue", unless earlier answers have to go first."""
        if self._continue_owed and not (self.owed_count or self._unanswered or self._queue):
            self._continue_owed = False
            self._out.append(CONTINUE)

    def _answer_bad(self, status: int, text: str | None = None) -> None:
        self.detach()
        self._receiving = False
        self._drop_body()
        self._is_input_over = self._is_lingering = True
        text = f"{status} {HTTPStatus(status).phrase}" if text is None else text
        request = Request("", b"/", self._remote)
        request.close = True
        response = Response(status, text.encode(), TEXT if text else "", close=True)
        if self.owed_count or self._unanswered or self._queue or self._unsent:
            # Its turn is last; a queue before it is short and will be handled soon.
            while self._queue:
                self._handle(self._queue.popleft())
            request.response = response
            self._unanswered.append(request)
        else:
            self._emit(request, response)

    def _is_blocked(self) -> bool:
        is_busy = self._running is not None or self.owed_count > 0
        return self.is_part_over or is_busy or self._is_full()

    def _is_full(self) -> bool:
        is_crowded = self._out_size >= OUT_SIZE_MAX or len(self._unanswered) >= WAITING_COUNT_MAX
        return self._is_write_paused or is_crowded or bool(self._unsent)

    def _take(self, request: Request) -> None:
        if self._queue or self._is_blocked():
            self._queue.append(request)
        else:
            self._handle(request)

    def _handle(self, request: Request) -> None:
        if self._is_finished:
            return
        try:
            answer = self._handler(request)
        except Exception:
            if (note := request.admit_line()) is not None:
                log.exception("HTTP: %s %r failed%s", request.method, request.target, note)
            answer = INTERNAL_ERROR
        if not isinstance(answer, Response):
            self._unanswered.append(request)
            if not isinstance(answer, asyncio.Future):
                self._running = request
            future = asyncio.ensure_future(answer)
            future.add_done_callback(lambda done: self._fill(request, done))
        elif self.owed_count or self._unanswered or self._unsent:
            request.response = answer
            self._unanswered.append(request)
        else:
            self._emit(request, answer)
        self.count(REQUEST_UNITS)

    def _fill(self, request: Request, done: "asyncio.Future[Response]") -> None:
        error = None if done.cancelled() else done.exception()
        if error and (note := request.admit_line()) is not None:
            log.error("HTTP: %r failed%s", request.target, note, exc_info=error)
        request.response = INTERNAL_ERROR if done.cancelled() or error else done.result()
        if self._running is request:
            self._running = None
            self._advance_soon()
        elif self._unanswered and self._unanswered[0] is request:
            self._advance_soon()

    def _emit(self, request: Request, response: Response) -> None:
        if self._is_finished:
            return
        ANSWERED[request.route, response.status] += 1
        if response.close:
            request.close = True
        wire = render(request, self._unsent.keep(request, response))
        self._out.append(wire)
        self._out_size += len(wire)
        if self._unsent:
            self._flush()
            self._send_unsent()
        if request.close:
            self._is_finished = self._is_input_over = True
            self._queue.clear()

    def _send_unsent(self, *, despite_pause: bool = False) -> None:
        """Send the rest of long answers as the peer reads them; `despite_pause`: all of it, as the connection ends."""
        transport = self._transport
        while (
            self._unsent and transport is not None and (despite_pause or not self._is_write_paused)
        ):
            self._unsent.send_next(transport.write)

    def _emit_ready(self, *, despite_pause: bool = False) -> None:
        self._send_unsent(despite_pause=despite_pause)
        if self.owed_count:
            return
        while self._unanswered and not self._unsent and (response := self._unanswered[0].response):
            self._emit(self._unanswered.popleft(), response)
            self._send_unsent(despite_pause=despite_pause)

    def _advance_soon(self, plan: Callable[[Callable[[], None]], object] | None = None) -> None:
        """Several answers that become ready in one turn of the loop leave in one write."""
        if not self._is_advance_due:
            self._is_advance_due = True
            (plan or self._loop.call_soon)(self._advance_now)

    def _advance_now(self) -> None:
        self._is_advance_due = False
        if self._transport is None:
            return
        self.begin_part()
        if self._input and self._is_idle():
            # HttpFront answers plain publishes, also those left over when a part of the turn was used up.
            data, self._input = bytes(self._input), memoryview(b"")
            self.at_rest = True
            self.data_received(data)
            self._choose_reading()
        else:
            self._advance()
        self._end_part()
        self.at_rest = self._is_at_rest()

    def _end_part(self) -> None:
        """Continue in the next turn; until then the delay is not the peer's."""
        if self._input or self._queue:
            if self.is_part_over:
                self.last_active = self._loop.time()
                self._advance_soon(self._turns.join)
            return
        self.is_part_over = False
        if self._is_eof_due:
            self._is_eof_due = False
            if not self.eof_received() and self._transport is not None:
                self._transport.close()

    def _advance(self) -> None:
        """Continue until the input is used up or something has to be waited for."""
        while True:
            self._emit_ready()
            while self._queue and not self._is_blocked():
                self._handle(self._queue.popleft())
            self._pay_continue()
            if self._input and not (self._is_input_over or self._is_blocked()):
                size = WAITING_SLICE_SIZE if self._unanswered else SLICE_SIZE
                piece, self._input = self._input[:size], self._input[size:]
                self._feed(piece)
            elif not self._flush():
                break
        if self._is_input_over:
            self._input = memoryview(b"")
        if self._is_finished and not self._unsent:
            self._finish()
        elif self._is_input_over and not (
            self.owed_count or self._unsent or self._unanswered or self._queue
        ):
            if self._transport is not None:  # the peer's EOF came before its last answers
                self._transport.close()
        else:
            self._choose_reading()

    def _flush(self) -> bool:
        """Write the gathered output; returns whether there was any."""
        if not self._out:
            return False
        wire = b"".join(self._out) if len(self._out) > 1 else self._out[0]
        self._out.clear()
        self._out_size = 0
        if self._transport is not None:
            self._transport.write(wire)
        return True

    def _choose_reading(self) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        drops = self._is_lingering and self._is_finished  # whatever still comes
        waits = self._is_held or (not drops and bool(self._input or self._queue or self._is_full()))
        if waits == self._is_read_paused:
            return
        self._is_read_paused = waits
        if waits:
            transport.pause_reading()
            return
        transport.resume_reading()
        if self._receiving:  # it was us who did not read
            self._begun = 0.0
            self._watch_receiving()

    def _finish(self) -> None:
        """Close after the last answer.

        Closing while the peer still sends would reset the connection and might take the answer with it. So we first
        shut our side, and read and discard the peer's input until it closes too.
        """
        transport = self._transport
        if transport is None or self._linger_until:
            return
        if not self._is_lingering or not transport.can_write_eof():
            transport.close()
            return
        self._linger_until = self._loop.time() + self._limits.linger_s
        transport.write_eof()
        self._choose_reading()
        self._arm(self._linger_until)

    # time

    def _watch_receiving(self) -> None:
        if self._begun == 0.0:
            self._begun = self._loop.time()
            self._arm(self._deadline())

    def _deadline(self) -> float:
        if self._linger_until:
            return self._linger_until
        waits = self.owed_count or self._unanswered or self._queue or self._is_write_paused
        if waits or not self._receiving:
            return self.last_active + self._limits.idle_timeout_s
        return self._begun + self._limits.receive_s(self._body_size)

    def _arm(self, deadline: float) -> None:
        if self._timer is not None:
            if self._timer.when() <= deadline:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(deadline, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        transport = self._transport
        if transport is None:
            return
        now = self._loop.time()
        if (self._unanswered or self.owed_count) and not self._is_write_paused:
            self.last_active = now  # the delay is ours, not the peer's
        deadline = self._deadline()
        if deadline > now:
            self._arm(deadline)
        elif self._grace_until <= deadline:
            # The timer may fire before the sockets are polled. Waiting input is read first, and a loop that stood still
            # listens for an extra period as long as its delay.
            late_s = min(now - deadline, self._limits.receive_timeout_s)
            self._grace_until = now + max(TURN_S, late_s)
            self._arm(self._grace_until)
        elif self._linger_until or self._is_write_paused:
            transport.abort()
        elif self._receiving:
            self._answer_bad(408)
            self._advance()
        else:
            transport.close()


class Unsent:
    """The pieces of long answers that the peer has yet to read; they count as memory until then."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._pieces: deque[bytes] = deque()

    def __bool__(self) -> bool:
        return bool(self._pieces)

    def keep(self, request: Request, response: Response) -> Response:
        """Keep the pieces of an answer, and return what to send before; another one if memory has no room for them."""
        if not response.pieces or request.method == "HEAD":
            return response
        size = sum(map(len, response.pieces))
        self._memory.charge_bytes(size)
        if not self._memory.is_full():
            self._pieces.extend(response.pieces)
            return response
        self._memory.charge_bytes(-size)
        REFUSED["no_memory"] += 1
        if (note := request.admit_line()) is not None:
            text = (
                "HTTP: no memory left for the answer to client(%s), %d bytes: raise --max-memory%s"
            )
            log.warning(text, request.remote, size, note)
        return NO_MEMORY

    def send_next(self, write: Callable[[bytes], None]) -> None:
        """One by one: joining them would take longer than a part of a turn."""
        piece = self._pieces.popleft()
        self._memory.charge_bytes(-len(piece))
        write(piece)

    def drop(self) -> None:
        """The peer has gone."""
        self._memory.charge_bytes(-sum(map(len, self._pieces)))
        self._pieces.clear()
