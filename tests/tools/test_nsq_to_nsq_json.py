"""The JSON filters of nsq_to_nsq: what passes, and byte for byte what is published."""

import itertools
import logging

import pytest

from nsqfast.tools.nsq_to_nsq.json_filter import JsonFilter, Verdict, parse_go_float
from support.drain import address_of, drain, message_count
from support.programs import left, publish
from support.server import start_nsqd
from support.tools import Tool, tool_command
from support.waiting import eventually
from support.web import topic_stats

TOPICS = (f"topic-{number}" for number in itertools.count(1))
CHANNEL = "nsq_to_nsq"

# Body, and what --whitelist-json-field=a,b publishes of it; None = it is dropped. Measured on Go's nsq_to_nsq.
PROJECTIONS = [
    (b'{"c":1,"b":[2.0,3.5,1e2],"a":3.0}', b'{"a":3,"b":[2,3.5,100]}'),
    (b'{"a":12345678901234567890}', b'{"a":12345678901234567000}'),
    (b'{"a":4611686018427387905,"b":{"z":4611686018427387905}}',
     b'{"a":4611686018427387904,"b":{"z":4611686018427388000}}'),
    (b'{"a":9223372036854775807,"b":-9223372036854775808}',
     b'{"a":9223372036854776000,"b":-9223372036854775808}'),
    (b'{"a":-0.0,"b":[-0,-0.0]}', b'{"a":0,"b":[-0,-0]}'),
    (b'{"a":[1e21,1e20,1e-6,1e-7,1e-10,1.5e300,5e-324],"b":1e-400}',
     b'{"a":[1e+21,100000000000000000000,0.000001,1e-7,1e-10,1.5e+300,5e-324],"b":0}'),
    (b'{"a":0.00001,"b":1.5e-5}', b'{"a":0.00001,"b":0.000015}'),
    (b'{"a":1.25e16,"b":[1.25e16,-123456789.125]}', b'{"a":12500000000000000,"b":[12500000000000000,-123456789.125]}'),
    (b'{"a":"<b>&\xe2\x80\xa8\\u2029\x7f\\b\\f\\n\\r\\t\\u0001\\u0000\\/\\"\\\\"}',
     b'{"a":"\\u003cb\\u003e\\u0026\\u2028\\u2029\x7f\\b\\f\\n\\r\\t\\u0001\\u0000/\\"\\\\"}'),
    (b'{"a":"\\ud83d\\ude00\\u00e9","b":"\\ud800x\\udc00"}', '{"a":"😀é","b":"\ufffdx\ufffd"}'.encode()),
    (b'{"a":"\xff\xe2\x82x\xed\xa0\x80\xf0\x9f\xc0\xaf"}',
     f'{{"a":"{"?" * 3}x{"?" * 7}"}}'.replace("?", "\ufffd").encode()),
    (b'{"a":{"d":1,"c":{"y":true,"x":[],"\xff":null}}}', '{"a":{"c":{"x":[],"y":true,"\ufffd":null},"d":1}}'.encode()),
    (b' {"b":1,\n"b":2,\t"a":null} ', b'{"a":null,"b":2}'),
    (b'{"\\u0061":false}', b'{"a":false}'),
    (b'{"A":1}', b"{}"),
    (b"{}", b"{}"),
    (b"null", b"{}"),
    (b'{"a":' + b"[" * 300 + b"]" * 300 + b"}", b'{"a":' + b"[" * 300 + b"]" * 300 + b"}"),
    (b"[]", None),
    (b"1", None),
    (b'"a"', None),
    (b"text", None),
    (b'{"a":1e999}', None),
    (b'{"a":' + b"9" * 400 + b"}", None),
    (b'{"a":NaN}', None),
    (b'{"a":Infinity}', None),
    (b'{"a":01}', None),
    (b'{"a":1.}', None),
    (b'{"a":1}x', None),
    (b'{"a":"\x01"}', None),
    (b"{'a':1}", None),
    (b'{"a":1,}', None),
    (b'\xef\xbb\xbf{"a":1}', None),
]  # fmt: skip


@pytest.mark.parametrize(("body", "expected"), PROJECTIONS)
def test_projection(body, expected):
    found = JsonFilter("", "", ["b", "a", "zz"]).judge(body)
    assert found == (Verdict.DROP if expected is None else expected)


REQUIRED = [
    b'{"r":5}', b'{"r":5.0}', b'{"r":"5"}', b'{"r":"5.0"}', b'{"r":50}', b'{"r":5e0}', b'{"r":true}',
    b'{"r":null}', b'{"r":[5]}', b'{"r":""}', b'{"r": 5 }', b'{"R":5}', b"{}", b"null", b"[]", b"no",
]  # fmt: skip


@pytest.mark.parametrize(
    ("value", "passing"),
    [
        ("", REQUIRED[:11]),
        ("5", [REQUIRED[0], REQUIRED[1], REQUIRED[2], REQUIRED[5], REQUIRED[10]]),
        ("5.0", [REQUIRED[0], REQUIRED[1], REQUIRED[3], REQUIRED[5], REQUIRED[10]]),
        ("true", []),
        ("other", []),
    ],
)
def test_required_field(value, passing):
    """The body stays as it is; only a field that is missing where a value is asked for is a failure."""
    found = {body: JsonFilter("r", value, []).judge(body) for body in REQUIRED}
    assert [body for body in REQUIRED if found[body] == body] == passing
    missing = {b'{"R":5}', b"{}", b"null"}
    assert {body for body in REQUIRED if found[body] is Verdict.FAIL} == (
        missing if value else set()
    )


def test_the_deepest(caplog):
    """What is nested too deeply to be read is not dropped."""
    body = b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    assert JsonFilter("", "", ["a"]).judge(body) is Verdict.FAIL
    assert "too deeply" in caplog.text


def test_a_body_in_a_log_line_is_cut(caplog):
    caplog.set_level(logging.INFO, "nsqfast.tools")
    assert JsonFilter("r", "", []).judge(b"x" * 5000) is Verdict.DROP
    assert f"Unable to decode json: {'x' * 1000}... (5000 bytes)" in caplog.text


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("5", 5), ("+5.50", 5.5), (".5", 0.5), ("5.", 5), ("-1e3", -1000), ("0x10p0", 16), ("inf", float("inf")),
        ("1e400", None), ("", None), (" 5", None), ("5x", None), ("1_000", 1000),
        ("1__0", None), ("_1", None), ("0x_1_0p0", 16), ("0x10", None), ("\u0665", None),
        ("0x1p99999", None),
    ],
)  # fmt: skip
def test_numbers_of_the_command_line(text, number):
    assert parse_go_float(text) == number


# -- against Go's tool


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with start_nsqd("nsqfast", tmp_path_factory.mktemp("nsqd")) as server:
        yield server


def relay(tool, broker, bodies, flags):
    """What arrives, and how many were requeued."""
    topic = next(TOPICS)
    publish(address_of(broker), topic, *bodies)
    words = [
        f"--nsqd-tcp-address={address_of(broker)}",
        f"--destination-nsqd-tcp-address={address_of(broker)}",
        f"--topic={topic}",
        f"--destination-topic={topic}-to",
        "--consumer-opt=max_backoff_duration,0",
    ]
    with Tool(tool_command("nsq_to_nsq", tool, *words, *flags)) as running:
        eventually(lambda: is_settled(broker, topic))
        assert running.end() == 0
    found = drain(broker, f"{topic}-to") if message_count(broker, f"{topic}-to") else []
    return found, topic_stats(broker.http, topic)["channels"][CHANNEL]["requeue_count"]


def is_settled(broker, topic):
    """Whether the tool has everything finished or requeued."""
    found = topic_stats(broker.http, topic)
    if found["depth"] or CHANNEL not in found["channels"]:
        return False
    deferred = found["channels"][CHANNEL]["deferred_count"]
    return left(broker, topic, CHANNEL) == deferred


@pytest.mark.go
@pytest.mark.parametrize(
    "flags",
    [
        ["--whitelist-json-field=b", "--whitelist-json-field=a", "--whitelist-json-field=zz"],
        ["--whitelist-json-field=r", "--require-json-field=r"],
        ["--require-json-field=r"],
        ["--require-json-field=r", "--require-json-value=5"],
        ["--require-json-field=r", "--require-json-value=1_000"],
        ["--require-json-field=r", "--require-json-value=0x10"],
        ["--require-json-field=r", "--require-json-value=0x10p0"],
        ["--require-json-field=r", "--require-json-value=true"],
        ["--require-json-value=5"],
    ],
    ids=" ".join,
)
def test_same_as_go(broker, flags):
    numbers = [b'{"r":1000}', b'{"r":16}', b'{"r":"1_000"}', b'{"r":"0x10"}']
    bodies = [body for body, _ in PROJECTIONS] + REQUIRED + numbers
    ours = relay("nsqfast", broker, bodies, flags)
    theirs = relay("go", broker, bodies, flags)
    assert ours == theirs
