"""`reject` of messages and batches, reasons of failures, and who decides that a message is never delivered again."""

import asyncio
import contextlib
import json
import logging
import pickle
import unicodedata
from dataclasses import replace

import pytest

from nsqfast.client import Config, Consumer, OptionsError, Producer, sync
from support.fake_nsqd import FakeNsqd
from support.waiting import until
from support.web import get, post, request, topic_stats

FAST = Config(max_in_flight=10, default_requeue_delay_s=0, max_backoff_duration_s=0)
NO_PLACE = "reject needs nsqfast-nsqd or dead_letter_topic"
# What is said, and what arrives of it.
REASONS = [
    ("no such user 17", "no such user 17"),
    ("", ""),
    ("first\nsecond\r\nthird", "first"),
    ("\n\n  late first line", "late first line"),
    ("a\rb", "a"),
    ("a\0b\x1b[31m\x7f\x9b c", "a b [31m   c"),
    ("\0", ""),
    ("x" * 10_000, "x" * 256),
    ("😀" * 10_000, "😀" * 64),
    ("ab😀" + "😀" * 80, "ab" + "😀" * 63),
    ("ü" * 128, "ü" * 128),
    ("\ud800", "?"),
    ("spaces  are part of it", "spaces  are part of it"),
]


@pytest.fixture(scope="module")
def implementation():
    """Go's nsqd has no dead letters; FakeNsqd stands for it."""
    return "nsqfast"


async def publish(address, topic, *bodies):
    async with Producer(address) as producer:
        await producer.publish_many(topic, bodies)


def peek(broker, topic):
    """Of a topic's dead letters: what each body died of."""
    found = get(broker.http, f"/topic/peek?topic={topic}").json().get("messages", [])
    return {each["body"]: each["death"] for each in found if "death" in each}


async def deaths(broker, topic, count=1):
    await until(lambda: len(peek(broker, f"{topic}.c.dead")) == count)
    return peek(broker, f"{topic}.c.dead")


@contextlib.contextmanager
def policy(broker, topic, **definition):
    content = json.dumps({"topic": f"^{topic}$", "definition": definition}).encode()
    assert request(broker.http, "PUT", f"/policies/{topic}", content).status == 200
    yield
    assert request(broker.http, "DELETE", f"/policies/{topic}").status == 200


@contextlib.asynccontextmanager
async def running(kind, handler, *arguments, concurrency=1, **options):
    """A consumer whose `run` is at work, in this loop or in threads."""
    consumer = kind(*arguments, **options)
    if kind is Consumer:
        await consumer.start()
        work = asyncio.create_task(consumer.run(handler, concurrency))
    else:
        work = asyncio.create_task(asyncio.to_thread(consumer.run, handler, concurrency))
    try:
        yield consumer
    finally:
        consumer.request_stop()
        await work
        if kind is sync.Consumer:
            await asyncio.to_thread(consumer.close)


def silent_go(said, attempts=(1,)):
    """A script that, as Go's nsqd does, offers nothing; `said` takes what it is told of messages."""

    async def script(peer):
        identity = await peer.greet()
        async for name, parameters, body in peer.commands():
            if name == "SUB":
                assert identity["reject"] is True
                peer.respond(b"OK")
            elif name == "RDY" and parameters != ["0"] and not script.was_ready:
                script.was_ready = True
                for number, attempt in enumerate(attempts):
                    peer.deliver(number, attempts=attempt)
            elif name == "PUB":
                assert "reject" not in identity  # producers have no use for it
                said.append((name, *parameters, body))
                peer.respond(b"OK")
            elif name in {"FIN", "REQ", "REJ"}:
                said.append((name, *parameters))
            elif name == "CLS":
                peer.respond(b"CLOSE_WAIT")

    script.was_ready = False
    return script


# -- reject


@pytest.mark.parametrize("kind", [Consumer, sync.Consumer])
async def test_rejected(broker, address, topic, kind):
    """It is a dead letter at once; it counts, and nothing else does."""

    def handler(message):
        assert message.is_rejectable
        assert message.reject("no such user 17")
        assert not message.reject("again")
        assert not message.finish()

    await publish(address, topic, b"bad")
    async with running(kind, handler, topic, "c", nsqd=address) as consumer:
        death = (await deaths(broker, topic))["bad"]
        stats = consumer.stats()
    assert (death["reason"], death["error"]) == ("rejected", "no such user 17")
    assert (stats.rejected, stats.finished, stats.requeued, stats.given_up) == (1, 0, 0, 0)
    assert topic_stats(broker.http, topic)["channels"]["c"]["in_flight_count"] == 0


@pytest.mark.parametrize("kind", [Consumer, sync.Consumer])
async def test_reasons_of_all_kinds(broker, address, topic, kind):
    """None of them ends the command, or the connection."""

    def handler(message):
        message.reject(REASONS[int(message.body)][0])

    await publish(address, topic, *[b"%d" % number for number in range(len(REASONS))])
    async with running(kind, handler, topic, "c", nsqd=address) as consumer:
        found = await deaths(broker, topic, len(REASONS))
        assert consumer.stats().connects == 1
    errors = [found[str(number)]["error"] for number in range(len(REASONS))]
    assert errors == [arrives for _, arrives in REASONS]
    assert not [one for text in errors for one in text if unicodedata.category(one) == "Cc"]


@pytest.mark.parametrize("kind", [Consumer, sync.Consumer])
async def test_what_is_no_reason(address, topic, kind):
    await publish(address, topic, b"x")
    refused = []

    def handler(message):
        for answer in (message.reject, lambda reason: message.requeue(reason=reason)):
            for reason in (None, b"bytes", ValueError("why")):
                with pytest.raises(TypeError):
                    answer(reason)
                assert not message.is_answered
        refused.append(message)

    async with running(kind, handler, topic, "c", nsqd=address) as consumer:
        await until(lambda: refused and consumer.stats().finished == 1)


async def test_a_dead_letter_is_not_rejected(broker, address, topic, caplog):
    """nsqd refuses that. It is given back, as it would be in flight until its time is over."""
    await publish(address, topic, b"bad")
    async with Consumer(topic, "c", nsqd=address) as consumer:
        assert (await anext(aiter(consumer))).reject()
        await deaths(broker, topic)
    async with Consumer(f"{topic}.c.dead", "look", nsqd=address, config=FAST) as consumer:
        assert (await anext(aiter(consumer))).reject()
        again = await anext(aiter(consumer))
        stats = consumer.stats()
        assert (again.attempts, stats.rejected, stats.requeued) == (2, 0, 1)
        again.finish()
    (line,) = [one.getMessage() for one in caplog.records if one.levelno == logging.WARNING]
    assert "look: requeued, for it was not rejected: E_REJ_FAILED REJ " in line


@pytest.mark.parametrize(
    "text", ["", " 0000", " \u20ac it is a dead letter", " 0000000000000000 x"]
)
async def test_late_ones_do_not_count(topic, text):
    """Whatever the error looks like, the connection goes on."""

    async def script(peer):
        await peer.subscribe(reject=True)
        await peer.expect("RDY")
        peer.deliver(1)
        await peer.expect("REJ")
        peer.refuse(f"E_REJ_FAILED REJ{text}")
        peer.deliver(2)
        assert [name for name, _ in await peer.part()] == ["FIN"]

    async with FakeNsqd(script) as fake, Consumer(topic, "c", nsqd=fake.address) as consumer:
        messages = aiter(consumer)
        assert (await anext(messages)).reject("why")
        assert consumer.stats().rejected == 1
        (await anext(messages)).finish()
        assert (consumer.stats().rejected, consumer.stats().requeued) == (0, 0)


@pytest.mark.parametrize("kind", [Consumer, sync.Consumer])
async def test_no_place_for_it(topic, kind):
    """The message stays unanswered, and may be requeued."""
    said = []

    def handler(message):
        with pytest.raises(OptionsError, match=NO_PLACE):
            message.reject("why")
        assert not message.is_answered
        assert not message.is_rejectable
        assert message.requeue(0, reason="not told")

    async with FakeNsqd(silent_go(said)) as fake:
        async with running(kind, handler, topic, "c", nsqd=fake.address):
            await until(lambda: said)
        assert said == [("REQ", "0" * 16, "0")]


@pytest.mark.parametrize("kind", [Consumer, sync.Consumer])
@pytest.mark.parametrize("after", ["returns", "raises", "answers"])
async def test_moved_where_nsqd_has_no_dead_letters(topic, kind, after, caplog):
    """It is published before it is finished, whatever the handler does then."""
    said = []

    def handler(message):
        assert message.reject("no such\x1b user")
        assert message.is_answered
        if after == "raises":
            raise ValueError("no such user")
        if after == "answers":
            assert not message.finish()
            assert not message.requeue()

    async with FakeNsqd(silent_go(said)) as fake:
        options = {"nsqd": fake.address, "dead_letter_topic": f"{topic}.dead"}
        async with running(kind, handler, topic, "c", **options) as consumer:
            await until(lambda: len(said) == 2)
            await until(lambda: consumer.stats().rejected == 1)
            stats = consumer.stats()
        assert said == [("PUB", f"{topic}.dead", b"body"), ("FIN", "0" * 16)]
        assert (stats.finished, stats.requeued, stats.given_up) == (1, 0, 0)
    moved = f"{topic}/c: moved to {topic}.dead: {'0' * 16}, rejected: no such\\x1b user"
    assert moved in [record.getMessage() for record in caplog.records]


async def test_a_place_that_takes_nothing(topic, caplog):
    said = []

    async def script(peer):
        await peer.greet()
        async for name, parameters, _ in peer.commands():
            if name == "SUB":
                peer.respond(b"OK")
            elif name == "RDY" and parameters != ["0"] and not said:
                peer.deliver(1)
            elif name == "PUB":
                peer.refuse("E_UNAUTHORIZED AUTH failed for PUB")
                return
            elif name in {"FIN", "REQ"}:
                said.append(name)
            elif name == "CLS":
                peer.respond(b"CLOSE_WAIT")

    async with (
        FakeNsqd(script) as fake,
        Consumer(topic, "c", nsqd=fake.address, dead_letter_topic=f"{topic}.dead") as consumer,
    ):
        assert (await anext(aiter(consumer))).reject("why")
        await until(lambda: said)
        assert said == ["REQ"]
        assert consumer.stats().rejected == 0
    assert "requeued, for moving it failed" in caplog.text


async def test_a_stop_meanwhile(topic):
    """What is on its way to its place is handed back, as all that is unanswered."""
    said = []
    is_asked = asyncio.Event()

    async def script(peer):
        await peer.greet()
        async for name, parameters, _ in peer.commands():
            if name == "SUB":
                peer.respond(b"OK")
            elif name == "RDY" and parameters != ["0"]:
                peer.deliver(1)
            elif name == "PUB":
                is_asked.set()  # and never answered
            elif name in {"FIN", "REQ"}:
                said.append((name, *parameters))
            elif name == "CLS":
                peer.respond(b"CLOSE_WAIT")

    async with FakeNsqd(script) as fake:
        async with Consumer(
            topic, "c", nsqd=fake.address, dead_letter_topic=f"{topic}.dead"
        ) as consumer:
            assert (await anext(aiter(consumer))).reject("why")
            await is_asked.wait()
        await until(lambda: said)
    assert said == [("REQ", f"{1:016x}", "0")]


async def test_backoff_does_not_count_it(address, topic):
    """A rejected message is neither the failure that pauses the consumer, nor the success that ends it."""
    config = replace(FAST, max_backoff_duration="1m", backoff_multiplier="10ms")
    await publish(address, topic, b"fails", b"bad", b"good")
    async with Consumer(topic, "c", nsqd=address, config=config, backoff="nsq") as consumer:
        by_body = {}
        while len(by_body) < 3:
            message = await anext(aiter(consumer))
            by_body[message.body] = message
        by_body[b"fails"].requeue()
        assert consumer.stats().backoff_level == 1
        by_body[b"bad"].reject()
        assert consumer.stats().backoff_level == 1
        by_body[b"good"].finish()
        (await anext(aiter(consumer))).finish()
        assert consumer.stats().backoff_level == 0


# -- why it failed


class Odd(Exception):  # noqa: N818 - its name is what arrives
    def __str__(self):
        raise RuntimeError


@pytest.mark.parametrize("kind", [Consumer, sync.Consumer])
@pytest.mark.parametrize(
    ("error", "arrives"),
    [
        (ValueError("no such user 17"), "ValueError: no such user 17"),
        (ValueError("one\ntwo"), "ValueError: one"),
        (ValueError("\n\0\x1b"), "ValueError:"),
        (ValueError("é" * 10_000), "ValueError: " + "é" * 122),
        (KeyError("id"), "KeyError: 'id'"),
        (ValueError(), "ValueError"),
        (Odd(), "Odd"),
    ],
)
async def test_what_a_handler_raises(broker, address, topic, kind, error, arrives):
    def handler(_message):
        raise error

    await publish(address, topic, b"x")
    with policy(broker, topic, max_failures=1):
        async with running(kind, handler, topic, "c", nsqd=address, config=FAST):
            death = (await deaths(broker, topic))["x"]
    assert (death["reason"], death["error"], death["failures"]) == ("failed", arrives, 1)


@pytest.mark.parametrize("kind", [Consumer, sync.Consumer])
async def test_on_failure(broker, address, topic, kind, caplog):
    """Its text, else the default; what is wrong with it is in the log."""

    def handler(message):
        raise ValueError(message.body.decode())

    def explain(message, error):
        assert isinstance(error, ValueError)
        assert message.attempts == 1
        if message.body == b"raises":
            raise OSError("down")
        return {b"text": "user 17\nis unknown", b"none": None, b"number": 17}[message.body]

    await publish(address, topic, b"text", b"none", b"raises", b"number")
    options = {"nsqd": address, "config": FAST, "on_failure": explain}
    with policy(broker, topic, max_failures=1):
        async with running(kind, handler, topic, "c", **options):
            found = await deaths(broker, topic, 4)
    assert {body: death["error"] for body, death in found.items()} == {
        "text": "user 17",
        "none": "ValueError: none",
        "raises": "ValueError: raises",
        "number": "ValueError: number",
    }
    errors = [one.getMessage() for one in caplog.records if one.levelno == logging.ERROR]
    assert len(errors) == 2
    assert any("on_failure failed: " in line for line in errors)
    assert any("on_failure returned 17, no text: " in line for line in errors)


@pytest.mark.parametrize("kind", [Consumer, sync.Consumer])
async def test_on_failure_may_answer(broker, address, topic, kind):
    """One place that says which exceptions are final."""

    def handler(_message):
        raise ValueError("final")

    await publish(address, topic, b"x")
    options = {
        "nsqd": address,
        "on_failure": lambda message, error: message.reject(str(error)) and "",
    }
    async with running(kind, handler, topic, "c", **options) as consumer:
        death = (await deaths(broker, topic))["x"]
        assert consumer.stats().requeued == 0
    assert (death["reason"], death["error"]) == ("rejected", "final")


@pytest.mark.parametrize("kind", [Consumer, sync.Consumer])
async def test_on_failure_that_cannot_be(kind):
    async def coroutine(_message, _error):
        pass

    for given in ("text", coroutine, lambda _message: None):
        with pytest.raises(OptionsError, match="on_failure is "):
            kind("t", "c", nsqd="127.0.0.1:4150", on_failure=given)


@pytest.mark.parametrize("kind", [Consumer, sync.Consumer])
async def test_requeue_with_a_reason(broker, address, topic, kind):
    def handler(message):
        message.requeue(0, backoff=False, reason="not yet")

    await publish(address, topic, b"x")
    with policy(broker, topic, max_failures=2):
        async with running(kind, handler, topic, "c", nsqd=address):
            death = (await deaths(broker, topic))["x"]
    assert (death["failures"], death["error"]) == (2, "not yet")


# -- batches


@contextlib.asynccontextmanager
async def batch_of(kind, way, count, *arguments, **options):
    """A consumer, and the first batch or arrays of so many messages."""
    consumer = kind(*arguments, config=FAST, **options)
    if kind is Consumer:
        async with consumer:
            yield consumer, await anext(getattr(consumer, way)(count, 3600))
        return
    await asyncio.to_thread(consumer.__enter__)
    try:
        yield consumer, await asyncio.to_thread(next, getattr(consumer, way)(count, 3600))
    finally:
        await asyncio.to_thread(consumer.close)


each_kind = pytest.mark.parametrize("kind", [Consumer, sync.Consumer])
each_way = pytest.mark.parametrize("way", ["batches", "arrays"])


@each_kind
@each_way
async def test_batches_are_rejected(broker, address, topic, kind, way):
    """One of it, and then the rest."""
    await publish(address, topic, b"a", b"b", b"c")
    async with batch_of(kind, way, 3, topic, "c", nsqd=address) as (consumer, batch):
        assert batch.is_rejectable
        if way == "arrays":
            assert batch.reject([1, 1], reason="only b") == 1
            assert batch.reject([1]) == 0
            assert batch.reject(reason="the rest") == 2
            assert batch.finish() == 0
        else:
            assert batch.messages[1].reject("only b")
            batch.reject("the rest")
            assert all(message.is_answered for message in batch)
        found = await deaths(broker, topic, 3)
        stats = consumer.stats()
    errors = {body: death["error"] for body, death in found.items()}
    assert errors == {"a": "the rest", "b": "only b", "c": "the rest"}
    assert {death["reason"] for death in found.values()} == {"rejected"}
    assert (stats.rejected, stats.finished, stats.requeued, stats.in_flight) == (3, 0, 0, 0)
    assert topic_stats(broker.http, topic)["channels"]["c"]["in_flight_count"] == 0


@each_kind
@each_way
async def test_batches_fail_with_a_reason(broker, address, topic, kind, way):
    await publish(address, topic, b"a", b"b")
    with policy(broker, topic, max_failures=1):
        async with batch_of(kind, way, 2, topic, "c", nsqd=address) as (_, batch):
            batch.requeue(delay_s=60, reason="not yet\nor never")
            found = await deaths(broker, topic, 2)
    assert {death["error"] for death in found.values()} == {"not yet"}


@each_kind
@each_way
async def test_what_is_no_reason_of_a_batch(address, topic, kind, way):
    """It is said, and all stay unanswered."""
    await publish(address, topic, b"a", b"b")
    async with batch_of(kind, way, 2, topic, "c", nsqd=address) as (consumer, batch):
        for answer in (batch.reject, batch.requeue):
            for reason in (None, b"bytes", ValueError("why")):
                with pytest.raises(TypeError):
                    answer(reason=reason)
        batch.finish()
        await until(lambda: consumer.stats().finished == 2)


@each_kind
@each_way
async def test_no_place_for_a_batch(topic, kind, way):
    """All stay unanswered, and a nsqd that keeps no reasons gets none."""
    said = []
    async with (
        FakeNsqd(silent_go(said, attempts=(1, 1))) as fake,
        batch_of(kind, way, 2, topic, "c", nsqd=fake.address) as (_, batch),
    ):
        assert not batch.is_rejectable
        with pytest.raises(OptionsError, match=NO_PLACE):
            batch.reject()
        batch.requeue(delay_s=0, reason="not told")
        await until(lambda: len(said) == 2)
    assert sorted(said) == [("REQ", f"{number:016x}", "0") for number in (0, 1)]


@each_kind
@each_way
async def test_batches_are_moved_where_nsqd_has_no_dead_letters(topic, kind, way):
    said = []
    async with FakeNsqd(silent_go(said, attempts=(1, 1))) as fake:
        options = {"nsqd": fake.address, "dead_letter_topic": f"{topic}.dead"}
        async with batch_of(kind, way, 2, topic, "c", **options) as (consumer, batch):
            assert batch.is_rejectable
            batch.reject(reason="why")
            assert not batch.finish()
            await until(lambda: consumer.stats().rejected == 2)
            stats = consumer.stats()
        assert (stats.finished, stats.requeued, stats.in_flight) == (2, 0, 0)
        await until(lambda: len(said) == 4)
    moved = ("PUB", f"{topic}.dead", b"body")
    assert sorted(said) == [("FIN", "0" * 16), ("FIN", f"{1:016x}"), moved, moved]
    assert said.index(moved) == 0


async def test_rows_of_both_kinds_of_nsqd(broker, address, topic):
    """Without a place for all that is asked for none is rejected; with one each goes where it can."""
    said = []
    await publish(address, topic, b"ours")
    async with FakeNsqd(silent_go(said)) as fake:
        nsqds = [address, fake.address]
        async with batch_of(Consumer, "arrays", 2, topic, "c", nsqd=nsqds) as (_, batch):
            assert not batch.is_rejectable
            with pytest.raises(OptionsError, match=NO_PLACE):
                batch.reject()
            assert not batch.is_answered
            ours = [row for row in range(2) if batch.body(row) == b"ours"]
            assert batch.reject(ours, reason="ours alone") == 1
            assert batch.finish() == 1
            assert (await deaths(broker, topic))["ours"]["error"] == "ours alone"
    said.clear()
    await publish(address, topic, b"more")
    async with FakeNsqd(silent_go(said)) as fake:
        options = {"nsqd": [address, fake.address], "dead_letter_topic": f"{topic}.elsewhere"}
        async with batch_of(Consumer, "arrays", 2, topic, "c", **options) as (_, batch):
            assert batch.reject(reason="both") == 2
            assert (await deaths(broker, topic, 2))["more"]["error"] == "both"
            await until(lambda: len(said) == 2)
    assert said == [("PUB", f"{topic}.elsewhere", b"body"), ("FIN", "0" * 16)]


@each_kind
@each_way
async def test_what_a_consumer_hands_back_has_not_failed(broker, address, topic, kind, way):
    """Neither what it has taken, nor what waits in it."""
    await publish(address, topic, b"a", b"b", b"c", b"d")
    with policy(broker, topic, max_failures=1):
        async with batch_of(kind, way, 2, topic, "c", nsqd=address) as (consumer, _batch):
            await until(lambda: consumer.stats().in_flight == 4)
        await until(lambda: not topic_stats(broker.http, topic)["channels"]["c"]["in_flight_count"])
        assert topic_stats(broker.http, topic)["channels"]["c"]["depth"] == 4


# -- who decides


async def fail(_message):
    raise ValueError


async def attempts_of(address, topic, count, **options):
    """The first attempts that a handler sees of a message that always fails."""
    seen = []

    def handler(message):
        seen.append(message.attempts)
        raise ValueError

    await publish(address, topic, b"x")
    async with running(Consumer, handler, topic, "c", nsqd=address, **options) as consumer:
        await until(lambda: len(seen) >= count or consumer.stats().given_up)
        given_up = consumer.stats().given_up
    return seen[:count], given_up


async def test_nsqd_decides(address, topic, caplog):
    """Who set no limit gives up nothing, and the log names none."""
    assert await attempts_of(address, topic, 9, config=FAST) == ([*range(1, 10)], 0)
    assert (
        " at attempt 8; it comes again in 0 s, unless a policy of nsqd says otherwise"
        in caplog.text
    )


async def test_nsqd_decides_for_arrays(address, topic):
    await publish(address, topic, b"x")
    async with Consumer(topic, "c", nsqd=address, config=FAST) as consumer:
        async for batch in consumer.arrays(max_messages=1):
            attempts = int(batch.attempts[0])
            if attempts == 8:
                batch.finish()
                break
            batch.requeue()
    assert attempts == 8


@pytest.mark.parametrize(
    "options",
    [
        {"config": replace(FAST, max_attempts=5)},
        {"config": Config.parse(["max_attempts,5", "default_requeue_delay_s,0"], FAST)},
        {"config": pickle.loads(pickle.dumps(replace(FAST, max_attempts=5)))},
        {"config": FAST, "giving_up": lambda _message: None},
        {"config": pickle.loads(pickle.dumps(FAST)), "dead_letter_topic": "dead"},
    ],
)
async def test_a_limit_that_was_asked_for(address, topic, options):
    assert await attempts_of(address, topic, 6, **options) == ([1, 2, 3, 4, 5], 1)


def test_a_limit_that_nobody_chose():
    """It stays that through copies, and is 5 to whoever looks."""
    for config in (Config(), replace(Config(), max_in_flight=7), pickle.loads(pickle.dumps(FAST))):
        assert config.max_attempts == 5
        assert not config.is_max_attempts_given
    for config in (
        Config(max_attempts=5),
        Config.parse(["max_attempts,5"]),
        Config(max_attempts=0),
    ):
        assert config.is_max_attempts_given


async def test_one_consumer_at_both_kinds(address, topic):
    """The limit of 5 holds where nobody else decides, and nowhere else."""
    said, seen = [], []

    def handler(message):
        seen.append((message.nsqd, message.attempts))
        raise ValueError

    await publish(address, topic, b"x")
    async with FakeNsqd(silent_go(said, attempts=(5, 6))) as fake:
        nsqds = [address, fake.address]
        async with running(Consumer, handler, topic, "c", nsqd=nsqds, config=FAST) as consumer:
            await until(lambda: (address, 8) in seen and len(said) == 2)
            assert consumer.stats().given_up == 1
    assert [attempt for nsqd, attempt in seen if nsqd == fake.address] == [5]
    assert sorted(said) == [("FIN", f"{1:016x}"), ("REQ", f"{0:016x}", "0")]


async def test_policies_decide(broker, address, topic):
    """More failures than the client would allow, and then never again."""
    await publish(address, topic, b"x")
    with policy(broker, topic, max_failures=7):
        async with running(Consumer, fail, topic, "c", nsqd=address, config=FAST) as consumer:
            death = (await deaths(broker, topic))["x"]
            assert (consumer.stats().requeued, consumer.stats().given_up) == (7, 0)
    assert (death["failures"], death["error"]) == (7, "ValueError")
    post(broker.http, f"/topic/delete?topic={topic}.c.dead")
