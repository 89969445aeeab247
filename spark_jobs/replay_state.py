"""--state: the messages to publish, copied once into files of ordered rows, and the progress.

    _nsqfast.json     the flags of the run
    messages/         topic, body and slot (the number of the row in its file), by time
    plan.json         its files with their rows, and the counts; it exists once `messages` is complete
    progress.json     up to where everything is published, and how many rows are in progress

Rows are recorded as in progress before they are published, and as done afterwards. A run that is killed in between
leaves them in progress: the next one publishes them again, and reports how many may be duplicates.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from nsqfast.errors import OptionsError
from nsqfast.spark_jobs.binding import NOTE
from nsqfast.spark_jobs.folders import Folder
from nsqfast.spark_jobs.replay_options import Options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FORMAT = 1
PLAN, PROGRESS, MESSAGES = "plan.json", "progress.json", "messages"
FILE_ROWS = 50_000
SLOT = "slot"
_SLOT_BITS = 33  # of monotonically_increasing_id, behind the number of the task


@dataclass(slots=True)
class Progress:
    """Everything before row `slot` of file `file` is published."""

    file: int = 0
    slot: int = 0
    published: int = 0
    under_way: int = 0
    maybe_twice: int = 0  # rows that an earlier run may have published, too


@dataclass(frozen=True, slots=True)
class Slice:
    """Rows that are published at a time: all of several files, or some of one file."""

    files: list[str]
    first: int
    end: int
    rows: int
    next_file: int
    next_slot: int


class State:
    """The state of one run."""

    def __init__(self, spark: "SparkSession", path: str) -> None:
        self._spark = spark
        self._folder = Folder(spark, path)
        self.progress = Progress()
        self.counts: dict[str, int] = {}
        self._files: list[tuple[str, int]] = []

    def open(self, options: Options) -> bool:
        """Return whether the copy exists already; OptionsError: it belongs to another run."""
        binding = {"format": FORMAT, "options": options.binding()}
        before = self._folder.read_json(NOTE)
        if before is None:
            self._folder.write_json(NOTE, binding)
        elif before != binding:
            raise OptionsError(
                f"--state: {self._folder.path} is of a run with other flags{_changed(before, binding)}"
            )
        plan = self._folder.read_json(PLAN)
        if plan is None:
            return False
        self._files = [(name, rows) for name, rows in plan["files"]]
        self.counts = plan["counts"]
        progress = self._folder.read_json(PROGRESS)
        if progress is not None:
            self.progress = Progress(**progress)
            self.progress.maybe_twice += self.progress.under_way
            self.progress.under_way = 0
        return True

    def copy(self, messages: "DataFrame", order: str) -> None:
        """Copy them into files, in order; this replaces the copy of a killed run."""
        from pyspark.sql import functions

        number = functions.monotonically_increasing_id().bitwiseAND((1 << _SLOT_BITS) - 1)
        tasks = int(self._spark.conf.get("spark.sql.shuffle.partitions") or "1")
        (
            messages.repartitionByRange(tasks, order)
            .sortWithinPartitions(order)
            .select("topic", "body", (number % FILE_ROWS).cast("int").alias(SLOT))
            .write.mode("overwrite")
            .option("maxRecordsPerFile", FILE_ROWS)
            .parquet(self._messages)
        )

    def plan(self, counts: dict[str, int]) -> None:
        """The copy is complete: list its files."""
        from pyspark.sql import functions

        self.counts = counts
        if not [
            name for name in self._folder.subfolder_names(MESSAGES) if name.endswith(".parquet")
        ]:
            found = []
        else:
            files = self._spark.read.parquet(self._messages).groupBy(
                functions.input_file_name().alias("path")
            )
            found = files.count().orderBy("path").collect()
        self._files = [(str(row["path"]).rpartition("/")[2], row["count"]) for row in found]
        self._folder.write_json(PLAN, {"files": self._files, "counts": counts})

    @property
    def _messages(self) -> str:
        return f"{self._folder.path}/{MESSAGES}"

    def slices(self, rows_max: int, files_max: int) -> Iterator[Slice]:
        """Yield what is left, in order. `rows_max` 0: whole files, so many at a time."""
        file, slot = self.progress.file, self.progress.slot
        while file < len(self._files):
            rows = self._files[file][1]
            if rows_max or slot:
                end = min(slot + (rows_max or rows), rows)
                is_end = end == rows
                following = (file + 1, 0) if is_end else (file, end)
                yield Slice(self._paths(file, file + 1), slot, end, end - slot, *following)
                file, slot = following
            else:
                last = min(file + files_max, len(self._files))
                total = sum(count for _, count in self._files[file:last])
                yield Slice(self._paths(file, last), 0, FILE_ROWS, total, last, 0)
                file = last

    def _paths(self, first: int, end: int) -> list[str]:
        return [f"{self._messages}/{name}" for name, _ in self._files[first:end]]

    def read(self, part: Slice) -> "DataFrame":
        """Return its topics and bodies."""
        from pyspark.sql import functions

        slot = functions.col(SLOT)
        rows = self._spark.read.schema(f"topic string, body binary, {SLOT} int").parquet(
            *part.files
        )
        return rows.where((slot >= part.first) & (slot < part.end)).select("topic", "body")

    def begin(self, part: Slice) -> None:
        """Its publishing begins."""
        self.progress.under_way = part.rows
        self._note()

    def finish(self, part: Slice) -> None:
        """It was published."""
        progress = self.progress
        progress.file, progress.slot = part.next_file, part.next_slot
        progress.published += part.rows
        progress.under_way = 0
        self._note()

    def _note(self) -> None:
        self._folder.write_json(PROGRESS, asdict(self.progress))


def _changed(old: dict[str, Any], new: dict[str, Any]) -> str:
    before, now = old.get("options"), new["options"]
    if old.get("format") != FORMAT or not isinstance(before, dict):
        return f" (format {old.get('format')})"
    return ": " + ", ".join(
        f"--{name.replace('_', '-')} was {before.get(name)!r}"
        for name in now
        if before.get(name) != now[name]
    )
