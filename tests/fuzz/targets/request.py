"""The plain-HTTP shortcut's reader against its grammar, written down as a regular expression."""

import re

from nsqfast._ext.dev.structures import parse_http_request

OTHER, PART = -1, 0
HEAD_SIZE_MAX = 8192
HEAD = re.compile(
    rb"POST /(?:pub\?topic=(?P<pub>[.#\w-]*)(?:&defer=(?P<defer>\d{1,18}))?"
    rb"|mpub\?topic=(?P<mpub>[.#\w-]*)(?:&binary=(?P<binary>true|false|1|0))?)"
    rb" HTTP/1\.1\r\n(?P<lines>(?:[\w-]+: *[\x21-\x7e][\x20-\x7e]*\r\n)*)\r\n"
)
LINE = re.compile(rb"([\w-]+): *([\x21-\x7e][\x20-\x7e]*)\r\n")
CHANGES_MORE = {b"expect", b"upgrade", b"proxy-connection", b"transfer-encoding"}

WORDS = [
    *(b"POST /pub?topic=", b"POST /mpub?topic=", b"&defer=", b"&binary=", b"true", b"false"),
    *(b" HTTP/1.1\r\n", b"Host: x\r\n", b"Content-Length: 5\r\n", b"Connection: keep-alive\r\n"),
    *(b"Transfer-Encoding: chunked\r\n", b"Expect: 100-continue\r\n", b"Upgrade: h2c\r\n"),
    *(b"\r\n\r\n", b"Proxy-Connection: "),
]


def seeds():
    head = b"POST /pub?topic=t HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n"
    return [
        head + b"\r\nhello",
        head + b"User-Agent: curl/8\r\nConnection: keep-alive\r\n\r\nhel",
        head.replace(b"=t", b"=t&defer=1000") + b"\r\nhello",
        head.replace(b"/pub", b"/mpub").replace(b"=t", b"=t&binary=true") + b"\r\nhello",
        head + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    ]


def reference(data):
    head = HEAD.match(data[:HEAD_SIZE_MAX])
    if head is None:
        return OTHER
    hosts, size = 0, 0
    for name, value in LINE.findall(head["lines"]):
        lower = name.lower()
        if lower == b"host":
            hosts += 1
        elif lower == b"content-length":
            if size or not re.fullmatch(rb"\d{1,18}", value) or int(value) == 0:
                return OTHER
            size = int(value)
        elif lower in CHANGES_MORE or (lower == b"connection" and value.lower() != b"keep-alive"):
            return OTHER
    if hosts != 1 or not size:
        return OTHER
    end = head.end() + size
    if len(data) < end:
        return PART
    is_many = head["mpub"] is not None
    topic = head["mpub"] if is_many else head["pub"]
    is_binary = head["binary"] in (b"true", b"1")
    return is_many, is_binary, topic, int(head["defer"] or 0), data[head.end() : end], end


def check(data):
    assert parse_http_request(data) == reference(data), (parse_http_request(data), reference(data))
