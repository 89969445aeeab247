"""What one HTTP connection may do in one turn of the loop: work is counted, not time."""

import asyncio
import gc
import logging
from types import SimpleNamespace

import pytest
from nsqfast._ext.core.log_quota import LogQuota
from nsqfast._ext.dev.probes import fix_parts

from net.test_http_front import HEAD, WAIT, Front, front
from nsqfast.net.http_message import Request, Response
from nsqfast.net.http_routes import Routes
from support.core import NEVER, Peer

GET = b"GET /x HTTP/1.1\r\nHost: x\r\n\r\n"
PLAIN = HEAD + b"12345"
COUNT = 2000  # more than one slice for the parser
REQUEST_UNITS = 64
PUBLISH_UNITS = 4


@pytest.fixture(autouse=True)
def _time_counts_again():
    yield
    fix_parts(0)


def begin_reading(wire):
    """Reading is what the wire is told of it."""
    wire.is_reading = True
    wire.pause_reading = lambda: setattr(wire, "is_reading", False)
    wire.resume_reading = lambda: setattr(wire, "is_reading", True)


def begin_parts(talk, units):
    """Parts of so many units."""
    begin_reading(talk.wire)
    fix_parts(units)


async def turns(talk, count, text):
    """How many answers each turn brought, until all are there."""
    found, seen = [], talk.wire.answers.count(text)
    while seen < count:
        await asyncio.sleep(0)
        found.append(talk.wire.answers.count(text) - seen)
        seen += found[-1]
        assert len(found) < 10 * count
    return found


@front
async def test_a_part_of_the_requests_is_answered_in_each_turn(talk):
    begin_parts(talk, 10 * REQUEST_UNITS)
    talk.protocol.data_received(GET * COUNT)
    assert talk.wire.answers.count(b"handled") == 10
    assert not talk.wire.is_reading
    assert set(await turns(talk, COUNT, b"handled")) == {10}
    assert talk.wire.is_reading
    assert talk.published() == COUNT


@front
async def test_at_least_one(talk):
    begin_parts(talk, 1)
    talk.protocol.data_received(GET * 3)
    assert talk.wire.answers.count(b"handled") == 1
    assert await turns(talk, 3, b"handled") == [1, 1]


@front
async def test_plain_publishes_stay_so(talk):
    """What is left of them is answered in front as well, a part in each turn."""
    begin_parts(talk, 10 * PUBLISH_UNITS)
    talk.protocol.data_received(PLAIN * COUNT)
    assert talk.wire.answers.count(b"<") == 10
    assert set(await turns(talk, COUNT, b"<")) == {10}
    assert talk.published() == COUNT
    assert talk.wire.is_reading
    assert talk.protocol.at_rest


@front
async def test_order_is_kept_between_both_kinds(talk):
    begin_parts(talk, 2 * REQUEST_UNITS)
    plain = [HEAD + b"%05d" % number for number in range(600)]
    talk.protocol.data_received(
        b"".join(b"".join(plain[n : n + 30]) + WAIT for n in range(0, 600, 30))
    )
    for number in range(20):
        while len(talk.waiting) <= number:
            await asyncio.sleep(0)
        talk.waiting[number].set_result(Response(200, b"waited"))
    await turns(talk, 20, b"waited")
    assert talk.wire.answers.endswith(b"waited")
    fix_parts(NEVER)  # the consumer gets all at once
    consumer = Peer(talk.registry)
    consumer.subscribe(b"t", b"c", 1000)
    [_, *frames] = consumer.receive()
    assert [int(data[26:]) for _, data in frames] == list(range(len(frames)))
    assert len(frames) >= 500


@front
async def test_a_plain_publish_does_not_overtake_what_waits_for_its_turn(talk):
    """As under TLS, where it may come in a piece of its own."""
    begin_parts(talk, 10 * REQUEST_UNITS)
    talk.protocol.data_received(GET * 20)
    talk.protocol.data_received(PLAIN)
    await turns(talk, 20, b"handled")
    await turns(talk, 1, b"<")
    assert talk.wire.answers.endswith(b"<1>")


@front
async def test_the_peers_end_waits_for_its_turn(talk):
    begin_parts(talk, 10 * REQUEST_UNITS)
    talk.protocol.data_received(GET * COUNT)
    assert talk.protocol.eof_received() is True
    await turns(talk, COUNT, b"handled")
    await asyncio.sleep(0)
    assert talk.wire.is_ended
    assert talk.wire.answers.count(b"handled") == COUNT


@front
async def test_more_that_comes_meanwhile_waits_behind(talk):
    """As under TLS, where one read brings several pieces."""
    begin_parts(talk, 10 * REQUEST_UNITS)
    for _ in range(4):
        talk.protocol.data_received(GET * 100)
    assert talk.wire.answers.count(b"handled") == 10
    assert set(await turns(talk, 400, b"handled")) == {10}


@front
async def test_an_answer_that_waits_keeps_its_place(talk):
    begin_parts(talk, 5 * REQUEST_UNITS)
    talk.protocol.data_received(GET * 20 + WAIT + GET * 20)
    for _ in range(20):
        await asyncio.sleep(0)
    assert talk.wire.answers.count(b"handled") == 20
    fix_parts(NEVER)
    talk.waiting[0].set_result(Response(200, b"waited"))
    await turns(talk, 40, b"handled")
    assert b"waited" in talk.wire.answers


@front
async def test_what_has_not_been_done_yet_is_done_first(talk):
    """A request that asks an auth server before it publishes, and one behind it that need not ask any more."""
    begin_parts(talk, NEVER)
    gate, done = asyncio.Event(), []

    async def ask(request):
        await gate.wait()
        await asyncio.sleep(0)
        done.append(request.path)
        return Response(200, b"later")

    def handle(request):
        if not gate.is_set():
            return ask(request)
        done.append(request.path)
        return Response(200, b"at once")

    talk.protocol._handler = handle
    handle.limit = talk.limit
    talk.protocol.detach()
    talk.protocol._shortcut = None
    for number in range(5):
        talk.protocol.data_received(GET.replace(b"/x", b"/%d" % number))
    await asyncio.sleep(0)
    gate.set()
    talk.protocol.data_received(GET.replace(b"/x", b"/5") + GET.replace(b"/x", b"/6"))
    for _ in range(20):
        await asyncio.sleep(0)
    assert done == [f"/{number}" for number in range(7)]
    assert talk.wire.answers.count(b"200 OK") == 7


@front
async def test_who_waits_for_its_turns_is_not_silent(talk):
    begin_parts(talk, REQUEST_UNITS)
    talk.protocol.data_received(GET * COUNT)
    while talk.wire.answers.count(b"handled") < COUNT:
        await talk.stand_still(1)
        assert not talk.wire.is_ended


def test_a_route_that_fails():
    def fail(_request):
        raise RuntimeError("boom")

    route = SimpleNamespace(path="/x", run=fail)
    answer = Routes(logging.getLogger("nsqd")).run(route, Request("GET", b"/x", "here"))
    assert (answer.status, answer.body) == (500, b'{"message":"INTERNAL_ERROR"}')


def test_lines_that_a_peer_causes_are_bounded(caplog):
    caplog.set_level(logging.INFO)
    routes = Routes(logging.getLogger("nsqd"))
    lines = LogQuota("here")
    for _ in range(1000):
        request = Request("GET", b"/stats", "here")
        request.lines = lines
        routes.log_access(request, Response(200), 1)
    assert 100 <= len(caplog.messages) < 200


@front
async def test_connections_that_have_more_share_the_part(talk):
    """Each has its first words at once; after that all together get as far in a turn as one alone."""
    connections = [talk.connect() for _ in range(10)]
    fix_parts(REQUEST_UNITS)
    for protocol, wire in connections:
        begin_reading(wire)
        protocol.data_received(GET * 20)
    assert [wire.answers.count(b"handled") for _, wire in connections] == [1] * 10
    before = talk.published()
    while before < 200:
        await asyncio.sleep(0)
        assert talk.published() == before + 1
        before = talk.published()
        counts = [wire.answers.count(b"handled") for _, wire in connections]
        assert max(counts) - min(counts) <= 1
    assert all(wire.is_reading for _, wire in connections)
    for protocol, _ in connections:
        protocol.connection_lost(None)


class Slow(Front):
    """A handler that ends when `end` is set, and says how often one was begun."""

    begun = 0
    end = None

    def __call__(self, _request):
        return self.work()

    async def work(self):
        self.begun += 1
        await self.end.wait()
        return Response(200)


@pytest.mark.parametrize("turns_left", range(3))
def test_nothing_is_begun_when_the_loop_ends(tmp_path, turns_left):
    """The first request ends with the loop, whose end cancels it if need be; the second would be left behind."""
    found, left = [], []

    async def ask():
        asyncio.get_running_loop().set_exception_handler(lambda _, context: left.append(context))
        talk = Slow(tmp_path)
        talk.end = asyncio.Event()
        found.append(talk)
        begin_reading(talk.wire)
        talk.protocol.data_received(GET * 3)
        await asyncio.sleep(0)
        for _ in range(turns_left):
            talk.end.set()
            await asyncio.sleep(0)
        talk.protocol.close()

    with asyncio.Runner() as runner:
        runner.run(ask())
    gc.collect()
    # Its handler is done in the first turn, and its answer in hand in the second.
    assert found[0].wire.answers.count(b"200 OK") == turns_left // 2
    assert (found[0].begun, left) == (1, [])
    found[0].registry.topics.close()
