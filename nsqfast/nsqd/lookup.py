"""All nsqlookupd to which this broker reports, and the channels they know for a new topic (spec nsqd-core §2, §9)."""

import asyncio
import importlib
import logging
import socket
import ssl
from collections.abc import Iterator
from typing import Any

import orjson

from nsqfast._ext.broker.topic import Topic
from nsqfast._ext.broker.topics import Topics
from nsqfast.errors import ProtocolError
from nsqfast.net.masks import masked
from nsqfast.net.slices import Slices
from nsqfast.nsqd.lookup_credentials import Credentials
from nsqfast.nsqd.lookup_peer import LookupdError, LookupPeer, Name, register, unregister
from nsqfast.nsqd.options import Options
from nsqfast.version import NSQ_VERSION
from nsqfast.wire.names import is_ephemeral, is_valid_name

log = logging.getLogger("nsqd")

NS = 1e9
ANSWER_SIZE_MAX = 16 << 20
CHANNEL_UNITS = 100  # of a budget: the cost of creating a channel


class Lookup:
    """Runs from `start` to `stop`; its addresses may change meanwhile."""

    def __init__(self, topics: Topics, options: Options, credentials: Credentials) -> None:
        self._topics = topics
        self._options = options
        self.credentials = credentials  # of new connections
        self._peers: dict[str, LookupPeer] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._session: Any = None  # aiohttp's, created for the first query
        # By topic, while its channels are being queried: the channels deleted meanwhile.
        self._deleted: dict[str, set[str]] = {}
        self._is_away = False

    async def load_client(self) -> None:
        """Import the HTTP client, if it will be needed: this blocks everything for about 20 ms."""
        if self._options.nsqlookupd_tcp_addresses:
            await asyncio.to_thread(importlib.import_module, "aiohttp")

    def configure(self) -> None:
        """Create peers for the addresses now in the settings, and stop those that are gone."""
        addresses = () if self._is_away else self._options.nsqlookupd_tcp_addresses
        wanted = dict.fromkeys(addresses or ())
        for address in [address for address in self._peers if address not in wanted]:
            log.info("LOOKUP(%s): removing peer", masked(address))
            self._run(self._peers.pop(address).stop())
        for address in wanted:
            if address not in self._peers:
                log.info("LOOKUP(%s): adding peer", masked(address))
                peer = LookupPeer(
                    address, self._identity, self._names, self._options.max_body_size, self._tls
                )
                self._peers[address] = peer
                peer.start()
        self._run(self.load_client())

    async def was_registered(self) -> None:
        """Return when each nsqlookupd knows this broker, or knew it."""
        for peer in list(self._peers.values()):
            await peer.was_connected.wait()

    def leave(self) -> None:
        """End all connections, so that no nsqlookupd lists this broker, until `come_back`."""
        self._is_away = True
        self.configure()

    def come_back(self) -> None:
        """Connect and register again."""
        self._is_away = False
        self.configure()

    async def stop(self) -> None:
        """Stop all peers; topics waiting for an answer wait no longer."""
        for peer in self._peers.values():
            await peer.stop()
        self._peers.clear()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._session is not None:
            await self._session.close()

    def _run(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # reports to nsqlookupd

    def changed(self, kind: str, topic: str, channel: str | None) -> None:
        """A topic or a channel was created or removed."""
        if kind == "channel-" and channel is not None:
            self.forget_channel(topic, channel)
        if not self._peers:
            return
        command = (register if kind.endswith("+") else unregister)((topic, channel))
        for peer in self._peers.values():
            peer.tell(command)
        if kind == "topic+":
            self._ask_for_channels(topic)

    def _identity(self) -> dict[str, Any]:
        options, secret = self._options, self.credentials.secret
        return {
            "broadcast_address": options.broadcast_address,
            "hostname": socket.gethostname(),
            "http_port": options.broadcast_http_port,
            "tcp_port": options.broadcast_tcp_port,
            "topology_region": options.topology_region,
            "topology_zone": options.topology_zone,
            "version": NSQ_VERSION,
        } | ({"registration_secret": secret} if secret else {})

    def _tls(self) -> ssl.SSLContext | None:
        return self.credentials.tls

    def _names(self) -> Iterator[Name]:
        """Those that exist when their turn comes: earlier removals were already reported."""
        for topic in self._topics.sorted():
            if topic.exiting:
                continue
            channels = topic.channels()
            if not channels:
                yield topic.name, None
            for channel in channels:
                if not channel.exiting:
                    yield topic.name, channel.name

    # queries to nsqlookupd

    def _ask_for_channels(self, name: str) -> None:
        """Until the answer arrives the topic keeps its messages, so that no channel misses the first ones."""
        topic = self._topics.find(name)
        assert topic is not None
        topic.await_channels()
        deleted = self._deleted[name] = set()
        self._run(self._make_channels(topic, list(self._peers.values()), deleted))

    def forget_channel(self, topic: str, channel: str) -> None:
        """Somebody deleted the channel, whether it existed or not: a pending answer must not bring it back."""
        if topic in self._deleted:
            self._deleted[topic].add(channel)

    async def _make_channels(
        self, topic: Topic, peers: list[LookupPeer], deleted: set[str]
    ) -> None:
        try:
            found = await asyncio.gather(*[self._channels(peer, topic.name) for peer in peers])
            slices = Slices()
            for name in sorted(set().union(*found)):
                # An ephemeral channel exists while somebody consumes it, and here nobody does.
                if is_valid_name(name) and not is_ephemeral(name) and name not in deleted:
                    if topic.exiting:
                        return
                    self._topics.admit(topic.name, name)
                    topic.channel(name)
                await slices.pause(CHANNEL_UNITS)
        except ProtocolError as error:
            log.warning("LOOKUP: of what nsqlookupd knows, %s", error.detail)
        finally:
            if self._deleted.get(topic.name) is deleted:
                del self._deleted[topic.name]
            topic.have_channels()

    async def _channels(self, peer: LookupPeer, topic: str) -> set[str]:
        """The channels that one of them knows; none if it does not give a good answer."""
        await peer.was_tried.wait()
        if not peer.broadcast_address:
            log.error(
                "LOOKUPD(%s): not there to be asked for channels of topic %s", peer.shown, topic
            )
            return set()
        tls = self._tls()
        scheme = "http" if tls is None else "https"
        url = f"{scheme}://{_bracketed(peer.broadcast_address)}:{peer.http_port}/channels"
        try:
            session = await self._open_session()
            request = session.get(
                url, params={"topic": topic}, allow_redirects=False, ssl=tls or True
            )
            async with request as answer:
                body = await _body(answer)
            return set(map(str, orjson.loads(body)["channels"]))
        except Exception as error:  # whatever the error is, the topic must not wait for ever
            log.warning(
                "LOOKUPD(%s): no channels of topic %s - %s",
                peer.shown,
                topic,
                error or repr(error),
            )
            return set()

    async def _open_session(self) -> Any:
        # Importing it takes a while, and the loop has others to serve.
        aiohttp = await asyncio.to_thread(importlib.import_module, "aiohttp")
        if self._session is None:
            self._session = aiohttp.ClientSession(
                headers={
                    "Accept": "application/vnd.nsq; version=1.0",
                    "Accept-Encoding": "identity",
                },
                auto_decompress=False,  # no answer can expand
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(
                    total=self._options.http_client_request_timeout_ns / NS,
                    sock_connect=self._options.http_client_connect_timeout_ns / NS,
                ),
            )
        return self._session


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


async def _body(answer: Any) -> bytearray:
    if answer.status != 200:
        raise LookupdError(f"answered with {answer.status}")
    body = bytearray()
    async for piece in answer.content.iter_any():
        body += piece
        if len(body) > ANSWER_SIZE_MAX:
            raise LookupdError(f"an answer of more than {ANSWER_SIZE_MAX} bytes")
    return body
