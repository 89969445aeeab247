"""The job compact: rewrites many small files as files of about one size for each topic and hour, in another folder.

nsqfast-spark compact --input=/lake/messages --output=/lake/compacted --dedupe

It changes and deletes nothing of the input. It counts input and output in the files themselves.
"""

import functools
import sys
import time
import uuid
from collections import Counter
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from nsqfast.errors import OptionsError
from nsqfast.program.options import BOOL, INT, STRING, PlainError, option
from nsqfast.program.stdout import print_text
from nsqfast.spark_jobs import layout
from nsqfast.spark_jobs.folders import Folder, delete_batches, no_pattern
from nsqfast.spark_jobs.job import EXIT_OK, Job, run_job
from nsqfast.spark_jobs.options import InputOptions, JobOptions, parser

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame, SparkSession


TARGET_SIZE = 128 << 20


@dataclass(slots=True)
class Options(InputOptions, JobOptions):
    """As on the command line."""

    # fmt: off
    output: str = option(STRING, "", "folder to write to; empty, or left by a run of the same command that did not end")

    dedupe: bool = option(
        BOOL, False, "keep one of the messages with the same topic, id and timestamp_ns; "
        "what has no id has no duplicates", group="How files are written")
    target_size: int = option(INT, TARGET_SIZE, "bytes of a file, roughly")
    # fmt: on

    def check(self) -> None:
        """PlainError: an option is missing or cannot be honoured."""
        JobOptions.check(self)
        self.check_input()
        if not self.output:
            raise PlainError("--output required")
        if self.target_size < 1:
            raise PlainError("--target-size is 1 or more")


# How compact writes: one shuffle and one sort, after which each file's messages are in one task, by time.
#
# A hash of a message's id chooses its file, so that duplicates meet in one file; each file has a folder of its own,
# `batch=compact-RUN-NUMBER`.


STATE_FOLDER, STATE_FILE = "_compact", "state.json"
GROUP = ("topic", "date", "hour")
# Additional columns during the work.
ORDER, KEY, COPY = "_order", "_key", "_copy"
PATH, SIZE = "_path", "_size"
TASKS_MAX = 2000

Group = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class File:
    """A file of the input; `size` in bytes."""

    group: Group
    size: int
    rows: int


@dataclass(frozen=True, slots=True)
class Counts:
    """The counts of one run."""

    rows_in: int
    rows_out: int
    duplicates: int
    files_in: int
    files_out: int


class CompactState:
    """What the output consists of: OUTPUT/_compact/state.json. Call `check` first, then `begin`."""

    def __init__(self, spark: "SparkSession", output: str, inputs: list[str]) -> None:
        self._spark = spark
        self._output = output
        self._inputs = inputs
        self._folder = Folder(spark, f"{Folder(spark, output).path}/{STATE_FOLDER}")
        self._run = ""

    def check(self) -> None:
        """OptionsError: the output is not from this job, or is complete."""
        found = self._folder.read_json(STATE_FILE)
        if found is None:
            if Folder(self._spark, self._output).names() - {STATE_FOLDER}:
                raise OptionsError(
                    f"{self._output}: not empty, and not of compact; give an empty --output"
                )
            return
        if found.get("finished"):
            raise OptionsError(
                f"{self._output}: has what compact made at {found['finished']}; give another --output"
            )
        if found.get("inputs") != self._inputs:
            raise OptionsError(
                f"{self._output}: has an unfinished compact of {', '.join(found.get('inputs') or ['nothing'])}; "
                f"give the same --input to begin it again, or another --output"
            )
        self._run = str(found["run"])

    def begin(self) -> str:
        """Return the name of the run; delete what an earlier attempt wrote."""
        if self._run:
            delete_batches(self._spark, self._output, f"compact-{self._run}-*")
        else:
            self._run = f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{uuid.uuid4().hex[:6]}"
            self._write({"finished": None})
        return self._run

    def finish(self, counts: Counts) -> None:
        """The output is complete."""
        self._write({"finished": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}", **asdict(counts)})

    def _write(self, more: dict[str, object]) -> None:
        self._folder.write_json(STATE_FILE, {"run": self._run, "inputs": self._inputs, **more})


class Compaction:
    """One run."""

    def __init__(self, spark: "SparkSession", options: Options) -> None:
        self._spark = spark
        self._options = options
        self._run = ""

    def write(self, run: str, files: "Sequence[File]") -> Counts:
        """Write the content of these files, and count what is there afterwards."""
        from pyspark.sql import Observation
        from pyspark.sql import functions as f

        self._run = run
        parts = self._share_out(files)
        observation = Observation()
        rows = self._arranged(parts).observe(
            observation, f.count_if(f.col(COPY) > 1).alias("duplicates")
        )
        layout.write(rows.where(f.col(COPY) == 1).drop(ORDER, KEY, COPY), self._options.output)
        # By the footers of the files: not what Spark thinks it wrote, but what is there.
        written = self._spark.read.parquet(no_pattern(self._options.output))
        return Counts(
            rows_in=sum(file.rows for file in files),
            rows_out=written.count(),
            duplicates=observation.get["duplicates"],
            files_in=len(files),
            files_out=len(written.inputFiles()),
        )

    @functools.cached_property
    def _messages(self) -> "DataFrame":
        """Listed once: what ingest writes meanwhile is left to the next run."""
        columns = ("_metadata.file_path", PATH), ("_metadata.file_size", SIZE)
        rows = layout.read_messages(self._spark, self._options.input, *columns)
        return rows.where(layout.is_chosen(self._options))

    def list_files(self) -> "list[File]":
        """List the files to read, without reading a column. OptionsError: no messages of these topics."""
        found = self._messages.groupBy(*GROUP, PATH, SIZE).count().collect()
        if not found:
            raise OptionsError("--input has no messages of these topics")
        return [File((one.topic, one.date, one.hour), one[SIZE], one["count"]) for one in found]

    def _share_out(self, files: "Sequence[File]") -> dict[Group, int]:
        """Return how many files each topic and hour gets."""
        sizes: Counter[Group] = Counter()
        for file in files:
            sizes[file.group] += file.size
        return {group: -(-size // self._options.target_size) for group, size in sizes.items()}

    def _arranged(self, parts: dict[Group, int]) -> "DataFrame":
        """Return all rows arranged for writing; COPY is above 1 for duplicates."""
        from pyspark.sql import Window
        from pyspark.sql import functions as f

        shares = self._spark.createDataFrame(
            [(*group, count) for group, count in parts.items()],
            "topic string, date string, hour string, _files int",
        )
        rows = (
            self._messages.drop(PATH, SIZE)
            .withColumn(ORDER, f.monotonically_increasing_id())
            .join(f.broadcast(shares), list(GROUP))
            .withColumn(KEY, _identity())
        )
        number = f.pmod(f.coalesce(f.xxhash64(KEY), f.col(ORDER)), f.col("_files"))
        batch = f.concat(f.lit(f"compact-{self._run}-"), f.lpad(number.cast("string"), 4, "0"))
        place = (*GROUP, "batch")
        tasks = min(
            TASKS_MAX, max(sum(parts.values()), self._spark.sparkContext.defaultParallelism)
        )
        rows = (
            rows.withColumn("batch", batch)
            .drop("_files")
            .repartition(tasks, *place)
            .sortWithinPartitions(*place, "timestamp_ns", KEY, "attempts", ORDER)
        )
        if not self._options.dedupe:
            return self._ordered(rows.withColumn(COPY, f.lit(1)))
        # This uses the sort above.
        same = Window.partitionBy(*place, "timestamp_ns", KEY).orderBy("attempts", ORDER)
        copy = f.when(f.col(KEY).isNull(), 1).otherwise(f.row_number().over(same))
        return self._ordered(rows.withColumn(COPY, copy))

    @staticmethod
    def _ordered(rows: "DataFrame") -> "DataFrame":
        """Put the columns of a message first."""
        first = [name.split()[0] for name in layout.MESSAGE_DDL.split(", ")]
        last = [layout.INGESTED, "date", "hour", "batch", ORDER, KEY, COPY]
        others = [name for name in rows.columns if name not in {*first, *last}]
        return rows.select(*first, *others, *last)


def _identity() -> "Column":
    """What a duplicate shares with the first, beside topic and time; null: nothing identifies it."""
    from pyspark.sql import functions as f

    return f.when(f.col("timestamp_ns").isNotNull(), f.col("id"))


def main(argv: list[str] | None = None, spark: "SparkSession | None" = None) -> int:
    """Run the job; return the exit status."""
    words = sys.argv[1:] if argv is None else argv
    return run_job("compact", parser(Options, "compact", words), live, spark)


def live(job: Job[Options]) -> int:
    """Compact the input folders into the output folder."""
    options, spark = job.options, job.spark
    begun_s = time.monotonic()
    layout.check_apart(spark, options.input, options.output)
    state = CompactState(
        spark, options.output, sorted(layout.resolve(spark, one) for one in options.input)
    )
    state.check()
    compaction = Compaction(spark, options)
    files = compaction.list_files()
    counts = compaction.write(state.begin(), files)
    if counts.rows_in != counts.rows_out + counts.duplicates:
        raise OptionsError(
            f"{counts.rows_in} messages in, but {counts.rows_out} out and {counts.duplicates} duplicates: "
            f"the output is not to be used; the same command begins it again"
        )
    state.finish(counts)
    job.reports.note(
        batch=1,
        rows=counts.rows_in,
        duplicates=counts.duplicates,
        files_in=counts.files_in,
        files_out=counts.files_out,
        duration_s=round(time.monotonic() - begun_s, 3),
    )
    print_text(
        f"{counts.rows_in} messages of {counts.files_in} files in, {counts.rows_out} messages of "
        f"{counts.files_out} files out, {counts.duplicates} duplicates left out: "
        f"{counts.rows_in} = {counts.rows_out} + {counts.duplicates}"
    )
    return EXIT_OK


if __name__ == "__main__":
    sys.exit(main())
