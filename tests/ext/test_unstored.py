"""What a kill would lose: the messages that are only in memory."""

import pytest
from nsqfast._ext.broker.shutdown import count_unstored
from nsqfast._ext.dev.probes import let_pass

from support.core import Peer, make_registry

LATER = b"DPUB t 600000\n\0\0\0\1x"


def publish(peer, count):
    peer.send(b"PUB t\n\0\0\0\1x" * count)
    peer.receive()


@pytest.mark.parametrize(
    ("mem_queue_size", "expected"), [(10_000, [5, 6, 6, 5, 5]), (2, [2, 3, 3, 2, 2]), (0, [0] * 5)]
)
def test_what_is_only_in_memory(tmp_path, mem_queue_size, expected):
    """Waiting, deferred, in flight, finished, given back; what was delivered from the disk has a record there."""
    registry = make_registry(tmp_path, mem_queue_size=mem_queue_size, sync_every=1)
    registry.topics.ensure("t").channel("c")
    registry.topics.ensure("t").channel("e#ephemeral")
    peer, consumer = Peer(registry), Peer(registry)
    found = []

    def look():
        found.append(count_unstored(registry.topics.sorted()))

    publish(peer, 5)
    look()
    peer.send(LATER)
    peer.receive()
    look()
    consumer.subscribe(b"t", b"c", 5)
    one, *_ = (data[10:26] for kind, data in consumer.receive() if kind == 2)
    look()
    consumer.send(b"FIN %s\nRDY 0\n" % one)
    look()
    consumer.close()
    registry.timers.run(let_pass(0))
    look()
    assert found == expected
    registry.topics.close()
