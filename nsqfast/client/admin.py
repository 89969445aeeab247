"""Create, pause, empty and delete topics and channels, look at waiting messages, and count them: over HTTP.

    async with Admin("127.0.0.1:4151") as admin:
        await admin.create_channel("orders", "billing")
        for nsqd in await admin.stats("orders"):
            print(nsqd.nsqd, nsqd.topics["orders"].channels["billing"].depth)

It asks the nsqd at the given HTTP addresses, and those that `nsqlookupd=` lists for the topic; each method returns
what all of them say.
"""

import asyncio
import base64
import ssl
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar
from urllib.parse import urlencode, urlsplit

import orjson

from nsqfast.client.addresses import LOOKUPD, addresses_or_environment, as_list
from nsqfast.client.config import Config
from nsqfast.client.connection import lookupd_context
from nsqfast.client.discovery import OK, addresses_in, open_session, probe, read_answer
from nsqfast.client.lifetime import Logger, Resource
from nsqfast.errors import (
    ConnectError,
    OptionsError,
    RefusedError,
    UnsupportedError,
    WrongPeerError,
)
from nsqfast.wire.names import check_name

if TYPE_CHECKING:
    import aiohttp


ANSWER_SIZE_MAX = 64 << 20  # /stats of many topics
NAME_LENGTH_MAX = 60
# What else there is to say of an answer.
ADVICE = {
    "ADMIN_ADDRESS_ONLY": "say the address that is its --http-admin-address",
    "TLS_REQUIRED": "say https:// and its HTTPS port (4152 as a rule)",
    "UNAUTHORIZED": "say Config(auth_secret=...)",
    "FORBIDDEN": "the auth_secret's identity may not do this",
}
NOT_THERE = {
    "TOPIC_NOT_FOUND",
    "CHANNEL_NOT_FOUND",
    "MESSAGE_NOT_FOUND",
    "NO_DEAD_LETTERS",
    "NO_REDRIVE",
}
PROBED = {
    "nsqd": "this is the TCP port of an nsqd; give its HTTP port (4151 as a rule)",
    "nsqlookupd": "this is nsqlookupd's TCP port; give its HTTP port (4161 as a rule) as nsqlookupd=",
}


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of daemon: its name, its usual HTTP port, and what to write if it is given in the place of the other."""

    name: str
    port: int
    wrong: str


NSQD = Kind("nsqd", 4151, "this is no nsqd; an nsqlookupd is given as nsqlookupd=")
NSQLOOKUPD = Kind("nsqlookupd", 4161, "this is an nsqd; it is given as first parameter")


def http_url(address: str, kind: Kind) -> str:
    """`http://host:port` of an address, or of a URL without a path; OptionsError for anything else."""
    try:
        parts = urlsplit(address if "://" in address else f"http://{address}")
        is_whole = bool(parts.hostname) and parts.port is not None
    except ValueError:
        is_whole = False
    if (
        not is_whole
        or parts.scheme not in {"http", "https"}
        or parts.path not in {"", "/"}
        or parts.query
        or parts.fragment
        or not address.isprintable()
        or " " in address
    ):
        raise OptionsError(
            f"{address!r}: say host:port or https://host:port, the HTTP port of {kind.name} ({kind.port} as a rule)"
        )
    return f"{parts.scheme}://{parts.netloc}"


@dataclass(slots=True)
class HttpPeer:
    """One daemon; the first request finds out whether it is of that kind."""

    url: str
    kind: Kind
    session: "aiohttp.ClientSession"
    tls: ssl.SSLContext | bool
    headers: Mapping[str, str]
    _info: dict[str, Any] = field(default_factory=dict)

    @property
    def address(self) -> str:
        """As the user gave it, without http://."""
        return self.url.removeprefix("http://")

    async def get(self, path: str, **values: str | bytes) -> bytes:
        """The body of the answer; RefusedError or UnsupportedError if it is not 200."""
        await self._check_kind()
        return await self._ask("GET", path, values)

    async def post(self, path: str, **values: str | bytes) -> bytes:
        """The same."""
        await self._check_kind()
        return await self._ask("POST", path, values)

    async def _check_kind(self) -> None:
        if not self._info:
            answer = await self._ask("GET", "/info", {})
            info = _read_object(answer)
            if not info or ("tcp_port" in info) is not (self.kind is NSQD):
                raise WrongPeerError(f"{self.address}: {self.kind.wrong}")
            self._info = info

    async def _ask(self, method: str, path: str, values: Mapping[str, str | bytes]) -> bytes:
        import aiohttp
        from yarl import URL

        query = urlencode({name: value for name, value in values.items() if value not in {"", b""}})
        url = URL(f"{self.url}{path}?{query}", encoded=True)
        try:
            async with self.session.request(
                method, url, ssl=self.tls, headers=self.headers, allow_redirects=False
            ) as response:
                answer = await read_answer(response, ANSWER_SIZE_MAX)
        except ConnectError as error:
            raise ConnectError(f"{self.address}: {error}") from None
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            is_connected = not isinstance(error, aiohttp.ClientConnectorError | TimeoutError)
            found = PROBED.get(await probe(self.url), "") if is_connected else ""
            text = f"{self.address}: {found or error or type(error).__name__}"
            raise (WrongPeerError if found else ConnectError)(text) from None
        if response.status != OK:
            raise self._refusal(response.status, path, answer)
        return answer

    def _refusal(self, status: int, path: str, answer: bytes) -> Exception:
        """What an answer other than 200 means."""
        name = str(_read_object(answer).get("message", ""))
        if not name.isprintable() or len(name) > NAME_LENGTH_MAX:
            name = ""
        if name in ADVICE:
            return RefusedError(f"{name} {self.address}: {ADVICE[name]}")
        if not self._info:
            return WrongPeerError(f"{self.address}: {self.kind.wrong}")
        if name == "NOT_FOUND":
            return UnsupportedError(
                f"{self.address} has no {path}: NSQ's own {self.kind.name} cannot do that, nsqfast's can"
            )
        if not name:
            return ConnectError(f"{self.address}: {status} {answer[:100]!r}")
        return RefusedError(f"{name} {self.address}")


def _read_object(answer: bytes) -> dict[str, Any]:
    """A JSON object, or an empty one."""
    try:
        found = orjson.loads(answer)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


# What an Admin returns: the answers of nsqd's HTTP API, with types.


T = TypeVar("T")

SECOND_NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class ChannelStats:
    """A channel of one nsqd; the counts are of messages, since that nsqd started."""

    name: str
    depth: int  # queued
    backend_depth: int  # of these on disk
    in_flight_count: int
    deferred_count: int
    message_count: int
    requeue_count: int
    timeout_count: int
    consumer_count: int
    is_paused: bool


@dataclass(frozen=True, slots=True)
class TopicStats:
    """A topic of one nsqd; `depth` is what no channel has yet."""

    name: str
    depth: int
    backend_depth: int
    message_count: int
    message_bytes: int
    is_paused: bool
    channels: dict[str, ChannelStats]


@dataclass(frozen=True, slots=True)
class NsqdStats:
    """One nsqd; `health` is "OK", or says what is wrong."""

    nsqd: str  # its HTTP address
    version: str
    health: str
    start_time: datetime
    topics: dict[str, TopicStats]


@dataclass(frozen=True, slots=True)
class PeekedMessage:
    """A message that waits; `body` is its beginning if `is_truncated`. `where`: memory, disk, in_flight or deferred."""

    id: bytes
    timestamp_ns: int  # Unix time of the publish
    attempts: int
    size: int  # of the whole body
    body: bytes
    is_truncated: bool
    where: str
    due: datetime | None  # when it times out, or is queued


@dataclass(frozen=True, slots=True)
class Peek:
    """The messages of one state in a channel, or topic, of one nsqd."""

    nsqd: str  # its HTTP address
    depth: int  # how many there are in that state
    messages: tuple[PeekedMessage, ...]
    next_offset: int | None  # where to go on; None at the end, and beyond 10,000
    note: str  # why it ended early


@dataclass(frozen=True, slots=True)
class Redrive:
    """Dead letters of one nsqd on their way back, or deleted. `state`: running, done, cancelled or failed."""

    nsqd: str  # its HTTP address
    state: str
    moved: int
    left: int  # to be examined
    deletes: bool
    error: str


def read_answer_of(nsqd: str, answer: bytes, read: Callable[[str, Any], T]) -> T:
    """Read the JSON; ConnectError if it is not what an nsqd answers."""
    try:
        return read(nsqd, orjson.loads(answer))
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, OSError):
        raise ConnectError(f"{nsqd}: no answer of an nsqd: {answer[:100]!r}") from None


def read_stats(nsqd: str, found: dict[str, Any]) -> NsqdStats:
    """/stats?format=json; a topic that is not there leaves null."""
    topics = [_read_topic(topic) for topic in found["topics"] or ()]
    return NsqdStats(
        nsqd=nsqd,
        version=_text(found["version"]),
        health=_text(found["health"]),
        start_time=datetime.fromtimestamp(_whole(found["start_time"]), UTC),
        topics={topic.name: topic for topic in topics},
    )


def _read_topic(found: dict[str, Any]) -> TopicStats:
    channels = [_read_channel(channel) for channel in found["channels"] or ()]
    return TopicStats(
        name=_text(found["topic_name"]),
        **_counts(found, "depth", "backend_depth", "message_count", "message_bytes"),
        is_paused=found["paused"] is True,
        channels={channel.name: channel for channel in channels},
    )


def _read_channel(found: dict[str, Any]) -> ChannelStats:
    return ChannelStats(
        name=_text(found["channel_name"]),
        **_counts(found, "depth", "backend_depth", "in_flight_count", "deferred_count"),
        **_counts(found, "message_count", "requeue_count", "timeout_count"),
        consumer_count=_whole(found["client_count"]),
        is_paused=found["paused"] is True,
    )


def read_peek(nsqd: str, found: dict[str, Any]) -> Peek:
    """/channel/peek, /topic/peek."""
    after = found["next_offset"]
    return Peek(
        nsqd=nsqd,
        depth=_whole(found["depth"]),
        messages=tuple([_read_message(message) for message in found["messages"]]),
        next_offset=None if after is None else _whole(after),
        note=_text(found["note"] or ""),
    )


def _read_message(found: dict[str, Any]) -> PeekedMessage:
    body, due_ns = _text(found["body"]), found["due"]
    is_packed = found["encoding"] == "base64"
    return PeekedMessage(
        id=_text(found["id"]).encode("ascii"),
        timestamp_ns=_whole(found["timestamp"]),
        **_counts(found, "attempts", "size"),
        body=base64.b64decode(body, validate=True) if is_packed else body.encode(),
        is_truncated=found["is_truncated"] is True,
        where=_text(found["where"]),
        due=None if due_ns is None else datetime.fromtimestamp(_whole(due_ns) / SECOND_NS, UTC),
    )


def read_redrive(nsqd: str, found: dict[str, Any]) -> Redrive:
    """/channel/redrive."""
    return Redrive(
        nsqd=nsqd,
        state=_text(found["state"]),
        **_counts(found, "moved", "left"),
        deletes=found["delete"] is True,
        error=_text(found["error"]),
    )


def _counts(found: dict[str, Any], *names: str) -> dict[str, int]:
    return {name: _whole(found[name]) for name in names}


def _whole(value: object) -> int:
    if type(value) is not int:
        raise TypeError
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


TIMEOUT_S = 10.0
LIMIT = 20
ID_SIZE = 16
PEERS_KEPT_MAX = 10_000  # nsqlookupd may list others each time


class Admin(Resource):
    """`nsqd`: HTTP addresses, host:port (4151 as a rule) or https://host:port. `nsqlookupd`: likewise (4161).
    Without any, those of NSQFAST_LOOKUPD in the environment count.

    `config`: its auth_secret goes to the nsqd, its certificates count for https://. `timeout_s`: of each request.
    OptionsError: an address that cannot be one; InvalidNameError: a name. ConnectError, WrongPeerError: an nsqd, or
    another daemon, does not answer. RefusedError: its `code` is nsqd's word, TOPIC_NOT_FOUND for example.
    UnsupportedError: NSQ's own nsqd cannot do that.
    """

    kind: ClassVar[str] = "admin client"

    def __init__(
        self,
        *nsqd: str | Sequence[str],
        nsqlookupd: str | Sequence[str] = (),
        config: Config | None = None,
        timeout_s: float = TIMEOUT_S,
        logger: Logger | None = None,
    ) -> None:
        super().__init__(logger)
        addresses = list(dict.fromkeys(one for given in nsqd for one in as_list(given)))
        lookupd = (
            as_list(nsqlookupd) if addresses else addresses_or_environment(nsqlookupd, LOOKUPD)
        )
        self._nsqd = [http_url(address, NSQD) for address in addresses]
        self._lookupd = [http_url(address, NSQLOOKUPD) for address in lookupd]
        if not addresses and not lookupd:
            raise OptionsError(
                "an admin client needs the HTTP address of an nsqd, or nsqlookupd=, "
                f"or {LOOKUPD} in the environment"
            )
        if timeout_s <= 0:
            raise OptionsError("timeout_s is positive")
        self._config = Config.given(config)
        self._tls: ssl.SSLContext | bool = lookupd_context(self._config) or True
        self._timeout_s = timeout_s
        self._session: aiohttp.ClientSession | None = None
        self._peers: dict[str, HttpPeer] = {}

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def start(self) -> None:
        """Begin; it connects when it is asked for something."""
        import aiohttp

        self._begin()
        self._session = open_session(aiohttp.ClientTimeout(total=self._timeout_s))

    async def close(self) -> None:
        """Close its connections."""
        session, self._session = self._session, None
        if session is not None:
            self._check_loop()
            await session.close()
            self._forbid("is closed")
            self._finish()

    @property
    def name(self) -> str:
        """Its addresses."""
        return ", ".join([*self._nsqd, *self._lookupd])

    # -- topics and channels; each returns the addresses of the nsqd where that was done

    async def create_topic(self, topic: str) -> list[str]:
        """Create it at the given nsqd, and let nsqlookupd know it."""
        return await self._register("/topic/create", topic)

    async def create_channel(self, topic: str, channel: str) -> list[str]:
        """Create it, and its topic, at the given nsqd and at those that have the topic."""
        _check_channel(channel)
        await self._register("/topic/create", topic)
        return await self._register("/channel/create", topic, channel)

    async def delete_topic(self, topic: str) -> list[str]:
        """Delete it with its channels and messages."""
        return await self._register("/topic/delete", topic)

    async def delete_channel(self, topic: str, channel: str) -> list[str]:
        """Delete it with its messages; its consumers are disconnected."""
        _check_channel(channel)
        return await self._register("/channel/delete", topic, channel)

    async def pause_topic(self, topic: str) -> list[str]:
        """Let its channels get nothing more."""
        return await self._change("/topic/pause", topic)

    async def unpause_topic(self, topic: str) -> list[str]:
        """Let its channels get what has come, and what comes."""
        return await self._change("/topic/unpause", topic)

    async def empty_topic(self, topic: str) -> list[str]:
        """Drop what no channel has yet."""
        return await self._change("/topic/empty", topic)

    async def pause_channel(self, topic: str, channel: str) -> list[str]:
        """Deliver nothing more to its consumers."""
        return await self._change("/channel/pause", topic, channel=_check_channel(channel))

    async def unpause_channel(self, topic: str, channel: str) -> list[str]:
        """Deliver again."""
        return await self._change("/channel/unpause", topic, channel=_check_channel(channel))

    async def empty_channel(self, topic: str, channel: str) -> list[str]:
        """Drop all of its messages, in flight and deferred ones too."""
        return await self._change("/channel/empty", topic, channel=_check_channel(channel))

    # -- figures and messages

    async def stats(self, topic: str = "", channel: str = "") -> list[NsqdStats]:
        """The figures of each nsqd; of one topic or channel, if it is named."""
        if topic:
            _check_topic(topic)
        if channel:
            _check_channel(channel)
        wanted = {"topic": topic, "channel": channel, "format": "json"}
        wanted |= {"include_clients": "false", "include_mem": "false"}
        nodes = await self._nodes(topic)
        answers = await _gather(nodes, [node.get("/stats", **wanted) for node in nodes])
        return [read_answer_of(nsqd, answer, read_stats) for nsqd, answer in answers]

    async def peek(
        self,
        topic: str,
        channel: str = "",
        *,
        state: str = "ready",
        limit: int = LIMIT,
        offset: int = 0,
        contains: bytes = b"",
    ) -> list[Peek]:
        """Messages that wait at each nsqd: `limit` of them (1 to 100) behind the first `offset`, up to 10,000.

        `state` is ready, in_flight or deferred; without a channel, what the topic itself holds. contains: only those
        with these bytes, up to 1,024, in the body. UnsupportedError: NSQ's own nsqd can only count them.
        """
        wanted = {"topic": _check_topic(topic), "state": state}
        wanted |= {"limit": f"{limit:d}", "offset": f"{offset:d}"}
        if channel:
            wanted["channel"] = _check_channel(channel)
        path = "/channel/peek" if channel else "/topic/peek"
        nodes = await self._nodes(topic)
        works = [node.get(path, filter=contains, **wanted) for node in nodes]
        answers = await _gather(nodes, works)
        return [read_answer_of(nsqd, answer, read_peek) for nsqd, answer in answers]

    async def deferred(
        self, topic: str, channel: str, *, limit: int = LIMIT, offset: int = 0
    ) -> list[Peek]:
        """`peek` at deferred messages, the first that is due first."""
        _check_channel(channel)
        return await self.peek(topic, channel, state="deferred", limit=limit, offset=offset)

    async def cancel_deferred(self, topic: str, channel: str, id: bytes) -> list[str]:
        """Drop a deferred message from a channel, whoever deferred it; RefusedError if it is not deferred there."""
        return await self._change_deferred("/channel/deferred/cancel", topic, channel, id)

    async def run_deferred(self, topic: str, channel: str, id: bytes) -> list[str]:
        """Queue it at once."""
        return await self._change_deferred("/channel/deferred/run", topic, channel, id)

    # -- dead letters

    async def redrive(
        self,
        topic: str,
        channel: str,
        *,
        rate: float = 0,
        limit: int = 0,
        contains: str | bytes = "",
        search: str = "",
        reason: str = "",
        source_channel: str = "",
        delete: bool = False,
    ) -> list[Redrive]:
        """Begin to send a channel's dead letters back to it: at each nsqd `rate` messages a second, `limit` of them
        (0: all) with this text in the body, with what the search asks for (`status:failed user.id:17`), that died for
        this reason (failed, expired, over_limit, rejected). `source_channel`: of their topic, if it has several.
        delete: they go for ever, and there is no limit.

        RefusedError: REDRIVE_RUNNING, NO_DEAD_LETTERS. UnsupportedError: NSQ's own nsqd cannot.
        """
        wanted = {"rate": f"{rate:g}", "limit": f"{limit:d}", "from": source_channel}
        wanted |= {"search": search, "reason": reason, "delete": "true" if delete else "false"}
        return await self._redrive("POST", "", topic, channel, filter=contains, **wanted)

    async def redrives(self, topic: str, channel: str) -> list[Redrive]:
        """How far the last one is, at each nsqd that began one."""
        return await self._redrive("GET", "", topic, channel)

    async def cancel_redrive(self, topic: str, channel: str) -> list[Redrive]:
        """End it; what was moved stays where it is, what was deleted is gone."""
        return await self._redrive("POST", "/cancel", topic, channel)

    # -- how

    async def _redrive(
        self, method: str, path: str, topic: str, channel: str, **more: str | bytes
    ) -> list[Redrive]:
        names = {"topic": _check_topic(topic), "channel": _check_channel(channel)}
        nodes = _check_found(await self._nodes(topic), topic)
        path = f"/channel/redrive{path}"
        asks = [node.get if method == "GET" else node.post for node in nodes]
        answers = await _gather(nodes, [ask(path, **names, **more) for ask in asks])
        return [read_answer_of(nsqd, answer, read_redrive) for nsqd, answer in answers]

    async def _change_deferred(self, path: str, topic: str, channel: str, id: bytes) -> list[str]:
        if not isinstance(id, bytes) or len(id) != ID_SIZE:
            raise OptionsError(f"{id!r} is no id of a message: bytes, 16 lower-case hex digits")
        return await self._change(path, topic, channel=_check_channel(channel), id=id)

    async def _change(self, path: str, topic: str, **more: str | bytes) -> list[str]:
        """POST it to all nsqd that have the topic."""
        _check_topic(topic)
        nodes = _check_found(await self._nodes(topic), topic)
        done = await _gather(nodes, [node.post(path, topic=topic, **more) for node in nodes])
        return [address for address, _ in done]

    async def _register(self, path: str, topic: str, channel: str = "") -> list[str]:
        """POST it to all nsqlookupd, which must not pass on what is deleted, and then to the nsqd."""
        _check_topic(topic)
        nodes = await self._nodes(topic)
        if path.endswith("/delete"):
            _check_found(nodes, topic)
        known: list[tuple[str, bytes]] = []
        for peers in (self._each(self._lookupd, NSQLOOKUPD), nodes):
            works = [peer.post(path, topic=topic, channel=channel) for peer in peers]
            try:
                known = await _gather(peers, works)
            except RefusedError as error:
                if peers is nodes or error.code not in NOT_THERE:
                    raise
        return [address for address, _ in known]

    async def _nodes(self, topic: str) -> list[HttpPeer]:
        """The given nsqd, and those that nsqlookupd lists for the topic; '' = all."""
        self._check_loop()
        urls = list(self._nsqd)
        lookupd = self._each(self._lookupd, NSQLOOKUPD)
        path = "/lookup" if topic else "/nodes"
        try:
            for _, answer in await _gather(
                lookupd, [one.get(path, topic=topic) for one in lookupd]
            ):
                found = addresses_in(answer, self._log, is_bare=False, port="http_port")
                urls += [f"http://{address}" for address in sorted(found)]
        except RefusedError as error:
            if error.code not in NOT_THERE:
                raise
        return self._each(dict.fromkeys(urls), NSQD)

    def _each(self, urls: Iterable[str], kind: Kind) -> list[HttpPeer]:
        assert self._session is not None
        secret = self._config.auth_secret if kind is NSQD else ""
        headers = {"Authorization": f"Bearer {secret}"} if secret else {}
        if len(self._peers) > PEERS_KEPT_MAX:
            self._peers.clear()  # what is asked again only has to introduce itself again
        for url in urls:
            if url not in self._peers:
                self._peers[url] = HttpPeer(url, kind, self._session, self._tls, headers)
        return [self._peers[url] for url in urls]


async def _gather(
    peers: Sequence[HttpPeer], works: Iterable[Coroutine[Any, Any, T]]
) -> list[tuple[str, T]]:
    """Ask all at once; return (address, answer) of those that have what was named. The first failure is raised when all
    have answered.
    """
    answers = await asyncio.gather(*works, return_exceptions=True)
    done: list[tuple[str, T]] = []
    missing: list[BaseException] = []
    failures: list[BaseException] = []
    for peer, answer in zip(peers, answers, strict=True):
        if not isinstance(answer, BaseException):
            done.append((peer.address, answer))
        elif isinstance(answer, RefusedError) and answer.code in NOT_THERE:
            missing.append(answer)
        else:
            failures.append(answer)
    if not done:
        failures += missing
    if failures:
        if done:
            failures[0].add_note(f"done at {', '.join([address for address, _ in done])}")
        raise failures[0]
    return done


def _check_found(nodes: list[HttpPeer], topic: str) -> list[HttpPeer]:
    if not nodes:
        raise RefusedError(f"TOPIC_NOT_FOUND no nsqd has the topic {topic!r}")
    return nodes


def _check_topic(topic: str) -> str:
    return check_name("topic", topic)


def _check_channel(channel: str) -> str:
    return check_name("channel", channel)
