"""Objects instead of bodies: encoders, decoders, types, and what becomes of a body that does not decode."""

import asyncio
import contextlib
import dataclasses
import enum
import functools
import inspect
import re
import sys
import types
from datetime import UTC, datetime
from typing import Any, TypedDict

import msgspec
import orjson
import pydantic
import pytest

import nsqfast.client.sync
from nsqfast.client import Config, Consumer, Middleware, OptionsError, Producer
from nsqfast.client.payload import (
    REASON_LENGTH_MAX,
    choose_call,
    decoder_of,
    encode_json,
    encode_value,
)
from nsqfast.errors import PackageMissingError, PayloadError
from nsqfast.program import extras
from support.plain_install import link_installed, run_with

CONFIG = Config(max_in_flight=10, default_requeue_delay_s=0, max_backoff_duration_s=0)


@dataclasses.dataclass
class Order:
    sku: str
    count: int = 1


class Struct(msgspec.Struct):
    sku: str
    count: int = 1


class Model(pydantic.BaseModel):
    sku: str
    count: int = 1


@pydantic.dataclasses.dataclass
class Checked:
    sku: str
    count: int = pydantic.Field(default=1, ge=1)


class Row(TypedDict):
    sku: str
    count: int


class Color(enum.Enum):
    RED = "red"


VALUES = [
    (Order, Order("tea", 2)),
    (Struct, Struct("tea", 2)),
    (Model, Model(sku="tea", count=2)),
    (Checked, Checked("tea", 2)),
    (Row, {"sku": "tea", "count": 2}),
    (list[int], [1, 2]),
    (list[Model], [Model(sku="tea")]),
    (list[Order], [Order("tea")]),
    (dict, {"a": [1, None]}),
    (dict[str, Any], {"a": [1, None]}),
    (list, [1, "a"]),
    (object, "text"),
    (Any, 1),
    (bytes, b"\xff"),
    (str, "t\xe4xt"),
]


@pytest.mark.parametrize(("kind", "value"), VALUES, ids=str)
def test_there_and_back(kind, value):
    body = encode_json(value) if kind in (object, Any) else encode_value(value)
    assert decoder_of(kind)(body) == value


def test_json_has_what_programs_put_into_it():
    value = {"order": Order("tea"), "all": [Struct("a"), Model(sku="b")], "color": Color.RED}
    value["at"] = datetime(2026, 11, 27, 12, 30, tzinfo=UTC)
    assert orjson.loads(encode_json(value)) == {
        "order": {"sku": "tea", "count": 1},
        "all": [{"sku": "a", "count": 1}, {"sku": "b", "count": 1}],
        "color": "red",
        "at": "2026-11-27T12:30:00+00:00",
    }
    with pytest.raises(TypeError, match="not JSON serializable: object"):
        encode_json({"a": object()})


def test_a_struct_may_hold_a_model():
    class Holder(msgspec.Struct):
        model: Any

    assert encode_json(Holder(Model(sku="tea"))) == b'{"model":{"sku":"tea","count":1}}'


@pytest.mark.parametrize(
    ("kind", "body", "reason"),
    [
        (Order, b'{"sku": 1}', "no Order: Expected `str`, got `int` - at `$.sku`"),
        (Order, b"no json", "no Order: JSON is malformed"),
        (Order, b"", "no Order: Input data was truncated"),
        (Struct, b"{}", "no Struct: Object missing required field `sku`"),
        (
            Model,
            b'{"sku": 1, "count": "x"}',
            "no Model: sku: Input should be a valid string; count: ",
        ),
        (Model, b"{", "no Model: Invalid JSON: EOF while parsing an object"),
        (Checked, b'{"sku": "a", "count": 0}', "no Checked: count: Input should be greater than"),
        (list[Model], b'[{"sku": "a"}, {}]', "Model]: 1.sku: Field required"),
        (list[int], b'["a"]', "no list[int]: Expected `int`, got `str`"),
        (dict, b"[1]", "no dict: it is not an object"),
        (list[Any], b"{}", "it is not an array"),
        (object, b"{", "no object: unexpected end of data"),
        (str, b"\xff", "no str: 'utf-8' codec can't decode byte 0xff in position 0"),
    ],
    ids=str,
)
def test_what_is_said_of_a_body_that_does_not_decode(kind, body, reason):
    with pytest.raises(PayloadError) as caught:
        decoder_of(kind)(body)
    text = str(caught.value)
    assert text.startswith("the body is no ")
    assert reason in text
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


@pytest.mark.parametrize("kind", [Color, list[Color], Model, list[Model], object, str])
def test_what_is_said_is_short_and_one_line_whatever_the_body_is(kind):
    long = "\x1b[31m\n" + "x" * 10_000
    body = b"\xff" * 10_000 if kind in (object, str) else encode_json(long)
    bodies = [body, b"[%b]" % body, b"[%b]" % b",".join([b"{}"] * 1000)]
    for each in bodies[: 2 if kind in (object, str) else 3]:
        with pytest.raises(PayloadError) as caught:
            decoder_of(kind)(each)
        text = str(caught.value)
        assert len(text) < REASON_LENGTH_MAX + 200
        assert text.isprintable()


def test_many_faults_are_counted():
    with pytest.raises(PayloadError, match="0.sku: .*; 1.sku: .*; 2.sku: .*; and 7 more$"):
        decoder_of(list[Model])(b"[%b]" % b",".join([b"{}"] * 10))


@pytest.mark.parametrize("kind", [5, "Order", type("Plain", (), {}), Middleware, lambda: None])
def test_what_is_no_type_of_json(kind):
    with pytest.raises(OptionsError, match="^type=.* cannot be decoded: "):
        decoder_of(kind)


def hide(monkeypatch, *names):
    """As if these were not installed."""
    find = extras._is_installed
    monkeypatch.setattr(extras, "_is_installed", lambda name: name not in names and find(name))
    for name in names:
        monkeypatch.setitem(sys.modules, name, None)


@pytest.mark.parametrize("kind", [Order, Row, list[int]])
def test_pydantic_in_the_place_of_msgspec(monkeypatch, kind):
    hide(monkeypatch, "msgspec")
    if kind is Row and sys.version_info < (3, 12):
        with pytest.raises(OptionsError, match=r"Please use `typing_extensions\.TypedDict`"):
            decoder_of(kind)
        return
    with pytest.raises(PayloadError, match="Input should be"):
        decoder_of(kind)(b"1")


@pytest.mark.parametrize(
    ("kind", "extra"), [(Order, "msgspec"), (list[int], "msgspec"), (Model, "pydantic")]
)
def test_without_either(monkeypatch, kind, extra):
    hide(monkeypatch, "msgspec", "pydantic")
    with pytest.raises(PackageMissingError) as caught:
        decoder_of(kind)
    name = kind.__name__ if isinstance(kind, type) and kind is not list[int] else "list[int]"
    expected = f"type={name} needs {extra}, which is not installed: pip install 'nsqfast[{extra}]'"
    assert str(caught.value) == expected


PLAIN = """
import dataclasses
from typing import Any
from nsqfast.client.payload import decoder_of, encode_json
from nsqfast.errors import OptionsError

@dataclasses.dataclass
class Order:
    sku: str

body = encode_json(Order("tea"))
print(decoder_of(dict)(body), decoder_of(dict[str, Any])(body), decoder_of(str)(body))
try:
    decoder_of(Order)
except OptionsError as error:
    print(error)
"""


@pytest.mark.slow
def test_a_plain_install_has_json(tmp_path):
    link_installed(tmp_path)
    done = run_with(tmp_path, "-", text=PLAIN)
    assert done.stdout.splitlines() == [
        """{'sku': 'tea'} {'sku': 'tea'} {"sku":"tea"}""",
        "type=Order needs msgspec, which is not installed: pip install 'nsqfast[msgspec]'",
    ], done.stderr


# -- producers and consumers


async def wait(result):
    """Methods of the two libraries have the same names; those of one are awaited."""
    return await result if inspect.isawaitable(result) else result


@pytest.fixture(params=[nsqfast.client, nsqfast.client.sync], ids=["asyncio", "sync"])
def library(request):
    return request.param


@contextlib.asynccontextmanager
async def start_producer(library, address, **options):
    producer = library.Producer(address, **options)
    if library is nsqfast.client:
        await producer.start()
    try:
        yield producer
    finally:
        await wait(producer.close())


async def run_consumer(consumer, handler, **options):
    await wait(consumer.run(handler, **options))
    if isinstance(consumer, nsqfast.client.sync.Consumer):
        consumer.close()


async def publish_in_each_way(producer, topic, value):
    """Seven messages."""
    await wait(producer.publish(topic, value))
    await wait(producer.publish_many(topic, [value, value]))
    await wait(producer.publish_later(topic, value, 0.001))
    producer.send(topic, value)
    if hasattr(producer, "send_later"):
        producer.send_many(topic, [value])
        producer.send_later(topic, value, 0.001)
    else:
        await wait(producer.publish_many(topic, [value, value]))
    await wait(producer.flush())


async def test_every_publish_encodes_and_middleware_has_bytes(library, address, topic):
    seen, orders = [], []

    class Watching(Middleware):
        def publish(self, topic, bodies):
            seen.extend(bodies)
            return super().publish(topic, bodies)

    options = {"encoder": encode_json, "middleware": [Watching()]}
    async with start_producer(library, address, **options) as producer:
        await publish_in_each_way(producer, topic, Order("tea"))
    assert seen == [b'{"sku":"tea","count":1}'] * 7
    consumer = library.Consumer(topic, "c", nsqd=address, config=CONFIG)

    def handle(order):
        orders.append(order)
        if len(orders) == 7:
            consumer.request_stop()

    await run_consumer(consumer, handle, type=Order)
    assert orders == [Order("tea")] * 7


@pytest.mark.parametrize(
    ("value", "cure"),
    [
        ({"a": 1}, "dict: Producer(..., encoder=nsqfast.client.payload.encode_json)"),
        (Order("tea"), "Order: Producer(..., encoder=nsqfast.client.payload.encode_json)"),
        ("text", "str: write text.encode()"),
        (None, "NoneType: Producer(..., encoder="),
    ],
)
async def test_without_an_encoder(library, address, topic, value, cure):
    async with start_producer(library, address) as producer:
        for publish in (
            lambda: producer.publish(topic, value),
            lambda: producer.publish_many(topic, [value]),
            lambda: producer.publish_later(topic, value, 1),
            lambda: producer.send(topic, value),
        ):
            with pytest.raises(TypeError, match=re.escape(f"a message body is bytes, not {cure}")):
                await wait(publish())


@pytest.mark.parametrize("body", [b"x", bytearray(b"x"), memoryview(b"x")])
async def test_what_is_like_bytes_stays_allowed(library, address, topic, body):
    async with start_producer(library, address) as producer:
        await publish_in_each_way(producer, topic, body)
        assert producer.stats().failed == 0


async def test_an_encoder_that_fails_is_the_callers_exception(library, address, topic):
    async with start_producer(library, address, encoder=encode_json) as producer:
        with pytest.raises(TypeError, match="not JSON serializable: object"):
            producer.send(topic, object())
        assert producer.stats().published == 0


@pytest.mark.parametrize("encoder", ["json", encode_json({}), 0])
def test_what_is_no_encoder(library, dead, encoder):
    with pytest.raises(OptionsError, match="an encoder is a function that returns bytes, not "):
        library.Producer(dead, encoder=encoder)


@contextlib.contextmanager
def note(failures):
    try:
        yield
    except Exception as error:
        failures.append(error)
        raise


@pytest.mark.parametrize("way", ["decoder", "type"])
async def test_a_body_that_does_not_decode_fails_its_message_alone(
    library, address, topic, caplog, way
):
    handled, given_up, failures = [], [], []

    class Watching(Middleware):
        def handle(self, topic, channel, message):
            return note(failures)

    def take(into, value):
        into.append(value)
        if len(handled) == 2 and given_up:
            consumer.request_stop()

    async with start_producer(library, address) as producer:
        await wait(producer.publish_many(topic, [b'{"sku": 1}', *[b'{"sku": "a"}'] * 2]))
    consumer = library.Consumer(
        topic,
        "c",
        nsqd=address,
        config=dataclasses.replace(CONFIG, max_attempts=2),
        giving_up=lambda message: take(given_up, message.body),
        middleware=[Watching()],
        decoder=decoder_of(Order) if way == "decoder" else None,
    )
    await run_consumer(
        consumer, lambda order: take(handled, order), type=Order if way == "type" else None
    )
    assert handled == [Order("a")] * 2
    assert given_up == [b'{"sku": 1}']
    assert [type(each) for each in failures] == [PayloadError] * 2
    reason = "the body is no Order: Expected `str`, got `int` - at `$.sku`"
    assert caplog.text.count(f"PayloadError: {reason}") == 2
    assert consumer.stats().requeued == 2


async def test_a_decoder_of_ones_own_keeps_its_traceback(library, address, topic):
    def decode_pair(body):
        key, value = body.split(b"=")
        return key, value

    failures, pairs = [], []

    class Watching(Middleware):
        def handle(self, topic, channel, message):
            return note(failures)

    def handle(pair, message):
        assert isinstance(message, library.Message)
        pairs.append((pair, message.body))
        if failures:
            consumer.request_stop()

    async with start_producer(library, address) as producer:
        await wait(producer.publish_many(topic, [b"no pair", b"a=b"]))
    consumer = library.Consumer(
        topic, "c", nsqd=address, config=CONFIG, decoder=decode_pair, middleware=[Watching()]
    )
    await run_consumer(consumer, handle)
    assert pairs == [((b"a", b"b"), b"a=b")]
    (failure,) = failures
    assert str(failure).endswith("decode_pair: not enough values to unpack (expected 2, got 1)")
    assert type(failure.__cause__) is ValueError


class Handlers:
    """What a handler may be."""

    def __init__(self, seen):
        self.seen = seen

    def one(self, value):
        self.seen.append((value,))

    def two(self, value, message):
        self.seen.append((value, message.body))

    def optional(self, value, database=None):
        self.seen.append((value, database))

    def any_number(self, *values):
        self.seen.append(values)

    __call__ = two


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("one", (1,)),
        ("two", (1, b"1")),
        ("optional", (1, None)),  # a parameter that nobody has to give is not given
        ("any_number", (1,)),
        ("__call__", (1, b"1")),
    ],
)
def test_how_a_handler_is_called(name, expected):
    seen = []
    handlers = Handlers(seen)
    handler = handlers if name == "__call__" else getattr(handlers, name)
    choose_call(handler, int, None)(types.SimpleNamespace(body=b"1"))
    assert seen == [expected]
    partial = functools.partial(handler)
    choose_call(partial, int, None)(types.SimpleNamespace(body=b"1"))
    assert seen == [expected] * 2


@pytest.mark.parametrize(
    ("handler", "options", "error"),
    [
        (lambda: None, {"type": int}, "a handler is called with a value, and .*: too many pos"),
        (lambda a, b, c: None, {"type": int}, "a value, and .*: missing a required argument"),
        (None, {"type": int}, "a handler is a function that takes a value, not None"),
        (print, {"type": 5}, "type=5 cannot be decoded: "),
        (lambda a, b: None, {}, "is called with a message, and .*: missing a required argument"),
    ],
)
async def test_wrong_arguments_are_refused_at_the_start(
    library, dead, topic, handler, options, error
):
    with pytest.raises(OptionsError, match=error):
        await wait(library.Consumer(topic, "c", nsqd=dead).run(handler, **options))


async def test_what_is_no_decoder(library, dead, topic):
    with pytest.raises(OptionsError, match="a decoder is a function that takes bytes, not 'json'"):
        await wait(library.Consumer(topic, "c", nsqd=dead, decoder="json").run(print))


async def test_sync_refuses_coroutine_functions_of_values_too(dead, topic):
    async def handle(_order):
        raise AssertionError

    with pytest.raises(OptionsError, match="nsqfast.client.sync runs no coroutines"):
        nsqfast.client.sync.Consumer(topic, "c", nsqd=dead).run(handle, type=Order)


async def test_coroutine_functions_of_values(address, topic):
    seen = []

    async def handle(order, message):
        await asyncio.sleep(0)
        seen.append((order, message.attempts))
        consumer.request_stop()

    async with Producer(address, encoder=encode_json) as producer:
        await producer.publish(topic, Order("tea"))
    consumer = Consumer(topic, "c", nsqd=address, config=CONFIG)
    await consumer.run(handle, type=Order)
    assert seen == [(Order("tea"), 1)]
