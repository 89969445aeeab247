"""Batches as lines and as JSON lines, against a naive reading of them."""

import base64
import json
import random

import numpy as np
import pytest
from nsqfast._ext.client.columns import Taken
from nsqfast._ext.client.text_lines import JsonLines, Lines

LARGE = 1 << 62


def columns(bodies, attempts=1, ids=None):
    count = len(bodies)
    offsets = np.zeros(count + 1, np.int64)
    np.cumsum([len(body) for body in bodies], out=offsets[1:])
    return Taken(
        b"".join(bodies),
        offsets.tobytes(),
        (np.arange(count, dtype=np.int64) * 1_000_003 - 5).tobytes(),
        np.full(count, attempts, np.uint16).tobytes(),
        b"".join(ids or [b"%016x" % number for number in range(count)]),
        (np.arange(count, dtype=np.uint16) % 2).tobytes(),
        [None, None],
    )


def rows(bodies):
    taken = columns(bodies)
    return Lines(taken.bodies, taken.offsets)


def records(bodies, **more):
    tails = [b',"nsqd":"a:1",', b',"nsqd":"b:2",']
    return JsonLines(columns(bodies, **more), b'{"topic":"t","id":"', tails)


def read_back(record):
    return record["body"].encode() if "body" in record else base64.b64decode(record["body_base64"])


def random_bodies(random_one):
    texts = [
        b"plain",
        b'"',
        b"\\",
        b"\n",
        b"\0",
        b"\x1f",
        b"\x7f",
        "é€😀".encode(),
        b"\xff",
        b"\xed\xa0\x80",
    ]
    return [
        b"".join(random_one.choices(texts, k=random_one.randint(0, 12)))
        for _ in range(random_one.randint(0, 20))
    ]


def test_lines():
    bodies = [b"a", b"", b"b\nc", b"\0" * 300]
    block = rows(bodies)
    assert block.take(LARGE) == b"".join(body + b"\n" for body in bodies)
    assert block.next == block.count == 4
    assert block.take(LARGE) == b""
    assert rows([]).take(LARGE) == b""


def test_lines_stop_behind_the_row_that_fills_the_file():
    """As NSQ has it: a file is full when it is larger than the limit, which is looked at before each message."""
    random_one = random.Random(7)
    for _ in range(200):
        bodies = [b"x" * random_one.randint(0, 9) for _ in range(random_one.randint(1, 30))]
        size_max = random_one.randint(0, 40)
        for make, limit in ((rows, size_max), (records, size_max + 100)):
            pieces = make(bodies)
            found = []
            while pieces.next < pieces.count:
                found.append(pieces.take(limit))
            expected = [[]]
            for line in make(bodies).take(LARGE).splitlines(keepends=True):
                if sum(map(len, expected[-1])) > limit:
                    expected.append([])
                expected[-1].append(line)
            assert found == [b"".join(lines) for lines in expected]


@pytest.mark.parametrize(
    "offsets",
    [[], [0, 4], [0, 3, 2], [-1, 3], [0, 9, 3]],
    ids=["none", "beyond", "back", "before", "jump"],
)
def test_offsets_that_cannot_be(offsets):
    with pytest.raises(ValueError, match="offsets"):
        Lines(b"abc", np.array(offsets, np.int64).tobytes())


def test_columns_of_different_lengths():
    taken = columns([b"a", b"b"])
    for name in ("timestamps", "attempts", "identities", "sources"):
        with pytest.raises(ValueError, match="different lengths"):
            JsonLines(taken._replace(**{name: getattr(taken, name)[:-1]}), b"", [b"", b""])
    with pytest.raises(ValueError, match="a source without a tail"):
        JsonLines(taken, b"", [])


def test_json_lines():
    first, second = records([b"hello", b"\xff\x00"], attempts=3).take(LARGE).splitlines()
    assert json.loads(first) == {
        "topic": "t",
        "id": "0000000000000000",
        "timestamp_ns": -5,
        "attempts": 3,
        "nsqd": "a:1",
        "body": "hello",
    }
    assert json.loads(second) == {
        "topic": "t",
        "id": "0000000000000001",
        "timestamp_ns": 999_998,
        "attempts": 3,
        "nsqd": "b:2",
        "body_base64": "/wA=",
    }


def test_every_body_reads_back():
    seed = random.randrange(1 << 32)
    print("seed", seed)
    random_one = random.Random(seed)
    for _ in range(300):
        bodies = random_bodies(random_one)
        block = records(bodies).take(LARGE)
        assert block.count(b"\n") == len(bodies)
        found = [json.loads(line) for line in block.splitlines()]
        assert [read_back(record) for record in found] == bodies
        assert ["body" in record for record in found] == [is_text(body) for body in bodies]


def is_text(body):
    try:
        body.decode()
    except UnicodeDecodeError:
        return False
    return True


def test_utf8_is_told_as_python_tells_it():
    """All of one and two bytes, and what begins a longer sequence with every second and third byte that matters."""
    edges = [0x00, 0x41, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0xFF]
    bodies = [bytes([one]) for one in range(256)]
    bodies += [bytes([one, two]) for one in range(0xC0, 256) for two in range(256)]
    bodies += [
        bytes([one, two, three])
        for one in range(0xE0, 256)
        for two in range(0x70, 0xD0)
        for three in edges
    ]
    bodies += [
        bytes([one, two, three, four])
        for one in range(0xEE, 0xF8)
        for two in edges
        for three in edges
        for four in edges
    ]
    lines = records(bodies).take(LARGE).splitlines()
    for line, body in zip(lines, bodies, strict=True):
        assert (b'"body":' in line) == is_text(body)
        assert read_back(json.loads(line)) == body


@pytest.mark.parametrize("place", [0, 1, 7, 8, 4095, 4096, 99_999])
@pytest.mark.parametrize("piece", [b"\n", b'"', b"\0", "é".encode(), b"\xff", b"x"])
def test_large_bodies(place, piece):
    body = b"y" * place + piece + b"z" * (100_000 - place)
    (line,) = records([body]).take(LARGE).splitlines()
    assert read_back(json.loads(line)) == body


def test_an_id_that_is_none_of_nsqd():
    for identity in (b'"' * 16, b"\xff" * 16):
        (line,) = records([b"x"], ids=[identity]).take(LARGE).splitlines()
        found = json.loads(line)["id"]
        assert found == (identity.hex() if identity[0] == 0xFF else identity.decode())
