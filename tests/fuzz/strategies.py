"""Inputs that are nearly right: what the targets understand, with a byte wrong here and there.

Hypothesis makes them for `make test`; NSQFAST_FUZZ_TIMES=20 makes 20 times as many. What failed is printed as a
decorator that repeats it.
"""

import json
import os

from hypothesis import settings
from hypothesis import strategies as st

from fuzz.common import body
from fuzz.targets import session

# So many times as many examples as `make test` has the time for.
TIMES = int(os.environ.get("NSQFAST_FUZZ_TIMES", "1"))
# What failed is printed as a decorator that repeats it; a slow machine is no failure.
QUICK = settings(max_examples=300 * TIMES, deadline=None, print_blob=True)
FEW = settings(QUICK, max_examples=120 * TIMES)

PATTERNS = st.integers(0, 255).map(lambda number: bytes([number]))
NAMES = st.sampled_from(
    [b"t", b"u", b"t#ephemeral", b"n" * 64, b"n" * 65, b"bad name", b"", b"\xff\n", b"t\r"]
)
NUMBERS = st.sampled_from(
    [b"0", b"1", b"2", b"20", b"21", b"3600001", b"18446744073709551617", b"-1", b"x", b"", b"007"]
)
IDS = st.sampled_from([b"@@\x00", b"@@\x01", b"@@\x07", b"0123456789abcdef", b"short", b"-" * 16])
SIZES = st.sampled_from([0, 1, 59, 60, 61, 299, 300, 301, 2**31 - 1, 2**31, 2**32 - 1])


@st.composite
def damaged(draw, whole):
    """Bytes put in, left out or changed at up to three places, more often none."""
    data = bytearray(draw(whole))
    for _ in range(draw(st.sampled_from([0, 0, 0, 1, 2, 3]))):
        at = draw(st.integers(0, len(data)))
        data[at : at + draw(st.sampled_from([0, 0, 1, 4]))] = draw(
            st.binary(max_size=4) | st.sampled_from([b"\n", b"\r\n", b" ", b"\x00\x00\x00\x01"])
        )
    return bytes(data)


def sized(content):
    """A body, or one that says something else of its size."""
    wrong = st.tuples(SIZES, content).map(lambda pair: pair[0].to_bytes(4, "big") + pair[1])
    return st.one_of(content.map(body), content.map(body), content.map(body), wrong)


BODIES = sized(st.binary(max_size=62))
MANY = sized(
    st.lists(BODIES, max_size=5).flatmap(
        lambda bodies: st.sampled_from([len(bodies), len(bodies), 0, 60, 2**31]).map(
            lambda count: count.to_bytes(4, "big") + b"".join(bodies)
        )
    )
)


def line(*parts):
    """A command of these strategies' parts."""
    return st.tuples(*(st.just(part) if isinstance(part, bytes) else part for part in parts)).map(
        b"".join
    )


JSON_VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**64), 2**64),
    st.sampled_from([-1, 0, 1, 64, 99, 250, 1000, 30000, 65536]),
    st.floats(),
    st.text(max_size=5),
    st.lists(st.integers(), max_size=2),
)
IDENTIFY_KEYS = st.sampled_from(
    [
        *("client_id", "hostname", "user_agent", "feature_negotiation", "heartbeat_interval"),
        *("output_buffer_size", "output_buffer_timeout", "sample_rate", "msg_timeout", "SNAPPY"),
        *("snappy", "deflate", "deflate_level", "topology_zone", "unknown"),
        "nsqfast_deferred_ids",
    ]
)


def json_object(keys, values, size_max=6):
    """Its text; a key may come twice."""
    return st.lists(st.tuples(keys, values), max_size=size_max).map(
        lambda pairs: (
            "{" + ",".join(f"{json.dumps(k)}:{json.dumps(v)}" for k, v in pairs) + "}"
        ).encode()
    )


IDENTITIES = st.one_of(
    json_object(IDENTIFY_KEYS, JSON_VALUES),
    st.sampled_from([b'{"feature_negotiation":true,"snappy":true}', b"{}", b"null", b"[]", b"{"]),
    st.just(b'{"feature_negotiation":true,"nsqfast_deferred_ids":true}'),
    st.just(b'{"feature_negotiation":true,"reject":true}'),
    st.just(b'{"feature_negotiation":true,"deflate":true,"deflate_level":9}'),
)

COMMANDS = st.one_of(
    line(b"PUB ", NAMES, b"\n", BODIES),
    line(b"PUB t\n", BODIES),
    line(b"DPUB ", NAMES, b" ", NUMBERS, b"\n", BODIES),
    line(b"DPUB ", NAMES, b" ", NUMBERS, b" id\n", BODIES),
    line(b"CANCEL_DEFERRED ", NAMES, b" ", IDS, b"\n"),
    line(b"RUN_DEFERRED ", NAMES, b" ", IDS, b"\n"),
    line(b"MPUB t\n", MANY),
    st.integers(35, 37).map(session.full),
    line(b"SUB ", NAMES, b" ", NAMES, b"\n"),
    st.just(b"SUB t c\nRDY 3\n"),
    line(b"AUTH\n", BODIES),
    line(b"RDY ", NUMBERS, b"\n"),
    line(b"FIN ", IDS, b"\n"),
    line(b"REQ ", IDS, b" ", NUMBERS, b"\n"),
    line(b"TOUCH ", IDS, b"\r\n"),
    line(b"REJ ", IDS, b" why\n"),
    line(b"DEATHS\n", st.lists(IDS, max_size=3).map(lambda ids: body(b"".join(ids)))),
    line(b"IDENTIFY\n", IDENTITIES.map(body)),
    st.sampled_from([b"NOP\n", b"CLS\n", b"RDY\n", b"ASDF\n", session.SEPARATOR, b"AUTH\n"]),
)
STREAMS = line(
    PATTERNS,
    PATTERNS,
    st.sampled_from([b"  V2"] * 9 + [b"  V1"]),
    damaged(st.lists(COMMANDS, max_size=12).map(b"".join)),
)
