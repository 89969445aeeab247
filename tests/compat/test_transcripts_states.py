"""State × command, as one table, and IDENTIFY, which may come once or more before SUB."""

import json

import pytest

from support.wire import ERROR, RESPONSE, Client, encode_body, encode_frame

ID = b"0" * 16
BODY = encode_body(b"x")

COMMANDS = {
    "IDENTIFY": b"IDENTIFY\n" + encode_body(b"{}"),
    "AUTH": b"AUTH\n" + encode_body(b"s"),
    "SUB": b"SUB states other\n",
    "RDY": b"RDY 0\n",
    "RDY bad": b"RDY x\n",
    "FIN": b"FIN " + ID + b"\n",
    "REQ": b"REQ " + ID + b" 0\n",
    "TOUCH": b"TOUCH " + ID + b"\n",
    "CLS": b"CLS\n",
    "PUB": b"PUB states#ephemeral\n" + BODY,
    "DPUB": b"DPUB states#ephemeral 0\n" + BODY,
    "MPUB": b"MPUB states#ephemeral\n" + encode_body(b"\x00\x00\x00\x01" + BODY),
    "NOP": b"NOP\n",
}

OK = (RESPONSE, b"OK")
NOTHING = None


def wrong(command):
    """A fatal error: this command does not fit the state."""
    return (ERROR, b"E_INVALID cannot " + command + b" in current state")


def unknown(command):
    text = command + b" " + ID + b" failed ID not in flight"
    return (ERROR, b"E_" + command + b"_FAILED " + text)


TABLE = {
    #            init             subscribed         closing
    "IDENTIFY": (OK, wrong(b"IDENTIFY"), wrong(b"IDENTIFY")),
    "AUTH": ((ERROR, b"E_AUTH_DISABLED AUTH disabled"), wrong(b"AUTH"), wrong(b"AUTH")),
    "SUB": (OK, wrong(b"SUB"), wrong(b"SUB")),
    "RDY": (wrong(b"RDY"), NOTHING, NOTHING),
    "RDY bad": (wrong(b"RDY"), (ERROR, b"E_INVALID RDY could not parse count x"), NOTHING),
    "FIN": (wrong(b"FIN"), unknown(b"FIN"), unknown(b"FIN")),
    "REQ": (wrong(b"REQ"), unknown(b"REQ"), unknown(b"REQ")),
    "TOUCH": (wrong(b"TOUCH"), unknown(b"TOUCH"), unknown(b"TOUCH")),
    "CLS": (wrong(b"CLS"), (RESPONSE, b"CLOSE_WAIT"), wrong(b"CLS")),
    "PUB": (OK, OK, OK),
    "DPUB": (OK, OK, OK),
    "MPUB": (OK, OK, OK),
    "NOP": (NOTHING, NOTHING, NOTHING),
}
STATES = ("init", "subscribed", "closing")


def bring_to(client, state):
    if state == "init":
        return
    client.sub("states", "c")
    if state == "closing":
        assert client.ask("CLS") == b"CLOSE_WAIT"


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("command", COMMANDS)
def test_state_and_command(client, state, command):
    bring_to(client, state)
    client.send(COMMANDS[command])
    expected = TABLE[command][STATES.index(state)]
    if expected is not NOTHING:
        assert client.read_frame() == expected
    if expected is NOTHING or expected[0] == RESPONSE or b"_FAILED" in expected[1]:
        client.barrier()
    else:
        assert client.read_to_end() == b""


@pytest.mark.parametrize("command", ["IDENTIFY", "AUTH"])
def test_wrong_state_is_said_before_the_body_is_read(client, topic, command):
    client.sub(topic, "c")
    client.send(command.encode() + b"\n")
    assert client.read_to_end() == encode_frame(*wrong(command.encode()))


NEGOTIATED = {
    "max_rdy_count": 2500,
    "version": "1.3.0",
    "max_msg_timeout": 900000,
    "msg_timeout": 60000,
    "tls_v1": False,
    "deflate": False,
    "deflate_level": 6,
    "max_deflate_level": 6,
    "snappy": False,
    "sample_rate": 0,
    "auth_required": False,
    "output_buffer_size": 16384,
    "output_buffer_timeout": 250,
}
TOPOLOGY = ("topology_region", "topology_zone")


def test_negotiation_keys_order_and_defaults(client):
    raw = client.ask("IDENTIFY", body=b'{"feature_negotiation":true}')
    answer = json.loads(raw)
    # Compact, keys in the order of NSQ; the release lacks the two topology keys at the end.
    assert raw == json.dumps(answer, separators=(",", ":")).encode()
    assert list(answer)[: len(NEGOTIATED)] == list(NEGOTIATED)
    assert set(answer) - set(NEGOTIATED) <= set(TOPOLOGY)
    answer.pop("version")
    for name, value in answer.items():
        assert value == NEGOTIATED.get(name, "")


@pytest.mark.parametrize(
    ("asked", "granted"),
    [
        ({"heartbeat_interval": -1}, {}),
        ({"heartbeat_interval": 1000}, {}),
        ({"heartbeat_interval": 60000}, {}),
        ({"output_buffer_timeout": -1}, {"output_buffer_timeout": 0}),
        ({"output_buffer_timeout": 25}, {"output_buffer_timeout": 25}),
        ({"output_buffer_timeout": 30000}, {"output_buffer_timeout": 30000}),
        ({"output_buffer_size": 64}, {"output_buffer_size": 64}),
        ({"output_buffer_size": 65536}, {"output_buffer_size": 65536}),
        ({"output_buffer_size": -1}, {"output_buffer_size": 1, "output_buffer_timeout": 0}),
        (
            {"output_buffer_size": -1, "output_buffer_timeout": 100},
            {"output_buffer_size": 1, "output_buffer_timeout": 0},
        ),
        ({"sample_rate": 99}, {"sample_rate": 99}),
        ({"msg_timeout": 1000}, {"msg_timeout": 1000}),
        ({"msg_timeout": 900000}, {"msg_timeout": 900000}),
        ({"deflate_level": 3}, {}),
        ({"tls_v1": True}, {}),
        ({"unknown": [1, {"a": None}]}, {}),
        ({"client_id": None, "sample_rate": None, "heartbeat_interval": None}, {}),
        ({"short_id": "a", "long_id": "b", "user_agent": "u/1"}, {}),
    ],
)
def test_negotiated_values(client, asked, granted):
    answer = client.identify(feature_negotiation=True, **asked)
    expected = {**NEGOTIATED, **granted}
    for name, value in answer.items():
        if name not in (*TOPOLOGY, "version"):
            assert (name, value) == (name, expected[name])
    client.barrier()


@pytest.mark.parametrize(
    ("members", "rate"),
    [
        ('"sample_rate":7,"sample_rate":9', 9),
        ('"sample_rate":7,"sample_rate":null', 7),
        ('"sample_rate":7,"SAMPLE_RATE":8,"sample_rate":9', 9),
        ('"sample_rate":7,"Sample_Rate":9', 9),
    ],
)
def test_a_key_that_comes_twice(client, members, rate):
    """The last that is not null wins."""
    client.command("IDENTIFY", body=('{"feature_negotiation":true,' + members + "}").encode())
    assert json.loads(client.read_response())["sample_rate"] == rate


def test_a_key_that_comes_twice_is_wrong_if_one_of_them_is(client):
    client.command("IDENTIFY", body=b'{"sample_rate":"x","sample_rate":9}')
    assert client.read_error() == b"E_BAD_BODY IDENTIFY failed to decode JSON body"


RANGES = [
    ("heartbeat_interval", "heartbeat interval", [-2, 1, 999, 60001]),
    ("output_buffer_timeout", "output buffer timeout", [-2, 1, 24, 30001]),
    ("output_buffer_size", "output buffer size", [-2, 1, 63, 65537]),
    ("sample_rate", "sample rate", [-1, 100, 2147483647]),
    ("msg_timeout", "msg timeout", [-1, 1, 999, 900001]),
]


@pytest.mark.parametrize(
    ("field", "words", "value"),
    [(field, words, value) for field, words, values in RANGES for value in values],
)
def test_value_out_of_range(client, field, words, value):
    client.command("IDENTIFY", body=json.dumps({field: value}).encode())
    text = f"E_BAD_BODY IDENTIFY {words} ({value}) is invalid"
    assert client.read_to_end() == encode_frame(ERROR, text.encode())


def test_first_bad_value_is_named(client):
    fields = {"msg_timeout": 1, "sample_rate": 100, "output_buffer_size": 1}
    client.command("IDENTIFY", body=json.dumps(fields).encode())
    assert client.read_error() == b"E_BAD_BODY IDENTIFY output buffer size (1) is invalid"


@pytest.mark.parametrize(
    ("length", "error"),
    [
        (b"\x00\x00\x00\x00", b"E_BAD_BODY IDENTIFY invalid body size 0"),
        (b"\xff\xff\xff\xff", b"E_BAD_BODY IDENTIFY invalid body size -1"),
    ],
)
def test_identify_length(client, length, error):
    client.send(b"IDENTIFY\n" + length)
    assert client.read_to_end() == encode_frame(ERROR, error)


@pytest.mark.parametrize(
    "body",
    [
        b"{}",
        b"null",
        b" { } \n\t\r",
        b'{"a":1,"a":2,"":[]}',
        b'{"MSG_TIMEOUT":1000}',
        b'{"sample_rate":100,"sample_rate":1}',
        b'{"feature_negotiation":null}',
        b'{"heartbeat_interval":0,"msg_timeout":0}',
        b'{"client_id":"\\ud800 \\u00e9"}',
        b'{"client_id":"\xff"}',
        b'{"x":1e999}',
    ],
)
def test_body_accepted(client, body):
    assert client.ask("IDENTIFY", body=body) == b"OK"
    client.barrier()


@pytest.mark.parametrize(
    "body",
    [
        b"x",
        b"[]",
        b"1",
        b'"s"',
        b"true",
        b"{} {}",
        b"{}x",
        b"{",
        b"{'a':1}",
        b'{"a":1,}',
        b'{"a":NaN}',
        b'{"msg_timeout":1000.0}',
        b'{"msg_timeout":1e4}',
        b'{"msg_timeout":"1000"}',
        b'{"msg_timeout":true}',
        b'{"msg_timeout":99999999999999999999}',
        b'{"sample_rate":2147483648}',
        b'{"sample_rate":[]}',
        b'{"feature_negotiation":1}',
        b'{"feature_negotiation":"true"}',
        b'{"deflate":0}',
        b'{"client_id":1}',
        b'{"hostname":{}}',
        b'{"User_Agent":true}',
        b'{"client_id":"a\nb"}',
    ],
)
def test_body_refused(client, body):
    client.command("IDENTIFY", body=body)
    error = b"E_BAD_BODY IDENTIFY failed to decode JSON body"
    assert client.read_to_end() == encode_frame(ERROR, error)


@pytest.mark.parametrize("body", [b'{"snappy":true}', b'{"deflate":true,"snappy":true}'])
def test_no_upgrade_without_negotiation(client, body):
    assert client.ask("IDENTIFY", body=body) == b"OK"
    client.barrier()


def test_both_compressions(client):
    client.command("IDENTIFY", body=b'{"feature_negotiation":true,"snappy":true,"deflate":true}')
    error = b"E_IDENTIFY_FAILED cannot enable both deflate and snappy compression"
    assert client.read_to_end() == encode_frame(ERROR, error)


def test_identify_again(client, topic):
    assert client.identify(feature_negotiation=True, msg_timeout=5000)["msg_timeout"] == 5000
    assert client.identify(feature_negotiation=True)["msg_timeout"] in (5000, 60000)
    assert client.identify(client_id="last") == b"OK"
    client.sub(topic, "c")


def test_no_sub_without_heartbeats(client, topic):
    client.identify(heartbeat_interval=-1)
    client.command("SUB", topic, "c")
    error = b"E_INVALID cannot SUB with heartbeats disabled"
    assert client.read_to_end() == encode_frame(ERROR, error)


def test_cls_still_takes_answers(client, topic):
    client.sub(topic, "c", 3)
    client.mpub(topic, [b"1", b"2", b"3"])
    fin, req, touch = client.read_messages(3)
    assert client.ask("CLS") == b"CLOSE_WAIT"
    client.pub(topic, b"not delivered here")
    client.command("FIN", fin.id)
    client.command("REQ", req.id, "0")
    client.command("TOUCH", touch.id)
    client.command("RDY", "99999")
    client.barrier()


@pytest.mark.slow
def test_heartbeats_and_a_client_that_never_answers(broker):
    with Client(broker.tcp) as publisher, Client(broker.tcp) as silent:
        for client in (publisher, silent):
            client.identify(heartbeat_interval=1000)
        assert silent.read_exactly(19).hex() == "0000000f000000005f6865617274626561745f"
        for _ in range(2):
            assert publisher.read_frame() == (RESPONSE, b"_heartbeat_")
            publisher.command("NOP")
        # Two intervals without a command: closed, and nothing is said about it.
        assert silent.read_to_end() in (b"", encode_frame(RESPONSE, b"_heartbeat_"))
        assert publisher.read_frame() == (RESPONSE, b"_heartbeat_")


@pytest.mark.slow
def test_dribbling_bytes_do_not_extend_the_deadline(broker):
    with Client(broker.tcp) as client:
        client.identify(heartbeat_interval=1000)
        closed = False
        for _ in range(5):
            # Each heartbeat is answered by one byte of a line that never ends.
            try:
                frame = client.read_frame()
            except (EOFError, ConnectionError):
                closed = True
                break
            assert frame == (RESPONSE, b"_heartbeat_")
            client.send(b"N")
        assert closed


def test_no_heartbeat_when_switched_off(client):
    client.identify(heartbeat_interval=-1)
    client.barrier()


@pytest.mark.parametrize("command", ["CANCEL_DEFERRED", "RUN_DEFERRED"])
def test_what_nsqfast_lets_its_clients_negotiate_is_unknown_to_all_others(client, topic, command):
    """A third parameter of DPUB is ignored, and the commands for deferred messages are none."""
    client.ask("IDENTIFY", body=b'{"feature_negotiation":true}')
    assert client.ask("DPUB", topic, "60000", "id", body=b"later") == b"OK"
    client.command(command, topic, "0" * 16)
    assert client.read_error() == f"E_INVALID invalid command {command}".encode()
