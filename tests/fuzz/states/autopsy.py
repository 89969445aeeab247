"""What a report says beyond its first line: which messages are there, whose those are, what the broker said."""

import asyncio
import traceback

from fuzz.states.books import SHOWN_MAX, SURE, BrokenError
from fuzz.states.peer import Peer

LOOK_SECONDS = 10.0
POLL_SECONDS = 0.05
LOG_LINES_SHOWN = 20
# Said for each request and each client.
NOISE = (
    " INFO: 200 ",
    "exiting ioloop",
    "new client",
    "desired protocol",
    "IDENTIFY: ",
    "ID not in flight",
    "does not own message",
)


async def look(world, error):
    """Note at the error which of the messages of its channel are there, as long as its broker lives."""
    books = getattr(error, "books", None)
    if books is None or world.server.process.poll() is not None:
        return
    found = set()
    try:
        async with asyncio.timeout(LOOK_SECONDS):
            await collect(world, books, found)
    except Exception as trouble:  # the error itself is what counts
        books.note(f"not all of it was looked at: {trouble!r}")
    sure = {serial for serial, state in books.owed.items() if state == SURE}
    error.serials = sorted(sure - found - books.finishing.keys())
    error.too_many = sorted(found - books.owed.keys())


async def collect(world, books, found):
    """Take what there is from all others, and finish nothing but what is noted."""
    for peer in list(world.connected):
        peer.transport.abort()
    witnesses = [await Peer.connect(world), await Peer.connect(world)]
    for witness in witnesses:
        witness.found = found
        witness.subscribe(books, 2500, to_dead_letters=witness is not witnesses[0])
    while (await world.figures())[1][books.topic, books.name][1]:
        for witness in witnesses:
            witness.fin_found()
        await asyncio.sleep(POLL_SECONDS)


def report(world, when, error):
    """All that is known of it, in lines."""
    lines = [f"{type(error).__name__}, {when}: {error}"]
    if not isinstance(error, BrokenError):
        lines += traceback.format_exception(error)
    for name, words in (("serials", "missing"), ("too_many", "not owed and there")):
        serials = getattr(error, name, [])
        if serials:
            lines.append(f"  {len(serials):,} {words}:")
            lines += [f"    {world.books.origin(serial)}" for serial in serials[:SHOWN_MAX]]
    books = getattr(error, "books", None)
    if books is not None:
        lines += [f"  the channel {books}, {books.expected()}:"]
        lines += [f"    {line}" for line in books.story]
    if world.server:
        said = [line for line in world.server.lines if not any(one in line for one in NOISE)]
        lines.append("  the end of the log, all of which is kept, without the usual:")
        lines += [f"    {line}" for line in said[-LOG_LINES_SHOWN:]]
    return lines
