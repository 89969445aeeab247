"""A command that waits for an auth server: what is behind it, what goes on meanwhile, and how it ends."""

from collections import deque

import pytest
from nsqfast._ext.core.usage import Usage
from nsqfast._ext.dev.probes import let_pass

from nsqfast.streams.deflate import Deflate
from support.core import SECOND_NS, Peer, make_registry

OK = (0, b"OK")
HEARTBEAT = (0, b"_heartbeat_")
AUTH = b"AUTH\n\0\0\0\6secret"
ANSWER = (0, b"the answer")
INPUT_SIZE = 65536


def pub(topic, data=b"x"):
    return b"PUB %s\n%b%b" % (topic, len(data).to_bytes(4, "big"), data)


class Grant:
    def __init__(self, topics="t", ttl_s=60, count=1):
        self.topics = topics.split()
        self.ttl_ns = ttl_s * SECOND_NS
        self.authorizations = [None] * count
        self.asked = []
        self.usage = None

    def allows(self, topic, channel):
        self.asked.append((topic, channel))
        return topic in self.topics

    def answer(self):
        return b"the answer"


class Question:
    def __init__(self, session, secret, on_answer):
        self.session, self.secret, self.on_answer = session, secret, on_answer
        self.is_cancelled = False

    def cancel(self):
        self.is_cancelled = True


class Authorizer:
    """Keeps questions until the test answers them."""

    def __init__(self):
        self.questions = deque()

    def __call__(self, session, secret, on_answer):
        self.questions.append(Question(session, secret, on_answer))
        return self.questions[-1]

    def answer(self, grant, *, is_refused=False):
        self.questions.popleft().on_answer(grant, is_refused)


@pytest.fixture
def registry(tmp_path):
    registry = make_registry(tmp_path)
    registry.authorizer = Authorizer()
    yield registry
    registry.topics.close()


@pytest.fixture
def authorizer(registry):
    return registry.authorizer


@pytest.fixture
def peer(registry):
    peer = Peer(registry)
    yield peer
    peer.close()


def authenticate(peer, grant):
    peer.send(AUTH)
    peer.registry.authorizer.answer(grant)
    assert peer.receive() == [ANSWER]


@pytest.mark.parametrize("size", [1, 1 << 20])
def test_in_order(registry, authorizer, peer, size):
    """Whole, and a byte at a time."""
    data = AUTH + pub(b"t", b"1") + b"SUB t c\nRDY 5\n" + pub(b"t", b"2")
    for start in range(0, len(data), size):
        peer.send(data[start : start + size])
    assert peer.receive() == []
    assert registry.topics.find("t") is None
    assert authorizer.questions[0].secret == b"secret"
    authorizer.answer(Grant())
    frames = peer.receive()
    assert [frame for frame in frames if frame[0] == 0] == [ANSWER, OK, OK, OK]
    assert [frame[1][26:] for frame in frames if frame[0] == 2] == [b"1", b"2"]


def test_a_permitted_topic_is_looked_up_once(peer):
    grant = Grant("t u")
    authenticate(peer, grant)
    for _ in range(3):
        peer.send(pub(b"t") * 10)
    peer.send(pub(b"u") + pub(b"t") * 2)
    assert peer.receive() == [OK] * 33
    assert grant.asked == [("t", ""), ("u", ""), ("t", "")]


def test_held_again_when_the_grant_has_run_out(authorizer, peer):
    authenticate(peer, Grant(ttl_s=10))
    peer.send(pub(b"t"))
    let_pass(10 * SECOND_NS)
    peer.send(pub(b"t") + b"NOP\n" + pub(b"t"))
    assert peer.receive() == [OK]
    assert authorizer.questions[0].secret == b"secret"
    again = Grant(ttl_s=10)
    authorizer.answer(again)
    assert peer.receive() == [OK, OK]
    assert again.asked == [("t", "")]


def test_what_was_permitted_before_is_looked_up_anew(authorizer, peer):
    """The last topic published to is not the one whose check asked again."""
    authenticate(peer, Grant("t u", ttl_s=10))
    peer.send(pub(b"t"))
    let_pass(10 * SECOND_NS)
    peer.send(b"SUB u c\n" + pub(b"t"))
    authorizer.answer(Grant("u", ttl_s=10))
    error = (1, b'E_UNAUTHORIZED AUTH failed for PUB on "t" ""')
    assert peer.receive() == [OK, OK, error]


def test_mpub_is_checked_once(peer):
    grant = Grant()
    authenticate(peer, grant)
    data = b"MPUB t\n\0\0\0\x09\0\0\0\1\0\0\0\1x"
    peer.send(data[:-3])
    peer.send(data[-3:])
    assert peer.receive() == [OK]
    assert grant.asked == [("t", "")]


def test_denied(registry, peer):
    authenticate(peer, Grant())
    peer.send(pub(b"u") + pub(b"t"))
    assert peer.receive() == [(1, b'E_UNAUTHORIZED AUTH failed for PUB on "u" ""')]
    assert registry.topics.sorted() == []
    assert peer.transport.has_eof


@pytest.mark.parametrize(
    ("grant", "error"),
    [
        (None, b"E_AUTH_FAILED AUTH failed"),
        (Grant(count=0), b"E_UNAUTHORIZED AUTH no authorizations found"),
    ],
)
def test_refused(registry, authorizer, peer, grant, error):
    peer.send(AUTH + pub(b"t"))
    authorizer.answer(grant)
    assert peer.receive() == [(1, error)]
    assert peer.transport.has_eof
    assert registry.topics.sorted() == []


def test_an_end_meanwhile_cancels(registry, authorizer):
    peer = Peer(registry)
    peer.send(AUTH)
    peer.close()
    assert authorizer.questions[0].is_cancelled


def test_the_end_of_input_does_not(registry, authorizer, peer):
    """It may be half a close: what came before it is answered, and then the connection ends."""
    peer.send(AUTH + pub(b"t"))
    assert peer.connection.eof_received() is True
    authorizer.answer(Grant())
    assert peer.decode_all() == [ANSWER, OK]
    assert peer.transport.is_closing


def test_half_a_command_before_the_end(authorizer, peer):
    peer.send(AUTH + pub(b"t")[:-1])
    assert peer.connection.eof_received() is True
    authorizer.answer(Grant())
    assert peer.decode_all() == [ANSWER, (1, b"E_BAD_MESSAGE PUB failed to read message body")]
    assert peer.transport.is_closing


def test_input_is_bounded(registry, authorizer, peer):
    count = 0
    peer.send(AUTH)
    while peer.transport.is_reading:
        peer.send(pub(b"t", b"y" * 1000))
        count += 1
    assert 60 <= count <= 70
    authorizer.answer(Grant())
    assert peer.transport.is_reading
    assert peer.receive() == [ANSWER] + [OK] * count
    assert registry.topics.find("t").depth == count


def test_a_reader_that_does_not_read_stays_paused(authorizer, peer):
    """Two reasons not to read from it; it takes the end of both."""
    peer.send(AUTH + pub(b"t", b"y" * INPUT_SIZE))
    assert not peer.transport.is_reading
    peer.connection.pause_writing()
    peer.connection.resume_writing()
    assert not peer.transport.is_reading
    authorizer.answer(Grant())
    assert peer.transport.is_reading


def test_little_that_unfolds_to_much(registry, authorizer, peer):
    """Packed input stays packed while it is held."""
    body = b'{"feature_negotiation":true,"deflate":true}'
    peer.send(b"IDENTIFY\n" + len(body).to_bytes(4, "big") + body)
    registry.turn.end()
    peer.transport.written.clear()
    packer = Deflate(6)
    peer.send(packer.pack(AUTH))
    count = 200
    peer.send(packer.pack(pub(b"t", bytes(50_000)) * count))
    assert peer.transport.is_reading
    peer.send(packer.pack(pub(b"t", b"last")))
    assert peer.connection.eof_received() is True
    authorizer.answer(Grant())
    assert registry.topics.find("t").depth == count + 1
    assert peer.transport.is_closing


def test_heartbeats_go_on_and_nobody_is_late(registry, authorizer, peer):
    """It is not the client who takes its time."""
    peer.send(AUTH)
    for _ in range(3):
        registry.timers.run(let_pass(30 * SECOND_NS))
        assert peer.receive() == [HEARTBEAT]
    authorizer.answer(Grant())
    assert peer.receive() == [ANSWER]
    registry.timers.run(let_pass(29 * SECOND_NS))
    assert not peer.transport.is_aborted


def test_deliveries_go_on(registry, authorizer, peer):
    authenticate(peer, Grant(ttl_s=10))
    peer.subscribe(b"t", b"c", 5)
    let_pass(10 * SECOND_NS)
    peer.send(pub(b"u"))
    assert peer.receive() == [OK]
    registry.topics.find("t").put(b"hello", 0)
    assert [frame[1][26:] for frame in peer.receive()] == [b"hello"]


def test_an_answer_after_the_end_of_the_connection(authorizer, peer):
    """An error came first: the question was not in time to be cancelled."""
    peer.send(AUTH)
    peer.connection.abort()
    authorizer.answer(Grant())
    assert peer.decode_all() == []


def test_without_auth_servers(tmp_path):
    registry = make_registry(tmp_path)
    peer = Peer(registry)
    peer.send(pub(b"t") + AUTH)
    assert peer.receive() == [OK, (1, b"E_AUTH_DISABLED AUTH disabled")]
    peer.close()
    registry.topics.close()


def limited(connections_max=0, rate_max=0):
    grant = Grant()
    grant.usage = Usage()
    grant.usage.connections_max, grant.usage.rate_max = connections_max, rate_max
    return grant


def test_an_identity_has_so_many_connections(registry, authorizer):
    grant = limited(connections_max=2)
    peers = [Peer(registry) for _ in range(4)]
    for peer in peers[:2]:
        authenticate(peer, grant)
    peers[2].send(AUTH)
    authorizer.answer(grant)
    ((kind, text),) = peers[2].receive()
    assert (kind, text.split()[0]) == (1, b"E_UNAUTHORIZED")
    peers[2].close()
    peers[0].close()
    assert grant.usage.connection_count == 1
    authenticate(peers[3], grant)
    for peer in (peers[1], peers[3]):
        peer.close()
    assert grant.usage.connection_count == 0


@pytest.mark.parametrize("packed", [1, 1000])
def test_an_identity_publishes_no_faster_than_it_may(registry, authorizer, packed):
    """A second's worth at once, over all of its connections; then each message waits, and nothing is refused."""
    grant = limited(rate_max=10)
    peers = [Peer(registry) for _ in range(2)]
    for peer in peers:
        authenticate(peer, grant)
    whole = pub(b"t") * 30
    for start in range(0, len(whole), packed):
        peers[0].send(whole[start : start + packed])
    count = len(peers[0].receive())
    assert 10 <= count <= 12
    peers[1].send(pub(b"t"))
    assert len(peers[1].receive()) == 1
    seconds = 0
    while count < 30:
        registry.timers.run(let_pass(SECOND_NS))
        more = peers[0].receive()
        assert set(more) <= {OK}
        assert len(more) <= 12
        count, seconds = count + len(more), seconds + 1
    assert seconds <= 4
    assert registry.topics.ensure("t").depth == 31
    for peer in peers:
        peer.close()


def subscribe(peer, ttl_s=10):
    authenticate(peer, Grant(ttl_s=ttl_s))
    peer.send(b"SUB t c\n")
    assert peer.receive() == [OK]


@pytest.mark.parametrize("way", ["refused", "another topic", "nothing"])
def test_a_subscription_ends_when_its_grant_is_withdrawn(registry, authorizer, peer, way):
    subscribe(peer)
    registry.timers.run(let_pass(9 * SECOND_NS))
    assert not authorizer.questions
    registry.timers.run(let_pass(2 * SECOND_NS))
    granted = {"refused": None, "another topic": Grant("u"), "nothing": Grant("", count=0)}[way]
    authorizer.answer(granted, is_refused=way == "refused")
    ((kind, text),) = peer.receive()
    assert (kind, text.split()[0]) == (1, b"E_UNAUTHORIZED")
    assert peer.transport.has_eof or peer.transport.is_closing


def test_a_subscription_stays_while_nobody_can_be_asked(registry, authorizer, peer):
    subscribe(peer)
    for _ in range(3):
        registry.timers.run(let_pass(11 * SECOND_NS))
        authorizer.answer(None)
        assert set(peer.receive()) <= {HEARTBEAT}
        peer.send(b"NOP\n")
    registry.timers.run(let_pass(11 * SECOND_NS))
    authorizer.answer(Grant(ttl_s=10))
    registry.timers.run(let_pass(9 * SECOND_NS))
    assert not authorizer.questions
    registry.timers.run(let_pass(2 * SECOND_NS))
    assert len(authorizer.questions) == 1


def test_one_question_for_the_subscription_and_a_command(registry, authorizer):
    peer = Peer(registry)
    subscribe(peer)
    registry.timers.run(let_pass(11 * SECOND_NS))
    peer.send(pub(b"t"))
    assert len(authorizer.questions) == 1
    assert peer.receive() == []
    authorizer.answer(Grant())
    assert peer.receive() == [OK]
    peer.close()
    registry.timers.run(let_pass(100 * SECOND_NS))
    assert not authorizer.questions
