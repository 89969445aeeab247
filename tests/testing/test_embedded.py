"""`async with nsqfast.embedded()`: a whole broker in the loop that is running."""

import asyncio
import gc
import logging
import os
import signal
import threading
from pathlib import Path

import pytest
from nsqfast._ext.core.memory import memories

import nsqfast
from nsqfast import ClosedError, Config, Consumer, OptionsError, Producer
from nsqfast.client.sync import Producer as SyncProducer
from support.lookup import nodes
from support.prometheus import scrape
from support.server import start_nsqlookupd
from support.web import topic_stats

BODY = bytes(range(256)) * 4096  # 1 MiB, the largest that is taken


async def take(consumer):
    """The next message, finished."""
    message = await anext(aiter(consumer))
    message.finish()
    return message


def place(address):
    host, port = address.split(":")
    return host, int(port)


def read_process():
    """What a process has of brokers that it runs."""
    gc.collect()
    return {
        "memories": len(memories),
        "threads": {*os.listdir("/proc/self/task")},
        "descriptors": sorted(os.readlink(path) for path in list_open()),
        "folders": sorted(Path(os.environ["TMPDIR"]).iterdir()),
        "signals": [signal.getsignal(number) for number in signal.valid_signals()],
        "collector": (gc.get_threshold(), gc.get_freeze_count()),
        "handlers": [
            (name, list(logging.getLogger(name).handlers)) for name in ("nsqd", "nsqfast")
        ],
    }


def list_open():
    return [path for path in Path("/proc/self/fd").iterdir() if path.is_symlink()]


@pytest.fixture(autouse=True)
def own_temporary_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)


@pytest.mark.parametrize(
    "config",
    [Config(), Config(snappy=True), Config(deflate=True)],
    ids=["plain", "snappy", "deflate"],
)
async def test_it_serves(loop_factory, config):
    async with nsqfast.embedded() as nsqd, Producer(nsqd.address, config=config) as producer:
        await producer.publish("t", b"a")
        await producer.publish_many("t", [b"b" * 200] * 2000)
        await producer.publish("t", BODY)
        assert nsqd.bodies("t") == [b"a", *[b"b" * 200] * 2000, BODY]
        assert await nsqd.received("t", 2) == [b"a", b"b" * 200]
        async with Consumer("t", "c", nsqd=nsqd.address, config=config) as consumer:
            assert [(await take(consumer)).body for _ in range(2002)] == nsqd.bodies("t")
        stats = await asyncio.to_thread(topic_stats, place(nsqd.http_address), "t")
        assert stats["message_count"] == 2002


async def test_received_waits(loop_factory):
    async with nsqfast.embedded() as nsqd, Producer(nsqd.address) as producer:
        both = asyncio.gather(nsqd.received("t", 2), nsqd.received("other"))
        await producer.publish("t", b"a")
        await producer.publish("other", b"b")
        assert not both.done()
        await producer.publish("t", b"c")
        assert await both == [[b"a", b"c"], [b"b"]]


async def test_what_was_finished_was_received_too():
    async with nsqfast.embedded() as nsqd, Producer(nsqd.address) as producer:
        async with Consumer("t", "c", nsqd=nsqd.address) as consumer:
            await producer.publish("t", b"a")
            await take(consumer)
        assert await nsqd.received("t") == [b"a"]


async def test_a_failure_says_what_there_is():
    async with nsqfast.embedded() as nsqd, Producer(nsqd.address) as producer:
        await producer.publish("t", b"a")
        await producer.publish("t", b"b" * 1000)
        await producer.publish("T", b"c")
        with pytest.raises(AssertionError) as caught:
            await nsqd.received("t", 3, timeout_s=0.01)
        assert str(caught.value) == (
            f"topic t got 2 of 3 messages within 0.01 s: [b'a', b'{'b' * 100}']; other topics: T (1)"
        )
        with pytest.raises(AssertionError, match=r"^topic x got 0 of 1 .*: \[\]; other topics: T"):
            await nsqd.received("x", timeout_s=0.01)


@pytest.mark.parametrize("n", [0, -1, 10_001])
async def test_a_number_that_says_nothing_is_refused(n):
    async with nsqfast.embedded() as nsqd:
        with pytest.raises(ValueError, match=f"n={n}: "):
            await nsqd.received("t", n)


async def test_time_passes_for_deferred_messages(loop_factory):
    async with nsqfast.embedded() as nsqd, Producer(nsqd.address) as producer:
        for delay_s in (3600, 60, 600):
            await producer.publish_later("t", b"%d" % delay_s, delay_s=delay_s)
        async with Consumer("t", "c", nsqd=nsqd.address) as consumer:
            # A message that is not deferred comes when the channel is there.
            await producer.publish("t", b"0")
            assert (await take(consumer)).body == b"0"
            # The clock goes on meanwhile, so no step ends close to the time when a message is due.
            assert [nsqd.advance(29), nsqd.advance(1)] == [0, 0]
            assert nsqd.advance(30) == 1
            assert (await take(consumer)).body == b"60"
            assert nsqd.advance(3600) == 2
            assert [(await take(consumer)).body for _ in range(2)] == [b"600", b"3600"]


async def test_time_passes_for_requeued_messages():
    config = Config(max_backoff_duration_s=0)
    async with nsqfast.embedded() as nsqd, Producer(nsqd.address) as producer:
        await producer.publish("t", b"a")
        async with Consumer("t", "c", nsqd=nsqd.address, config=config) as consumer:
            async for message in consumer:
                if message.attempts == 2:
                    message.finish()
                    break
                message.requeue(delay_s=900)
                while not nsqd.advance(900):  # until nsqd has read the REQ
                    await asyncio.sleep(0)


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf"), 1e10])
async def test_time_goes_forward(seconds):
    async with nsqfast.embedded() as nsqd:
        with pytest.raises(ValueError, match="seconds, more than 0, at most a year"):
            nsqd.advance(seconds)


async def test_two_at_once_have_their_own_flags_times_and_ends(loop_factory):
    async with nsqfast.embedded("--max-msg-size=10") as small:
        async with nsqfast.embedded() as large:
            async with Producer(large.address) as producer:
                await producer.publish("t", b"more than ten bytes")
                await producer.publish_later("t", b"later", delay_s=60)
            async with Producer(small.address) as producer:
                with pytest.raises(nsqfast.PublishError, match="BAD_MESSAGE"):
                    await producer.publish("t", b"more than ten bytes")
                await producer.publish_later("t", b"later", delay_s=60)
            async with Consumer("t", "c", nsqd=large.address) as consumer:
                assert (await take(consumer)).body == b"more than ten bytes"
                assert large.advance(60) == 1
                assert (await take(consumer)).body == b"later"
        async with (
            Producer(small.address) as producer,
            Consumer("t", "c", nsqd=small.address) as consumer,
        ):
            await producer.publish("t", b"on")
            assert (await take(consumer)).body == b"on"
            assert small.advance(60) == 1
            assert (await take(consumer)).body == b"later"
    assert small.address != large.address


async def test_two_at_once_have_memory_and_its_ceiling_of_their_own():
    """A deferred message stays in memory, so it is refused from seven eighths of the ceiling on."""
    ceiling = 64 << 20

    async def fill(producer):
        for _ in range(70):
            await producer.publish_later("t", BODY, delay_s=600)

    async def used(nsqd):
        scraped = await asyncio.to_thread(scrape, place(nsqd.http_address))
        assert scraped.value("nsqd_memory_max_bytes") == (ceiling if nsqd is small else 0)
        return scraped.value("nsqd_memory_used_bytes")

    async with (
        nsqfast.embedded() as large,
        nsqfast.embedded(f"--max-memory={ceiling}") as small,
        nsqfast.embedded() as last,
        Producer(large.address) as to_large,
        Producer(small.address) as to_small,
    ):
        empty = [await used(nsqd) for nsqd in (large, small, last)]
        await fill(to_large)
        assert await used(large) > empty[0] + 70 * len(BODY)
        assert [await used(nsqd) for nsqd in (small, last)] == empty[1:]
        with pytest.raises(nsqfast.PublishError, match="no memory left for deferred messages"):
            await fill(to_small)
        assert 50 <= len(small.bodies("t")) <= 56
        await to_large.publish_later("t", BODY, delay_s=600)
        assert await used(small) < ceiling
        assert await used(last) == empty[2]


async def test_topics_are_cleared():
    async with nsqfast.embedded() as nsqd, Producer(nsqd.address) as producer:
        for topic in ("a", "b", "c"):
            await producer.publish(topic, topic.encode())
        nsqd.clear("a", "unknown")
        assert [nsqd.bodies(topic) for topic in ("a", "b", "c")] == [[], [b"b"], [b"c"]]
        nsqd.clear()
        assert [nsqd.bodies(topic) for topic in ("a", "b", "c")] == [[], [], []]


def test_it_leaves_nothing_behind(loop_factory):
    def use():
        with asyncio.Runner(loop_factory=loop_factory) as runner:
            runner.run(publish_and_consume())

    async def publish_and_consume():
        async with nsqfast.embedded() as nsqd, nsqfast.embedded() as other:
            assert nsqd.address != other.address
            async with Producer(nsqd.address) as producer:
                await producer.publish_many("t", [b"x"] * 20_000)  # half of them on disk
                for _ in range(40):  # more memory than is kept, which goes back little by little
                    await producer.publish_later("t", BODY[: len(BODY) // 2 - 100], delay_s=60)
                nsqd.clear("t")
                await producer.publish_many("t", [b"x"] * 20_000)
            async with Consumer("t", "c", nsqd=nsqd.address) as consumer:
                await take(consumer)
            assert len(os.listdir(os.environ["TMPDIR"])) == 2
        assert asyncio.all_tasks() == {asyncio.current_task()}

    use()  # what is loaded once stays
    before = read_process()
    for _ in range(3):
        use()
    assert read_process() == before


async def test_it_ends_with_an_exception_too(tmp_path):
    with pytest.raises(KeyError):
        async with nsqfast.embedded() as nsqd:
            raise KeyError
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ClosedError, match="the embedded nsqd has ended"):
        await nsqd.received("t")
    for use in (lambda: nsqd.advance(1), lambda: nsqd.bodies("t"), nsqd.clear):
        with pytest.raises(ClosedError, match="the embedded nsqd has ended"):
            use()


async def test_it_belongs_to_its_loop():
    async with nsqfast.embedded() as nsqd:
        caught = []

        async def use():
            with pytest.raises(ClosedError, match="was started in another event loop"):
                nsqd.advance(1)
            caught.append(True)

        thread = threading.Thread(target=lambda: asyncio.run(use()))
        thread.start()
        await asyncio.to_thread(thread.join)
        assert caught == [True]


async def test_a_thread_may_publish():
    def publish():
        with SyncProducer(nsqd.address) as producer:
            producer.publish("t", b"from a thread")

    async with nsqfast.embedded() as nsqd:
        _, bodies = await asyncio.gather(asyncio.to_thread(publish), nsqd.received("t"))
    assert bodies == [b"from a thread"]


async def test_its_flags_are_those_of_the_program(tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    flags = (f"--data-path={folder}", "--max-msg-size=5")
    for body in (b"a", b"b"):
        async with nsqfast.embedded(*flags) as nsqd, Producer(nsqd.address) as producer:
            await producer.publish("t", body)
            with pytest.raises(nsqfast.PublishRefusedError):
                await producer.publish("t", b"123456")
    async with (
        nsqfast.embedded(*flags) as nsqd,
        Consumer("t", "c", nsqd=nsqd.address) as consumer,
    ):
        assert [(await take(consumer)).body for _ in range(2)] == [b"a", b"b"]


@pytest.mark.parametrize(
    ("flag", "said"),
    [
        ("--max-msg-sice=5", r"did you mean --max-msg-size\?"),
        ("--max-msg-size=big", 'invalid value "big"'),
        ("--data-path=/nowhere", "failed to lock data-path"),
        ("--http-drain", "cannot be drained"),
        ("--http-admin-address=127.0.0.1:0", "cannot be drained"),
    ],
)
async def test_a_wrong_flag(tmp_path, flag, said):
    with pytest.raises(OptionsError, match=said):
        async with nsqfast.embedded(flag):
            pass
    assert list(tmp_path.iterdir()) == []


async def test_it_is_registered():
    with start_nsqlookupd("nsqfast") as lookupd:
        flag = "--lookupd-tcp-address={}:{}".format(*lookupd.tcp)
        async with nsqfast.embedded(flag) as nsqd:
            await nsqd.registered()
            found = await asyncio.to_thread(nodes, lookupd.http)
        assert [f"127.0.0.1:{node['tcp_port']}" for node in found] == [nsqd.address]
