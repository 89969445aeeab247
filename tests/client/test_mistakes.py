"""What a developer of the first hour does wrong: each mistake is answered with what to write instead."""

import datetime as dt
import subprocess
import sys

import pytest

import nsqfast.client.sync
from nsqfast.client import (
    Config,
    Consumer,
    InvalidNameError,
    OptionsError,
    Producer,
    PublishRefusedError,
    RefusedError,
)
from nsqfast.client.addresses import plain_address, read_nsqd
from support.fake_nsqd import FakeNsqd

NSQD_FLAGS = ("--max-msg-size=1024", "--max-body-size=2048")

KINDS = {
    "asyncio": (Producer, Consumer),
    "threads": (nsqfast.client.sync.Producer, nsqfast.client.sync.Consumer),
}
RULE = "1 to 64 of . a-z A-Z 0-9 _ -, with #ephemeral at its end if it may vanish"


@pytest.fixture(params=KINDS)
def kinds(request):
    """A producer's and a consumer's class."""
    return KINDS[request.param]


# -- names


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("a b", f"'a b' is no name of a {{kind}}; it is {RULE}"),
        ("", f"'' is no name of a {{kind}}; it is {RULE}"),
        ("x" * 65, f"is no name of a {{kind}}; it is {RULE}"),
    ],
)
def test_names(kinds, name, error):
    """One type of exception for topics and channels, wherever they are given."""
    _, consumer_kind = kinds
    for kind, names in (("topic", (name, "c")), ("channel", ("t", name))):
        with pytest.raises(InvalidNameError) as raised:
            consumer_kind(*names, nsqd="127.0.0.1:4150")
        assert raised.value.code == f"E_BAD_{kind.upper()}"
        assert error.format(kind=kind) in str(raised.value)
        assert isinstance(raised.value, OptionsError)
        assert isinstance(raised.value, PublishRefusedError)


NO_TOPICS = [
    ("a b", InvalidNameError, "E_BAD_TOPIC 'a b' is no name of a topic"),
    (b"orders", TypeError, "a topic is a str, not b'orders': write 'orders'"),
    (None, TypeError, "a topic is a str, not None"),
    (7, TypeError, "a topic is a str, not 7"),
]


@pytest.mark.parametrize(("name", "kind", "error"), NO_TOPICS)
async def test_topics_of_publishes(address, name, kind, error):
    async with Producer(address) as producer:
        for publish in (producer.publish, producer.send):
            with pytest.raises(kind, match=error):
                await publish(name, b"x")
        with pytest.raises(kind, match=error):
            await producer.publish_many(name, [b"x"])
        with pytest.raises(kind, match=error):
            await producer.publish_later(name, b"x", 1.0)
        assert producer.stats().failed == 0


@pytest.mark.parametrize(("name", "kind", "error"), NO_TOPICS)
def test_topics_of_publishes_in_threads(address, name, kind, error):
    with nsqfast.client.sync.Producer(address) as producer:
        for publish in (producer.publish, producer.send):
            with pytest.raises(kind, match=error):
                publish(name, b"x")
        with pytest.raises(kind, match=error):
            producer.publish_later(name, b"x", 1.0)


def test_names_that_are_no_text(kinds):
    _, consumer_kind = kinds
    with pytest.raises(TypeError, match="a topic is a str, not b'orders': write 'orders'"):
        consumer_kind(b"orders", "c", nsqd="127.0.0.1:4150")
    with pytest.raises(TypeError, match="a channel is a str, not None"):
        consumer_kind("t", None, nsqd="127.0.0.1:4150")


# -- arguments


@pytest.mark.parametrize("config", [{}, {"max_in_flight": 8}, "max_in_flight,8"])
def test_a_config_that_is_none(kinds, config):
    producer_kind, consumer_kind = kinds
    for make in (
        lambda: producer_kind("127.0.0.1:4150", config=config),
        lambda: consumer_kind("t", "c", nsqd="127.0.0.1:4150", config=config),
    ):
        with pytest.raises(
            OptionsError, match=r"it is a Config, such as Config\(max_in_flight=8\)"
        ):
            make()


DELAYS = [
    (dt.timedelta(minutes=1), TypeError, "a number of seconds: 60, not datetime.timedelta"),
    ("5", TypeError, "delay_s is a number of seconds, not '5'"),
    (-1, ValueError, "a delay of -1 s"),
    (float("nan"), ValueError, "a delay of nan s"),
    (float("inf"), ValueError, "a delay of inf s"),
]


@pytest.mark.parametrize(("delay_s", "kind", "error"), DELAYS)
async def test_delays(address, topic, delay_s, kind, error):
    async with Producer(address) as producer:
        with pytest.raises(kind, match=error):
            await producer.publish_later(topic, b"x", delay_s)
        with pytest.raises(kind, match=error):
            producer.send_later(topic, b"x", delay_s)


@pytest.mark.parametrize(("delay_s", "kind", "error"), DELAYS)
def test_delays_in_threads(address, topic, delay_s, kind, error):
    with nsqfast.client.sync.Producer(address) as producer:
        for publish in (producer.publish_later, producer.send_later):
            with pytest.raises(kind, match=error):
                publish(topic, b"x", delay_s)


async def test_delays_of_a_requeue(address, topic):
    """The message is still there to be answered."""
    async with Producer(address) as producer:
        await producer.publish(topic, b"x")
    async with Consumer(topic, "c", nsqd=address) as consumer:
        message = await anext(aiter(consumer))
        with pytest.raises(TypeError, match="delay_s is a number of seconds, not datetime"):
            message.requeue(dt.timedelta(minutes=1))
        assert message.finish()


async def test_delays_of_rows(address, topic):
    """As above: no row counts as answered."""
    async with Producer(address) as producer:
        await producer.publish(topic, b"x")
    async with Consumer(topic, "c", nsqd=address) as consumer:
        async for batch in consumer.arrays(max_wait_s=0):
            with pytest.raises(TypeError, match="delay_s is a number of seconds: 60, not datetime"):
                batch.requeue(delay_s=dt.timedelta(minutes=1))
            assert batch.finish() == 1
            break


# -- asyncio and threads mixed up


async def test_the_wrong_kind_of_with():
    for name, make in (
        ("Producer", lambda kind: kind("127.0.0.1:4150")),
        ("Consumer", lambda kind: kind("t", "c", nsqd="127.0.0.1:4150")),
    ):
        one = make(getattr(nsqfast.client, name))
        with pytest.raises(
            TypeError, match=rf"works with `async with`; `with` is for .*sync\.{name}"
        ):
            one.__enter__()
        other = make(getattr(nsqfast.client.sync, name))
        with pytest.raises(
            TypeError, match=f"works with `with`; `async with` is for nsqfast.{name}"
        ):
            await other.__aenter__()
    with pytest.raises(TypeError, match="works with `async for`; `for` is for"):
        iter(Consumer("t", "c", nsqd="127.0.0.1:4150"))


# -- what a broker refuses


@pytest.mark.parametrize(
    ("publish", "advice"),
    [
        (lambda one: one.publish_later("t", b"x", 7200), "--max-req-timeout is the longest delay"),
        (lambda one: one.publish("t", b"x" * 2000), "--max-msg-size is the limit"),
        (lambda one: one.publish_later("t", b"x" * 2000, 1), "--max-msg-size is the limit"),
        (lambda one: one.publish_many("t", [b"x" * 2000]), "--max-msg-size is the limit"),
        (
            lambda one: one.publish_many("t", [b"x" * 900] * 3),
            "--max-body-size is the limit of a batch",
        ),
    ],
)
async def test_limits_of_the_broker(address, publish, advice):
    """nsqd's words, its code, and behind them the flag to look at."""
    async with Producer(address) as producer:
        with pytest.raises(PublishRefusedError) as raised:
            await publish(producer)
    assert str(raised.value) == f"{raised.value.reason}; nsqd's {advice}"
    assert raised.value.code in {"E_INVALID", "E_BAD_MESSAGE", "E_BAD_BODY"}


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("E_INVALID cannot SUB in current state (TLS required)", "Config(tls_v1=True"),
        ("E_BAD_BODY IDENTIFY heartbeat interval (90000) is invalid", "--max-heartbeat-interval"),
        ("E_BAD_BODY IDENTIFY msg timeout (9000000) is invalid", "--max-msg-timeout"),
        ("E_BAD_BODY IDENTIFY output buffer size (9) is invalid", "--max-output-buffer-size"),
        ("E_BAD_BODY IDENTIFY output buffer timeout (9) is invalid", "--max-output-buffer-timeout"),
        ("E_AUTH_FIRST AUTH required before SUB", "Config(auth_secret=...)"),
        ("E_UNAUTHORIZED AUTH failed for SUB", None),
    ],
)
async def test_refusals_at_the_start(text, advice):
    async def script(peer):
        await peer.greet()
        await peer.expect("SUB")
        peer.refuse(text)

    async with FakeNsqd(script) as fake:
        with pytest.raises(RefusedError) as raised:
            await Consumer("t", "c", nsqd=fake.address).start()
    assert raised.value.code == text.split()[0]
    assert str(raised.value).startswith(text)
    assert (advice or text) in str(raised.value)


# -- addresses


@pytest.mark.parametrize(
    ("given", "config", "found", "is_tls"),
    [
        (["a:1"], {}, ["a:1"], False),
        (["nsq://a:1", "b:2"], {}, ["a:1", "b:2"], False),
        (["nsq://a"], {}, ["a:4150"], False),
        (["nsq://[::1]"], {}, ["[::1]:4150"], False),
        (["nsq://[::1]:5/"], {}, ["[::1]:5"], False),
        (["nsqs://a:1", "nsqs://a:1"], {}, ["a:1"], True),
        (["nsqs://a", "b:2"], {"tls_v1": True}, ["a:4150", "b:2"], True),
        (["/run/nsqd.sock"], {}, ["/run/nsqd.sock"], False),
    ],
)
def test_addresses_and_urls(given, config, found, is_tls):
    addresses, used = read_nsqd(given, Config(**config))
    assert (addresses, used.tls_v1) == (found, is_tls)
    assert not used.is_max_in_flight_given


@pytest.mark.parametrize(
    ("given", "error"),
    [
        (["nsqs://a:1", "b:2"], "'b:2': some addresses are nsqs:// and this one is not"),
        (["nsq://a:1/topic"], "it is nsq://host:port, with nothing behind it"),
        (["nsq://secret@a:1"], "it is nsq://host:port"),
        (["nsq://a:1?x=1"], "it is nsq://host:port"),
        (["nsq://[::1"], "nsq://"),
        (["nsq://"], "host:port"),
        (["nsq://a:0"], "host:port"),
        (["http://a:4151"], "an address of nsqd is host:port, without http://"),
        (["redis://a:1"], "without redis://"),
        (["nsq://a b:1"], "host:port"),
    ],
)
def test_addresses_that_are_none(given, error):
    with pytest.raises(OptionsError, match=error):
        read_nsqd(given, Config())


def test_a_url_at_run_time_fits_the_config():
    assert plain_address("nsqs://a", Config(tls_v1=True)) == "a:4150"
    with pytest.raises(OptionsError, match=r"nsqs:// is for Config\(tls_v1=True\)"):
        plain_address("nsqs://a", Config())
    with pytest.raises(OptionsError, match="nsq:// is without tls_v1"):
        plain_address("nsq://a", Config(tls_v1=True))


@pytest.mark.parametrize(
    "given", [["a:1", "b:2"], "a:1,b:2", " a:1 , b:2,", ("a:1,b:2", "a:1"), "nsq://a:1,b:2"]
)
def test_a_list_and_a_text_are_the_same(kinds, given):
    producer_kind, consumer_kind = kinds
    assert (
        getattr(producer_kind(given), "_name" if producer_kind is not Producer else "name")
        == "a:1, b:2"
    )
    consumer_kind("t", "c", nsqd=given, nsqlookupd="a:4161,b:4161")


def test_the_environment(kinds, monkeypatch):
    """Its addresses count where none is given, and only there."""
    producer_kind, consumer_kind = kinds
    with pytest.raises(OptionsError, match="NSQFAST_NSQD in the environment"):
        producer_kind()
    with pytest.raises(OptionsError, match="NSQFAST_NSQD or NSQFAST_LOOKUPD in the environment"):
        consumer_kind("t", "c")
    monkeypatch.setenv("NSQFAST_NSQD", "e:1,nsq://f")
    monkeypatch.setenv("NSQFAST_LOOKUPD", "l:4161")
    producer = producer_kind()
    assert getattr(producer, "_producer", producer).name == "e:1, f:4150"
    consumer = consumer_kind("t", "c")
    nodes = getattr(consumer, "_consumer", consumer)._nodes
    assert nodes._direct == {"e:1", "f:4150"}
    assert len(nodes._discovery) == 1
    nodes = getattr(given := consumer_kind("t", "c", nsqd="g:1"), "_consumer", given)._nodes
    assert (nodes._direct, len(nodes._discovery)) == ({"g:1"}, 0)
    monkeypatch.setenv("NSQFAST_NSQD", "http://e:1")
    with pytest.raises(OptionsError, match="'http://e:1'"):
        producer_kind()


# -- tracebacks

SCRIPT = """
from nsqfast.client.sync import Producer

with Producer("{address}", timeout_s=0.2) as producer:
    producer.publish_many("orders", [b""])  # the caller's line
"""


def test_a_traceback_ends_near_the_callers_line(address):
    """Nothing of the loop's thread or of futures stands below it."""
    run = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(address=address)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    lines = run.stderr.splitlines()
    frames = [line for line in lines if line.startswith("  File ")]
    assert run.returncode == 1
    assert lines[-1].startswith("nsqfast.errors.PublishRefusedError: E_BAD_MESSAGE")
    assert len(frames) <= 3, run.stderr
    assert '"<string>", line 5' in frames[0]
    assert "concurrent" not in run.stderr
    assert "During handling" not in run.stderr
