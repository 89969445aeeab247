"""Log lines: NSQ's form or JSON, one line a record, the level changeable."""

import json
import re

import pytest

from nsqfast.program import logs

STAMP = r"\d{4}/\d\d/\d\d \d\d:\d\d:\d\d\.\d{6}"


def fail():
    raise ValueError("why")


@pytest.fixture
def lines(capsys):
    def read():
        return capsys.readouterr().err.splitlines()

    return read


def test_text_line(lines):
    log = logs.set_up("nsqd", "[nsqd] ", logs.LEVELS["debug"])
    for method in (log.debug, log.info, log.warning, log.error, log.critical):
        method("TOPIC(%s): created", "orders")
    levels = ("DEBUG", "INFO", "WARNING", "ERROR", "FATAL")
    for line, level in zip(lines(), levels, strict=True):
        assert re.fullmatch(rf"\[nsqd\] {STAMP} {level}: TOPIC\(orders\): created", line)


def test_a_peer_cannot_forge_a_line(lines):
    log = logs.set_up("nsqd", "", logs.LEVELS["info"])
    log.info("client %s", "a\r\n[nsqd] 2026 FATAL: gone\x1b[2J")
    (line,) = lines()
    assert line.endswith(r"client a\r\n[nsqd] 2026 FATAL: gone\x1b[2J")


STEERING = "".join(map(chr, [*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029]))


def test_nothing_of_a_peer_steers_a_terminal_or_ends_a_line(lines):
    log = logs.set_up("nsqd", "", logs.LEVELS["info"])
    log.info("a%sz", STEERING)
    (line,) = lines()
    assert line.replace("\t", "").isprintable()
    assert r"a\x00\x01" in line
    assert line.endswith(
        r"\x7f" + "".join(rf"\x{n:02x}" for n in range(0x80, 0xA0)) + r"\u2028\u2029z"
    )


def test_nor_in_json(lines):
    log = logs.set_up("nsqd", "", logs.LEVELS["info"], logs.FORMATS["json"])
    log.info("a%sz", STEERING)
    (line,) = lines()
    assert line.isprintable()
    assert json.loads(line)["text"] == f"a{STEERING}z"


def test_level_changes_at_run_time(lines):
    log = logs.set_up("nsqd", "", logs.LEVELS["error"])
    log.info("hidden")
    logs.set_level("nsqd", logs.LEVELS["info"])
    log.info("shown")
    assert [line.split(": ")[1] for line in lines()] == ["shown"]


def test_traceback_follows(lines):
    log = logs.set_up("nsqd", "", logs.LEVELS["info"])
    try:
        fail()
    except ValueError:
        log.exception("broken")
    got = lines()
    assert got[0].endswith("ERROR: broken")
    assert got[-1] == "ValueError: why"


def test_json_lines(lines):
    log = logs.set_up("nsqd", "[nsqd] ", logs.LEVELS["info"], logs.FORMATS["json"])
    log.info("a\nb")
    try:
        fail()
    except ValueError:
        log.exception("é")
    first, second = map(json.loads, lines())
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", first.pop("time"))
    assert first == {"level": "INFO", "program": "nsqd", "text": "a\nb"}
    assert second["text"] == "é"
    assert second["traceback"].endswith("ValueError: why")


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("NSQ: bye", {}),
        ("TOPIC(orders): created", {"topic": "orders"}),
        (
            "TOPIC(orders): deleting channel tail1#ephemeral",
            {"topic": "orders", "channel": "tail1#ephemeral"},
        ),
        (
            "DB: removing channel(c) from topic(orders), it has no producers",
            {"topic": "orders", "channel": "c"},
        ),
        ("TCP: new client(127.0.0.1:3)", {"client": "127.0.0.1:3"}),
        ("PROTOCOL(V2): [127.0.0.1:3] exiting ioloop", {"client": "127.0.0.1:3"}),
        ("PROTOCOL(V2): [[::1]:3] exiting ioloop", {"client": "[::1]:3"}),
        (
            "[127.0.0.1:3] - E_BAD_TOPIC PUB topic name 'topic(x)' is not valid",
            {
                "client": "127.0.0.1:3",
                "error": "E_BAD_TOPIC PUB topic name 'topic(x)' is not valid",
            },
        ),
        (
            "200 GET /topic(x)?(9.9.9.9:9) 1s (127.0.0.1:3) 581.296µs",
            {"client": "127.0.0.1:3"},
        ),
        ("client(1.2.3.4:5) bad protocol magic 'topic(x)'", {"client": "1.2.3.4:5"}),
        (
            "DISKQUEUE(orders:c) failed to sync - input/output error",
            {"topic": "orders", "channel": "c", "error": "input/output error"},
        ),
        (
            "LOOKUPD(10.0.0.1:4160): no channels of topic orders - timed out",
            {"topic": "orders", "error": "timed out"},
        ),
    ],
)
def test_json_has_what_a_line_is_about(lines, text, fields):
    logs.set_up("nsqd", "", logs.LEVELS["info"], logs.FORMATS["json"]).info("%s", text)
    (line,) = map(json.loads, lines())
    del line["time"]
    assert line == {"level": "INFO", "program": "nsqd", "text": text, **fields}


def test_a_second_setup_replaces_the_first(lines):
    logs.set_up("nsqd", "one ", logs.LEVELS["info"])
    logs.set_up("nsqd", "two ", logs.LEVELS["info"]).info("x")
    (line,) = lines()
    assert line.startswith("two ")
