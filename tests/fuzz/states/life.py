"""One life of a broker: started over what the last one left, driven, looked at, stopped."""

import asyncio
import random
import re

from fuzz.states import acts, autopsy
from fuzz.states.books import BrokenError
from fuzz.states.peer import Peer
from fuzz.states.world import Patience
from support.server import start_nsqd

CLIENTS, OPERATORS = 24, 2
BEAT_SECONDS = 0.3
SERVER_SECONDS_MAX = 120.0  # for a start and a stop
DRAIN_POLL_SECONDS = 0.05
DRAIN_READY, DRAIN_TIMEOUT_MS = 2500, 60_000
FAULT = re.compile(
    r"Traceback|internal error|ERROR: AddressSanitizer|runtime error:|Assertion|LeakSanitizer|CRITICAL"
)


def flags(dice):
    """How this life keeps its messages."""
    return (
        f"--mem-queue-size={dice.choice((0, 1, 100, 10_000))}",
        f"--sync-every={dice.choice((1, 10, 2500))}",
        f"--durable={dice.choice(('off', 'interval', 'always'))}",
        "--commit-log-size=33554432",
        f"--sync-timeout={dice.choice(('50ms', '2s'))}",
        f"--max-bytes-per-file={dice.choice((5000, 100_000, 104_857_600))}",
        f"--msg-timeout={dice.choice(('500ms', '3s'))}",
        "--metrics-latency-histogram",
        "--min-output-buffer-timeout=1ms",
        *dice.choice(((), ("--e2e-processing-latency-percentile=0.5",))),
    )


async def live(world, folder, seed, seconds, left):
    """What is left by channel; `left` of the life before, None in the first."""
    dice = random.Random(seed)
    chosen = flags(dice)
    print(f"{seed}: {' '.join(chosen)}", flush=True)
    server = await asyncio.to_thread(
        start_nsqd, "nsqfast", folder, *chosen, seconds_max=SERVER_SECONDS_MAX
    )
    world.begin_life(server, seed)
    try:
        await begin(world, left)
        if left is not None:
            await drain(world, [books for books in world.all_books if dice.random() < 0.5])
        if seconds:
            await drive(world, seed, seconds)
        else:
            await drain(world, world.books.by_key.values())
        found = await world.check_books() if not world.complaints else None
        await stop(world, dice)
    except BaseException as error:
        world.is_stopping = True
        await autopsy.look(world, error)
        await asyncio.to_thread(server.kill)
        raise
    finally:
        check_log(world, server)
    return found


async def begin(world, left):
    """What was there before is there again."""
    if left is None:
        await world.create_all()
    counts = await world.still_figures()
    for key, books in world.books.by_key.items():
        came, now = counts[key]
        if left is not None and now != left[key]:
            raise books.broken(f"{left[key]:,} were left at the stop, {now:,} are there")
        books.begin_life(now - came)


async def drive(world, seed, seconds):
    """Everybody does as they like for so long; then nobody does, and every answer has come."""
    made = [acts.live(world, random.Random(f"{seed} {n}")) for n in range(CLIENTS)]
    made += [acts.operate(world, random.Random(f"{seed} o{n}")) for n in range(OPERATORS)]
    watch = asyncio.create_task(watch_lag(world))
    tasks = [asyncio.create_task(watched(world, one)) for one in [*made, acts.probe(world)]]
    asyncio.get_running_loop().call_later(seconds, setattr, world, "is_calm", True)
    await asyncio.gather(*tasks)
    if not world.complaints:
        await come_to_rest(world)
    watch.cancel()


async def come_to_rest(world):
    """Who stays wants nothing any more and knows all answers; the others are gone, for the broker as well."""
    await world.unpause_all()
    for peer in world.connected - world.peers:
        peer.transport.abort()
    for peer in list(world.peers):
        if not peer.is_lost:
            acts.resume(peer)
            if peer.books:
                # What times out again and again would only keep everybody busy.
                peer.write(b"RDY 0\n")
            peer.barrier()
    for peer in list(world.peers):
        await peer.until_answered()
    await world.settle()


async def watch_lag(world):
    """Whether this process stands still for longer than a client may be silent."""
    while True:
        world.beat()
        await asyncio.sleep(BEAT_SECONDS)


async def watched(world, work):
    """An error ends the run, not the task alone."""
    try:
        await work
    except Exception as error:
        world.complain(error)


async def drain(world, found):
    """A consumer for each, which finishes all there is and all that was owed."""
    await asyncio.gather(*(drain_one(world, books) for books in found))


async def drain_one(world, books):
    peers = [
        await Peer.connect(world, msg_timeout=DRAIN_TIMEOUT_MS)
        for _ in range(2 if books in world.all_books else 1)
    ]
    for peer in peers:
        peer.subscribe(books, DRAIN_READY, to_dead_letters=peer is not peers[0])
    patience = Patience()
    while left := (await world.figures())[1][books.topic, books.name][1]:
        if patience.is_over((left, len(books.owed))):
            raise books.broken(f"{left:,} messages are left and not delivered to {peers[0]}")
        for peer in peers:
            peer.fin(list(peer.held.items()))
            peer.barrier()
            await peer.until_answered()
        await asyncio.sleep(DRAIN_POLL_SECONDS)
        if world.complaints:
            return
    for peer in peers:
        peer.barrier()
        await peer.until_answered()
        peer.end("close")
    books.check_drained()


async def stop(world, dice):
    """With everybody still there, or after they left."""
    world.is_stopping = True
    if dice.random() < 0.5:
        for peer in list(world.peers):
            peer.end(dice.choice(("close", "reset", "half")))
    await asyncio.to_thread(world.server.stop)
    for peer in list(world.peers):
        if not peer.is_lost:
            peer.transport.abort()
    await asyncio.sleep(0)


def check_log(world, server):
    for line in server.lines:
        if FAULT.search(line):
            world.complain(BrokenError(f"in the log: {line}"))
