"""A stream of protocol V2 into a session: any cut, any nonsense.

The input is a byte that says how to cut, one of what to set, and turns with SEPARATOR between them. In a turn `@` and a
byte stand for the id of a message that was delivered; a stream without them has to be answered as the model says.
"""

import json
import re
import select

from nsqfast._ext.core.clock import now
from nsqfast._ext.dev.probes import live_deliveries
from nsqfast._ext.protocol.v2 import FrameDecoder

from fuzz.common import body, empty_folder, guarded, pieces, settled_bytes
from models.session import TOLD, SessionModel
from nsqfast.streams.deflate import Deflate
from nsqfast.streams.snappy import Snappy
from support.core import SECOND_NS, Peer, make_registry

SEPARATOR = b"\xfe\xfd"
ID = re.compile(rb"@@(.)", re.DOTALL)
# The id of a deferred message, or how many copies of one were still deferred.
ANSWERED = re.compile(rb"OK (?:([0-9a-f]{16})|([0-9]+))")
MESSAGE_SIZE_MAX, BODY_SIZE_MAX = 60, 300
GOES_ON = (b"E_FIN_FAILED ", b"E_REQ_FAILED ", b"E_REJ_FAILED ", b"E_TOUCH_FAILED ")
ADAPTERS = {"deflate": lambda: Deflate(6), "snappy": Snappy}
INPUT_SIZE = 65536
AUTH = b"  V2AUTH\n" + body(b"secret")
WORDS = [
    *(
        b"  V2",
        b"SUB t c\n",
        b"RDY 2\n",
        b"FIN @@\x00\n",
        b"REQ @@\x00 0\n",
        b"TOUCH @@\x00\n",
        b"DEATHS\n\x00\x00\x00\x10@@\x00",
        b"NOP\n",
    ),
    *(
        b"PUB t\n\x00\x00\x00\x01x",
        b"DPUB t 10\n\x00\x00\x00\x01x",
        b"DPUB t 10 id\n\x00\x00\x00\x01x",
        b"CANCEL_DEFERRED t @@\x00\n",
        b"RUN_DEFERRED t @@\x00\n",
        b"CLS\n",
        b"AUTH\n\x00\x00\x00\x01x",
    ),
    *(
        b"MPUB t\n\x00\x00\x00\x0d\x00\x00\x00\x01\x00\x00\x00\x01x",
        b"IDENTIFY\n",
        b"#ephemeral",
        SEPARATOR,
    ),
    *(
        b'{"feature_negotiation":true,"snappy":true}',
        b'{"feature_negotiation":true,"reject":true}',
        b'{"heartbeat_interval":-1}',
        b"0123456789abcdef",
    ),
]


def full(size):
    """With a last message of 36 bytes the body is as large as one may be."""
    messages = body(b"m" * 60) * 4 + body(b"m" * size)
    return b"MPUB t\n" + body(b"\0\0\0\5" + messages)


def seeds():
    publish = (
        b"  V2PUB t\n" + body(b"x") + b"MPUB t\n" + body(b"\0\0\0\2" + body(b"a") + body(b"bc"))
    )
    ask = b"  V2IDENTIFY\n" + body(b'{"feature_negotiation":true,"%b":true}')
    turns = [
        publish,
        publish + b"SUB t c\nRDY 2\n" + SEPARATOR + b"FIN @@\0\nREQ @@\1 0\nTOUCH @@\2\n",
        b"  V2SUB t#ephemeral c#ephemeral\nRDY 1\nPUB t#ephemeral\n"
        + body(b"z")
        + b"CLS\nFIN @@\0\n",
        ask % b"snappy" + SEPARATOR + b"PUB t\n" + body(b"packed"),
        ask % b"deflate" + SEPARATOR + b"SUB t c\nASDF\n",
        b"  V2DPUB t 1000\n"
        + body(b"later")
        + b"SUB t c\r\nRDY 18446744073709551617\nCLS\nRDY 9\n",
        ask % b"nsqfast_deferred_ids"
        + SEPARATOR
        + b"DPUB t 9 id\n"
        + body(b"x")
        + b"DPUB t 0 id\n"
        + body(b"y")
        + b"CANCEL_DEFERRED t 0123456789abcdef\nRUN_DEFERRED t\n",
        ask % b"nsqfast_deferred_ids"
        + SEPARATOR
        + b"DPUB t 9000 id\n"
        + body(b"x")
        + SEPARATOR
        + b"RUN_DEFERRED t @@\0\nCANCEL_DEFERRED t @@\0\n",
        ask % b"reject"
        + SEPARATOR
        + b"SUB t c\nREJ 0123456789abcdef why not\nDEATHS\n"
        + body(b"0123456789abcdef" * 2)
        + b"DEATHS\n"
        + body(b"0123456789abcdeg"),
        b"  V2AUTH\n" + body(b"secret"),
        b"  V2FIN 0123456789abcdef\n",
        b"  V2" + full(36) + full(37),
        AUTH + b"PUB t\n" + body(b"x") + SEPARATOR + b"SUB t c\nRDY 1\n",
        AUTH + b"PUB u\n" + body(b"x"),
        ask % b"deflate" + SEPARATOR + AUTH[4:] + b"PUB t\n" + body(b"x") + SEPARATOR + b"NOP\n",
    ]
    return [bytes([i, i & 3 | 4 * (b"AUTH" in turn)]) + turn for i, turn in enumerate(turns)]


class Authorizer:
    """An auth server whose answers come at the end of a turn: `t` and nothing else, and no grants for `n...`."""

    ttl_ns = 60 * SECOND_NS
    usage = None

    def __init__(self):
        self.questions = []

    def __call__(self, session, secret, on_answer):
        self.questions.append((secret, on_answer))
        return self

    def cancel(self):
        self.questions.clear()

    def answer_all(self):
        while self.questions:
            secret, on_answer = self.questions.pop(0)
            self.authorizations = [] if secret[:1] == b"n" else [None]
            on_answer(self, False)

    def answer(self):
        return b"granted"

    def allows(self, topic, channel):
        return topic == "t"


class Client(Peer):
    """Unpacks what it is sent once that was agreed on, and keeps the ids."""

    def __init__(self, registry):
        super().__init__(registry, b"")
        self.decoder = FrameDecoder()
        self.adapter = None
        self.frames = []
        self.ids = []
        self.ended = 0  # deferred messages that it cancelled, or had queued

    def turn(self):
        """The end of a turn, and of the one that a change of adapter asks for."""
        if self.registry.authorizer is not None:
            self.registry.authorizer.answer_all()
        for _ in range(2):
            self.registry.turn.end()
        written, self.transport.written = self.transport.written, []
        for data in written:
            plain = data if self.adapter is None else b"".join(self.adapter.unpack(data))
            for kind, content in self.decoder.feed(plain):
                self.hear(kind, content)

    def hear(self, kind, content):
        told = ANSWERED.fullmatch(content) if kind == 0 else None
        if told and told[1]:
            self.ids.append(told[1])
            content = TOLD[1]
        elif told:
            self.ended += int(told[2])
        self.frames.append((kind, content))
        if kind == 2:
            self.ids.append(content[10:26])
        elif kind == 0 and content[:1] == b"{":
            answer = json.loads(content)
            for name in ("deflate", "snappy"):
                if answer[name]:
                    self.adapter = ADAPTERS[name]()
                    self.packer = ADAPTERS[name]()

    def fill(self, turn):
        """Puts ids of messages in their places."""
        return ID.sub(
            lambda at: self.ids[at[1][0] % len(self.ids)] if self.ids else b"-" * 16, turn
        )

    @property
    def is_over(self):
        return self.transport.is_closing or self.transport.has_eof


class Run:
    """One broker, one client, all turns."""

    def __init__(self, turns, pattern, setting):
        self.registry = make_registry(
            empty_folder("session"),
            max_msg_size=MESSAGE_SIZE_MAX,
            max_body_size=BODY_SIZE_MAX,
            max_rdy_count=20,
            mem_queue_size=2 if setting & 1 else 1000,
        )
        self.packs = setting & 2
        self.is_fleeting = any(b"#ephemeral" in turn for turn in turns)
        if setting & 4:
            self.registry.authorizer = Authorizer()
        self.pattern = pattern
        self.client = Client(self.registry)
        for turn in turns:
            self.take(turn)
        self.finish()

    def take(self, turn):
        client = self.client
        turn = client.fill(turn)
        if client.adapter is not None and self.packs:
            turn = client.packer.pack(turn)
        for piece in pieces(turn, self.pattern):
            if client.transport.is_closing:
                break
            client.send(piece)
            if not client.transport.is_closing:
                with memoryview(client.connection.get_buffer(1)) as room:
                    assert len(room) <= 2 * INPUT_SIZE
        client.turn()

    def finish(self):
        client, connection = self.client, self.client.connection
        if not client.transport.is_closing:
            connection.eof_received()
        client.turn()
        assert client.is_over
        self.state = client.session.state
        self.counts = {topic.name: topic.message_count for topic in self.registry.topics.sorted()}
        connection.connection_lost(None)
        # What was in flight to it is queued again in a later turn.
        self.registry.timers.run(now()[1])
        self.pass_on()
        self.check_order()
        self.check_messages(client.session.finish_count)
        for topic in self.registry.topics.sorted():
            self.registry.topics.delete(topic.name)
        self.registry.topics.close()

    def pass_on(self):
        """A topic's backlog goes to its channels as soon as the disk has told it: /dev/shm does not answer at once."""
        registry = self.registry
        waiting = [topic for topic in registry.topics.sorted() if topic.channels()]
        while any(topic.depth for topic in waiting):
            assert select.select([registry.durability.fileno()], [], [], 60)[0], "no read ends"
            registry.turn.on_synced()
            registry.timers.run(now()[1])

    def check_order(self):
        """What ends a connection is the last that is said on it."""
        for kind, content in self.client.frames[:-1]:
            assert kind != 1 or content.startswith(GOES_ON), content

    def check_messages(self, finished):
        """Nothing vanishes, nothing comes from nowhere; what died is in another topic."""
        has_died = any(topic.deaths is not None for topic in self.registry.topics.sorted())
        for topic in self.registry.topics.sorted():
            channels = topic.channels()
            # With its last consumer an ephemeral channel goes, and takes along what it had.
            assert channels or topic.depth == topic.message_count or self.is_fleeting
            for channel in channels:
                left = channel.depth + channel.in_flight_count + channel.deferred_count
                assert channel.in_flight_count == 0
                is_whole = not topic.ephemeral and not channel.ephemeral
                is_whole &= not self.client.ended and not has_died
                assert not is_whole or left + finished == topic.message_count

    @property
    def answers(self):
        return [frame for frame in self.client.frames if frame[0] != 2]

    @property
    def delivered(self):
        return {content[10:26]: content[26:] for kind, content in self.client.frames if kind == 2}


def check_against_model(run, turns):
    model = SessionModel(run.registry.settings.options)
    for turn in turns:
        model.read(turn)
        if model.packs:
            assert run.answers[: len(model.frames)] == model.frames
            return
    model.read(b"", at_eof=True)
    assert run.answers == model.frames, (run.answers, model.frames)
    kept = {name: len(bodies) for name, bodies in model.topics.items()}
    # Ephemeral ones go with their last consumer.
    assert run.counts.items() <= kept.items()
    assert {name for name in kept.keys() - run.counts if not name.endswith("#ephemeral")} == set()
    published = [text for bodies in model.topics.values() for text in bodies]
    for text in run.delivered.values():
        published.remove(text)


@guarded
def check(data):
    if len(data) < 2:
        return
    live_before, used_before = live_deliveries(), settled_bytes()
    check_turns(data[0], data[1], data[2:].split(SEPARATOR))
    assert live_deliveries() == live_before
    assert settled_bytes() - used_before == 0


def check_turns(pattern, setting, turns):
    whole = Run(turns, 0, setting)
    if not any(ID.search(turn) for turn in turns):
        if not setting & 4:
            check_against_model(whole, turns)
        split = Run(turns, pattern, setting)
        assert split.answers == whole.answers, (split.answers, whole.answers)
        assert (split.state, split.counts) == (whole.state, whole.counts)
    else:
        Run(turns, pattern, setting)
