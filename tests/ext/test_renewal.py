"""A message that is not finished for long keeps no gigabytes: its record is written again behind all others."""

import pytest
from nsqfast._ext.dev.probes import fix_parts, let_pass

from ext.test_durable import no_room, pub, size_on_disk
from support.core import SECOND_NS, Peer, make_registry, sync

MIB = 1 << 20
HOUR_MS = 3_600_000
DAYS_NS = 90 * 86_400 * SECOND_NS
# What stays is at most 64 MiB of finished messages, a file that is begun and one that ends among them.
FILE_SIZE = 4 * MIB
KEPT_MAX = 64 * MIB + 3 * FILE_SIZE
FLAGS = {"max_bytes_per_file": FILE_SIZE, "max_defer_ns": DAYS_NS, "msg_timeout_ns": DAYS_NS}
ON_DISK, DURABLE = {"mem_queue_size": 0}, {"durable": "always"}
modes = pytest.mark.parametrize("mode", [ON_DISK, DURABLE], ids=["on disk", "durable"])


def dpub(body, delay_ms=HOUR_MS):
    return b"DPUB t %d\n" % delay_ms + len(body).to_bytes(4, "big") + body


class Scene:
    """A topic with one channel, and a consumer that finishes what it gets; `hold` says what it leaves in flight."""

    def __init__(self, folder, **flags):
        self.folder = folder
        self.registry = make_registry(folder, **FLAGS | flags)
        self.channel = self.registry.topics.ensure("t").channel("c")
        self.producer = Peer(self.registry)
        self.seen = []
        self.join()

    def join(self):
        self.consumer = Peer(self.registry)
        self.consumer.subscribe(b"t", b"c", 2000)

    def wait(self, time_ms):
        """Let time pass, for which no client stays, and take what there is."""
        self.consumer.close()
        self.registry.timers.run(let_pass(time_ms * 1_000_000))
        self.join()
        for _ in range(10):
            self.answer(None)
            self.turn()

    def turn(self):
        """A turn, its fsyncs, and what follows from both after more than --sync-timeout."""
        self.registry.turn.end()
        if self.registry.settings.has_log:
            sync(self.registry)
        syncer = self.registry.durability.store.syncer
        for _ in range(3):
            syncer.start_batch()
            syncer.wait(syncer.open_ticket - 1)
            self.registry.turn.on_synced()
        for _ in range(20):
            self.registry.timers.run(let_pass(3 * SECOND_NS // 20))

    def run(self, mib, hold=b"held"):
        """So much passes through the channel."""
        for number in range(4 * mib):
            self.producer.send(pub(b"t", b"x" * (MIB // 4)))
            self.answer(hold)
            if number % 16 == 15:
                self.turn()
                self.answer(hold)

    def answer(self, hold=b"held"):
        for kind, data in self.consumer.receive():
            if kind == 2:
                body, attempts = data[26:], int.from_bytes(data[8:10], "big")
                if body[:1] != b"x":
                    self.seen.append((body, attempts))
                if hold is None or not body.startswith(hold):
                    self.consumer.send(b"FIN %s\n" % data[10:26])

    def settle(self, turns=6):
        for _ in range(turns):
            self.turn()

    def kept(self):
        return size_on_disk(self.folder, "t:c")

    def close(self):
        self.registry.topics.close()


@modes
def test_a_deferred_message_keeps_no_files(tmp_path, mode):
    scene = Scene(tmp_path, **mode)
    scene.producer.send(dpub(b"late"))
    scene.run(200)
    assert scene.kept() < KEPT_MAX
    assert scene.channel.deferred_count == 1
    assert scene.seen == []
    scene.close()
    # Its deadline is kept over that and over a clean stop, and it comes once.
    scene = Scene(tmp_path, **mode)
    assert scene.channel.deferred_count == 1
    scene.wait(HOUR_MS - 1_200_000)
    assert scene.seen == []
    scene.wait(1_200_000)
    assert scene.seen == [(b"late", 1)]
    assert (scene.channel.depth, scene.channel.deferred_count) == (0, 0)
    scene.close()


@modes
def test_what_is_requeued_with_a_delay_and_what_is_in_flight_keep_no_files(tmp_path, mode):
    scene = Scene(tmp_path, **mode)
    other = Peer(scene.registry)
    scene.consumer.send(b"RDY 0\n")
    other.subscribe(b"t", b"c", 1)
    scene.producer.send(pub(b"t", b"again"))
    scene.turn()
    ((_, data),) = [frame for frame in other.receive() if frame[0] == 2]
    other.send(b"RDY 0\nREQ %s %d\n" % (data[10:26], HOUR_MS))
    scene.consumer.send(b"RDY 2000\n")
    scene.producer.send(pub(b"t", b"held"))
    scene.run(200)
    assert scene.kept() < KEPT_MAX
    assert (scene.channel.deferred_count, scene.channel.in_flight_count) == (1, 1)
    assert scene.seen == [(b"held", 1)]
    scene.close()
    # A stop counts the delivery in flight, as always.
    scene = Scene(tmp_path, **mode)
    scene.turn()
    scene.answer(None)
    assert scene.seen == [(b"held", 2)]
    assert scene.channel.deferred_count == 1
    scene.close()


def test_what_waits_in_memory_again_keeps_no_files(tmp_path):
    """It came from disk, and a requeue put it into memory, where nobody takes it."""
    scene = Scene(tmp_path, mem_queue_size=10)
    scene.consumer.send(b"RDY 0\n")
    for number in range(11):
        scene.producer.send(pub(b"t", b"m%d" % number))
    scene.turn()
    scene.consumer.send(b"RDY 2000\n")
    held = [data for kind, data in scene.consumer.receive() if kind == 2]
    assert len(held) == 11
    scene.consumer.send(b"RDY 0\n")
    for data in held[:10]:
        scene.consumer.send(b"FIN %s\n" % data[10:26])
    scene.consumer.send(b"REQ %s 0\n" % held[10][10:26])
    assert (scene.channel.depth, scene.channel.backend_depth) == (1, 0)
    # Others overflow meanwhile, and are read from the disk behind it; so it is taken, and deferred in memory.
    scene.consumer.send(b"RDY 1\n")
    ((_, data),) = [frame for frame in scene.consumer.receive() if frame[0] == 2]
    scene.consumer.send(b"RDY 0\nREQ %s %d\n" % (data[10:26], HOUR_MS))
    for _ in range(10):
        scene.producer.send(pub(b"t", b"y"))
    for _ in range(400):
        scene.producer.send(pub(b"t", b"x" * (MIB // 4)))
    scene.consumer.send(b"RDY 2000\n")
    for _ in range(200):
        scene.answer()
        scene.registry.timers.run(let_pass(1_000_000))
    scene.settle()
    assert scene.channel.depth == 0
    assert scene.channel.deferred_count == 1
    assert scene.kept() < KEPT_MAX
    scene.close()


def test_nothing_is_written_again_while_more_would_be_written_than_freed(tmp_path):
    scene = Scene(tmp_path, **ON_DISK)
    for _ in range(3 * 60):
        scene.producer.send(dpub(b"late" * (MIB // 16)))
    scene.run(50)
    scene.settle()
    health = scene.registry.durability.store.health
    assert health.written_bytes < (45 + 50 + 5) * MIB
    assert scene.channel.deferred_count == 180
    scene.run(100)
    scene.settle()
    # Now there is more finished than not.
    assert scene.kept() < 2 * 45 * MIB + KEPT_MAX
    assert scene.channel.deferred_count == 180
    scene.close()


def test_a_part_at_a_time(tmp_path):
    """However many they are: each turn writes a few."""
    scene = Scene(tmp_path, **ON_DISK)
    for number in range(1000):
        scene.producer.send(dpub(b"late %d" % number))
    fix_parts(64)
    scene.run(100)
    for _ in range(1000):
        if scene.kept() < KEPT_MAX:
            break
        scene.turn()
    assert scene.kept() < KEPT_MAX
    assert scene.channel.deferred_count == 1000
    fix_parts(1 << 40)
    scene.close()
    scene = Scene(tmp_path, **ON_DISK)
    assert scene.channel.deferred_count == 1000
    scene.wait(2 * HOUR_MS)
    assert sorted(scene.seen) == sorted((b"late %d" % number, 1) for number in range(1000))
    scene.close()


def test_a_full_disk_leaves_them_where_they_are(tmp_path):
    scene = Scene(tmp_path, **ON_DISK)
    scene.producer.send(dpub(b"late"))
    scene.run(60)
    assert scene.kept() > 59 * MIB
    scene.run(10)
    with no_room():
        scene.settle()
    assert scene.channel.deferred_count == 1
    scene.run(30)
    scene.settle()
    assert scene.kept() < KEPT_MAX
    assert scene.channel.deferred_count == 1
    scene.close()


def test_a_channel_that_is_emptied_or_deleted_meanwhile(tmp_path):
    scene = Scene(tmp_path, **ON_DISK)
    for number in range(1000):
        scene.producer.send(dpub(b"late %d" % number))
    fix_parts(1)
    scene.run(70)
    scene.channel.empty()
    scene.settle()
    assert (scene.channel.deferred_count, scene.channel.depth) == (0, 0)
    for number in range(1000):
        scene.producer.send(dpub(b"late %d" % number))
    scene.run(70)
    scene.registry.topics.ensure("t").delete_channel("c")
    scene.settle()
    fix_parts(1 << 40)
    scene.close()
