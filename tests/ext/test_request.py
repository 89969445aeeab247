"""Publishes read without the full parser: what is known, and how much is not."""

import pytest
from nsqfast._ext.dev.structures import parse_http_request

OTHER, PART = -1, 0


def post(target="/pub?topic=t", *lines, size=3):
    head = "\r\n".join([f"POST {target} HTTP/1.1", "Host: h", *lines, f"Content-Length: {size}"])
    return head.encode() + b"\r\n\r\n"


KNOWN = {
    post(): (False, False, b"t", 0),
    post("/pub?topic=a.B-9_#ephemeral"): (False, False, b"a.B-9_#ephemeral", 0),
    post("/pub?topic=t&defer=0"): (False, False, b"t", 0),
    post("/pub?topic=t&defer=123456789012345678"): (False, False, b"t", 123456789012345678),
    post("/mpub?topic=t"): (True, False, b"t", 0),
    post("/mpub?topic=t&binary=true"): (True, True, b"t", 0),
    post("/mpub?topic=t&binary=1"): (True, True, b"t", 0),
    post("/mpub?topic=t&binary=false"): (True, False, b"t", 0),
    post("/mpub?topic=t&binary=0"): (True, False, b"t", 0),
    post("/pub?topic=t", "Accept: */*", "X-1_a:~!", "CONNECTION:  keep-ALIVE"): (
        *(False, False, b"t", 0),
    ),
    post("/pub?topic=t", "X: " + "x" * 8000): (False, False, b"t", 0),
}
FOREIGN = [
    post().replace(b"POST", b"PUT "),
    post().replace(b"1.1", b"1.0"),
    post().replace(b"\r\n", b"\n"),
    post().replace(b"Host: h\r\n", b""),
    post().replace(b"Content-Length: 3\r\n", b""),
    post(size=0),
    post(size=-1),
    post(size="3 "),
    post(size="3,3"),
    post(size="1234567890123456789"),
    b"\r\n" + post(),
    *(
        post("/pub?topic=t", line)
        for line in (
            *("Host: i", "Content-Length: 3", "content-length: 4", "Transfer-Encoding: identity"),
            *("transfer-encoding: chunked", "Expect: 100-continue", "Upgrade: h2c"),
            *("Connection: close", "Connection: keep-alive, close", "Connection: keep-alive "),
            *("Proxy-Connection: keep-alive", "X:", "X: ", " X: y", "X : y", "X", ": y", "X: y\rz"),
            *("X: \t", "X: \0", "X: \x7f", "X: é", "X: y\n z", "(): y", "X: " + "x" * 8192),
        )
    ),
    *(
        post(target)
        for target in (
            *("/pub", "/pub?", "/pub?topic", "/pub?topic=%74", "/pub?topic=a+b", "/pub?topic=t;"),
            *("/pub?topic=t&", "/pub?topic=t&x=1", "/pub?topic=t&defer=", "/pub?topic=t&defer=-1"),
            *("/pub?topic=t&defer=1&defer=2", "/pub?topic=t&defer=1234567890123456789"),
            *("/pub?topic=t&binary=1", "/mpub?topic=t&defer=1", "/mpub?topic=t&binary=yes"),
            *("/mpub?topic=t&binary=truer", "/pub/?topic=t", "//pub?topic=t", "/PUB?topic=t"),
            *("http://h/pub?topic=t", "/pub?defer=1&topic=t", "/ppub?topic=t"),
        )
    ),
]


@pytest.mark.parametrize("head", KNOWN, ids=lambda head: repr(head[:50]))
def test_known(head):
    """Whole, with bytes behind it, and cut at every byte: then it waits for its body, or is left to others."""
    whole = head + b"abc"
    assert parse_http_request(whole) == (*KNOWN[head], b"abc", len(whole))
    assert parse_http_request(whole + head) == (*KNOWN[head], b"abc", len(whole))
    assert [parse_http_request(whole[:size]) for size in range(len(whole))] == [OTHER] * len(
        head
    ) + [PART] * 3


@pytest.mark.parametrize("head", FOREIGN, ids=lambda head: repr(head[:70]))
def test_foreign(head):
    stream = head + b"abc" * 10
    assert {parse_http_request(stream[:size]) for size in range(len(stream) + 1)} == {OTHER}


def test_an_empty_name_is_for_the_broker_to_judge():
    assert parse_http_request(post("/pub?topic=") + b"abc")[2] == b""
