"""Folders as a crash or a bad disk leave them, what an operator writes, and JSON of peers."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuzz.strategies import (
    FEW,
    IDENTITIES,
    JSON_VALUES,
    PATTERNS,
    QUICK,
    damaged,
    line,
)
from fuzz.targets import ackfile, diskqueue, grant, identify, metadata, options

pytestmark = pytest.mark.slow

RECORDS = st.builds(diskqueue.record, st.binary(max_size=40), st.integers(0, 2**64 - 1))
FILES = st.builds(
    lambda number, records: number + b"".join(records),
    st.sampled_from([b"", b"", b"", b"#7\n", b"#400000000000000000\n"]),
    st.lists(RECORDS, max_size=5),
)


@st.composite
def swallowing(draw):
    """A file in which the size of one record reaches into the next."""
    records = draw(st.lists(RECORDS, min_size=2, max_size=5))
    at = draw(st.integers(0, len(records) - 2))
    size = int.from_bytes(records[at][:4], "big") + draw(st.integers(1, 20))
    records[at] = size.to_bytes(4, "big") + records[at][4:]
    return b"".join(records)


PLACES = st.sampled_from([0, 1, 31, 62, 93, 2**40, -1])
METADATA = st.one_of(
    st.just(b"-"),
    st.just(b"3\n0,0\n0,93\n"),
    st.builds(
        lambda depth, file, at, last, end: b"%d\n%d,%d\n%d,%d\n" % (depth, file, at, last, end),
        *(PLACES, st.integers(0, 3), PLACES, st.integers(0, 9), PLACES),
    ),
)
ACKS = st.one_of(
    st.just(b""),
    st.builds(
        lambda first, count, at, shift, marked: diskqueue.believed(
            (first, 0, at),
            (first + count, 0, max(0, at + 31 * count + shift)),
            [first + mark for mark in marked],
        ),
        *(st.integers(1, 5), st.integers(0, 20), st.sampled_from([0, 31, 40, 99])),
        st.sampled_from([0, 0, 0, 1, -60]),
        st.lists(st.integers(0, 20), max_size=4),
    ),
)


@FEW
@given(
    st.builds(
        lambda *sections: diskqueue.SEPARATOR.join([*sections[:3], *sections[3]]),
        *(
            PATTERNS,
            damaged(METADATA),
            damaged(ACKS),
            st.lists(damaged(FILES) | swallowing(), max_size=4),
        ),
    )
)
def test_queues(data):
    diskqueue.check(data)


@FEW
@given(damaged(st.builds(ackfile.whole, st.integers(1, 9), st.integers(9, 16000))))
def test_ack_files(data):
    ackfile.check(data)


KEPT = st.fixed_dictionaries(
    {},
    optional={
        "name": st.sampled_from(["t", "u", "t#ephemeral", "bad name", ""]) | JSON_VALUES,
        "paused": st.booleans() | JSON_VALUES,
    },
)
TOPICS = st.builds(
    lambda topic, channels: topic | {"channels": channels},
    KEPT,
    st.none() | st.lists(KEPT | JSON_VALUES, max_size=3),
)


@FEW
@given(
    damaged(
        st.lists(TOPICS, max_size=3).map(lambda topics: json.dumps({"topics": topics}).encode())
    )
)
def test_nsqd_dat(data):
    metadata.check(data)


@QUICK
@given(damaged(IDENTITIES))
def test_identify(data):
    identify.check(data)


PATTERNS_OF_NAMES = st.sampled_from([".*", "^t$", "(a|b)+", "(", "x{1000}{1000}"]) | st.text(
    max_size=6
)
ENTRIES = st.builds(
    lambda topic, channels, permissions: {
        "topic": topic,
        "channels": channels,
        "permissions": permissions,
    },
    PATTERNS_OF_NAMES,
    st.lists(PATTERNS_OF_NAMES, max_size=3) | JSON_VALUES,
    st.lists(st.sampled_from(["publish", "subscribe"]), max_size=2) | JSON_VALUES,
)


@FEW
@given(
    damaged(
        st.builds(
            lambda ttl, entries: json.dumps({"ttl": ttl, "authorizations": entries}).encode(),
            st.integers(1, 10**12) | JSON_VALUES,
            st.lists(ENTRIES | JSON_VALUES, max_size=3),
        )
    )
)
def test_grants(data):
    grant.check(data)


FIELDS = st.sampled_from([item.key for item in options.declared(options.Options) if item.key])
FLAGS = st.sampled_from([item.flag for item in options.declared(options.Options)])
VALUES = st.one_of(
    st.integers(-(2**64), 2**64).map(str),
    st.floats().map(str),
    st.sampled_from(
        ['"1m"', '"x"', "true", "[0.5, 1]", '["a", 1]', "1979-05-27", "{a = 1}", "0x_1"]
    ),
)


@FEW
@given(
    line(
        b"\x00",
        damaged(
            st.lists(st.builds("{} = {}\n".format, FIELDS, VALUES), max_size=4).map(
                lambda lines: "".join(lines).encode()
            )
        ),
    )
)
def test_config_files(data):
    options.check(data)


@FEW
@given(
    line(
        b"\x01",
        st.lists(st.builds("--{}={}".format, FLAGS, VALUES), max_size=4).map(
            lambda words: "\0".join(words).encode()
        ),
    )
)
def test_flags(data):
    options.check(data)


@QUICK
@given(
    st.one_of(
        st.from_regex(options.DURATION, fullmatch=True),
        st.from_regex(r"[+-]?0?[xob_]?[0-9a-f_]{0,18}", fullmatch=True),
        st.text(max_size=8),
    )
)
def test_numbers_and_durations(text):
    options.check(b"\x02" + text.encode("utf-8", "replace"))
