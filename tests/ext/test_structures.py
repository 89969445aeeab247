"""Ring, heap, line, in-flight table, message pool: random operations against naive models."""

import os
import random
from collections import deque

import pytest
from nsqfast._ext.broker.picker import Picker
from nsqfast._ext.core.memory import process_memory
from nsqfast._ext.core.ring import Ring
from nsqfast._ext.dev.probes import fix_parts, let_pass, live_deliveries, pool_slabs, used_bytes
from nsqfast._ext.dev.structures import NumberedDeadlineHeap as Heap
from nsqfast._ext.dev.structures import NumberedInFlightQueue as Line
from nsqfast._ext.dev.structures import NumberedInFlightTable as Table
from nsqfast._ext.dev.structures import NumberedMessages as Messages

from support.core import Peer, counted_bytes, counted_deliveries, make_registry
from support.seeds import seeds

DEBUG = any(os.environ.get(f"NSQFAST_{name}", "0") != "0" for name in ("DEBUG", "SANITIZE"))
SEEDS = seeds("structures", 5)


@pytest.fixture(params=SEEDS, ids=lambda seed: f"seed={seed}")
def dice(request):
    return random.Random(request.param)


def test_ring_is_a_queue(dice):
    ring, model = Ring(), deque()
    push_share = 0.5
    for step in range(20_000):
        if step % 1000 == 0:
            push_share = dice.choice([0.2, 0.5, 0.8])
        if dice.random() < push_share:
            item = dice.getrandbits(48)
            ring.put(item)
            model.append(item)
        else:
            assert ring.get() == (model.popleft() if model else None)
        assert len(ring) == len(model)


def test_heap_gives_the_earliest(dice):
    heap, model = Heap(), {}
    for number in range(10_000):
        draw = dice.random()
        if draw < 0.5 or not model:
            deadline = dice.randrange(1000)
            heap.push(number, deadline)
            model[number] = deadline
        elif draw < 0.75:
            victim = dice.choice(list(model)) if dice.random() < 0.5 else heap.peek()[1]
            heap.remove(victim)
            del model[victim]
        else:
            moved = dice.choice(list(model))
            model[moved] = dice.randrange(1000)
            heap.move(moved, model[moved])
        assert len(heap) == len(model)
        if model:
            deadline, found = heap.peek()
            assert deadline == min(model.values()) == model[found]
        else:
            assert heap.peek() is None


def test_a_heap_counts_as_memory(dice):
    before = counted_bytes()
    heap = Heap()
    for number in range(10_000):
        heap.push(number, dice.randrange(1000))
    assert used_bytes() - before == 16384 * 8
    del heap
    assert used_bytes() == before


def test_line_gives_the_earliest(dice):
    before = counted_deliveries()
    line, model = Line(), {}
    now = 0
    for number in range(10_000):
        draw = dice.random()
        now += dice.randrange(3)
        # Mostly one timeout for all, sometimes a shorter or a longer one.
        deadline = now + dice.choice([1000, 1000, 1000, 10, 5000])
        if draw < 0.5 or not model:
            line.push(number, deadline)
            model[number] = deadline
        elif draw < 0.8:
            victim = dice.choice(list(model)) if dice.random() < 0.5 else line.peek()[1]
            line.remove(victim)
            del model[victim]
        else:
            touched = dice.choice(list(model))
            line.move(touched, deadline)
            model[touched] = deadline
        assert len(line) == len(model)
        if model:
            deadline, found = line.peek()
            assert deadline == min(model.values()) == model[found]
        else:
            assert line.peek() is None
        if number % 50 == 0:
            assert line.oldest(len(line)) == min(model, default=-1) + 1
        if number % 500 == 0:
            taken = line.take_all()
            assert (len(line), line.peek()) == (0, None)
            line = taken
    del line, taken
    assert live_deliveries() == before


def test_messages_of_the_pool_do_not_touch_each_other(dice):
    slabs_before = pool_slabs(process_memory)[0]
    messages, model = Messages(), {}
    sizes = [0, 1, 16, 200, 200, 200, 1000, 2016, 2017, 5000, 4064, 4065, 65_000, 524_256, 524_257]
    sizes += [dice.randrange(600_000) for _ in range(5)]
    for number in range(4000):
        if dice.random() < 0.6 or not model:
            size = dice.choice(sizes) if number % 10 == 0 else dice.choice(sizes[:10])
            messages.add(number, size)
            model[number] = size
        else:
            victim = dice.choice(list(model)) if dice.random() < 0.5 else next(iter(model))
            assert messages.check(victim) == model.pop(victim)
            messages.drop(victim)
    for number, size in model.items():
        assert messages.check(number) == size
        messages.drop(number)
    # The debug builds take every message from malloc, where the sanitizers see it.
    assert pool_slabs(process_memory)[0] == slabs_before


@pytest.mark.parametrize("way", ["deferred", "in flight"])
def test_a_deleted_queue_is_charged_no_more(tmp_path, way):
    registry = make_registry(tmp_path, mem_queue_size=100_000)
    topic, before = registry.topics.ensure("t"), used_bytes()
    topic.channel("c")
    for _ in range(50_000):
        topic.put(b"x" * 100, 3_600_000 * (way == "deferred"))
    peers = []
    for _ in range(20 if way == "in flight" else 0):
        peers.append(Peer(registry))
        peers[-1].subscribe(b"t", b"c", 2500)
    registry.turn.end()
    assert used_bytes() > before + 50_000 * 150
    for peer in peers:
        peer.close()
    registry.topics.delete("t")
    registry.topics.close()
    assert used_bytes() < before + (1 << 20)


def test_pinned_deliveries_are_freed_in_the_end(tmp_path):
    """Somebody looks for a deferred message while its queue is deleted."""
    registry = make_registry(tmp_path, mem_queue_size=100_000)
    topic, before = registry.topics.ensure("t"), (counted_bytes(), live_deliveries())
    channel = topic.channel("c")
    for _ in range(50_000):
        topic.put(b"x", 3_600_000)
    ids = (b"0123456789abcdef",)
    search, other = (Picker(channel, "deferred", "drop", ids=ids) for _ in range(2))
    fix_parts(100)
    search.go_on()
    assert not search.is_over
    registry.topics.delete("t")
    while live_deliveries() != before[1]:
        registry.timers.run(let_pass(1000))
    del other
    while not search.is_over:
        search.go_on()
    assert search.changed == 0
    assert used_bytes() > before[0] + (1 << 20)
    del search
    assert used_bytes() < before[0] + (1 << 20)
    registry.topics.close()


def test_a_drained_pool_has_empty_slabs_for_the_next():
    slabs_before, _ = pool_slabs(process_memory)
    messages = Messages()
    for number in range(200_000):
        messages.add(number, 200)
    slabs_full, _ = pool_slabs(process_memory)
    for number in range(200_000):
        messages.drop(number)
    slabs, kept = pool_slabs(process_memory)
    assert slabs == slabs_before
    if not DEBUG:
        assert 45 <= slabs_full - slabs_before <= 46, "232 bytes of a message take 240"
        assert kept >= slabs_full - slabs_before


def test_table_finds_by_id_and_owner(dice):
    before = counted_deliveries()
    table, model = Table(), set()
    # Few distinct ids, so that equal ones and long probe runs occur; some that collide in their low bits.
    ids = [dice.getrandbits(64) for _ in range(50)] + [n << 58 for n in range(14)]
    for _ in range(20_000):
        key = (dice.choice(ids), dice.randrange(1, 4))
        if key in model:
            assert table.find(*key) == key[1]
            assert table.remove(*key)
            model.remove(key)
        else:
            others = {owner for message_id, owner in model if message_id == key[0]}
            found = table.find(*key)
            assert found in others if others else found is None
            table.insert(*key)
            model.add(key)
        assert len(table) == len(model)
    for key in model:
        assert table.remove(*key)
    assert len(table) == 0
    assert live_deliveries() == before


def test_a_table_counts_as_memory():
    table = Table()
    for number in range(1, 1501):
        table.insert(number, 1)
    for number in range(1, 1501):
        table.remove(number, 1)
    before, (capacity, copied) = counted_bytes(), table.copied()
    del table
    assert before - used_bytes() == 16 * (3 * capacity if copied else capacity)


def test_table_grows_a_little_with_each_insert(dice):
    """And finds everything meanwhile, whatever comes and goes."""
    before = counted_deliveries()
    table, model, known = Table(), set(), []
    grown = 0
    for number in range(60_000):
        growing = number % 20_000 < 15_000
        if not model or dice.random() < (0.7 if growing else 0.3):
            # Some ids are there twice, and some share their home.
            key = (dice.choice([number, number << 40, dice.getrandbits(64), number // 2]), number)
            capacity, copied = table.copied()
            table.insert(*key)
            model.add(key)
            known.append(key)
            capacity_after, copied_after = table.copied()
            if capacity_after == capacity:
                assert copied_after - copied <= 16
            elif capacity:
                assert copied == capacity - 16 or capacity == 16
                grown += 1
        else:
            place = dice.randrange(len(known))
            known[place], known[-1] = known[-1], known[place]
            key = known.pop()
            assert table.remove(*key)
            model.remove(key)
        assert len(table) == len(model)
        assert len(table) <= table.copied()[0] * 9 // 16 + 1
        key = dice.choice(known) if known else None
        if key is not None:
            assert table.find(*key) == key[1]
    assert grown >= 8
    for key in known:
        assert table.find(*key) == key[1]
        assert table.remove(*key)
    assert len(table) == 0
    assert live_deliveries() == before


def test_line_looks_at_no_more_than_it_is_told():
    """At those first whose time runs out first."""
    before = counted_deliveries()
    line = Line()
    for number in range(1000, 0, -1):
        line.push(number, 2000 - number)
    assert line.oldest(1000) == 2
    assert line.oldest(10) == 992
    assert line.oldest(1) == 1001
    for number in range(2000, 1900, -1):
        line.push(number, number - 1900)  # before all others
    assert line.oldest(10) >= 996
    assert line.oldest(2000) == 2
    del line
    assert live_deliveries() == before
