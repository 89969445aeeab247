"""Jobs that are published with a delay, and cancelled, or run at once, by their handle."""

import asyncio
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta

import pytest

from nsqfast.client import (
    ConnectError,
    Consumer,
    InvalidNameError,
    Middleware,
    OptionsError,
    Producer,
    PublishRefusedError,
    RefusedError,
    UnsupportedError,
    WrongPeerError,
    sync,
)
from nsqfast.client.config import Config
from support.authd import AuthServer, grant, permit
from support.fake_nsqd import FakeNsqd
from support.server import start_nsqd
from support.waiting import eventually, until
from support.web import post, topic_stats
from support.wire import Client

HOUR = timedelta(hours=1)
ID = b"18a486d315a69000"


def make_channels(broker, topic, *names):
    assert post(broker.http, f"/topic/create?topic={topic}").status == 200
    for name in names:
        assert post(broker.http, f"/channel/create?topic={topic}&channel={name}").status == 200


def deferred(broker, topic):
    found = topic_stats(broker.http, topic)["channels"]
    return {name: channel["deferred_count"] for name, channel in found.items()}


@pytest.fixture(scope="module")
def ours(tmp_path_factory):
    """Go's nsqd tells nothing, whatever the other fixtures choose."""
    with start_nsqd("nsqfast", tmp_path_factory.mktemp("delayed")) as server:
        yield server


@pytest.fixture
def nsqd(ours):
    return "{}:{}".format(*ours.tcp)


async def test_cancel_and_run_now(loop_factory, ours, nsqd, topic):
    make_channels(ours, topic, "c", "d")
    async with Producer(nsqd) as producer:
        job = await producer.publish_delayed(topic, b"job", HOUR)
        other = await producer.publish_delayed(topic, b"other", datetime.now(UTC) + HOUR)
        assert (job.topic, job.nsqd, len(job.id)) == (topic, nsqd, 16)
        assert deferred(ours, topic) == {"c": 2, "d": 2}
        assert [await job.cancel(), await job.cancel(), await job.run_now()] == [2, 0, 0]
        assert [await other.run_now(), await other.cancel()] == [2, 0]
        assert deferred(ours, topic) == {"c": 0, "d": 0}
    with Client(ours.tcp) as client:
        client.ask("SUB", topic, "c")
        client.command("RDY", "2")
        message = client.read_message()
        assert (message.id, message.body) == (other.id, b"other")


async def test_a_handle_from_another_process_or_kept_for_later(ours, nsqd, topic):
    async with Producer(nsqd) as producer:
        kept = await producer.publish_delayed(topic, b"job", HOUR)
    async with Producer("127.0.0.1:1", config=Config(dial_timeout_s=0.1)) as producer:
        job = producer.delayed_message(kept.topic, kept.nsqd, kept.id)
        assert job == kept
        assert [await job.cancel(), await job.cancel()] == [1, 0]  # its topic has no channel


async def test_what_is_due_is_not_there_to_be_cancelled(ours, nsqd, topic):
    config = Config(max_in_flight=2)
    async with Producer(nsqd) as producer, Consumer(topic, "c", nsqd=nsqd, config=config) as taken:
        soon = await producer.publish_delayed(topic, b"soon", timedelta(milliseconds=1))
        long_ago = datetime.now(UTC) - timedelta(days=9)
        past = await producer.publish_delayed(topic, b"past", long_ago)
        found = aiter(taken)
        messages = [await anext(found), await anext(found)]
        assert {message.id for message in messages} == {soon.id, past.id}
        assert [await soon.cancel(), await past.run_now()] == [0, 0]
        messages[0].requeue(3600.0)
        messages[1].finish()
        await until(lambda: deferred(ours, topic) == {"c": 1})
        assert [await soon.cancel(), await past.cancel()] == [0, 0]


@pytest.mark.parametrize("delay", [5, 0.5, "5s", None, True])
async def test_what_is_no_delay(nsqd, topic, delay):
    async with Producer(nsqd) as producer:
        with pytest.raises(TypeError, match=r"delay is a timedelta.*write timedelta\(seconds="):
            await producer.publish_delayed(topic, b"job", delay)
        with pytest.raises(ValueError, match=r"no time zone: write datetime.now\(UTC\)"):
            await producer.publish_delayed(topic, b"job", datetime(2030, 1, 1))  # noqa: DTZ001


@pytest.mark.parametrize(
    ("topic", "nsqd", "id"),
    [
        ("t:t", "a:4150", ID),
        ("t", "http://a:4151", ID),
        ("t", "a", ID),
        ("t", "a:4150", ID.upper()),
        ("t", "a:4150", b"\n" + ID[1:]),
        ("t", "a:4150", b""),
        ("t", "a:4150", ID.decode()),
        ("t", "a:4150", None),
    ],
)
async def test_what_no_handle_can_have(topic, nsqd, id):
    for producer in (Producer("127.0.0.1:1"), sync.Producer("127.0.0.1:1")):
        with pytest.raises((OptionsError, InvalidNameError)):
            producer.delayed_message(topic, nsqd, id)


async def test_a_delay_over_the_limit_is_refused_as_any_publish(nsqd, topic):
    async with Producer(nsqd) as producer:
        with pytest.raises(PublishRefusedError, match="DPUB timeout"):
            await producer.publish_delayed(topic, b"job", 9 * HOUR)


@pytest.mark.go
async def test_a_go_nsqd_tells_nothing_and_says_so(tmp_path, topic):
    with start_nsqd("go", tmp_path) as server:
        nsqd = "{}:{}".format(*server.tcp)
        make_channels(server, topic, "c")
        async with Producer(nsqd) as producer:
            job = await producer.publish_delayed(topic, b"job", HOUR)
            assert job.id is None
            assert deferred(server, topic) == {"c": 1}
            for end in (job.cancel, job.run_now, producer.delayed_message(topic, nsqd, ID).cancel):
                with pytest.raises(UnsupportedError, match=f"{nsqd} tells no ids.*NSQ's own nsqd"):
                    await end()
            await producer.publish(topic, b"goes on")
        with (
            sync.Producer(nsqd) as producer,
            pytest.raises(UnsupportedError, match="NSQ's own nsqd"),
        ):
            producer.publish_delayed(topic, b"job", HOUR).cancel()


async def test_the_id_is_that_of_the_publish_that_was_answered():
    """A publish whose connection broke is sent again; what an nsqd that tells no ids said is none."""
    answers = [None, b"OK 18a486d315a69000", b"OK"]

    async def script(peer):
        await peer.greet()
        async for name, parameters, _ in peer.commands():
            assert (name, parameters[0], parameters[2:]) == ("DPUB", "t", ["id"])
            answer = answers.pop(0)
            if answer is None:
                return
            peer.respond(answer)

    async with FakeNsqd(script) as nsqd, Producer(nsqd.address) as producer:
        assert (await producer.publish_delayed("t", b"job", HOUR)).id == ID
        assert producer.stats().resent == 1
        assert (await producer.publish_delayed("t", b"job", HOUR)).id is None
        assert producer.stats().published == 2


@pytest.mark.parametrize("answer", [b"OK", b"OK x", b"OK -1", b"OK 1 ", b"", b"OK " + b"9" * 99])
async def test_an_answer_that_is_none(answer):
    async def script(peer):
        await peer.greet(nsqfast_deferred_ids=True)
        async for _ in peer.commands():
            peer.respond(answer)

    async with FakeNsqd(script) as nsqd, Producer(nsqd.address) as producer:
        with pytest.raises(ConnectError, match="is no answer to CANCEL_DEFERRED"):
            await producer.delayed_message("t", nsqd.address, ID).cancel()


async def test_no_answer_in_time_and_a_connection_that_breaks(dead):
    waits = asyncio.Event()

    async def script(peer):
        await peer.greet(nsqfast_deferred_ids=True)
        if (command := await peer.command_if_any()) and command[0] == "RUN_DEFERRED":
            await waits.wait()

    async with FakeNsqd(script) as nsqd, Producer(nsqd.address, timeout_s=1.0) as producer:
        job = producer.delayed_message("t", nsqd.address, ID)
        with pytest.raises(ConnectError, match="no answer in 1 s"):
            await job.run_now()
        waits.set()
        with pytest.raises(ConnectError):
            await job.cancel()
        with pytest.raises(ConnectError):
            await producer.delayed_message("t", dead, ID).cancel()


async def test_the_wrong_port(ours, topic):
    async with Producer("{}:{}".format(*ours.tcp)) as producer:
        http = "{}:{}".format(*ours.http)
        with pytest.raises(WrongPeerError, match="give the TCP port of an nsqd"):
            await producer.delayed_message(topic, http, ID).cancel()


async def test_without_permission_publishes_are_not_disturbed(tmp_path):
    """It takes what a publish to that topic takes; the answer ends the connection for commands alone."""
    with AuthServer() as auth:
        auth.answers["secret"] = grant(permit("mine"))
        with start_nsqd("nsqfast", tmp_path, f"--auth-http-address={auth.address}") as server:
            nsqd = "{}:{}".format(*server.tcp)
            async with Producer(nsqd, config=Config(auth_secret="secret")) as producer:
                job = await producer.publish_delayed("mine", b"job", HOUR)
                for _ in range(2):
                    with pytest.raises(
                        RefusedError, match="E_UNAUTHORIZED AUTH failed for CANCEL_DEFERRED"
                    ):
                        await producer.delayed_message("other", nsqd, job.id).cancel()
                assert await job.run_now() == 1
                assert producer.stats().connects == 1


async def test_after_a_restart(tmp_path, topic):
    """A clean stop keeps what was deferred, and for how long; the handle holds on."""
    with start_nsqd("nsqfast", tmp_path) as server:
        port = server.tcp[1]
        nsqd = f"127.0.0.1:{port}"
        make_channels(server, topic, "c")
        async with Producer(nsqd) as producer:
            jobs = [await producer.publish_delayed(topic, b"job", HOUR) for _ in range(2)]
            assert await jobs[0].cancel() == 1
            await asyncio.to_thread(server.stop)
            await until(lambda: not producer.is_connected)
            with start_nsqd("nsqfast", tmp_path, f"--tcp-address={nsqd}"):
                assert [await job.cancel() for job in jobs] == [0, 1]


async def test_many_at_once_share_one_connection(ours, nsqd, topic):
    make_channels(ours, topic, "c")
    async with Producer(nsqd) as producer:
        jobs = await asyncio.gather(
            *[producer.publish_delayed(topic, b"job", HOUR) for _ in range(500)]
        )
        before = count_clients(ours, topic, "before")
        assert await asyncio.gather(*[job.cancel() for job in jobs]) == [1] * 500
        assert count_clients(ours, topic, "after") - before == 1


def count_clients(ours, topic, channel):
    """That came until now: the line of a new channel has those of all of them before it."""
    make_channels(ours, topic, channel)
    eventually(lambda: any(f"new channel({channel})" in line for line in ours.lines))
    return len([line for line in ours.lines if "TCP: new client" in line])


async def test_middleware_is_around_it(ours, nsqd, topic):
    class Upper(Middleware):
        def publish(self, topic, bodies):
            return nullcontext([body.upper() for body in bodies])

    async with Producer(nsqd, middleware=[Upper()]) as producer:
        job = await producer.publish_delayed(topic, b"job", HOUR)
        assert await job.run_now() == 1
    with Client(ours.tcp) as client:
        client.ask("SUB", topic, "c")
        client.command("RDY", "1")
        assert client.read_message().body == b"JOB"


def test_from_program_threads(ours, nsqd, topic):
    make_channels(ours, topic, "c")
    with sync.Producer(nsqd) as producer:
        job = producer.publish_delayed(topic, b"job", HOUR)
        assert isinstance(job, sync.DelayedMessage)
        assert (job.topic, job.nsqd) == (topic, nsqd)
        assert [job.cancel(), job.cancel()] == [1, 0]
        other = producer.publish_delayed(topic, b"job", datetime.now(UTC) + HOUR)
        again = producer.delayed_message(topic, nsqd, other.id)
        assert again == other
        assert [again.run_now(), other.run_now()] == [1, 0]
        with pytest.raises(TypeError, match="write timedelta"):
            producer.publish_delayed(topic, b"job", 5)
