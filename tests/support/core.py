"""The compiled core without a socket: options, and a transport that keeps what is written to it."""

import gc
import select
from types import SimpleNamespace

from nsqfast._ext.broker.registry import Registry
from nsqfast._ext.broker.topics import Topics
from nsqfast._ext.dev.probes import fix_parts, let_pass, live_deliveries, used_bytes
from nsqfast._ext.protocol.v2 import FrameDecoder
from nsqfast._ext.server.connection import BrokerConnection

COMMIT_S = 60
SECOND_NS = 1_000_000_000
NEVER = 1 << 60


def counted_bytes():
    """What counts as memory now, without what earlier tests have left to the garbage collector."""
    gc.collect()
    return used_bytes()


def counted_deliveries():
    """How many deliveries exist now, likewise."""
    gc.collect()
    return live_deliveries()


def make_registry(data_path, make_topics=Topics, **changed):
    """A registry with NSQ's defaults, but for what is named. No part of a turn ends by the clock (see fix_parts)."""
    options = {
        "data_path": str(data_path),
        "mem_queue_size": 10000,
        "max_bytes_per_file": 100 << 20,
        "sync_every": 2500,
        "sync_timeout_ns": 2 * SECOND_NS,
        "durable": "off",
        "durable_interval_ns": SECOND_NS,
        "commit_log_size": 32 << 20,
        "msg_timeout_ns": 60 * SECOND_NS,
        "max_msg_timeout_ns": 900 * SECOND_NS,
        "max_msg_size": 1 << 20,
        "max_body_size": 5 << 20,
        "max_req_timeout_ns": 3600 * SECOND_NS,
        "max_defer_ns": 0,
        "max_rdy_count": 2500,
        "max_heartbeat_interval_ns": 60 * SECOND_NS,
        "max_output_buffer_size": 65536,
        "max_output_buffer_timeout_ns": 30 * SECOND_NS,
        "min_output_buffer_timeout_ns": SECOND_NS // 40,
        "output_buffer_timeout_ns": SECOND_NS // 4,
        "max_channel_consumers": 0,
        "max_topics": 0,
        "max_channels_per_topic": 0,
        "max_deflate_level": 6,
        "deflate": True,
        "snappy": True,
        "node_id": 5,
        "e2e_processing_latency_percentiles": [],
        "e2e_processing_latency_window_time_ns": 600 * SECOND_NS,
        "auth_http_addresses": [],
        "metrics_latency_histogram": False,
        "max_memory": 0,
        "enable_experiment": [],
        "topology_region": "",
        "topology_zone": "",
        "has_tls": False,
        "tls_required": 0,
    }
    assert changed.keys() <= options.keys()
    fix_parts(NEVER)
    return Registry(SimpleNamespace(**options | changed), make_topics)


def end_commit(registry):
    """Wait until a write that is on its way is done: a batch of the log, or fsyncs of files."""
    assert select.select([registry.durability], [], [], COMMIT_S)[0], "nothing is on its way"
    registry.turn.on_synced()


def sync(registry, *peers):
    """Run turns until what was published is on disk, if an OK promises that; return what each peer got."""
    done = []
    registry.durability.when_durable(registry.topics.ensure("barrier").put(b"x"), done.append)
    registry.turn.end()
    run_until(registry, done)
    assert done == [None]
    return [peer.decode_all() for peer in peers]


def run_until(registry, done):
    """Run turns until there is something in `done`."""
    for _ in range(COMMIT_S * 20):
        if done:
            return
        if select.select([registry.durability], [], [], 0.05)[0]:
            registry.turn.on_synced()
        else:
            registry.timers.run(let_pass(0))  # the log waits for a checkpoint
        registry.turn.end()
    raise AssertionError("nothing came")


class Transport:
    """What a session needs of an asyncio transport."""

    def __init__(self):
        self.written = []
        self.is_closing = False
        self.is_aborted = False
        self.is_reading = True
        self.has_eof = False

    def get_extra_info(self, name):
        assert name == "peername"
        return ("127.0.0.1", 4242)

    def set_write_buffer_limits(self, high):
        assert high > 0

    def get_write_buffer_size(self):
        return 1 << 20

    def write(self, data):
        assert not self.is_closing
        if self.has_eof:
            raise RuntimeError("Cannot call write() after write_eof()")  # as uvloop says it
        self.written.append(data)

    def can_write_eof(self):
        return True

    def write_eof(self):
        self.has_eof = True

    def close(self):
        self.is_closing = True

    def abort(self):
        self.is_closing = self.is_aborted = True

    def pause_reading(self):
        self.is_reading = False

    def resume_reading(self):
        self.is_reading = True


class Peer:
    """A session and its transport, driven by hand: `send` is one read of the loop, `receive` what one turn wrote."""

    def __init__(self, registry, magic=b"  V2"):
        self.registry = registry
        self.transport = Transport()
        self.connection = BrokerConnection(registry)
        self.session = self.connection.session
        self.connection.connection_made(self.transport)
        self.decoder = FrameDecoder()
        if magic:
            self.send(magic)

    def send(self, data):
        while data:
            with memoryview(self.connection.get_buffer(65536)) as room:
                size = min(len(room), len(data))
                room[:size] = data[:size]
            self.connection.buffer_updated(size)
            data = data[size:]

    def receive(self):
        """The frames written since the last call, as (type, data)."""
        self.registry.turn.end()
        return self.decode_all()

    def decode_all(self):
        """The frames written, without ending a turn."""
        written, self.transport.written = self.transport.written, []
        return self.decoder.feed(b"".join(written))

    def subscribe(self, topic, channel, rdy):
        """Return when a commit log has the channel; the answer, and what it is delivered, are received next."""
        self.send(b"SUB %s %s\nRDY %d\n" % (topic, channel, rdy))
        kept = []
        self.registry.durability.when_all_durable(kept.append)
        if not kept:
            self.registry.turn.end()
            run_until(self.registry, kept)

    def close(self):
        """It is gone, and a turn later what was in flight to it is queued again."""
        self.connection.connection_lost(None)
        self.registry.timers.run(let_pass(0))
