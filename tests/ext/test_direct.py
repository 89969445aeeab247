"""A publish over a connection of its own, against a peer in a thread of the test: every way it can end."""

import fcntl
import gc
import math
import os
import random
import select
import signal
import socket
import struct
import sys
import termios
import threading
import time
import tracemalloc
from contextlib import contextmanager, suppress

import pytest
from nsqfast._ext.client.direct import Direct
from nsqfast._ext.protocol.publish_command import encode

from nsqfast.errors import ConnectError, OutcomeUnknownError, PublishError, PublishRefusedError
from support.wire import ERROR, MESSAGE, RESPONSE, encode_command, encode_frame, encode_messages

OK = encode_frame(RESPONSE, b"OK")
HEARTBEAT = encode_frame(RESPONSE, b"_heartbeat_")
NOP = b"NOP\n"
HEAD = b"PUB t\n"
PUB = encode_command("PUB", "t", body=b"body")
FAR_S = 20.0
SOON_S = 0.05
LARGE = random.Random(1).randbytes(8 << 20)


class Wire:
    """A Direct, and the socket of its peer."""

    def __init__(self, ours, theirs):
        self.theirs = theirs
        theirs.settimeout(FAR_S)
        self._copy = ours.dup()
        self.direct = Direct(ours.detach())
        self.fd = self._copy.fileno()

    def forget(self):
        """Only the Direct itself holds its end now."""
        self._copy.close()

    def unread(self):
        """Bytes that lie there for the Direct."""
        return struct.unpack("i", fcntl.ioctl(self.fd, termios.FIONREAD, bytes(4)))[0]

    def await_unread(self, size):
        deadline = time.monotonic() + FAR_S
        while self.unread() != size:
            assert time.monotonic() < deadline
            time.sleep(0)

    def await_end(self):
        """The peer's end, or its reset, has come."""
        poll = select.poll()
        poll.register(self.fd, select.POLLRDHUP)
        assert poll.poll(FAR_S * 1000)

    def take(self, wanted):
        assert self.read(len(wanted)) == wanted

    def read(self, size):
        data = bytearray()
        while len(data) < size:
            some = self.theirs.recv(min(65536, size - len(data)))
            assert some, "the client hung up"
            data += some
        return bytes(data)

    def say(self, data, piece=None):
        """In pieces, of which the next goes out when the Direct has read the one before."""
        piece = piece or max(1, len(data))
        for start in range(0, len(data), piece):
            self.await_unread(0)
            self.theirs.sendall(data[start : start + piece])

    def reset(self):
        self.theirs.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.theirs.close()

    def ask(self, body=b"body", head=HEAD, timeout_s=FAR_S):
        return self.direct.ask(head, body, timeout_s)

    def is_hung_up(self):
        """All that came was read before."""
        self.forget()
        try:
            return self.theirs.recv(1) == b""
        except ConnectionResetError:
            return True


def tcp_pair():
    with socket.create_server(("127.0.0.1", 0)) as server:
        ours = socket.create_connection(server.getsockname())
        theirs, _ = server.accept()
    theirs.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return ours, theirs


@pytest.fixture(params=[tcp_pair, socket.socketpair], ids=["tcp", "unix"])
def wire(request):
    made = Wire(*request.param())
    yield made
    made.direct.close()
    made.forget()
    made.theirs.close()


@contextmanager
def playing(script):
    """`script` in a thread beside what the test does; what goes wrong there fails the test."""
    errors = []

    def play():
        try:
            script()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=play)
    thread.start()
    try:
        yield
    finally:
        thread.join()
    if errors:
        raise errors[0]


@contextmanager
def handling(handler):
    """SIGUSR1 goes to `handler`, in the thread of the test."""
    before = signal.signal(signal.SIGUSR1, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGUSR1, before)


def interrupt(handled):
    """Signals to the main thread until one was handled: one may come in the moment before a system call."""
    while not handled.wait(0.02):
        signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR1)


def assert_ended(wire, reason):
    assert not wire.direct.is_open
    assert not wire.direct.is_busy
    assert reason in str(wire.direct.error)
    assert wire.direct.error.__traceback__ is None
    with pytest.raises(ConnectError, match="has ended"):
        wire.ask()


# -- answers -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("head", "body", "written"),
    [
        (HEAD, b"body", PUB),
        (HEAD, bytearray(b"body"), PUB),
        (b"DPUB t 1000\n", b"body", encode_command("DPUB", "t", "1000", body=b"body")),
        (
            b"MPUB t\n",
            [b"a", b"bc", b"d" * 70_000],
            encode_command("MPUB", "t", body=encode_messages([b"a", b"bc", b"d" * 70_000])),
        ),
    ],
    ids=["PUB", "bytearray", "DPUB", "MPUB"],
)
def test_commands(wire, head, body, written):
    def peer():
        for _ in range(3):
            wire.take(written)
            wire.say(OK)

    assert encode(head, body) == written
    with playing(peer):
        for _ in range(3):
            assert wire.ask(body, head) == b"OK"
    assert wire.direct.is_open
    assert wire.direct.error is None


@pytest.mark.parametrize("piece", [1, 3, 9, 1000])
def test_answers_in_pieces_and_what_comes_behind(wire, piece):
    def peer():
        wire.take(PUB)
        wire.say(OK + HEARTBEAT[:5], piece)
        wire.take(PUB)
        wire.say(HEARTBEAT[5:] + HEARTBEAT, piece)
        wire.take(NOP * 2)
        wire.say(OK + HEARTBEAT * 2, piece)
        wire.take(PUB + NOP * 2)
        wire.say(OK, piece)

    with playing(peer):
        for _ in range(3):
            assert wire.ask() == b"OK"


@pytest.mark.parametrize("size", [0, 65520, 65536, 3_000_000])
def test_answers_of_any_size(wire, size):
    def peer():
        for _ in range(2):
            wire.take(PUB)
            wire.theirs.sendall(encode_frame(RESPONSE, b"x" * size) + HEARTBEAT)
            wire.take(b"")

    with playing(peer):
        for _ in range(2):
            assert wire.ask() == b"x" * size


def test_heartbeats_that_lie_there_are_answered(wire):
    wire.theirs.sendall(HEARTBEAT * 3 + HEARTBEAT[:7])
    wire.await_unread(3 * len(HEARTBEAT) + 7)

    def peer():
        wire.take(PUB + NOP * 3)
        wire.say(HEARTBEAT[7:] + OK)

    with playing(peer):
        assert wire.ask() == b"OK"


def test_answers_to_heartbeats_that_nobody_reads_wait(wire):
    """The publish is answered all the same; they leave before the next one."""
    count = 20_000

    def peer():
        wire.take(PUB)
        wire.theirs.sendall(HEARTBEAT * count + OK)
        assert answered.wait(FAR_S)
        wire.take(NOP * count + PUB)
        wire.say(OK)

    answered = threading.Event()
    with playing(peer):
        assert wire.ask() == b"OK"
        answered.set()
        assert wire.ask() == b"OK"


def test_answers_to_heartbeats_that_were_not_read_are_no_publish():
    """A Unix socket holds few of them; what is left over does not make the outcome of the next publish unknown."""
    wire = Wire(*socket.socketpair())

    def peer():
        wire.take(PUB)
        wire.theirs.sendall(HEARTBEAT * 20_000 + OK)

    with playing(peer):
        assert wire.ask() == b"OK"
    wire.theirs.close()
    with pytest.raises(ConnectError, match="nsqd closed|broke"):
        wire.ask()
    wire.forget()


# -- large ones --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("body", [LARGE, [LARGE[:3_000_000], b"x", LARGE[3_000_000:]]], ids=type)
def test_a_large_publish_to_a_slow_reader(wire, body):
    head = b"PUB t\n" if isinstance(body, bytes) else b"MPUB t\n"

    def peer():
        written = encode(head, body)
        data = b"".join(wire.read(1000) for _ in range(1000))
        data += wire.read(len(written) - len(data))
        assert data == written
        wire.say(OK)
        wire.take(PUB)
        wire.say(OK)

    wire.theirs.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 131072)
    with playing(peer):
        assert wire.ask(body, head) == b"OK"
        assert wire.ask() == b"OK"


def test_a_large_publish_leaves_no_large_buffer(wire):
    def peer():
        wire.take(encode(HEAD, LARGE))
        wire.say(OK)

    with playing(peer):
        tracemalloc.start()
        try:
            assert wire.ask(LARGE) == b"OK"
            left, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert left < len(LARGE) // 2


@pytest.mark.parametrize("waits", [True, False], ids=["waits", "at once"])
def test_refused_in_the_middle_of_writing(wire, waits):
    """nsqd says so and closes, with most of the body unread."""

    def peer():
        wire.read(1000)
        wire.say(encode_frame(ERROR, b"E_BAD_MESSAGE too big"))
        if waits:
            wire.await_unread(0)
        wire.theirs.close()

    with playing(peer), pytest.raises(PublishRefusedError, match="too big"):
        wire.ask(LARGE)
    assert_ended(wire, "too big")


def test_refused_at_any_moment_of_writing():
    """Also where the next thing that happens is a send that fails."""
    for size in random.Random(1).choices(range(1, len(LARGE) // 2), k=20):
        wire = Wire(*socket.socketpair())

        def peer(wire=wire, size=size):
            wire.read(size)
            wire.theirs.sendall(encode_frame(ERROR, b"E_BAD_MESSAGE too big"))
            wire.theirs.close()

        with playing(peer), pytest.raises(PublishRefusedError, match="too big"):
            wire.ask(LARGE)
        wire.forget()


def test_an_answer_in_the_middle_of_writing_is_none(wire):
    def peer():
        wire.read(1000)
        wire.say(HEARTBEAT + OK)

    with playing(peer), pytest.raises(OutcomeUnknownError, match="without a question"):
        wire.ask(LARGE)
    assert_ended(wire, "without a question")


def test_a_hang_up_in_the_middle_of_writing(wire):
    def peer():
        wire.read(1000)
        wire.theirs.close()

    with playing(peer), pytest.raises(OutcomeUnknownError, match="clos|broke"):
        wire.ask(LARGE)


# -- the connection ended before ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("said", [b"", HEARTBEAT * 2, HEARTBEAT[:9]])
def test_a_hang_up_before_is_seen(wire, said):
    wire.theirs.sendall(said)
    wire.theirs.shutdown(socket.SHUT_WR)
    wire.await_end()
    with pytest.raises(ConnectError, match="nsqd closed the connection"):
        wire.ask()
    assert_ended(wire, "nsqd closed the connection")
    wire.forget()
    assert wire.theirs.recv(100) == b""


def test_a_reset_before_is_seen():
    wire = Wire(*tcp_pair())
    wire.reset()
    wire.await_end()
    with pytest.raises(ConnectError, match="reset"):
        wire.ask()
    assert_ended(wire, "reset")
    wire.forget()


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (encode_frame(ERROR, b"E_INVALID cannot NOP"), "E_INVALID cannot NOP"),
        (OK, "without a question: b'OK'"),
        (encode_frame(MESSAGE, b"x"), "a frame of type 2"),
        (b"HTTP/1.1 400 Bad Request", "a frame of 1213486160 bytes"),
    ],
)
def test_what_lies_there_and_is_no_heartbeat(wire, said, reason):
    wire.theirs.sendall(said)
    wire.await_unread(len(said))
    with pytest.raises(ConnectError, match=reason):
        wire.ask()
    assert_ended(wire, reason)


def test_nothing_could_be_written(wire):
    """Our own side is shut: the first send fails, and there was nothing to read."""
    wire._copy.shutdown(socket.SHUT_WR)
    with pytest.raises(ConnectError, match="Broken pipe"):
        wire.ask()
    assert_ended(wire, "Broken pipe")


def test_nothing_could_be_written_in_time():
    wire = Wire(*socket.socketpair())
    for size in (65536, 1):
        with suppress(BlockingIOError):
            while True:
                wire._copy.send(b"x" * size)
    with pytest.raises(ConnectError, match="in time"):
        wire.ask(timeout_s=SOON_S)
    assert_ended(wire, "in time")
    wire.forget()
    wire.theirs.close()


# -- the answer is no, or does not come --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text", ["E_BAD_TOPIC PUB topic name is not valid", "E_PUB_FAILED exiting", "E_MPUB_FAILED x"]
)
@pytest.mark.parametrize("piece", [1, 1000])
def test_refused(wire, text, piece):
    def peer():
        wire.take(PUB)
        wire.say(HEARTBEAT + encode_frame(ERROR, text.encode()), piece)

    with playing(peer), pytest.raises(PublishRefusedError, match=text) as caught:
        wire.ask()
    assert caught.value.code == text.split()[0]
    assert_ended(wire, text)


@pytest.mark.parametrize(
    "said",
    [
        encode_frame(MESSAGE, b"x" * 30),
        encode_frame(7, b"OK"),
        encode_frame(-1, b""),
        b"\0\0\0\3",
        b"\0\0\0\0",
        b"\xff\xff\xff\xff",
        b"\x40\0\0\1",
    ],
    ids=lambda data: data[:8].hex(),
)
@pytest.mark.parametrize("piece", [1, 1000])
def test_what_is_no_answer(wire, said, piece):
    def peer():
        wire.take(PUB)
        wire.say(said, piece)

    with playing(peer), pytest.raises(OutcomeUnknownError, match="a frame of"):
        wire.ask()
    assert_ended(wire, "a frame of")


@pytest.mark.parametrize("said", [b"", OK[:3], OK[:9], HEARTBEAT])
def test_the_connection_ends_before_the_answer_is_whole(wire, said):
    def peer():
        wire.take(PUB)
        wire.say(said)
        wire.theirs.shutdown(socket.SHUT_WR)

    with playing(peer), pytest.raises(OutcomeUnknownError, match="nsqd closed the connection"):
        wire.ask()
    assert_ended(wire, "nsqd closed")


def test_a_reset_instead_of_an_answer():
    wire = Wire(*tcp_pair())

    def peer():
        wire.take(PUB)
        wire.reset()

    with playing(peer), pytest.raises(OutcomeUnknownError, match="reset"):
        wire.ask()
    assert_ended(wire, "reset")
    wire.forget()


@pytest.mark.parametrize("said", [b"", OK[:9]])
def test_no_answer_in_time(wire, said):
    def peer():
        wire.take(PUB)
        wire.say(said)
        assert done.wait(FAR_S)
        assert wire.is_hung_up()

    done = threading.Event()
    with playing(peer):
        begun = time.monotonic()
        with pytest.raises(OutcomeUnknownError, match="in time"):
            wire.ask(timeout_s=SOON_S)
        assert SOON_S <= time.monotonic() - begun < FAR_S
        done.set()
    assert_ended(wire, "in time")


def test_what_cannot_be_written_in_time(wire):
    with pytest.raises(OutcomeUnknownError, match="in time"):
        wire.ask(LARGE, timeout_s=SOON_S)
    assert_ended(wire, "in time")


def test_heartbeats_do_not_prolong_it(wire):
    """Not even so many that there is always one more."""

    def peer():
        wire.take(PUB)
        wire.theirs.setblocking(False)
        unsent = b""
        while not done.is_set():
            # A full socket takes a part of a heartbeat; what follows is the rest of it.
            unsent = unsent or HEARTBEAT * 100
            try:
                unsent = unsent[wire.theirs.send(unsent) :]
                wire.theirs.recv(65536)
            except BlockingIOError:
                pass
            except ConnectionError:
                return

    done = threading.Event()
    with playing(peer):
        try:
            with pytest.raises(OutcomeUnknownError, match="in time"):
                wire.ask(timeout_s=SOON_S)
        finally:
            done.set()


# -- signals -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("body", [b"body", LARGE], ids=["waiting", "writing"])
def test_a_signal_that_raises_nothing(wire, body):
    handled = threading.Event()

    def peer():
        interrupt(handled)
        wire.take(encode(HEAD, body))
        handled.clear()
        interrupt(handled)
        wire.say(OK)

    with handling(lambda *_: handled.set()), playing(peer):
        assert wire.ask(body) == b"OK"


def test_signals_do_not_prolong_it(wire):
    begun, over = threading.Event(), threading.Event()

    def peer():
        wire.take(PUB)
        begun.set()
        while not over.wait(SOON_S / 20):
            signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR1)

    with handling(lambda *_: None), playing(peer):
        with pytest.raises(OutcomeUnknownError, match="in time"):
            wire.ask(timeout_s=SOON_S)
        over.set()
    assert begun.is_set()


@pytest.mark.skipif(
    sys.gettrace() is not None, reason="a coverage build calls Python where nothing can be raised"
)
@pytest.mark.parametrize("error", [KeyboardInterrupt, ZeroDivisionError])
@pytest.mark.parametrize("body", [b"body", LARGE], ids=["waiting", "writing"])
def test_a_signal_that_raises_ends_it(wire, body, error):
    ended = threading.Event()

    def handler(*_):
        if wire.direct.is_busy:
            raise error

    def peer():
        wire.read(100 if body is LARGE else len(PUB))
        interrupt(ended)

    # A collection calls Python where nothing can be raised, too.
    gc.collect()
    gc.disable()
    try:
        with handling(handler), playing(peer):
            with pytest.raises(error):
                wire.ask(body)
            ended.set()
    finally:
        gc.enable()
    assert_ended(wire, f"interrupted by {error.__name__}")


# -- one at a time -----------------------------------------------------------------------------------------------------


def refused_as_busy(wire):
    assert wire.direct.is_busy
    with pytest.raises(RuntimeError, match="busy"):
        wire.ask(b"another")


def test_another_thread_is_refused(wire):
    def peer():
        wire.take(PUB)
        refused_as_busy(wire)
        wire.say(OK)
        wire.take(PUB)
        wire.say(OK)

    with playing(peer):
        for _ in range(2):
            assert wire.ask() == b"OK"
            assert not wire.direct.is_busy


def test_a_signal_handler_is_refused(wire):
    handled = threading.Event()

    def handler(*_):
        refused_as_busy(wire)
        handled.set()

    def peer():
        wire.take(PUB)
        interrupt(handled)
        wire.say(OK)
        wire.take(PUB)
        wire.say(OK)

    with handling(handler), playing(peer):
        for _ in range(2):
            assert wire.ask() == b"OK"


def test_many_threads_get_an_answer_or_are_refused(wire):
    taken, refused = [], []

    def peer():
        while data := wire.theirs.recv(len(PUB), socket.MSG_WAITALL):
            assert data == PUB
            wire.theirs.sendall(OK)

    def publish():
        for _ in range(300):
            try:
                taken.append(wire.ask())
            except RuntimeError:
                refused.append(1)

    with playing(peer):
        threads = [threading.Thread(target=publish) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        wire.direct.close()
        wire.forget()
    assert len(taken) + len(refused) == 1200
    assert set(taken) == {b"OK"}


# -- the end, and arguments --------------------------------------------------------------------------------------------


def test_close(wire):
    wire.direct.close()
    wire.direct.close()
    assert_ended(wire, "closed")
    assert wire.is_hung_up()


def test_close_while_an_answer_is_awaited(wire):
    def peer():
        wire.take(PUB)
        wire.direct.close()
        assert not wire.direct.is_open
        wire.say(OK)
        wire.forget()
        assert wire.theirs.recv(1) == b""

    with playing(peer):
        assert wire.ask() == b"OK"
    assert_ended(wire, "closed")


def test_one_that_is_forgotten_hangs_up(wire):
    wire.direct = Direct(os.dup(wire.fd))
    wire.direct = None
    wire.forget()
    assert wire.theirs.recv(1) == b""
    wire.direct = Direct(os.dup(wire.theirs.fileno()))


def test_the_socket_does_not_block(wire):
    assert not os.get_blocking(wire.fd)


@pytest.mark.parametrize(
    ("head", "body", "timeout_s", "error"),
    [
        (HEAD, b"", FAR_S, PublishRefusedError),
        (HEAD, [b"x", b""], FAR_S, PublishRefusedError),
        (HEAD, "text", FAR_S, TypeError),
        (HEAD, [b"x", 7], FAR_S, TypeError),
        (HEAD, None, FAR_S, TypeError),
        ("PUB t\n", b"x", FAR_S, TypeError),
        (HEAD, b"x", 0, ValueError),
        (HEAD, b"x", -1.0, ValueError),
        (HEAD, b"x", math.nan, ValueError),
    ],
)
def test_arguments_that_do_not_fit_write_nothing(wire, head, body, timeout_s, error):
    with pytest.raises(error):
        wire.ask(body, head, timeout_s)

    def peer():
        wire.take(PUB)
        wire.say(OK)

    with playing(peer):
        assert wire.ask(timeout_s=math.inf) == b"OK"


def test_no_socket():
    """What is not taken over is not closed either, least of all descriptor 0."""
    before = os.fstat(0)
    with pytest.raises(TypeError):
        Direct("0")
    with pytest.raises(OSError, match="Bad file descriptor"):
        Direct(-1)
    assert os.fstat(0) == before
    reader, writer = os.pipe()
    pipe = Direct(reader)
    with pytest.raises(ConnectError, match="non-socket"):
        pipe.ask(HEAD, b"x", FAR_S)
    os.close(writer)


def test_what_is_too_large_for_one_publish(wire):
    """Two gigabytes, of which only the list's references exist."""
    with pytest.raises(PublishError, match="too many for one publish"):
        wire.ask([LARGE] * 256, b"MPUB t\n")
    assert wire.direct.is_open
