"""One broker at a time with everybody around it, and what is to be seen of it from outside."""

import asyncio
import json
import re
import time
from collections import defaultdict

from fuzz.states.acts import PROBE_CHANNEL, PROBE_TOPIC
from fuzz.states.books import SERIAL_SIZE, Books, BrokenError

TOPICS, CHANNELS = ("t0", "t1", "t2"), ("c0", "c1")
RECENT_MAX = 1000
FINISHED = "nsqd_channel_e2e_processing_latency_seconds_count"
FIGURE = re.compile(rf'^{FINISHED}{{topic="([^"]+)",channel="([^"]+)"}} (\S+)$', re.MULTILINE)
CONNECTIONS = re.compile(r'^nsqd_connections{listener="tcp"} (\S+)$', re.MULTILINE)
FAULTS = re.compile(r"^nsqd_client_faults_total (\S+)$", re.MULTILINE)
STILL_SECONDS = 0.05
PATIENCE_SECONDS = 60.0  # while nothing comes nearer to its end
LAG_SECONDS_MAX = 3.0  # the shortest heartbeats are 5 s, and two of them may be missed
SETTLED_STATUSES = (200, 404)
REQUEST_SECONDS_MAX = 60.0


class Patience:
    """Ends when nothing has moved for too long, however slow the machine is."""

    def __init__(self):
        self._last = self._since_s = None

    def is_over(self, state):
        now_s = time.monotonic()
        if self._since_s is None or state != self._last:
            self._last, self._since_s = state, now_s
        return now_s - self._since_s > PATIENCE_SECONDS


class World:
    """Of one run; the books go on over lives of the broker."""

    topics = TOPICS

    def __init__(self):
        self.books = Books(TOPICS, CHANNELS)
        self.all_books = list(self.books.by_key.values())
        self.books.add(PROBE_TOPIC, PROBE_CHANNEL)
        self.complaints = []
        self.server = None
        self.life_count = -1
        self.begin_life(None, "")

    def begin_life(self, server, name):
        self.log_before = self.server.stderr if self.server else ""
        self.server = server
        self.life_count += 1
        self.books.clock.begin_life(name)
        self.is_calm = self.is_stopping = self.is_frozen = False
        self.was_late = False
        self.beat_s = None  # when this process was last seen to go on
        self.peers = set()
        self.connected = set()  # all of them, those that nobody drives any more as well
        self.recent = defaultdict(dict)  # (serial, attempts) by id, by topic
        self.probe_max_s = 0.0

    def beat(self):
        """This process goes on: who has not heard of it for long may drop what it holds."""
        self.is_late()
        self.beat_s = time.monotonic()

    def is_late(self):
        """We stood still for so long that who was dropped in this life for its silence says nothing."""
        if self.beat_s is not None and time.monotonic() - self.beat_s > LAG_SECONDS_MAX:
            if not self.was_late:
                print("this machine is too busy to tell who was silent", flush=True)
            self.was_late = True
        return self.was_late

    def complain(self, error):
        """The run has found something; it ends soon."""
        self.complaints.append((self.books.clock.now(), error))
        self.is_calm = True

    def note_id(self, topic, identity, serial, attempts):
        found = self.recent[topic]
        found[identity] = serial, attempts
        if len(found) > RECENT_MAX:
            del found[next(iter(found))]

    # -- requests

    async def post(self, target, body=b""):
        await self._request("POST", target, body)

    async def put(self, target, body):
        await self._request("PUT", target, body)

    async def get(self, target):
        return await self._request("GET", target, b"")

    async def _request(self, method, target, body):
        head = f"{method} {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        head += f"Content-Length: {len(body)}\r\n\r\n"
        reader, writer = await asyncio.open_connection(*self.server.http, limit=1 << 26)
        try:
            async with asyncio.timeout(REQUEST_SECONDS_MAX):
                writer.write(head.encode() + body)
                answer = await reader.read()
        except TimeoutError:
            raise BrokenError(f"{method} {target} has no answer") from None
        finally:
            writer.close()
        answered, _, content = answer.partition(b"\r\n\r\n")
        status = int(answered.split()[1])
        if status not in SETTLED_STATUSES:
            raise BrokenError(f"{method} {target} was answered {answered!r} {content[:200]!r}")
        return content

    async def create(self, topic, found):
        """The topic and these channels of it."""
        await self.post(f"/topic/create?topic={topic}")
        for books in found:
            wipes = books.begin_creation()
            await self.post(f"/channel/create?topic={topic}&channel={books.name}")
            books.end_creation(wipes)

    async def create_all(self):
        for topic in (*TOPICS, PROBE_TOPIC):
            await self.create(topic, self.books.of_topic(topic))
        for books in self.all_books:
            topic, channel = books.dead_letters
            await self.post(f"/topic/create?topic={topic}")
            await self.post(f"/channel/create?topic={topic}&channel={channel}")

    async def unpause_all(self):
        for topic in TOPICS:
            await self.post(f"/topic/unpause?topic={topic}")
        for books in self.all_books:
            await self.post(f"/channel/unpause?topic={books.topic}&channel={books.name}")

    # -- figures

    async def figures(self):
        """What waits in topics, and (came, left) by channel, with the dead letters that are left of it."""
        found = json.loads(await self.get("/stats?format=json&include_clients=false"))
        waiting = sum(t["depth"] for t in found["topics"] if t["topic_name"].startswith(TOPICS))
        counts = {
            (t["topic_name"], c["channel_name"]): (
                c["message_count"],
                c["depth"] + c["in_flight_count"] + c["deferred_count"],
            )
            for t in found["topics"]
            for c in t["channels"]
        }
        for books in self.all_books:
            key = books.topic, books.name
            if key in counts:
                came, left = counts[key]
                counts[key] = came, left + counts[books.dead_letters][1]
        return waiting, counts

    async def still_figures(self):
        """The same, once nothing waits in a topic and they do not change."""
        last, patience = None, Patience()
        while True:
            waiting, counts = await self.figures()
            if waiting == 0 and counts == last:
                return counts
            if patience.is_over(waiting):
                raise BrokenError(f"{waiting} messages wait in topics, and {counts} changes still")
            last = counts
            await asyncio.sleep(STILL_SECONDS)

    async def settle(self):
        """Whoever is gone is so for the broker as well, and what it published is counted: that follows its fsync."""
        patience = Patience()
        while True:
            text = (await self.get("/metrics")).decode()
            (count,) = CONNECTIONS.findall(text)
            if float(count) == len(self.connected):
                break
            if patience.is_over(count):
                raise BrokenError(
                    f"the broker holds {count} connections, there are {len(self.connected)}"
                )
            await asyncio.sleep(STILL_SECONDS)
        (serial,), accept = self.books.send(PROBE_TOPIC, 1, "HTTP")
        await self.post(f"/pub?topic={PROBE_TOPIC}", serial.to_bytes(SERIAL_SIZE, "big"))
        accept()

    async def finished(self):
        """FINs that were accepted, by channel; no client was dropped for a fault of the broker's own."""
        text = (await self.get("/metrics")).decode()
        (faults,) = FAULTS.findall(text)
        if float(faults):
            raise BrokenError(f"nsqd_client_faults_total is {faults}")
        found = {
            (topic, channel): int(float(count)) for topic, channel, count in FIGURE.findall(text)
        }
        for books in self.all_books:
            found[books.topic, books.name] += found[books.dead_letters]
        health = await self.get("/ping")
        if health != b"OK":
            raise BrokenError(f"/ping says {health!r}")
        return found

    async def check_books(self):
        """Nothing moves; what is left by channel."""
        counts, finished = await self.still_figures(), await self.finished()
        for key, books in self.books.by_key.items():
            came, left = counts[key]
            books.check(came, finished[key], left)
            books.forget_unsure(left)
        return {key: left for key, (_, left) in counts.items() if key in self.books.by_key}
