"""Requests answered at once, between such as are not: order, deadlines and the answer's age, on a clock of our own."""

import asyncio

import pytest
from nsqfast._ext.core.clock import now
from nsqfast._ext.dev.probes import shift_wall
from nsqfast._ext.server.http_shortcut import PublishShortcut

from nsqfast.net.http_message import Response
from nsqfast.net.http_server import HttpProtocol
from nsqfast.net.slices import Turns
from support.core import SECOND_NS, make_registry

HEAD = b"POST /pub?topic=t HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n"
WAIT = b"GET /wait HTTP/1.1\r\nHost: x\r\n\r\n"


class Loop(asyncio.SelectorEventLoop):
    """Time passes when a test says so."""

    now_s = 1000.0

    def time(self):
        return self.now_s


class Wire:
    """A transport that keeps what is written."""

    def __init__(self):
        self.answers = b""
        self.has_eof = self.is_ended = False

    def get_extra_info(self, name):
        assert name == "peername"
        return ("127.0.0.1", 4242)

    def write(self, data):
        assert not self.is_ended
        self.answers += data

    def can_write_eof(self):
        return True

    def write_eof(self):
        self.has_eof = True

    def is_closing(self):
        return self.is_ended

    def close(self):
        self.is_ended = True

    abort = close


class Front:
    """A connection whose publishes are answered with a counter; `/wait` waits for `waiting`."""

    def __init__(self, folder):
        self.registry = make_registry(folder)
        self.turns = Turns(self.registry.memory)
        self.registry.topics.ensure("t")
        self.replies = 0
        self.shortcut = PublishShortcut(self.registry, self.reply, asks_host=False)
        self.waiting = []
        self.protocol, self.wire = self.connect()

    def connect(self):
        protocol, wire = HttpProtocol(self, turns=self.turns, shortcut=self.shortcut), Wire()
        protocol.connection_made(wire)
        return protocol, wire

    def reply(self, error):
        assert error is None
        self.replies += 1
        return b"<%d>" % self.replies

    def limit(self, method, path):
        return 100 if path == "/pub" else 0

    def __call__(self, request):
        if request.path == "/wait":
            self.waiting.append(asyncio.get_running_loop().create_future())
            return self.waiting[-1]
        self.registry.topics.ensure("t").put(request.body)
        return Response(200, b"handled")

    def published(self):
        return self.registry.topics.find("t").message_count

    async def hear(self, *pieces):
        for piece in pieces:
            self.protocol.data_received(piece)
            await asyncio.sleep(0)

    async def let_pass(self, duration_s):
        """In steps, as for a loop that is on time; one that stood still gives its peers more."""
        for step_s in [0.25] * int(duration_s / 0.25) or [duration_s]:
            asyncio.get_running_loop().now_s += step_s
            for _ in range(3):
                await asyncio.sleep(0)

    async def stand_still(self, duration_s):
        asyncio.get_running_loop().now_s += duration_s
        for _ in range(3):
            await asyncio.sleep(0)


def front(talk):
    """A test that runs `talk(front)`; an error that reaches the loop fails it."""

    def test(tmp_path):
        async def run():
            errors = []
            asyncio.get_running_loop().set_exception_handler(
                lambda _, context: errors.append(context)
            )
            one = Front(tmp_path)
            await talk(one)
            one.protocol.connection_lost(None)
            one.registry.topics.close()
            assert errors == []

        with asyncio.Runner(loop_factory=Loop) as runner:
            runner.run(run())

    return test


@front
async def test_answered_at_once(one):
    await one.hear(HEAD + b"aaaaa", HEAD, b"bbbbb", HEAD + b"ccccc" + HEAD + b"ddddd" + HEAD)
    assert one.wire.answers == b"<1>" * 4
    assert one.published() == 4


@front
async def test_nothing_overtakes_an_answer_that_waits(one):
    await one.hear(WAIT + HEAD + b"aaaaa", HEAD + b"bbbbb")
    assert one.wire.answers == b""
    one.waiting[0].set_result(Response(200, b"first"))
    await one.let_pass(0)
    await one.hear(HEAD + b"ccccc")
    answers = one.wire.answers
    assert answers.index(b"first") < answers.index(b"handled")
    assert answers.count(b"handled") == 2
    assert answers.endswith(b"<1>")


@front
async def test_half_a_request_is_given_up(one):
    await one.hear(HEAD + b"aa")
    await one.let_pass(29)
    assert one.wire.answers == b""
    await one.let_pass(2)
    assert one.wire.answers.startswith(b"HTTP/1.1 408 ")
    assert one.wire.has_eof
    size = len(one.wire.answers)
    await one.hear(b"aaa", HEAD + b"bbbbb")
    assert one.published() == 0
    assert len(one.wire.answers) == size


@front
async def test_a_peer_that_reads_slowly_is_not_listened_to_for_longer(one):
    await one.hear(HEAD + b"aa")
    await one.let_pass(31)
    assert one.wire.has_eof
    for _ in range(8):
        one.protocol.pause_writing()
        one.protocol.resume_writing()
        await one.let_pass(0.25)
    assert one.wire.is_ended


@front
async def test_what_waits_is_read_after_a_loop_stood_still(one):
    await one.hear(HEAD + b"aa")
    await one.stand_still(40)
    await one.hear(b"aaa")
    assert one.wire.answers == b"<1>"
    await one.stand_still(130)
    await one.hear(HEAD + b"aaaaa")
    assert one.published() == 2
    await one.let_pass(121)
    assert one.wire.is_ended


@front
async def test_a_second_piece_does_not_move_the_deadline(one):
    await one.hear(HEAD + b"aa")
    await one.let_pass(20)
    await one.hear(b"a")
    await one.let_pass(9)
    assert one.wire.answers == b""
    await one.let_pass(2)
    assert one.wire.answers.startswith(b"HTTP/1.1 408 ")


@front
async def test_half_a_large_request_is_given_up_as_soon(one):
    head = HEAD.replace(b"/pub", b"/large").replace(b": 5", b": 500000")
    await one.hear(head + b"a" * 20000)
    await one.let_pass(32)
    assert one.wire.answers.startswith(b"HTTP/1.1 408 ")


@pytest.mark.parametrize("pieces", [(HEAD + b"aaaaa",), (HEAD, b"aaaaa")])
def test_a_publish_is_a_sign_of_life(tmp_path, pieces):
    @front
    async def test(one):
        await one.let_pass(100)
        await one.hear(*pieces)
        await one.let_pass(100)
        assert not one.wire.is_ended
        await one.let_pass(21)
        assert one.wire.is_ended
        assert one.wire.answers == b"<1>"

    test(tmp_path)


@front
async def test_an_answer_is_used_for_a_second(one):
    into_second_ns = now()[0] % SECOND_NS
    try:
        shift_wall(SECOND_NS - into_second_ns)
        await one.hear(*[HEAD + b"aaaaa"] * 3)
        shift_wall(2 * SECOND_NS - into_second_ns)
        await one.hear(*[HEAD + b"aaaaa"] * 2)
    finally:
        shift_wall(0)
    assert one.wire.answers == b"<1><1><1><2><2>"


@front
async def test_end_of_a_peer_in_the_middle(one):
    await one.hear(HEAD + b"aaaaa" + HEAD + b"bb")
    assert one.protocol.eof_received() is False
    assert one.wire.answers == b"<1>"
    assert one.published() == 1
