"""Requests of a publisher and of nobody: with and without the shortcut, and however they are cut."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuzz.strategies import FEW, PATTERNS, QUICK, damaged, line
from fuzz.targets import http, query, request

pytestmark = pytest.mark.slow

QUERIES = st.sampled_from(
    [
        *(
            b"topic=t",
            b"topic=t&defer=5",
            b"topic=t&defer=x",
            b"topic=u",
            b"topic=%74",
            b"topic=bad!",
        ),
        *(b"topic=t&binary=true", b"topic=t&binary=0", b"topic=t#ephemeral", b"", b"x=1&topic=t;"),
    ]
)
PATHS = st.sampled_from([b"/pub", b"/pub", b"/mpub", b"/topic/create", b"/channel/pause", b"/PUB"])
HEADERS = st.sampled_from(
    [
        *(b"User-Agent: x\r\n", b"Connection: keep-alive\r\n", b"Connection: close\r\n", b"X:\r\n"),
        *(
            b"Expect: 100-continue\r\n",
            b"Transfer-Encoding: chunked\r\n",
            b"Host: y\r\n",
            b"X: y\r\n z\r\n",
        ),
        *(b"Upgrade: h2c\r\n", b"Content-Length: 3\r\n"),
    ]
)
BODIES = st.one_of(
    st.binary(max_size=120),
    st.just(b"one\ntwo\n\nthree"),
    st.just(b"\0\0\0\2\0\0\0\1a\0\0\0\3bcd"),
)
REQUESTS = st.builds(
    lambda path, words, headers, body: (
        b"POST %b?%b HTTP/1.1\r\nHost: x\r\n%bContent-Length: %d\r\n\r\n%b"
        % (path, words, b"".join(headers), len(body), body)
    ),
    PATHS,
    QUERIES,
    st.lists(HEADERS, max_size=2),
    BODIES,
)
OTHERS = st.sampled_from(
    [
        b"GET /ping HTTP/1.1\r\nHost: x\r\n\r\n",
        b"HEAD /ping HTTP/1.0\r\n\r\n",
        b"POST /pub?topic=t HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n",
        b"\r\n",
    ]
)


@FEW
@given(line(PATTERNS, damaged(st.lists(REQUESTS | OTHERS, max_size=4).map(b"".join))))
def test_connections(data):
    http.check(data)


@QUICK
@given(damaged(REQUESTS))
def test_plain_requests(data):
    request.check(data)


@QUICK
@given(damaged(line(PATHS, b"?", QUERIES, b"&", QUERIES)))
def test_targets(data):
    query.check(data)
