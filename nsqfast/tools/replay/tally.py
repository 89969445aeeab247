"""Counts of published messages by file and topic, and the summary of the run."""

from dataclasses import dataclass, field

from nsqfast.tools.replay.batches import Batch, Skipped

HEAD = f"{'MESSAGES':>12} {'BYTES':>15}  TOPIC"


@dataclass(slots=True)
class Count:
    """Numbers of messages and bytes."""

    messages: int = 0
    size: int = 0


@dataclass(slots=True)
class Tally:
    """Counts by file and topic, in order of appearance."""

    counts: dict[tuple[str, str], Count] = field(default_factory=dict)
    messages: int = 0
    size: int = 0

    def add(self, batch: Batch) -> None:
        """Count published messages, or those of a dry run."""
        for publish in batch.publishes:
            count = self.counts.setdefault((batch.archive.path, publish.topic), Count())
            count.messages += publish.bodies.count
            count.size += publish.size
            self.messages += publish.bodies.count
            self.size += publish.size

    def table(self) -> list[str]:
        """One line per file and topic, and the total."""
        width = max((len(topic) for _, topic in self.counts), default=0)
        width = max(width, len("TOPIC"))
        lines = [f"{HEAD:<{28 + width}}  FILE"]
        for (path, topic), count in self.counts.items():
            lines.append(f"{count.messages:>12} {count.size:>15}  {topic:<{width}}  {path}")
        lines.append(f"{self.messages:>12} {self.size:>15}  {'':<{width}}  total")
        return lines


@dataclass(frozen=True, slots=True)
class Outcome:
    """The contents of a summary."""

    tally: Tally
    skipped: Skipped
    damaged_before: int = 0  # in earlier runs of the same --state
    files: int = 0
    done_before: int = 0  # files
    outside: int = 0  # files
    unfinished: int = 0  # files
    resent: int = 0  # batches
    forgotten: int = 0  # messages, by --dedupe
    count_sure: int = 0
    seconds: float = 0.0

    @property
    def is_damaged(self) -> bool:
        """Whether records that should be there were left out."""
        return bool(self.skipped.damaged or self.damaged_before or self.unfinished)

    def lines(self, verb: str) -> list[str]:
        """Lines for stdout; `verb` says what happened to the messages."""
        rate = self.tally.messages / self.seconds if self.seconds else 0.0
        speed = f" in {self.seconds:.1f} s ({rate:,.0f}/s)" if self.seconds else ""
        what = f"{self.tally.messages:,} messages of {self.tally.size:,} bytes"
        said = [f"{what} from {_plural(self.files, 'file')} {verb}{speed}"]
        skipped = self.skipped
        for number, text in (
            (self.done_before, "files were published before, as --state says"),
            (self.outside, "files are outside --since and --until"),
            (self.unfinished, "files are unfinished and were left out, each named on stderr"),
            (skipped.outside, "messages are outside --since and --until"),
            (skipped.duplicates, "duplicates were left out"),
            (skipped.damaged, "damaged or refused records were left out, each named on stderr"),
            (self.damaged_before, "were left out in earlier runs"),
            (
                self.resent,
                "batches were sent again after a broken connection and may be there twice",
            ),
        ):
            if number:
                said.append(f"{number:,} {text}")
        if self.forgotten:
            said.append(
                f"--dedupe-memory was too small for all: a duplicate may be there if more than "
                f"{self.count_sure:,} other messages came between"
            )
        return said


def _plural(count: int, word: str) -> str:
    return f"{count:,} {word}" if count == 1 else f"{count:,} {word}s"
