"""Answers of nsqd and nsqlookupd, as far as nsqadmin reads them, and what goes wrong with them.

Unknown keys are skipped, missing ones have Go's zero value. A list that Go leaves nil comes as null. Decoding raises
UpstreamError for anything else.

The decoder holds the interpreter's lock, so a thread would not help. A large answer is split first, which is ten times
faster than decoding it, and then decoded in slices of a few milliseconds.
"""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Annotated, TypeVar
from urllib.parse import quote_plus

import msgspec

from nsqfast.net.slices import Slices
from nsqfast.nsqadmin.results import Result
from nsqfast.wire.gotext import join_host_port


class UpstreamError(Exception):
    """A node did not answer properly; the text names the request and the reason.

    `status` is 0 without an HTTP answer; `message` is the same in nsqadmin's words, for scripts.
    """

    def __init__(self, text: str, status: int = 0, message: str = "") -> None:
        super().__init__(text)
        self.status = status
        self.message = message or text


class NobodyAnsweredError(Exception):
    """No node answered, so nothing can be shown or done; the text is nsqadmin's.

    `results` are those of an action's earlier steps.
    """

    def __init__(self, kind: str, failures: Sequence[Result]) -> None:
        super().__init__(f"failed to query any {kind}: " + "\n".join(one.text for one in failures))
        self.failures = list(failures)
        self.results: list[Result] = []


COUNT_MAX = 1 << 53  # sums over a thousand nodes fit into 64 bits
Count = Annotated[int, msgspec.Meta(ge=-COUNT_MAX, le=COUNT_MAX)]
NO_SIZE = -1


class DrainFigures(msgspec.Struct, gc=False):
    """Present only in a drain."""

    since: Count = 0
    deadline: Count | None = None  # both are Unix time
    messages: Count = 0  # still to be delivered
    held: Count = 0  # those of them that nobody gets: paused, or without consumers


class UncleanStartFigures(msgspec.Struct, gc=False):
    """Present until an operator has acknowledged it."""

    messages: Count | None = None  # at most so many are lost; None: not known


class Percentiles(msgspec.Struct, gc=False):
    """From publishing to FIN, as nsqd measures it."""

    count: int = 0
    percentiles: list[dict[str, float]] | None = None


class Client(msgspec.Struct, gc=False):
    """A consumer of a channel."""

    client_id: str = ""
    hostname: str = ""
    version: str = ""
    remote_address: str = ""
    state: int = 0
    ready_count: int = 0
    in_flight_count: int = 0
    message_count: int = 0
    finish_count: int = 0
    requeue_count: int = 0
    connect_ts: int = 0
    sample_rate: int = 0
    deflate: bool = False
    snappy: bool = False
    user_agent: str = ""
    # Ours only; 0: below a second, or nothing in flight.
    oldest_in_flight_ms: int = 0  # since it was delivered
    held_ms: int = 0  # since the last FIN or REQ
    timeout_count: int = 0  # ours only
    authed: bool = False
    auth_identity: str = ""
    auth_identity_url: str = ""
    topology_zone: str = ""
    topology_region: str = ""
    tls: bool = False
    tls_cipher_suite: str = ""
    tls_version: str = ""
    tls_negotiated_protocol: str = ""
    tls_negotiated_protocol_is_mutual: bool = False


class PolicyFigures(msgspec.Struct, gc=False):
    """The policy that holds for a channel on one nsqd."""

    name: str = ""
    max_messages: Count | None = None
    max_bytes: Count | None = None
    overflow: str = ""
    max_in_flight: Count | None = None
    max_rate: float | None = None
    retry_min: str = ""
    retry_max: str = ""
    retry_multiplier: float | None = None
    retry_jitter: float | None = None
    pause_when_failing: float | None = None
    pause_window: str = ""
    pause_time: str = ""
    max_failures: Count | None = None
    dead_letter_topic: str = ""  # {topic} and {channel} in it stand for the names


class ChannelFigures(msgspec.Struct, gc=False):
    """A channel of a topic on one nsqd; the fields are in nsqd's order, which decodes fastest."""

    channel_name: str
    depth: int = 0
    backend_depth: int = 0
    in_flight_count: int = 0
    deferred_count: int = 0
    message_count: int = 0
    requeue_count: int = 0
    timeout_count: int = 0
    client_count: int = 0
    paused: bool = False
    oldest_message_age_ms: int = 0  # this one and the next two only from ours
    longest_held_ms: int = 0
    paused_by_policy: bool = False
    dead_letter_refusal: str = ""  # why its topic of dead letters takes none; ours only

    @property
    def is_refusing(self) -> bool:
        """Whether messages that failed wait, because that topic takes none."""
        return bool(self.dead_letter_refusal)


class ChannelStats(ChannelFigures, gc=False):
    """With what is too much for a poll."""

    zone_local_msg_count: int = 0
    region_local_msg_count: int = 0
    global_msg_count: int = 0
    policy: PolicyFigures | None = None  # this one and the next three only from ours
    dropped_count: int = 0
    dead_letter_topic: str = ""
    dead_letter_counts: dict[str, Count] = {}  # by reason, since it started
    clients: list[Client] | None = None
    e2e_processing_latency: Percentiles | None = None


class TopicFigures(msgspec.Struct, gc=False):
    """A topic on one nsqd; `message_bytes` is NO_SIZE if nsqd is older than 1.0.0."""

    topic_name: str
    channels: tuple[ChannelFigures, ...] | None = None
    depth: int = 0
    backend_depth: int = 0
    message_count: int = 0
    message_bytes: int = NO_SIZE
    paused: bool = False
    has_dead_letters: bool = False  # ours only


class TopicStats(TopicFigures, gc=False):
    """With what is too much for a poll."""

    channels: tuple[ChannelStats, ...] | None = None
    e2e_processing_latency: Percentiles | None = None


class MemoryFigures(msgspec.Struct, gc=False):
    """Present only on request."""

    heap_in_use_bytes: Count = 0
    heap_idle_bytes: Count = 0
    heap_released_bytes: Count = 0

    @property
    def held_bytes(self) -> int:
        """What it has of the system: of ours the resident memory, of Go's nsqd its heap."""
        return self.heap_in_use_bytes + self.heap_idle_bytes - self.heap_released_bytes


BOUNDS_MAX = 64  # of a histogram: ours has 15
Bound = Annotated[float, msgspec.Meta(ge=0, le=COUNT_MAX)]
Bounds = Annotated[tuple[tuple[Bound, Count], ...], msgspec.Meta(max_length=BOUNDS_MAX)]


class CommitTimes(msgspec.Struct, gc=False):
    """How many commits there were, and how many of them took so long at most."""

    count: Count = 0
    within_ms: Bounds = ()


class CommitLogFigures(msgspec.Struct, gc=False):
    """Present only if it has a commit log, as only ours do."""

    mode: str = ""
    failed: bool = False
    refusal: str = ""  # why it takes no messages
    checkpoint_error: str = ""
    size_bytes: Count = 0
    needed_bytes: Count = 0
    bad_quarters: Count = 0
    commit_count: Count = 0
    message_count: Count = 0
    commit_times: CommitTimes = msgspec.field(default_factory=CommitTimes)
    checkpoint_count: Count = 0
    last_checkpoint: Count = 0  # Unix time
    last_checkpoint_ms: Count = 0
    carried_bytes: Count = 0


class NodeFigures(msgspec.Struct, gc=False):
    """/stats?format=json, for a poll."""

    version: str | None = None
    health: str = ""
    start_time: Count = 0
    topics: tuple[TopicFigures, ...] | None = None
    memory: MemoryFigures | None = None
    drain: DrainFigures | None = None
    unclean_start: UncleanStartFigures | None = None
    commit_log: CommitLogFigures | None = None


class NsqdStats(msgspec.Struct, gc=False):
    """/stats?format=json, for whoever looks at a topic, a channel or its clients."""

    topics: list[TopicStats] | None = None

    def topics_named(self, name: str) -> list[TopicStats]:
        """One, or none, of an nsqd that repeats no name."""
        return [topic for topic in self.topics or () if topic.topic_name == name]

    def channels_named(self, topic: str, name: str) -> list[ChannelStats]:
        """Like `topics_named`."""
        every = [channel for each in self.topics_named(topic) for channel in each.channels or ()]
        return [channel for channel in every if channel.channel_name == name]


class CountedChannel(msgspec.Struct, gc=False):
    """A channel, reduced to its message count."""

    channel_name: str
    message_count: int = 0


class CountedTopic(msgspec.Struct, gc=False):
    """A topic, reduced to the message counts of its channels."""

    topic_name: str
    channels: list[CountedChannel] | None = None


class CountedStats(msgspec.Struct, gc=False):
    """/stats?format=json, reduced to the message counts of channels."""

    topics: list[CountedTopic] | None = None


class NodeIdentity(msgspec.Struct, gc=False):
    """Who an nsqd is, as it says itself in /info, or to nsqlookupd; of an nsqlookupd /info has only some of it."""

    hostname: str = ""
    broadcast_address: str = ""
    tcp_port: int = 0
    http_port: int = 0
    version: str = ""
    topology_zone: str = ""
    topology_region: str = ""

    @property
    def key(self) -> str:
        """`broadcast_address:http_port`: where it is asked, and its name in the cluster."""
        return join_host_port(self.broadcast_address, self.http_port)


class Announced(NodeIdentity, gc=False):
    """An nsqd, in /nodes and /lookup of nsqlookupd."""

    remote_address: str = ""  # only in /nodes


class ListedProducer(Announced, gc=False):
    """In /nodes, with its topics still encoded."""

    tombstones: msgspec.Raw = msgspec.Raw(b"null")
    topics: msgspec.Raw = msgspec.Raw(b"null")


class ListedNodes(msgspec.Struct, gc=False):
    """/nodes, with the topics of its nodes still encoded."""

    producers: list[ListedProducer] | None = None


class Lookup(msgspec.Struct, gc=False):
    """/lookup?topic="""

    channels: list[str] | None = None
    producers: list[Announced] | None = None


class ListedNames(msgspec.Struct, gc=False):
    """/topics or /channels?topic="""

    topics: list[str] | None = None
    channels: list[str] | None = None


def stats_path(
    topic: str = "", channel: str = "", *, with_clients: bool = False, with_memory: bool = False
) -> str:
    """The question for all topics of an nsqd, or for one, or for a channel of it."""
    path = f"/stats?format=json&include_mem={'true' if with_memory else 'false'}"
    path += f"&topic={quote_plus(topic)}" if topic else ""
    path += f"&channel={quote_plus(channel)}" if channel else ""
    return path if with_clients else f"{path}&include_clients=false"


T = TypeVar("T")

PIECE_SIZE_MAX = 256 << 10  # decoded in a millisecond or two
TOPIC_BEGIN = b'{"topic_name":'
LISTS_KEPT = 16  # of sorted names; 50 kB each with 500


def decode(body: bytes | bytearray | msgspec.Raw, kind: type[T]) -> T:
    """In one go; bytes that are not UTF-8 become U+FFFD, as in Go. UpstreamError for invalid answers."""
    try:
        return msgspec.json.decode(body, type=kind)
    except UnicodeDecodeError:
        return decode(bytes(body).decode("utf-8", "replace").encode(), kind)
    except (ValueError, RecursionError) as error:
        raise UpstreamError(_decoder_text(bytes(body)[:64], error)) from None


async def decode_in_slices(body: bytes | bytearray, kind: type[T]) -> T:
    """Like `decode`; a large answer to /stats in pieces."""
    if kind is not NsqdStats:
        return decode(body, kind)
    slices, topics = Slices(), list[TopicStats]()
    for piece, is_rest in split_stats(body):
        found = decode(piece, NsqdStats).topics if is_rest else decode(piece, list[TopicStats])
        topics += found or ()
        await slices.pause()
    return NsqdStats(topics)  # type: ignore[return-value]


def split_stats(body: bytes | bytearray) -> Iterator[tuple[bytes | bytearray, bool]]:
    """The JSON of a large answer to /stats in pieces, so that others may run between two of them.

    These are lists of whole topics, then the rest, whose `topics` are the last ones; True stands beside it.
    """
    begins = list(_topic_begins(body)) if len(body) > PIECE_SIZE_MAX else []
    for begin, end in itertools.pairwise(begins):
        yield b"[" + body[begin:end].rstrip().removesuffix(b",") + b"]", False
    yield body[: begins[0]] + body[begins[-1] :] if len(begins) > 1 else body, True


def _topic_begins(body: bytes | bytearray) -> Iterator[int]:
    """Where pieces may begin. Quotes within a JSON string are escaped, so no name can look like one."""
    found = body.find(TOPIC_BEGIN)
    while found >= 0:
        yield found
        found = body.find(TOPIC_BEGIN, found + PIECE_SIZE_MAX)


def _decoder_text(start: bytes, error: Exception) -> str:
    """Go's text for invalid JSON, ours for the rest."""
    text = start.lstrip(b" \t\r\n").decode("utf-8", "replace")
    if not text:
        return "unexpected end of JSON input"
    if text[0] not in '{["-0123456789tfn':
        return f"invalid character {quote_character(text[0])} looking for beginning of value"
    return str(error)


def quote_character(character: str) -> str:
    """The character as Go's decoder names it."""
    shown = {"'": r"'\''", '"': "'\"'", "\n": r"'\n'", "\t": r"'\t'", "\r": r"'\r'"}
    return shown.get(character) or (
        f"'{character}'" if character.isprintable() else f"'\\x{ord(character):02x}'"
    )


def join_sorted(lists: Iterable[Iterable[str]]) -> tuple[str, ...]:
    """The strings of all lists, each once, sorted."""
    return sort_names(frozenset[str]().union(*lists))


@lru_cache(maxsize=LISTS_KEPT)
def sort_names(names: frozenset[str]) -> tuple[str, ...]:
    """Most nodes of a cluster have the same topics, and recognising that takes half the time of sorting them."""
    return tuple(sorted(names))
