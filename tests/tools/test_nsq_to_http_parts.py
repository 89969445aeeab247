"""What nsq_to_http makes of URLs, headers, Retry-After and batches; which destination is next."""

import asyncio
import email.utils
import json
import re
import time
from types import SimpleNamespace

import pytest

from nsqfast.net.http_client import Answer
from nsqfast.net.http_target import parse_target
from nsqfast.program.options import PlainError
from nsqfast.tools.nsq_to_http import batch, delivery
from nsqfast.tools.nsq_to_http.delivery import (
    Delivery,
    StoppedError,
    UndeliveredError,
    choose_pool,
)
from nsqfast.tools.nsq_to_http.destination import FailedError, parse_retry_after
from nsqfast.tools.nsq_to_http.options import parse
from nsqfast.tools.nsq_to_http.requests import Request, redirect
from nsqfast.tools.nsq_to_http.target import (
    Head,
    escape_query,
    parse_header,
    parse_template,
)
from nsqfast.tools.shared.timings import Timings

# -- URLs and heads


@pytest.mark.parametrize(
    ("url", "origin", "host", "path"),
    [
        ("http://h", (False, "h", 80), "h", "/"),
        ("https://H:1?x=1#f", (True, "h", 1), "H:1", "/?x=1"),
        ("http://h/a%20b c/é?x=y z&é", (False, "h", 80), "h", "/a%20b%20c/%C3%A9?x=y%20z&%C3%A9"),
        ("http://[::1]:8/x", (False, "::1", 8), "[::1]:8", "/x"),
        ("http://bücher.example/", (False, "bücher.example", 80), "xn--bcher-kva.example", "/"),
        ("http://me:pa%20ss@h/", (False, "h", 80), "h", "/"),
    ],
)
def test_urls(url, origin, host, path):
    target = parse_target(url)
    assert (target.origin, target.host, target.path) == (origin, host, path)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "h",
        "127.0.0.1:8080/x",
        "localhost:80",
        "ftp://h/",
        "http://",
        "http:///x",
        "http://h:0/",
        "http://h:x/",
        "http://h:70000/",
        "http://h/\n",
        "http://h/\r\nX: y",
        "http://a b/",
    ],
)
def test_urls_that_lead_nowhere(url):
    with pytest.raises(ValueError):
        parse_target(url)


@pytest.mark.parametrize(
    ("url", "before", "behind"),
    [
        ("http://h/?%s", "/?", ""),
        ("http://h/a/%s/b?c", "/a/", "/b?c"),
        ("http://h/a%20b?q=%s&x=%41", "/a%20b?q=", "&x=%41"),
        ("http://h/a%%20b?q=%%25%s", "/a%20b?q=%25", ""),
    ],
)
def test_templates(url, before, behind):
    assert parse_template(url)[1:] == (before, behind)


@pytest.mark.parametrize(
    "url", ["http://h/", "http://h/%s%s", "http://h/%%s", "http://%s/", "http://h/#%s", "%s"]
)
def test_templates_without_a_place(url):
    with pytest.raises(ValueError):
        parse_template(url)


def test_escapes():
    assert escape_query(b"a b+c/\xff\0~-_.") == b"a+b%2Bc%2F%FF%00~-_."


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("x-foo:bar", ("X-Foo", "bar")),
        (" content-TYPE : a/b; c=d:e ", ("Content-Type", "a/b; c=d:e")),
    ],
)
def test_headers(text, found):
    assert parse_header(text) == found


@pytest.mark.parametrize("text", ["", "x", "x:", ": y", "a b: c", "x: a\nb", "x: a\x00", "é: x"])
def test_headers_that_are_none(text):
    with pytest.raises(ValueError):
        parse_header(text)


def test_the_order_is_that_of_go():
    given = {"User-Agent": "me", "X-B": "1", "A": "2", "Host": "other", "Content-Length": "9"}
    head = Head("POST", parse_target("http://u:p@h:1/x?y"), given)
    assert head.with_body(b"ab") == (
        b"POST /x?y HTTP/1.1\r\nHost: h:1\r\nUser-Agent: me\r\nContent-Length: 2\r\n"
        b"A: 2\r\nAuthorization: Basic dTpw\r\nX-B: 1\r\nAccept-Encoding: gzip\r\n\r\nab"
    )
    head = Head("GET", parse_target("http://h/"), {"User-Agent": "me", "Accept-Encoding": "br"})
    assert head.with_path(b"/z") == (
        b"GET /z HTTP/1.1\r\nHost: h\r\nUser-Agent: me\r\nAccept-Encoding: br\r\n\r\n"
    )


# -- redirects


SENT = {"User-Agent": "me", "Content-Type": "a/b", "Cookie": "c", "X": "y"}


@pytest.mark.parametrize(
    ("status", "location", "url", "names", "body"),
    [
        (301, "/z", "http://h/z", "User-Agent Cookie X Referer", None),
        (303, "?z", "http://h/x?z", "User-Agent Cookie X Referer", None),
        (307, "//h:8/z", "http://h:8/z", "User-Agent Content-Type Cookie X Referer", b"body"),
        (
            308,
            "http://sub.h/",
            "http://sub.h/",
            "User-Agent Content-Type Cookie X Referer",
            b"body",
        ),
        (308, "https://other/z", "https://other/z", "User-Agent Content-Type X Referer", b"body"),
    ],
)
def test_where_redirects_lead(status, location, url, names, body):
    first = parse_target("http://h/x?y")
    request = Request(first, SENT, b"body")
    after = redirect(first, request, Answer(status, headers={b"location": location.encode()}))
    assert (after.target.url, set(after.headers), after.body) == (url, set(names.split()), body)
    assert after.headers["Referer"] == "http://h/x?y"


def test_a_plain_server_does_not_learn_where_a_secret_one_sent_us_from():
    first = parse_target("https://h/secret")
    after = redirect(
        first, Request(first, SENT, None), Answer(302, headers={b"location": b"http://h/z"})
    )
    assert "Referer" not in after.headers


# -- Retry-After


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (b"7", 7),
        (b" 007 ", 7),
        (b"0", 1),
        (b"9" * 5000, 300),
        (b"-5", None),
        (b"soon", None),
        (b"\xff", None),
        (b"1.5", None),
        (b"Wed, 21 Oct 2015 07:28:00 GMT", 1),
        (b"Fri, 31 Dec 9999 23:59:59 GMT", 300),
    ],
)
def test_retry_after(value, seconds):
    assert parse_retry_after(value) == seconds


def test_retry_after_a_date():
    value = email.utils.formatdate(time.time() + 60, usegmt=True).encode()
    assert 57 < parse_retry_after(value) <= 60


# -- batches


def messages(*bodies):
    return [SimpleNamespace(body=body) for body in bodies]


def cut(layout, *bodies):
    return [
        ([message.body for message in piece.messages], piece.body, piece.size)
        for piece in batch.pieces(messages(*bodies), layout)
    ]


def test_json_lines():
    bodies = [b'{"a": 1}', b"[\n1,\n2]\n", b"two\nlines", b'"\\n"', b"plain", b"\n"]
    assert cut("json-lines", *bodies) == [
        (
            [bodies[0], bodies[1], bodies[3], bodies[4]],
            b'{"a": 1}\n[ 1, 2] \n"\\n"\nplain\n',
            4,
        ),
        ([b"two\nlines"], b"two\nlines", 0),
        ([b"\n"], b"\n", 0),
    ]
    assert cut("json-lines", b"a", b"\0\r") == [([b"a", b"\0\r"], b"a\n\0\r\n", 2)]
    assert cut("json-lines", b"a\n") == [([b"a\n"], b"a\n", 0)]
    assert cut("json-lines") == []


def test_a_line_of_json_means_the_same():
    text = json.dumps({"a": ["\n", {"b": None}], "c": "é\u2028"}, indent=2, ensure_ascii=False)
    line = batch.as_line(text.encode())
    assert b"\n" not in line
    assert json.loads(line) == json.loads(text)


def test_length_prefixed_is_exact():
    bodies = [b"\n", b"", bytes(range(256)), b"x" * 70_000]
    [(_, body, size)] = cut("length-prefixed", *bodies)
    assert size == 4
    found = []
    while body:
        end = 4 + int.from_bytes(body[:4], "big")
        found.append(body[4:end])
        body = body[end:]
    assert found == bodies


@pytest.mark.parametrize("layout", batch.FORMATS)
def test_a_batch_that_is_too_large_is_several(layout, monkeypatch):
    monkeypatch.setattr(batch, "SIZE_MAX", 10)
    bodies = [b"1" * 4, b"2" * 6, b"3", b"4" * 50, b"5", b"6"]
    found = cut(layout, *bodies)
    assert [piece[0] for piece in found] == [bodies[:2], bodies[2:3], bodies[3:4], bodies[4:]]


# -- which destination is next


class Place:
    """A destination that does what it is told: True = take it, False = fail, a number = not before so long."""

    def __init__(self, *outcomes):
        self.outcomes = list(outcomes)
        self.bodies = []
        self.timings = Timings("", 0)
        self.paused_until_s = 0.0

    async def send(self, body, _count):
        self.bodies.append(body)
        outcome = self.outcomes.pop(0) if self.outcomes else True
        if outcome is not True:
            if outcome is not False:
                self.paused_until_s = time.monotonic() + outcome
            raise FailedError(f"failure {len(self.bodies)}")


def deliver(mode, places, count=1, stop_after_s=None):
    """Bodies 0, 1, ... one after the other; what became of each."""

    async def work():
        stopping = asyncio.Event()
        if stop_after_s is not None:
            asyncio.get_running_loop().call_later(stop_after_s, stopping.set)
        chosen = choose_pool(mode, len(places))
        every = Delivery(places, chosen, Timings("", 0), stopping)
        found = []
        for number in range(count):
            try:
                async with asyncio.timeout(50):
                    await every.deliver(b"%d" % number, 0)
            except (UndeliveredError, StoppedError) as error:
                found.append(error)
            else:
                found.append(None)
        return found

    return asyncio.run(work())


def test_round_robin_begins_with_the_second():
    places = [Place(), Place(), Place()]
    assert deliver("round-robin", places, 4) == [None] * 4
    assert [place.bodies for place in places] == [[b"2"], [b"0", b"3"], [b"1"]]


@pytest.mark.parametrize("mode", ["round-robin", "hostpool", "epsilon-greedy"])
def test_what_fails_at_one_goes_to_another_at_once(mode):
    places = [Place(*[False] * 9), Place(*[False] * 9), Place()]
    assert deliver(mode, places, 5) == [None] * 5
    assert len(places[2].bodies) == 5


@pytest.mark.parametrize("mode", ["round-robin", "hostpool", "epsilon-greedy"])
def test_each_is_tried_once(mode):
    places = [Place(*[False] * 9), Place(*[False] * 9)]
    [error] = deliver(mode, places)
    assert isinstance(error, UndeliveredError)
    assert error.wait_s == 0
    assert [len(place.bodies) for place in places] == [1, 1]


def test_a_host_that_failed_is_left_alone():
    places = [Place(False), Place()]
    assert deliver("hostpool", places, 6) == [None] * 6
    assert [len(place.bodies) for place in places] == [1, 6]


@pytest.mark.parametrize("mode", ["all", "multicast", ""])
def test_all_in_order_until_one_fails(mode):
    places = [Place(), Place(False), Place()]
    first, second = deliver(mode, places, 2)
    assert str(first) == "failure 1"
    assert second is None
    assert [place.bodies for place in places] == [[b"0", b"1"], [b"0", b"1"], [b"1"]]


@pytest.mark.parametrize("mode", ["round-robin", "hostpool", "all"])
def test_a_pause_is_waited_for(mode):
    places = [Place(0.1, 0.1)]
    began_s = time.monotonic()
    assert deliver(mode, places, 2) == [None, None]
    assert time.monotonic() - began_s >= 0.2
    assert places[0].bodies == [b"0", b"0", b"0", b"1"]


def test_while_one_pauses_the_other_works():
    places = [Place(60), Place()]
    assert deliver("hostpool", places, 4) == [None] * 4
    assert [len(place.bodies) for place in places] == [1, 4]


@pytest.mark.parametrize("mode", ["hostpool", "all"])
def test_a_pause_that_is_too_long_is_a_failure(mode):
    places = [Place(60)]
    [error] = deliver(mode, places)
    assert str(error) == "failure 1"
    assert 59 < error.wait_s <= 60


@pytest.mark.parametrize("mode", ["hostpool", "all"])
def test_pauses_without_end_are_a_failure(mode, monkeypatch):
    monkeypatch.setattr(delivery, "HOLD_MAX_S", 0.1)
    places = [Place(*[0.03] * 99)]
    [error] = deliver(mode, places)
    assert isinstance(error, UndeliveredError)
    assert 2 <= len(places[0].bodies) <= 5


@pytest.mark.parametrize("mode", ["hostpool", "all"])
def test_a_stop_ends_a_pause(mode):
    first, second = deliver(mode, [Place(20)], 2, stop_after_s=0.05)
    assert isinstance(first, StoppedError)
    assert isinstance(second, StoppedError)


# -- options

PLACE = ("--topic=t", "--nsqd-tcp-address=127.0.0.1:1")


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ((), "--get or --post required"),
        (("--post=127.0.0.1:8/x",), "--post: 127.0.0.1:8/x: it is a URL that begins with http"),
        (("--get=http://h/",), "--get: http://h/: it has %s once"),
        (("--post=http://h", "--header=x"), "--header: x: it is 'Name: value'"),
        (("--post=http://h", "--content-type=a\nb"), "--content-type"),
        (("--post=http://h", "--sample=nan"), "--sample must be between"),
        (("--post=http://h", "--n=0"), "--n is 0"),
        (("--post=http://h", "--http-client-request-timeout=-1s"), "timeout is negative"),
        (("--post=http://h", "--batch=0"), "--batch is 0"),
        (("--get=http://h/%s", "--batch=2"), "--batch only used with --post"),
        (("--post=http://h", "--batch=201"), "--max-in-flight=200"),
    ],
)
def test_what_cannot_be_honoured_is_named(words, text):
    with pytest.raises(PlainError, match=re.escape(text)):
        parse([*PLACE, *words])


def test_headers_of_the_command_line():
    options = parse(
        [*PLACE, "--post=http://h", "--header=user-agent: me", "--header=X: 1", "--header=x:2"]
    )
    found = {"User-Agent": "me", "Content-Type": "application/octet-stream", "X": "2"}
    assert options.headers() == found
    assert parse([*PLACE, "--get=http://h/%s"]).headers() == {"User-Agent": "nsq_to_http v1.3.0"}
