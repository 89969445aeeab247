"""nsqd's HTTP side without sockets: a broker with or without the shortcut, and connections driven by hand."""

import asyncio
import logging
import re
from types import SimpleNamespace

from nsqfast._ext.broker.registry import Registry

from nsqfast.net.browsers import BrowserRules
from nsqfast.net.http_server import HttpProtocol
from nsqfast.net.slices import Turns
from nsqfast.nsqd.http_api import HttpApi
from nsqfast.nsqd.options import Options
from support.core import Peer

MESSAGE_SIZE_MAX = 100
BODY_SIZE_MAX = 200
DATE = re.compile(rb"Date: \w+, \d\d \w+ \d+ \d\d:\d\d:\d\d GMT\r\n")


def post(target, body, extra="", host="Host: x\r\n"):
    """One request that has a body."""
    head = f"POST {target} HTTP/1.1\r\n{host}{extra}Content-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


async def persist_nothing(_topic=None):
    """There is no folder."""


class Wire:
    """A transport that keeps what is written; as full as it is told."""

    def __init__(self, host="127.0.0.1"):
        self.host = host
        self.protocol = None
        self.written = b""
        self.ended = []
        self.is_reading = True
        self.room = None  # writes after which it asks to be spared

    def get_extra_info(self, name):
        assert name == "peername"
        return (self.host, 4242)

    def write(self, data):
        self.written += data
        if self.room is not None:
            self.room -= 1
            if self.room == 0:
                self.protocol.pause_writing()

    def is_closing(self):
        return "close" in self.ended

    def can_write_eof(self):
        return True

    def write_eof(self):
        self.ended.append("eof")

    def close(self):
        self.ended.append("close")

    def pause_reading(self):
        assert self.is_reading
        self.is_reading = False

    def resume_reading(self):
        assert not self.is_reading
        self.is_reading = True


class NoDrain:
    """Is asked for and does nothing: its end would be that of the test's process."""

    is_on = False

    def begin(self, after_ns):
        pass

    def cancel(self):
        pass

    async def count_left(self):
        return 0


class HttpBroker:
    """nsqd's HTTP side alone; `asked` are the requests that reached a handler."""

    def __init__(self, folder, has_shortcut, **changed):
        folder.mkdir(exist_ok=True)
        sizes = {"max_msg_size": MESSAGE_SIZE_MAX, "max_body_size": BODY_SIZE_MAX}
        options = Options(data_path=str(folder), **sizes | changed)
        self.registry = Registry(options)
        server = SimpleNamespace(options=options, registry=self.registry, start_time=0.0)
        server.tcp_address = server.http_address = server.https_address = None
        server.lookup = SimpleNamespace(
            configure=lambda: None, forget_channel=lambda _topic, _channel: None
        )
        server.drain = NoDrain()
        server.run_file = SimpleNamespace(is_lossy=False)
        server.persist_metadata = persist_nothing
        server.health = self.registry.durability.health
        rules = BrowserRules("", (), logging.getLogger("nsqd"))
        self.api = HttpApi(server, rules, is_plain=True, serves_admin=True)
        self.shortcut = self.api.shortcut if has_shortcut else None
        self.asked = []
        self.turns = Turns(self.registry.memory)

    def limit(self, method, path):
        return self.api.limit(method, path)

    def __call__(self, request):
        self.asked.append(request.target)
        return self.api(request)

    def connect(self, *host):
        protocol, wire = HttpProtocol(self, turns=self.turns, shortcut=self.shortcut), Wire(*host)
        wire.protocol = protocol
        protocol.connection_made(wire)
        return protocol, wire

    async def hear(self, pieces):
        """What one connection answers, how it ends, and whether the peer's end is the end."""
        protocol, wire = self.connect()
        for piece in pieces:
            if wire.ended:
                break
            protocol.data_received(piece)
            await asyncio.sleep(0)
            while self.turns._waiting:  # on a busy machine the rest has to wait for a later turn
                await asyncio.sleep(0)
        goes_on = protocol.eof_received()
        protocol.connection_lost(None)
        return DATE.sub(b"Date\r\n", wire.written), wire.ended, goes_on

    def topics(self):
        """What was published, by topic."""
        found = {}
        for topic in self.registry.topics.sorted():
            depth, channel = topic.depth, topic.channel("read")
            peer = Peer(self.registry)
            peer.subscribe(topic.name.encode(), b"read", 2500)
            bodies = []
            while messages := [data for kind, data in peer.receive() if kind == 2]:
                bodies += [data[26:] for data in messages]
                peer.send(b"".join(b"FIN %s\n" % data[10:26] for data in messages))
            counts = (topic.message_count, topic.message_bytes, depth, channel.deferred_count)
            found[topic.name] = (counts, bodies)
            peer.close()
        return found
