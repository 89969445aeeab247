"""What goes wrong for one client ends that client; all others of its turn are served."""

import json

import pytest
from nsqfast._ext.dev.probes import let_pass

from ext.test_durable import no_room, pub
from support.core import Peer, make_registry, sync

OK = (0, b"OK")


@pytest.fixture(params=["memory", "durable"])
def registry(request, tmp_path):
    flags = {"durable": "always"} if request.param == "durable" else {}
    registry = make_registry(tmp_path, **flags)
    registry.topics.ensure("t").channel("c")
    yield registry
    registry.topics.close()


def identify(**settings):
    body = json.dumps(settings).encode()
    return b"IDENTIFY\n" + len(body).to_bytes(4, "big") + body


def refuse_to_write(_data):
    raise RuntimeError("nothing can be written")


def test_a_fault_in_one_flush_reaches_nobody_else(registry, caplog):
    peers = [Peer(registry) for _ in range(5)]
    peers[2].transport.write = refuse_to_write
    for peer in peers:
        peer.send(pub(b"t", b"x"))
    answers = sync(registry, *peers)
    assert answers == [[OK], [OK], [], [OK], [OK]]
    assert [peer.transport.is_aborted for peer in peers] == [False, False, True, False, False]
    assert registry.turn.fault_count == 1
    (line,) = [text for text in caplog.messages if "internal error" in text]
    assert line.startswith("client(127.0.0.1:4242) - internal error: RuntimeError(")
    # The others go on.
    del peers[2]
    for peer in peers:
        peer.send(pub(b"t", b"y"))
    assert sync(registry, *peers) == [[OK]] * 4


def test_its_messages_go_to_others(registry):
    peer, broken, sound = Peer(registry), Peer(registry), Peer(registry)
    broken.subscribe(b"t", b"c", 10)
    assert broken.receive() == [OK]
    broken.transport.write = refuse_to_write
    peer.send(pub(b"t", b"x"))
    sync(registry, peer)
    assert broken.transport.is_aborted
    registry.timers.run(let_pass(0))
    sound.subscribe(b"t", b"c", 10)
    [frames] = sync(registry, sound)
    assert [data[26:] or data for _, data in frames] == [b"OK", b"x"]


@pytest.mark.parametrize("feature", ["deflate", "snappy"])
def test_nothing_is_packed_behind_the_error_of_a_refused_publish(tmp_path, feature):
    """Both came in one packet: the connection ends with the error."""
    registry = make_registry(tmp_path, mem_queue_size=0)
    registry.topics.ensure("t").channel("c")
    broken, behind = Peer(registry), Peer(registry)
    with no_room():
        broken.send(pub(b"t", b"x" * 100) + identify(feature_negotiation=True, **{feature: True}))
        behind.send(b"SUB t c\nRDY 1\n")
        registry.turn.end()
    (kind, text), *rest = broken.decode_all()
    assert (kind, rest) == (1, [])
    assert text.startswith(b"E_PUB_FAILED")
    assert behind.decode_all() == [OK]
    assert registry.turn.fault_count == 0
    behind.send(pub(b"t", b"y"))
    [frames] = sync(registry, behind)
    assert OK in frames
    registry.topics.close()
