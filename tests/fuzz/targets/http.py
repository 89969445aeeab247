"""HTTP connections to two brokers, one without the shortcut: the same answers, the same topics, however it is cut."""

import asyncio
import atexit
import functools
import re

from nsqfast._ext.dev.probes import let_pass

from fuzz.common import empty_folder, guarded, pieces, scratch, settled_bytes
from support.http import HttpBroker, post

WORDS = [
    *(b"POST /pub?topic=t HTTP/1.1\r\n", b"POST /mpub?topic=t&binary=true HTTP/1.1\r\n", b"\r\n"),
    *(b"Host: x\r\n", b"Content-Length: 5\r\n", b"Transfer-Encoding: chunked\r\n", b"\r\n\r\n"),
    *(
        b"Connection: close\r\n",
        b"Expect: 100-continue\r\n",
        b"GET /stats?format=json HTTP/1.1\r\n",
    ),
    *(
        b"POST /topic/create?topic=u HTTP/1.1\r\n",
        b"POST /channel/create?topic=t&channel=c HTTP/1.1\r\n",
    ),
    *(
        b"POST /topic/pause?topic=t HTTP/1.1\r\n",
        b"HEAD ",
        b"OPTIONS * HTTP/1.1\r\n",
        b"HTTP/1.0\r\n",
    ),
    *(b"0\r\n\r\n", b"5\r\nhello\r\n", b"&defer=", b"#ephemeral", b"Upgrade: h2c\r\n"),
]


def seeds():
    plain = post("/pub?topic=t", b"hello")
    chunked = post("/pub?topic=t", b"").replace(b"Content-Length: 0", b"Transfer-Encoding: chunked")
    return [
        b"\x00" + plain * 3,
        b"\x05" + plain + post("/mpub?topic=t", b"one\ntwo") + plain,
        b"\x03" + post("/mpub?topic=t&binary=1", b"\0\0\0\1\0\0\0\1a"),
        b"\x02" + chunked + b"5\r\nhello\r\n0\r\n\r\n" + plain,
        b"\x01" + post("/topic/create?topic=u", b"") + post("/pub?topic=u", b"x"),
        b"\x04" + b"GET /stats?format=json HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x02" + plain.replace(b"1.1", b"1.0"),
    ]


class Pair:
    """Two brokers that last for the process; what a check leaves behind is deleted."""

    def __init__(self):
        self.loop = asyncio.new_event_loop()
        self.loop.set_exception_handler(self.note)
        self.errors = []
        self.brokers = [HttpBroker(empty_folder(f"http-{has}"), has) for has in (True, False)]
        for broker in self.brokers:  # its timers have room for the first ones from now on
            broker.registry.topics.delete(broker.registry.topics.ensure("t").name)

    def note(self, _, context):
        self.errors.append(context)

    def hear(self, broker, parts):
        used_before = settled_bytes()
        broker.registry.topics.ensure("t")
        answers = self.loop.run_until_complete(broker.hear(parts))
        topics = broker.topics()
        for topic in broker.registry.topics.sorted():
            broker.registry.topics.delete(topic.name)
        # What was deferred goes in later parts.
        while 0 < broker.registry.timers.run(now_ns := let_pass(0)) <= now_ns:
            pass
        assert not self.errors, self.errors
        assert settled_bytes() - used_before == 0
        return answers, topics

    def close(self):
        for broker in self.brokers:
            broker.registry.topics.close()
        self.loop.close()


@functools.cache
def pair():
    scratch()
    made = Pair()
    atexit.register(made.close)
    return made


# What these tell changes by itself.
RESTLESS = re.compile(rb"/(stats|metrics|debug|info|config)|//|\.\.", re.IGNORECASE)


@guarded
def check(data):
    pattern, data = (data[0], data[1:]) if data else (0, b"")
    if RESTLESS.search(data) or b"%" in data.partition(b"?")[0]:
        pair().hear(pair().brokers[pattern & 1], pieces(data, pattern))
        return
    one, other = pair().brokers
    whole = pair().hear(one, pieces(data, 0))
    split = pair().hear(one, pieces(data, pattern))
    assert split == whole, (split, whole)
    assert pair().hear(other, pieces(data, pattern)) == split
