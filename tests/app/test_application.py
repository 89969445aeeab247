"""An App within a test's own loop: what handlers get, how it begins, and how it ends."""

import asyncio
import contextlib
import dataclasses
import functools
import inspect
import threading

import pytest

import nsqfast.client.sync
from nsqfast import App
from nsqfast.app.subscription import ConsumerOptions
from nsqfast.client import (
    ClosedError,
    Config,
    Consumer,
    Message,
    Middleware,
    OptionsError,
    Producer,
)
from nsqfast.client.envelope import add_headers
from nsqfast.errors import PayloadError
from support.waiting import until
from support.web import topic_stats

CONFIG = Config(default_requeue_delay_s=0, max_backoff_duration_s=0)


@dataclasses.dataclass
class Order:
    sku: str


class Seen(asyncio.Queue):
    """What handlers were called with, also those in threads."""

    def __init__(self):
        super().__init__()
        self._loop = asyncio.get_running_loop()

    def add(self, *values):
        self._loop.call_soon_threadsafe(self.put_nowait, values)

    async def take(self):
        async with asyncio.timeout(30):
            return await self.get()


@contextlib.contextmanager
def enter(name, events):
    events.append(f"{name} begins")
    try:
        yield
    finally:
        events.append(f"{name} ends")


def make_lifespan(resources, events):
    @contextlib.asynccontextmanager
    async def lifespan(app):
        with enter("lifespan", events):
            yield resources

    return lifespan


def make_app(address, **options):
    return App(nsqd=address, config=CONFIG, **options)


async def left(broker, topic):
    """Nothing waits, and nothing is in flight."""
    await until(lambda: is_empty(topic_stats(broker.http, topic)["channels"]["c"]))


def is_empty(channel):
    return not (channel["depth"] or channel["in_flight_count"] or channel["deferred_count"])


# -- what handlers get


async def test_coroutine_functions_and_plain_ones(broker, address, topic):
    """The latter run in threads of their own, with messages that belong there."""
    app, seen = make_app(address), Seen()
    loop_thread = threading.get_ident()

    @app.subscribe(topic, "c", type=Order)
    async def on_loop(order, message):
        seen.add(order, type(message), threading.get_ident() == loop_thread)

    @app.subscribe(f"{topic}-2", "c", type=Order)
    def in_thread(order, message):
        seen.add(order, type(message), threading.get_ident() == loop_thread)

    async with app:
        await app.publish(topic, Order("tea"))
        assert await seen.take() == (Order("tea"), Message, True)
        await app.publish(f"{topic}-2", Order("tea"))
        assert await seen.take() == (Order("tea"), nsqfast.client.sync.Message, False)
        await left(broker, topic)
    assert on_loop.__name__ == "on_loop"


async def test_plain_functions_block_neither_the_loop_nor_one_another(address, topic):
    """Three meet at a barrier, which none of them passes alone, while the loop goes on."""
    app, seen, barrier = make_app(address), Seen(), threading.Barrier(3, timeout=30)

    @app.subscribe(topic, "c", concurrency=3)
    def handle(message):
        barrier.wait()
        seen.add(message.body)

    async with app:
        await app.producer.publish_many(topic, [b"1", b"2", b"3"])
        assert {await seen.take() for _ in range(3)} == {(b"1",), (b"2",), (b"3",)}


async def test_answers_from_a_thread(broker, address, topic):
    """requeue, finish and keep are the handler's own, and an exception requeues."""
    app, seen, kept = make_app(address), Seen(), []

    @app.subscribe(topic, "c")
    def handle(message):
        seen.add(message.body, message.attempts)
        if message.attempts > 1 or message.body == b"plain":
            return
        if message.body == b"requeue":
            message.requeue(0, backoff=False)
        elif message.body == b"keep":
            message.keep()
            kept.append(message)
        else:
            raise ValueError

    async with app:
        for body, attempts in ((b"plain", 1), (b"requeue", 2), (b"raise", 2), (b"keep", 1)):
            await app.publish(topic, body)
            for number in range(1, attempts + 1):
                assert await seen.take() == (body, number)
        channel = topic_stats(broker.http, topic)["channels"]["c"]
        assert channel["in_flight_count"] == 1
        kept[0].finish()
        await left(broker, topic)
        assert app.health().details["subscriptions"][0]["requeued"] == 2


async def test_context_variables_reach_threads(address, topic):
    """Those that middleware has set, such as a span."""
    import contextvars

    number = contextvars.ContextVar("number")

    class Setting(Middleware):
        @contextlib.contextmanager
        def handle(self, topic, channel, message):
            number.set(7)
            yield

    app, seen = make_app(address, middleware=[Setting()]), Seen()
    app.subscribe(topic, "c")(lambda _message: seen.add(number.get()))
    async with app:
        await app.publish(topic, b"x")
        assert await seen.take() == (7,)


async def test_resources_are_parameters_by_name(address, topic):
    events = []
    resources = {"db": "database", "http": "session", "unused": 1}
    app, seen = make_app(address, lifespan=make_lifespan(resources, events)), Seen()

    @app.subscribe(topic, "a", type=Order)
    async def first(order, http, *, db, missing="default"):
        seen.add("first", order, http, db, missing)

    @app.subscribe(topic, "b")
    def second(message, db, **more):
        seen.add("second", message.body, db, more)

    async with app:
        await app.publish(topic, Order("tea"))
        assert sorted([await seen.take(), await seen.take()]) == [
            ("first", Order("tea"), "session", "database", "default"),
            ("second", b'{"sku":"tea"}', "database", {}),
        ]
    assert events == ["lifespan begins", "lifespan ends"]


async def test_one_function_for_several_channels(address, topic):
    app, seen = make_app(address), Seen()

    @app.subscribe(topic, "a")
    @app.subscribe(topic, "b")
    async def handle(message):
        seen.add(message.body)

    async with app:
        await app.publish(topic, "text")
        assert [await seen.take(), await seen.take()] == [(b"text",)] * 2


async def test_headers(address, topic):
    """With the envelope they come beside the body; a body without one has none."""
    app, seen = make_app(address, envelope=True), Seen()

    @app.subscribe(topic, "c", type=Order)
    async def handle(order, headers):
        seen.add(order, headers)

    async with app:
        await app.publish(topic, Order("tea"), headers={"tenant": "x"})
        assert await seen.take() == (Order("tea"), {"tenant": "x"})
        await app.publish(topic, Order("tea"))
        assert await seen.take() == (Order("tea"), {})
        async with Producer(address) as producer:
            await producer.publish(topic, add_headers(b'{"sku":"a"}', {"b": "c"}))
        assert await seen.take() == (Order("a"), {"b": "c"})


async def test_headers_without_an_envelope(address):
    app = make_app(address)
    async with app:
        with pytest.raises(OptionsError, match=r"headers need App\(envelope=True\)"):
            await app.publish("t", b"x", headers={"a": "b"})


async def test_a_body_that_does_not_decode_does_not_end_it(broker, address, topic):
    failures = []

    class Watching(Middleware):
        @contextlib.contextmanager
        def handle(self, topic, channel, message):
            try:
                yield
            except Exception as error:
                failures.append(error)
                raise

    app, seen = make_app(address, middleware=[Watching()]), Seen()
    given_up = Seen()

    @app.subscribe(
        topic,
        "c",
        type=Order,
        config=dataclasses.replace(CONFIG, max_attempts=2),
        giving_up=lambda message: given_up.add(message.body),
    )
    async def handle(order):
        seen.add(order)

    async with app:
        await app.publish(topic, b"no order")
        assert await given_up.take() == (b"no order",)
        await app.publish(topic, Order("tea"))
        assert await seen.take() == (Order("tea"),)
        await left(broker, topic)
    assert [type(each) for each in failures] == [PayloadError] * 2
    assert str(failures[0]).startswith("the body is no Order: JSON is malformed")


# -- what is said at the start


@pytest.mark.parametrize(
    ("handler", "error"),
    [
        (lambda message, databse: None, "wants 'databse', and there is no resource of that name: "),
        (functools.partial(lambda message, other: None), "wants 'other'"),
        (lambda message, db, /: None, "wants 'db'"),
    ],
)  # fmt: skip
async def test_a_resource_that_there_is_not(address, topic, handler, error):
    """Before anything is handled; the lifespan ends."""
    events = []
    app = make_app(address, lifespan=make_lifespan({"db": 1}, events))
    app.subscribe(topic, "c")(handler)
    with pytest.raises(OptionsError, match=f"the handler of {topic}/c, {error}"):
        await app.__aenter__()
    assert events == ["lifespan begins", "lifespan ends"]
    with pytest.raises(ClosedError, match="the app is not running"):
        await app.publish(topic, b"x")


@pytest.mark.parametrize(
    ("handler", "options", "kind", "error"),
    [
        (lambda: None, {}, OptionsError, "takes no message: its first parameter is for that"),
        (lambda *, message: None, {}, OptionsError, "takes no message"),
        ("text", {}, OptionsError, "t/c: a handler is a function, not 'text'"),
        (print, {"concurrency": 0}, OptionsError, "concurrency is 0"),
        (print, {"type": 5}, OptionsError, "type=5 cannot be decoded"),
        (print, {"concurency": 8}, TypeError, "unexpected keyword argument 'concurency'"),
    ],
)
def test_wrong_subscriptions_are_refused_where_they_stand(dead, handler, options, kind, error):
    with pytest.raises(kind, match=error):
        App(nsqd=dead).subscribe("t", "c", **options)(handler)


@pytest.mark.parametrize(
    ("resources", "error"),
    [
        ("text", "a lifespan yields a mapping of names to resources, not 'text'"),
        ({"message": 1}, "a resource cannot be named message"),
    ],
)
async def test_what_a_lifespan_cannot_yield(address, resources, error):
    app = make_app(address, lifespan=make_lifespan(resources, []))
    with pytest.raises(OptionsError, match=error):
        await app.__aenter__()


def test_type_checkers_know_all_options_of_a_consumer():
    keywords = inspect.signature(Consumer).parameters.keys() - {"topic", "channel"}
    assert ConsumerOptions.__annotations__.keys() == keywords


async def test_an_invalid_topic(address):
    app = make_app(address)
    app.subscribe("no topic", "c")(print)
    with pytest.raises(OptionsError, match="no topic"):
        await app.__aenter__()


async def test_nothing_to_handle(dead):
    with pytest.raises(OptionsError, match="no function has @app.subscribe"):
        await App(nsqd=dead).serve()


async def test_a_lifespan_that_fails(address, topic):
    """At its beginning nothing is handled; at its end all that was handled is."""

    @contextlib.asynccontextmanager
    async def lifespan(app):
        if fails_at == "begin":
            raise LookupError("no database")
        yield None
        raise LookupError("no end")

    app, seen = make_app(address, lifespan=lifespan), Seen()
    app.subscribe(topic, "c")(lambda message: seen.add(message.body))
    fails_at = "begin"
    with pytest.raises(LookupError, match="no database"):
        await app.serve()
    fails_at = "end"
    await app.__aenter__()
    await app.publish(topic, b"x")
    assert await seen.take() == (b"x",)
    with pytest.raises(LookupError, match="no end"):
        await app.__aexit__(None, None, None)
    assert app.health().state == "stopping"


async def test_a_lifespan_may_publish(address, topic):
    @contextlib.asynccontextmanager
    async def lifespan(app):
        await app.publish(topic, b"begin")
        yield

    app, seen = make_app(address, lifespan=lifespan), Seen()
    app.subscribe(topic, "c")(lambda message: seen.add(message.body))
    async with app:
        assert await seen.take() == (b"begin",)


async def test_publishing_without_an_nsqd(dead):
    app = App(nsqlookupd=dead)
    async with app:
        with pytest.raises(ClosedError, match=r"has no nsqd to publish to: App\(nsqd=...\)"):
            await app.publish("t", b"x")


async def test_it_is_started_once_at_a_time_and_again_after_its_end(address, topic):
    app, seen = make_app(address), Seen()
    app.subscribe(topic, "c")(lambda message: seen.add(message.body))
    for body in (b"1", b"2"):
        async with app:
            await app.publish(topic, body)
            assert await seen.take() == (body,)
            with pytest.raises(ClosedError, match="was started before"):
                await app.__aenter__()
            with pytest.raises(ClosedError, match="the app has started"):
                app.subscribe(topic, "d")


# -- the end


async def test_handlers_end_before_what_they_use(broker, address, topic):
    events, begun, go_on = [], asyncio.Event(), asyncio.Event()
    app = make_app(address, lifespan=make_lifespan(None, events))

    @app.subscribe(topic, "c")
    async def handle(message):
        with enter("handler", events):
            begun.set()
            await go_on.wait()
            await app.publish(f"{topic}-done", message.body)

    running = asyncio.create_task(app.serve())
    async with Producer(address) as producer:
        await producer.publish(topic, b"x")
    await begun.wait()
    app.request_stop()
    assert app.health().state == "stopping"
    go_on.set()
    await running
    assert events == ["lifespan begins", "handler begins", "handler ends", "lifespan ends"]
    assert topic_stats(broker.http, f"{topic}-done")["message_count"] == 1
    await left(broker, topic)


async def test_a_thread_that_does_not_end_does_not_hold_up_the_end(broker, address, topic):
    """Its message is handed back."""
    app, begun, go_on = make_app(address), Seen(), threading.Event()

    @app.subscribe(topic, "c", grace_s=0.1)
    def handle(_message):
        begun.add()
        go_on.wait(60)

    async with app:
        await app.publish(topic, b"x")
        await begun.take()
    try:
        await until(lambda: topic_stats(broker.http, topic)["channels"]["c"]["depth"] == 1)
    finally:
        go_on.set()


async def test_a_consumer_that_fails_ends_all(address, topic):
    events = []
    app = make_app(address, lifespan=make_lifespan(None, events))

    @app.subscribe(topic, "c", grace_s=0)
    async def handle(_message):
        asyncio.current_task().cancel()
        await asyncio.sleep(0)

    @app.subscribe(f"{topic}-2", "c")
    async def other(_message):
        raise AssertionError

    running = asyncio.create_task(app.serve())
    async with Producer(address) as producer:
        await producer.publish(topic, b"x")
    with pytest.raises(nsqfast.NsqfastError, match="a task that calls the handler was cancelled"):
        await running
    assert events == ["lifespan begins", "lifespan ends"]


async def test_serve_that_is_cancelled(address, topic):
    events, begun = [], asyncio.Event()
    app = make_app(address, lifespan=make_lifespan(None, events))
    app.subscribe(topic, "c")(print)
    running = asyncio.create_task(app.serve(on_ready=begun.set))
    await begun.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert events == ["lifespan begins", "lifespan ends"]
    assert app.health().state == "stopping"


async def test_health(broker, address, dead, topic):
    """Of each channel, whether it is connected."""
    app = make_app(address)
    app.subscribe(topic, "c")(print)
    async with app:
        assert app.health().is_ok
        assert app.health().details["subscriptions"] == [
            {
                "topic": topic,
                "channel": "c",
                "connected": [address],
                "errors": {},
                "received": 0,
                "finished": 0,
                "requeued": 0,
                "in_flight": 0,
            }
        ]
    app = make_app(address)
    app.subscribe(topic, "c", nsqd=dead)(print)
    async with app:
        assert app.health().state == "not connected"
        (row,) = app.health().details["subscriptions"]
        assert "refused" in row["errors"][dead]
