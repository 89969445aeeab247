"""The text of nsqd.dat for the current topics, made a part at a time, and only for the parts that changed.

Topics are sorted by name into blocks, each with its text. A change marks its block, so one more topic among a hundred
thousand costs the text of about fifty.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from nsqfast.version import NSQ_VERSION

if TYPE_CHECKING:
    from nsqfast._ext.broker.topics import Topics

BLOCK_COUNT_MAX = 64  # topics per block
CHANNEL_COUNT = 64  # channels of a topic in one piece of text
_BOOL = {False: "false", True: "true"}


class _Block:
    """Neighbours by name, and their text in the file."""

    __slots__ = ("is_changed", "names", "text")

    def __init__(self, names: list[str]) -> None:
        self.names = names
        self.text = b""
        self.is_changed = True


class Listing:
    """The text for all topics and channels that are not ephemeral."""

    def __init__(self, topics: "Topics") -> None:
        self._topics = topics
        self._by_name: dict[str, Any] = {}  # those that are listed
        self._blocks: list[_Block] = []
        self._firsts: list[str] = []  # first name of each block
        self._texts: list[bytes] = []
        self._is_known = False  # whether the blocks hold the current topics

    def note_all(self) -> None:
        """Mark everything as changed."""
        self._is_known = False

    def note(self, kind: str, name: str) -> None:
        """A topic that is not ephemeral, or one of its channels, was created or removed."""
        if not self._is_known:
            return
        if kind == "topic+":
            self._by_name[name] = self._topics.ensure(name)
        elif name not in self._by_name:
            return
        block = self._blocks[max(bisect_right(self._firsts, name) - 1, 0)]
        block.is_changed = True
        place = bisect_left(block.names, name)
        is_listed = place < len(block.names) and block.names[place] == name
        if kind == "topic+" and not is_listed:
            block.names.insert(place, name)
        elif kind == "topic-":
            del self._by_name[name]
            if is_listed:
                del block.names[place]

    def write(self) -> Iterator[None]:
        """Make the texts that changed, one piece per step; changes between two steps are left for the next time."""
        if not self._is_known:
            topics = [topic for topic in self._topics.sorted() if not topic.ephemeral]
            self._by_name = {topic.name: topic for topic in topics}
            self._blocks = [_Block(list(self._by_name))]
            self._is_known = True
        self._arrange()
        blocks = self._blocks
        for block in blocks:
            if block.is_changed:
                yield from self._write_block(block)
        self._texts = [block.text for block in blocks if block.text]

    def text(self) -> bytes:
        """The file's content as of the last completed `write`."""
        topics = b",".join(self._texts)
        return b'{"topics":%b,"version":"%b"}' % (
            b"[%b]" % topics if topics else b"null",
            NSQ_VERSION.encode(),
        )

    def _arrange(self) -> None:
        """Split blocks that grew, drop empty ones."""
        blocks: list[_Block] = []
        for block in self._blocks:
            if len(block.names) <= BLOCK_COUNT_MAX:
                blocks += [block] if block.names else []
                continue
            size = BLOCK_COUNT_MAX // 2
            starts = range(0, len(block.names), size)
            blocks += [_Block(block.names[start : start + size]) for start in starts]
        self._blocks = blocks or [_Block([])]
        self._firsts = [block.names[0] if block.names else "" for block in self._blocks]

    def _write_block(self, block: _Block) -> Iterator[None]:
        block.is_changed = False
        texts = []
        for name in list(block.names):
            topic = self._by_name.get(name)
            if topic is None:
                continue
            pieces = []
            for piece in topic_pieces(topic):
                pieces.append(piece)
                yield
            texts.append("".join(pieces))
        block.text = ",".join(texts).encode()


def topic_pieces(topic: Any) -> Iterator[str]:
    """The text of one topic. Valid names need no escapes."""
    channels = [channel for channel in topic.channels() if not channel.ephemeral]
    head = f'{{"name":"{topic.name}","paused":{_BOOL[topic.paused]},"channels":'
    if not channels:
        yield head + "null}"
        return
    yield head + "["
    for start in range(0, len(channels), CHANNEL_COUNT):
        some = channels[start : start + CHANNEL_COUNT]
        entries = [f'{{"name":"{each.name}","paused":{_BOOL[each.paused]}}}' for each in some]
        yield ("," if start else "") + ",".join(entries)
    yield "]}"
