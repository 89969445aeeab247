"""Ring, heap and in-flight table: random operations against naive models."""

import random
from collections import deque

import pytest
from nsqfast._ext.heap import TestHeap as Heap
from nsqfast._ext.inflight import TestTable as Table
from nsqfast._ext.message import live_deliveries
from nsqfast._ext.ring import Ring

SEEDS = [random.SystemRandom().getrandbits(32) for _ in range(5)]


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


def test_table_finds_by_id_and_owner(dice):
    before = live_deliveries()
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
