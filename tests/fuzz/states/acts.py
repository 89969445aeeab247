"""What clients and operators do: each takes its dice, and goes on until the world is calm."""

import asyncio
import json
import time

from fuzz.states.peer import Peer
from support.wire import encode_command

SIZES = (0, 0, 1, 20, 200, 3000)
COUNTS = (2, 5, 50, 500, 3000)
DEFINITIONS = (
    {"retry_min": "10ms", "retry_max": "1s"},
    {"retry_min": "400ms", "retry_multiplier": 1},
    {"max_in_flight": 50},
    {"max_messages": 1_000_000},
    {"max_age": "2160h"},
    {"max_failures": 2},
    {"max_failures": 3, "retry_min": "10ms"},
    {"pause_when_failing": 1, "pause_window": "100ms", "pause_time": "10ms"},
)
DELAYS_MS = (0, 1, 50, 50, 400, 1500)
READY = (0, 1, 2, 10, 100, 400, 2500)
MSG_TIMEOUTS_MS = (0, 0, 1000, 60_000)  # 0: that of the broker
BACKLOG_MAX = 20_000  # of a channel; beyond it nobody publishes, so that a round comes to its end
BODY_SIZE_MAX = 4 << 20
TURNS_MAX = 40
TEMPERS = (
    (8, 1, 1, 0),
    (1, 8, 1, 0),
    (1, 1, 8, 0),
    (1, 0, 0, 0),
    (0, 1, 0, 0),
    (3, 3, 3, 3),
)  # see `settle`
PAUSES_S = (0, 0, 0, 0.001, 0.02, 0.2)
STALLS_S = (0.01, 0.1, 0.6)
PROBE_TOPIC, PROBE_CHANNEL = "probe", "c"
PROBE_SECONDS = 0.01
WRONG = [
    b"FIN short\n",
    b"RDY -1\n",
    b"RDY 2501\n",
    b"NONSENSE\n",
    b"SUB t0 c0\n",
    b"REQ 0123456789abcdef x\n",
    b"IDENTIFY\n\0\0\0\x02{}",
    b"PUB bad!name\n\0\0\0\x01x",
    b"MPUB t0\n\0\0\0\x08\0\0\0\x02\0\0\0\x01",
    b"x" * 20_000,
]


async def live(world, dice):
    """One client after another until all is calm."""
    while not world.is_calm:
        peer = await Peer.connect(world, **identity(dice))
        world.peers.add(peer)
        await (consume if dice.random() < 0.7 else produce)(world, dice, peer)
        if world.is_calm and not peer.is_excused:
            return  # it stays, and what it holds is counted
        if not peer.is_excused:
            peer.end(dice.choice(("close", "reset", "half")))
        world.peers.discard(peer)


def identity(dice):
    """What an IDENTIFY asks for."""
    return {
        "heartbeat_interval": dice.choice((5000, 30_000)),
        "msg_timeout": dice.choice(MSG_TIMEOUTS_MS),
        "output_buffer_timeout": dice.choice((-1, 25, 250)),
        "output_buffer_size": dice.choice((-1, 64, 16384)),
        **dice.choice(({}, {"reject": True})),
        **dice.choice(({}, {}, {"deflate": True, "deflate_level": 3}, {"snappy": True})),
    }


async def produce(world, dice, peer):
    """Bursts for any topic, some of which wait for their answers."""
    for _ in range(dice.randrange(1, TURNS_MAX)):
        publish(world, dice, peer)
        if dice.random() < 0.3:
            await peer.until_answered()
        await peer.until_written()
        if await paused(world, dice, peer):
            return


def publish(world, dice, peer):
    """One PUB, DPUB or MPUB, or many of them in one packet."""
    topic = dice.choice(world.topics)
    if any(len(books.owed) > BACKLOG_MAX for books in world.books.of_topic(topic)):
        return
    size, how = dice.choice(SIZES), dice.randrange(6)
    if how == 0:
        count = dice.choice(COUNTS)
        peer.publish(topic, min(size, BODY_SIZE_MAX // count), count)
        return
    for _ in range(dice.choice((1, 1, 10, 200))):
        peer.publish(topic, size, delay_ms=dice.choice(DELAYS_MS) if how == 1 else None)


async def consume(world, dice, peer):
    """Whatever may be done with what it gets."""
    books = dice.choice(world.all_books)
    peer.subscribe(books, dice.choice(READY), to_dead_letters=dice.random() < 0.2)
    temper = dice.choice(TEMPERS)
    for _ in range(dice.randrange(1, TURNS_MAX)):
        settle(world, dice, peer, temper)
        disturb(world, dice, peer)
        if await paused(world, dice, peer):
            return
    if dice.random() < 0.4 and not peer.is_excused:
        peer.ask(b"CLS\n")
        peer.fin(list(peer.held.items())[: dice.randrange(100)])
        await peer.until_answered()


def settle(world, dice, peer, temper):
    """FIN, REQ, TOUCH or REJ for some of what it holds."""
    held = list(peer.held.items())
    if not held:
        return
    some = held[: dice.choice((1, 10, 100, len(held)))]
    how = dice.choices(("fin", "req", "touch", "rej"), temper)[0]
    if how == "fin":
        peer.fin(some)
    elif how == "touch":
        peer.write(b"".join(b"TOUCH %s\n" % found for found, _ in some))
    else:
        for found, _ in some:
            peer.held.pop(found)
        if how == "rej" and peer.may_reject:
            command = b"REJ %s it is refused\n"
        else:
            command = b"REQ %%s %d a reason\n" % dice.choice(DELAYS_MS)
        peer.write(b"".join(command % found for found, _ in some))


def disturb(world, dice, peer):
    """Now and then: another RDY, ids of others, silence in reading, what is forbidden."""
    match dice.randrange(40):
        case 0 | 1 | 2 | 3:
            peer.write(encode_command("RDY", str(dice.choice(READY))))
        case 4 | 5:
            foreign = list(world.recent[peer.topic].items())
            some = dice.sample(foreign, min(len(foreign), dice.choice((1, 20))))
            peer.fin(some)
        case 6:
            foreign = list(world.recent[peer.topic])
            words = (b"TOUCH %s\n", b"REQ %s 50\n", b"FIN %s\n")
            if foreign:
                peer.write(dice.choice(words[:2]) % dice.choice(foreign))
            peer.write(dice.choice(words) % dice.randbytes(8).hex().encode())
        case 7:
            peer.transport.pause_reading()
            delay_s = dice.choice((0.1, 1.0))
            asyncio.get_running_loop().call_later(delay_s, resume, peer)
        case 8:
            publish(world, dice, peer)
        case 9 if dice.random() < 0.3:
            peer.is_excused = True
            peer.write(dice.choice(WRONG))
        case 10:
            peer.fin(list(peer.held.items())[:3] * 2)


def resume(peer):
    if not peer.is_lost:
        peer.transport.resume_reading()


async def paused(world, dice, peer):
    """A moment; whether that is the end of it."""
    await asyncio.sleep(dice.choice(PAUSES_S))
    await peer.until_written()
    return world.is_calm or peer.is_lost or peer.is_excused


async def probe(world):
    """A client that does everything right, and is never in anybody's way: it is not dropped and has its answers."""
    peer = await Peer.connect(world)
    world.peers.add(peer)
    peer.subscribe(world.books.by_key[PROBE_TOPIC, PROBE_CHANNEL], 100)
    while not world.is_calm:
        began = time.monotonic()
        peer.publish(PROBE_TOPIC, 100)
        peer.fin(list(peer.held.items()))
        await peer.until_answered()
        world.probe_max_s = max(world.probe_max_s, time.monotonic() - began)
        await asyncio.sleep(PROBE_SECONDS)


async def operate(world, dice):
    """Requests over HTTP, one at a time."""
    while not world.is_calm:
        topic, books = dice.choice(world.topics), dice.choice(world.all_books)
        await ACTIONS[dice.choices(range(len(ACTIONS)), WEIGHTS)[0]](world, dice, topic, books)
        await asyncio.sleep(dice.choice((0, 0, 0.01, 0.1, 0.5)))


async def pause_topic(world, dice, topic, _):
    await world.post(f"/topic/{dice.choice(('pause', 'unpause', 'unpause'))}?topic={topic}")


async def pause_channel(world, dice, _, books):
    how = dice.choice(("pause", "unpause", "unpause"))
    await world.post(f"/channel/{how}?topic={books.topic}&channel={books.name}")


async def set_policy(world, dice, topic, _):
    """Another one for the queues of a topic; each life begins with what the one before had."""
    definition = dice.choice(DEFINITIONS)
    policy = {"topic": f"^{topic}$", "definition": definition}
    await world.put(f"/policies/{topic}", json.dumps(policy).encode())


async def empty_topic(world, _, topic, __):
    await wipe(world, world.books.of_topic(topic), f"/topic/empty?topic={topic}")


async def empty_channel(world, _, __, books):
    target = f"/channel/empty?topic={books.topic}&channel={books.name}"
    await wipe(world, [books], target)


async def delete_topic(world, _, topic, __):
    excuse(world, topic, None)
    found = world.books.of_topic(topic)
    await wipe(world, found, f"/topic/delete?topic={topic}", is_deletion=True)
    await world.create(topic, found)


async def delete_channel(world, _, __, books):
    excuse(world, books.topic, books.name)
    target = f"/channel/delete?topic={books.topic}&channel={books.name}"
    await wipe(world, [books], target, is_deletion=True)
    await world.create(books.topic, [books])


async def wipe(world, found, target, is_deletion=False):
    for books in found:
        books.begin_wipe(is_deletion)
    await world.post(target)
    for books in found:
        books.end_wipe()


def excuse(world, topic, channel):
    """Its consumers are cut off; those that subscribe meanwhile as well."""
    for peer in world.peers:
        if peer.books and peer.books.topic == topic and channel in (None, peer.books.name):
            peer.is_excused = True


async def look(world, dice, topic, books):
    target = dice.choice(
        (
            "/stats?format=json",
            "/stats",
            f"/stats?format=json&topic={topic}",
            "/metrics",
            "/ping",
            f"/channel/peek?topic={topic}&channel={books.name}",
        )
    )
    await world.get(target)


async def publish_http(world, dice, topic, _):
    size, count = dice.choice(SIZES), dice.choice((1, 1, 50, 2000))
    serials, accept = world.books.send(topic, count, "HTTP")
    filling = bytes(min(size, BODY_SIZE_MAX // count))
    bodies = [serial.to_bytes(8, "big") + filling for serial in serials]
    if count == 1:
        defer = dice.choice(("", "&defer=50"))
        await world.post(f"/pub?topic={topic}{defer}", bodies[0])
    else:
        packed = b"".join(len(body).to_bytes(4, "big") + body for body in bodies)
        body = count.to_bytes(4, "big") + packed
        await world.post(f"/mpub?topic={topic}&binary=true", body)
    accept()


async def stand_still(world, dice, *_):
    """The broker does, as on a machine that is too busy: what comes meanwhile comes at once then."""
    if world.is_frozen:
        return
    world.is_frozen = True
    world.server.freeze()
    try:
        await asyncio.sleep(dice.choice(STALLS_S))
    finally:
        world.server.thaw()
        world.is_frozen = False


ACTIONS = (
    pause_topic,
    pause_channel,
    empty_topic,
    empty_channel,
    delete_topic,
    delete_channel,
    look,
    publish_http,
    stand_still,
    set_policy,
)
WEIGHTS = (4, 4, 1, 3, 1, 2, 6, 8, 1, 2)
