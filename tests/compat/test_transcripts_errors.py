"""Every error of the V2 protocol: its bytes, and whether the connection survives it."""

import struct

import pytest

from support.wire import ERROR, RESPONSE, Client, encode_body, encode_frame

BODY_MAX = 5242880
MESSAGE_MAX = 1048576
COUNT_MAX = (BODY_MAX - 4) // 5
LINE_MAX = 16384


def size(number):
    return struct.pack(">i", number)


def mpub(*parts, total=None):
    body = b"".join(parts)
    return b"MPUB t\n" + size(len(body) if total is None else total) + body


PUBLISHING = [
    (b"PUB\n", b"E_INVALID PUB insufficient number of parameters"),
    (b"PUB t 5\n" + size(0), b"E_BAD_MESSAGE PUB invalid message body size 0"),
    (b"PUB t\n" + size(0), b"E_BAD_MESSAGE PUB invalid message body size 0"),
    (b"PUB t\n" + size(-1), b"E_BAD_MESSAGE PUB invalid message body size -1"),
    (b"PUB t\n\xff\xff\xff\x00", b"E_BAD_MESSAGE PUB invalid message body size -256"),
    (b"PUB t\n" + size(MESSAGE_MAX + 1), b"E_BAD_MESSAGE PUB message too big 1048577 > 1048576"),
    (
        b"PUB t\n\x7f\xff\xff\xff",
        b"E_BAD_MESSAGE PUB message too big 2147483647 > 1048576",
    ),
    (b"DPUB\n", b"E_INVALID DPUB insufficient number of parameters"),
    (b"DPUB t\n", b"E_INVALID DPUB insufficient number of parameters"),
    (b"DPUB t! 5\n", b'E_BAD_TOPIC DPUB topic name "t!" is not valid'),
    (b"DPUB t -1\n", b"E_INVALID DPUB could not parse timeout -1"),
    (b"DPUB t +1\n", b"E_INVALID DPUB could not parse timeout +1"),
    (b"DPUB t 1.5\n", b"E_INVALID DPUB could not parse timeout 1.5"),
    (b"DPUB t 3600001\n", b"E_INVALID DPUB timeout 3600001 out of range 0-3600000"),
    (b"DPUB t 5\n" + size(0), b"E_BAD_MESSAGE DPUB invalid message body size 0"),
    (b"DPUB t 5\n" + size(-7), b"E_BAD_MESSAGE DPUB invalid message body size -7"),
    (
        b"DPUB t 5\n" + size(MESSAGE_MAX + 1),
        b"E_BAD_MESSAGE DPUB message too big 1048577 > 1048576",
    ),
    (b"MPUB\n", b"E_INVALID MPUB insufficient number of parameters"),
    (b"MPUB t!\n", b'E_BAD_TOPIC E_BAD_TOPIC MPUB topic name "t!" is not valid'),
    (mpub(total=0), b"E_BAD_BODY MPUB invalid body size 0"),
    (mpub(total=-1), b"E_BAD_BODY MPUB invalid body size -1"),
    (mpub(total=BODY_MAX + 1), b"E_BAD_BODY MPUB body too big 5242881 > 5242880"),
    (mpub(size(0)), b"E_BAD_BODY MPUB invalid message count 0"),
    (mpub(size(-1)), b"E_BAD_BODY MPUB invalid message count -1"),
    (mpub(size(COUNT_MAX + 1)), b"E_BAD_BODY MPUB invalid message count 1048576"),
    (mpub(size(1), size(0)), b"E_BAD_MESSAGE MPUB invalid message(0) body size 0"),
    (
        mpub(size(2), encode_body(b"x"), size(-1)),
        b"E_BAD_MESSAGE MPUB invalid message(1) body size -1",
    ),
    (
        mpub(size(1), size(MESSAGE_MAX + 1)),
        b"E_BAD_MESSAGE MPUB message too big 1048577 > 1048576",
    ),
]

NAMES = [
    (b"PUB \n" + size(1) + b"x", b'E_BAD_TOPIC PUB topic name "" is not valid'),
    (b"PUB  t1\n", b'E_BAD_TOPIC PUB topic name "" is not valid'),
    (b"PUB a:b\n", b'E_BAD_TOPIC PUB topic name "a:b" is not valid'),
    (b"PUB #ephemeral\n", b'E_BAD_TOPIC PUB topic name "#ephemeral" is not valid'),
    (b"PUB a#foo\n", b'E_BAD_TOPIC PUB topic name "a#foo" is not valid'),
    (b"PUB a\tb\n", b'E_BAD_TOPIC PUB topic name "a\\tb" is not valid'),
    (b"PUB " + b"x" * 65 + b"\n", b'E_BAD_TOPIC PUB topic name "' + b"x" * 65 + b'" is not valid'),
    (
        b"PUB " + b"x" * 55 + b"#ephemeral\n",
        b'E_BAD_TOPIC PUB topic name "' + b"x" * 55 + b'#ephemeral" is not valid',
    ),
    (
        b'PUB t\x00\xff"\xc3\xa9\n',
        b'E_BAD_TOPIC PUB topic name "t\\x00\\xff\\"\xc3\xa9" is not valid',
    ),
    (
        b"PUB \\\a\b\f\v\x1b\x7f\r\r\n",
        b'E_BAD_TOPIC PUB topic name "\\\\\\a\\b\\f\\v\\x1b\\x7f\\r" is not valid',
    ),
    (
        b"PUB \xe2\x82\xac\xc2\xa0\xe2\x80\xa8\xed\xa0\x80\n",
        b'E_BAD_TOPIC PUB topic name "\xe2\x82\xac\\u00a0\\u2028\\xed\\xa0\\x80" is not valid',
    ),
    (
        b"PUB \xf0\x9f\x90\xb0\xf4\x8f\xbf\xbf\xef\xbf\xbd\n",
        b'E_BAD_TOPIC PUB topic name "\xf0\x9f\x90\xb0\\U0010ffff\xef\xbf\xbd" is not valid',
    ),
    (b"SUB t! c\n", b'E_BAD_TOPIC SUB topic name "t!" is not valid'),
    (b"SUB t! c!\n", b'E_BAD_TOPIC SUB topic name "t!" is not valid'),
    (b"SUB t c!\n", b'E_BAD_CHANNEL SUB channel name "c!" is not valid'),
    (b"SUB t \n", b'E_BAD_CHANNEL SUB channel name "" is not valid'),
]

LINES = [
    (b"ASDF\n", b"E_INVALID invalid command ASDF"),
    (b"pub t\n", b"E_INVALID invalid command pub"),
    (b"\n", b"E_INVALID invalid command "),
    (b"\r\n", b"E_INVALID invalid command "),
    (b" PUB t\n", b"E_INVALID invalid command "),
    (b"NOP\r\r\n", b"E_INVALID invalid command NOP\r"),
    (b"PUB\tt\n", b"E_INVALID invalid command PUB\tt"),
    (b"x" * (LINE_MAX - 1) + b"\n", b"E_INVALID invalid command " + b"x" * (LINE_MAX - 1)),
    (b"SUB\n", b"E_INVALID SUB insufficient number of parameters"),
    (b"SUB t\n", b"E_INVALID SUB insufficient number of parameters"),
    (b"AUTH x\n", b"E_INVALID AUTH invalid number of parameters"),
    (b"AUTH\n" + size(0), b"E_BAD_BODY AUTH invalid body size 0"),
    (b"AUTH\n" + size(-1), b"E_BAD_BODY AUTH invalid body size -1"),
    (b"AUTH\n" + encode_body(b"secret"), b"E_AUTH_DISABLED AUTH disabled"),
]


def hold_ids(cases):
    return [pytest.param(*case, id=ascii(case[0][:24])) for case in cases]


@pytest.mark.parametrize(("sent", "error"), hold_ids(PUBLISHING + NAMES + LINES))
def test_fatal_error_before_sub(client, sent, error):
    client.send(sent)
    assert client.read_to_end() == encode_frame(ERROR, error)


TRUNCATED = [
    (b"PUB t\n", b"E_BAD_MESSAGE PUB failed to read message body size"),
    (b"PUB t\n\x00\x00", b"E_BAD_MESSAGE PUB failed to read message body size"),
    (b"PUB t\n" + size(3) + b"ab", b"E_BAD_MESSAGE PUB failed to read message body"),
    (b"DPUB t 0\n", b"E_BAD_MESSAGE DPUB failed to read message body size"),
    (b"DPUB t 0\n" + size(3), b"E_BAD_MESSAGE DPUB failed to read message body"),
    (b"MPUB t\n", b"E_BAD_BODY MPUB failed to read body size"),
    (mpub(total=9), b"E_BAD_BODY MPUB failed to read message count"),
    (mpub(size(1), total=99), b"E_BAD_MESSAGE MPUB failed to read message(0) body size"),
    (mpub(size(1), size(5), total=99), b"E_BAD_MESSAGE MPUB failed to read message body"),
    (b"IDENTIFY\n", b"E_BAD_BODY IDENTIFY failed to read body size"),
    (b"IDENTIFY\n" + size(5) + b"{", b"E_BAD_BODY IDENTIFY failed to read body"),
    (b"AUTH\n", b"E_BAD_BODY AUTH failed to read body size"),
    (b"AUTH\n" + size(5), b"E_BAD_BODY AUTH failed to read body"),
]


@pytest.mark.parametrize(("sent", "error"), hold_ids(TRUNCATED))
def test_input_ends_inside_a_body(client, sent, error):
    client.send(sent)
    client.socket.shutdown(1)
    assert client.read_to_end() == encode_frame(ERROR, error)


SUBSCRIBED_FATAL = [
    (b"RDY x\n", b"E_INVALID RDY could not parse count x"),
    (b"RDY -1\n", b"E_INVALID RDY could not parse count -1"),
    (b"RDY 2501\n", b"E_INVALID RDY count 2501 out of range 0-2500"),
    (b"FIN\n", b"E_INVALID FIN insufficient number of params"),
    (b"FIN abc\n", b"E_INVALID invalid message ID"),
    (b"FIN " + b"0" * 17 + b"\n", b"E_INVALID invalid message ID"),
    (b"FIN \n", b"E_INVALID invalid message ID"),
    (b"REQ\n", b"E_INVALID REQ insufficient number of params"),
    (b"REQ " + b"0" * 16 + b"\n", b"E_INVALID REQ insufficient number of params"),
    (b"REQ abc 0\n", b"E_INVALID invalid message ID"),
    (b"REQ " + b"0" * 16 + b" x\n", b"E_INVALID REQ could not parse timeout x"),
    (b"REQ " + b"0" * 16 + b" -5\n", b"E_INVALID REQ could not parse timeout -5"),
    (b"TOUCH\n", b"E_INVALID TOUCH insufficient number of params"),
    (b"TOUCH abc\n", b"E_INVALID invalid message ID"),
    (b"ASDF\n", b"E_INVALID invalid command ASDF"),
]


@pytest.mark.parametrize(("sent", "error"), hold_ids(SUBSCRIBED_FATAL))
def test_fatal_error_of_a_consumer(client, topic, sent, error):
    client.sub(topic, "c")
    client.send(sent)
    assert client.read_to_end() == encode_frame(ERROR, error)


NOT_IN_FLIGHT = [
    (b"FIN 0000000000000000\n", b"E_FIN_FAILED FIN 0000000000000000 failed ID not in flight"),
    (b"REQ 0000000000000000 0\n", b"E_REQ_FAILED REQ 0000000000000000 failed ID not in flight"),
    (b"REQ 0000000000000000 \n", b"E_REQ_FAILED REQ 0000000000000000 failed ID not in flight"),
    (
        b"TOUCH 0000000000000000\n",
        b"E_TOUCH_FAILED TOUCH 0000000000000000 failed ID not in flight",
    ),
    (
        b"FIN \x00\xff!#$%&/()=?\xc3\xa9a\x01\n",
        b"E_FIN_FAILED FIN \x00\xff!#$%&/()=?\xc3\xa9a\x01 failed ID not in flight",
    ),
]


@pytest.mark.parametrize(("sent", "error"), hold_ids(NOT_IN_FLIGHT))
def test_unknown_message_is_no_reason_to_close(client, topic, sent, error):
    client.sub(topic, "c")
    client.send(sent)
    assert client.read_frame() == (ERROR, error)
    client.barrier()


def test_message_of_another_client(connect, topic):
    owner, thief = connect(), connect()
    owner.sub(topic, "c", 1)
    thief.sub(topic, "c")
    owner.pub(topic, b"mine")
    message = owner.read_message()
    for command, params in (("FIN", ()), ("REQ", ("0",)), ("TOUCH", ())):
        thief.command(command, message.id, *params)
        text = f"E_{command}_FAILED {command} {message.id.decode()} failed "
        assert thief.read_error() == text.encode() + b"client does not own message"
    owner.fin(message)
    owner.barrier()


VECTORS = [
    ("  V2", b"PUB v\n" + encode_body(b"x"), "00000006000000004f4b"),
    (
        "  V2",
        b"ASDF\n",
        "0000002200000001455f494e56414c494420696e76616c696420636f6d6d616e642041534446",
    ),
    (
        "  V2",
        b"PUB\n",
        (
            "0000003300000001455f494e56414c49442050554220696e73756666696369656e74206e756d626572206f66"
            "20706172616d6574657273"
        ),
    ),
    (
        "  V2",
        b"PUB t\n" + size(0),
        (
            "0000003100000001455f4241445f4d4553534147452050554220696e76616c6964206d65737361676520626f"
            "64792073697a652030"
        ),
    ),
    ("  V1", b"", "0000001200000001455f4241445f50524f544f434f4c"),
    ("HTTP", b"", "0000001200000001455f4241445f50524f544f434f4c"),
    ("V2  ", b"", "0000001200000001455f4241445f50524f544f434f4c"),
]


@pytest.mark.parametrize(("magic", "sent", "answer"), VECTORS)
def test_bytes_on_the_wire(connect, magic, sent, answer):
    client = connect(magic.encode())
    client.send(sent)
    assert client.read_exactly(len(answer) // 2).hex() == answer
    if answer != VECTORS[0][2]:
        assert client.read_to_end() == b""


def test_frames_of_a_consumer(client, connect, topic):
    client.sub(topic, "c", 1)
    client.send(b"FIN 0000000000000000\n")
    assert client.read_exactly(65).hex() == (
        "0000003d00000001455f46494e5f4641494c45442046494e2030303030303030303030303030303030206661"
        "696c6564204944206e6f7420696e20666c69676874"
    )
    connect().pub(topic, b"hello")
    head = client.read_exactly(8)
    assert head.hex() == "0000002300000002"
    data = client.read_exactly(31)
    assert data[8:10] == b"\x00\x01"
    assert data[26:] == b"hello"
    int(data[10:26], 16)
    client.send(b"CLS\n")
    assert client.read_exactly(18).hex() == "0000000e00000000434c4f53455f57414954"


def test_magic_in_pieces(connect):
    client = connect(b"")
    for byte in b"  V2":
        client.send(bytes([byte]))
    client.barrier()


def test_command_byte_by_byte(client, topic):
    for byte in b"PUB " + topic.encode() + b"\r\n" + encode_body(b"slow"):
        client.send(bytes([byte]))
    assert client.read_frame() == (RESPONSE, b"OK")


def test_many_commands_in_one_piece(client, topic):
    one = b"PUB " + topic.encode() + b"\n" + encode_body(b"x")
    client.send(one * 100 + b"NOP\n" * 10 + one)
    assert client.read_exactly(101 * 10) == encode_frame(RESPONSE, b"OK") * 101


@pytest.mark.parametrize("length", [LINE_MAX, LINE_MAX + 1, 3 * LINE_MAX])
def test_line_too_long_closes_without_a_word(client, length):
    client.send(b"x" * length + b"\n")
    assert client.read_to_end() == b""


@pytest.mark.parametrize(
    "line", ["NOP", "NOP 1 2 3", "NOP ", "NOP\r", "PUB {} extra", "DPUB {} ", "DPUB {} 0 extra"]
)
def test_accepted_oddities(client, topic, line):
    client.send(line.format(topic).encode() + b"\n")
    if "PUB" in line:
        client.send(encode_body(b"x"))
        assert client.read_response() == b"OK"
    client.barrier()


def test_numbers_wrap_at_64_bits(client, topic):
    client.sub(topic, "c")
    client.command("RDY", "18446744073709551617")
    client.pub(topic, b"x")
    assert client.read_message().body == b"x"


@pytest.mark.parametrize("number", ["00000000000000000000000000001", "1", ""])
def test_rdy_numbers(client, topic, number):
    client.sub(topic, "c")
    client.send(b"RDY " + number.encode() + b"\n")
    client.barrier()


@pytest.mark.parametrize("name", ["x" * 64, "x" * 54 + "#ephemeral", "a.B-_9", "-", "."])
def test_valid_names(client, topic, name):
    client.pub(name, b"x")
    assert client.ask("SUB", topic, name) == b"OK"


def test_largest_message(client, topic):
    body = bytes(MESSAGE_MAX)
    client.pub(topic, body)
    client.sub(topic, "c", 1)
    assert client.read_message().body == body


def test_refused_command_makes_no_topic(broker, connect, topic):
    first, second = connect(), connect()
    first.send(b"PUB " + topic.encode() + b"\n" + size(0))
    first.read_to_end()
    assert topic not in names_of_topics(broker)
    second.send(b"MPUB " + topic.encode() + b"\n" + size(0))
    second.read_to_end()
    # MPUB makes its topic before it looks at the body.
    assert topic in names_of_topics(broker)


def names_of_topics(broker):
    from support.web import stats

    return [found["topic_name"] for found in stats(broker.http)["topics"]]


def test_mpub_is_driven_by_its_counts(client, topic):
    """A wrong total length is accepted, and the stream stays in step."""
    messages = size(2) + encode_body(b"one") + encode_body(b"two")
    for total in (1, len(messages) + 1, BODY_MAX):
        client.send(b"MPUB " + topic.encode() + b"\n" + size(total) + messages)
        assert client.read_response() == b"OK"
    client.barrier()
    client.sub(topic, "c", 10)
    assert sorted(m.body for m in client.read_messages(6)) == [b"one"] * 3 + [b"two"] * 3


def test_mpub_queues_nothing_when_one_message_is_bad(broker, connect, topic):
    client = connect()
    client.sub(topic, "c", 10)
    publisher = connect()
    broken = size(2) + encode_body(b"one") + size(0)
    publisher.send(b"MPUB " + topic.encode() + b"\n" + encode_body(broken))
    assert publisher.read_error() == b"E_BAD_MESSAGE MPUB invalid message(1) body size 0"
    client.pub(topic, b"next")
    assert client.read_message().body == b"next"


def test_silent_close_before_the_magic(broker):
    with Client(broker.tcp, b"  ") as client:
        client.socket.shutdown(1)
        assert client.read_to_end() == b""
