"""Arrow batches cut into publishes, without Spark and without a broker."""

import random

import numpy as np
import pyarrow as pa
import pytest

from nsqfast.spark.sink.options import SinkOptions
from nsqfast.spark.sink.rows import RowError, cut_publishes, read_rows

OPTIONS = SinkOptions(addresses=("a:1",), topic="t", message_size_max=100, defer_ms_max=1000)


def make_batch(bodies, kind=None, **columns):
    arrays = {"body": pa.array(bodies, kind or pa.binary())}
    arrays |= {name: pa.array(values) for name, values in columns.items()}
    return pa.RecordBatch.from_pydict(arrays)


def published(batch, options=OPTIONS):
    """(topic, body, delay) of each message, by publish."""
    found = []
    for publish in cut_publishes(read_rows(batch, options), options):
        bodies = publish.bodies.bodies()
        delays = publish.delays_ms or [0] * len(bodies)
        assert publish.count == len(bodies)
        assert publish.size == sum(map(len, bodies))
        found.append(list(zip([publish.topic] * len(bodies), bodies, delays, strict=True)))
    return found


@pytest.mark.parametrize(
    "kind", [pa.binary(), pa.string(), pa.large_binary(), pa.large_string(), pa.binary_view()]
)
def test_bodies_of_every_kind(kind):
    texts = ["a", "zwölf", "c" * 50]
    bodies = texts if pa.types.is_string(kind) or pa.types.is_large_string(kind) else None
    encoded = [text.encode() for text in texts]
    assert published(make_batch(bodies or encoded, kind)) == [[("t", one, 0) for one in encoded]]


def test_a_slice_of_a_batch():
    batch = make_batch([b"0", b"11", b"222", b"3333", b"4"], topic=["a", "b", "c", "b", "c"])
    assert published(batch.slice(1, 3)) == [
        [("b", b"11", 0), ("b", b"3333", 0)],
        [("c", b"222", 0)],
    ]


def test_bytes_that_are_no_text_and_have_zeros():
    bodies = [b"\x00", b"\xff\xfe\n", bytes(range(100))]
    assert [body for _, body, _ in published(make_batch(bodies))[0]] == bodies


def test_limits_of_a_publish():
    batch = make_batch([b"x" * 10] * 7)
    by_rows = SinkOptions(addresses=("a:1",), topic="t", batch_rows_max=3)
    assert [len(one) for one in published(batch, by_rows)] == [3, 3, 1]
    # Two bodies with the sizes in front of them, and the count.
    by_size = SinkOptions(addresses=("a:1",), topic="t", batch_size_max=4 + 2 * 14)
    assert [len(one) for one in published(batch, by_size)] == [2, 2, 2, 1]
    # One that is larger than a batch may be goes alone, as a PUB.
    tiny = SinkOptions(addresses=("a:1",), topic="t", batch_size_max=5)
    assert [len(one) for one in published(batch, tiny)] == [1] * 7


def test_rows_against_a_model():
    """Each row is published once, to its topic, with its delay, in the order of its kind."""
    seed = random.randrange(1 << 32)
    print("seed", seed)
    rand = random.Random(seed)
    for _ in range(50):
        count = rand.randrange(200)
        topics = [rand.choice(["a", "b", "c", None]) for _ in range(count)]
        delays = [rand.choice([None, 0, 5, 9]) for _ in range(count)]
        bodies = [b"%d-" % row + rand.randbytes(rand.randrange(90)) for row in range(count)]
        options = SinkOptions(
            addresses=("a:1",),
            topic="t",
            batch_rows_max=rand.randrange(1, 50),
            batch_size_max=rand.randrange(50, 500),
        )
        batch = make_batch(
            bodies, topic=pa.array(topics, pa.string()), defer_ms=pa.array(delays, pa.int64())
        )
        parts = published(batch, options)
        expected = {}
        for topic, body, delay in zip(topics, bodies, delays, strict=True):
            key = (topic or "t", bool(delay))
            expected.setdefault(key, []).append((topic or "t", body, delay or 0))
        found = {}
        for part in parts:
            assert len(part) <= options.batch_rows_max
            size = 4 + sum(4 + len(body) for _, body, _ in part)
            assert len(part) == 1 or size <= options.batch_size_max
            found.setdefault((part[0][0], part[0][2] > 0), []).extend(part)
        assert found == expected


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"bodies": [b"a", None, None]}, ["row 71 ", "the body is null", "(2 such rows"]),
        ({"bodies": [b"", b"b"]}, ["row 70 ", "the body is empty"]),
        ({"bodies": [b"a", b"b" * 101]}, ["row 71 ", "101 bytes", "maxMsgSize (100)"]),
        ({"bodies": [b"a"], "topic": ["not a name"]}, ["row 70 ", "'not a name' is no name"]),
        ({"bodies": [b"a"] * 2, "topic": ["ok", "x" * 65]}, ["row 71 ", "is no name of a topic"]),
        ({"bodies": [b"a"], "topic": [""]}, ["'' is no name"]),
        ({"bodies": [b"a"] * 2, "defer_ms": [5, -1]}, ["row 71 ", "defer_ms is -1"]),
        ({"bodies": [b"a"], "defer_ms": [1001]}, ["defer_ms is 1001", "maxReqTimeout (1000 ms)"]),
        ({"bodies": [b"a"], "defer_ms": [1 << 62]}, [f"defer_ms is {1 << 62}"]),
    ],
)
def test_rows_that_nsqd_would_refuse(columns, words):
    with pytest.raises(RowError) as caught:
        read_rows(make_batch(columns.pop("bodies"), **columns), OPTIONS, 70)
    text = str(caught.value)
    assert "\n" not in text
    assert [word for word in words if word not in text] == [], text


def test_a_topic_that_is_null_needs_the_option():
    batch = make_batch([b"a", b"b"], topic=["x", None])
    with pytest.raises(RowError, match=r"row 1 .*the topic is null, and there is no option topic"):
        read_rows(batch, SinkOptions(addresses=("a:1",)))


def test_a_body_of_exactly_the_limit():
    assert published(make_batch([b"x" * 100])) == [[("t", b"x" * 100, 0)]]


def test_many_topics_are_cut_in_one_pass():
    """10,000 topics of one row each: no pass over the batch for each of them."""
    count = 10_000
    batch = make_batch([b"x"] * count, topic=[f"t{number}" for number in range(count)])
    rows = read_rows(batch, OPTIONS)
    assert len(rows.topics) == count
    assert np.array_equal(rows.numbers, np.arange(count))
    assert sum(publish.count for publish in cut_publishes(rows, OPTIONS)) == count
