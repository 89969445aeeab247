"""nsqd.dat: kept aside, or loaded so that writing it again says the same."""

import json

from fuzz.common import empty_folder, guarded
from nsqfast.nsqd.metadata import FILE_NAME, decode, encode, load
from nsqfast.wire.names import is_ephemeral, is_valid_name
from support.core import make_registry

WORDS = [b'"topics":', b'"name":', b'"paused":', b'"channels":', b"true", b"null", b"#ephemeral"]


def seeds():
    channels = [{"name": "c", "paused": True}, {"name": "d#ephemeral", "paused": False}]
    topics = [{"name": "t", "paused": False, "channels": channels}, {"name": "u", "paused": True}]
    return [
        json.dumps({"topics": topics, "version": "1.3.0"}).encode(),
        b'{"topics":null,"version":"1.3.0"}',
        b'{"topics":[{"name":"bad name","channels":[null]},{"name":"t"},{"name":"t","paused":true}]}',
        b'{"topics":[{"name":"\\ud800"}]}',
        b"[" * 50,
    ]


def kept(topics):
    """What of it a broker writes again."""
    return {
        name: (entry.paused, {c: p for c, p in entry.channels.items() if not is_ephemeral(c)})
        for name, entry in topics.items()
        if not is_ephemeral(name)
    }


@guarded
def check(data):
    folder = empty_folder("metadata")
    (folder / FILE_NAME).write_bytes(data)
    registry = make_registry(folder)
    if load(registry.topics, str(folder)) is None:
        assert not registry.topics.sorted()
        assert (folder / f"{FILE_NAME}.bad").read_bytes() == data
    else:
        topics = decode(data)
        assert all(map(is_valid_name, topics))
        assert {topic.name for topic in registry.topics.sorted()} == set(topics)
        assert kept(decode(encode(registry.topics))) == kept(topics)
    for topic in registry.topics.sorted():
        registry.topics.delete(topic.name)
    registry.topics.close()
