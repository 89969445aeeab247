"""Binds a checkpoint to its output and an output to its checkpoint, by a file in each of them.

The checkpoint says which messages are done, and the output has them. With another checkpoint, or none, messages would
be missing or duplicated without notice. Both files have the same `id`, which is created once; that of the checkpoint is
written first.
"""

import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from nsqfast.errors import OptionsError
from nsqfast.spark.spool.segments import ARROW
from nsqfast.spark_jobs.folders import Folder
from nsqfast.tools.shared.program import log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FORMAT = 1
# Spark's readers skip names that begin with an underscore.
NOTE = "_nsqfast.json"
SINK_LOG = "_spark_metadata"
METADATA, OFFSETS, COMMITS = "metadata", "offsets", "commits"


@dataclass(frozen=True, slots=True)
class Subject:
    """The content of the files: which topics and channel, and how bodies are checked."""

    topics: tuple[str, ...]
    topic_pattern: str
    channel: str
    json_schema: str = ""  # identifies the schema; "" = bodies are not checked
    segment_format: str = ARROW  # of which depends how Spark notes what is done

    @property
    def words(self) -> str:
        """Describe it for an error."""
        which = f"/{self.topic_pattern}/" if self.topic_pattern else ", ".join(self.topics)
        return f"{which} on channel {self.channel}"

    def is_other(self, before: "Subject") -> bool:
        """Whether it shares nothing with the earlier one. Topics may be added and left out."""
        is_same_pattern = self.topic_pattern == before.topic_pattern
        is_near = bool(set(self.topics) & set(before.topics)) or bool(self.topic_pattern)
        return self.channel != before.channel or not (is_same_pattern and is_near)


class Binding:
    """The binding of one run; call `check` before the query starts."""

    def __init__(self, spark: "SparkSession", output: str, checkpoint: str) -> None:
        self._output = Folder(spark, output)
        self._checkpoint = Folder(spark, checkpoint)

    def check(self, subject: Subject) -> None:
        """Bind checkpoint and output to each other; OptionsError: they do not belong together."""
        output, checkpoint = self._output, self._checkpoint
        if output.path == checkpoint.path:
            raise OptionsError(
                f"--output and --checkpoint are both {output.path}; they are two folders"
            )
        of_output, of_checkpoint = output.read_json(NOTE), checkpoint.read_json(NOTE)
        in_checkpoint = checkpoint.names()
        if SINK_LOG in output.names():
            raise OptionsError(
                f"{output.path}: has the log of a file sink ({SINK_LOG}), which hides what others write; "
                f"give another --output"
            )
        if of_checkpoint is None:
            self._check_new(of_output, in_checkpoint)
            number = uuid.uuid4().hex
        else:
            self._check_known(of_output, of_checkpoint, subject, is_used=COMMITS in in_checkpoint)
            number = str(of_checkpoint.get("id"))
        note = _note(number, output.path, checkpoint.path, subject)
        if of_checkpoint != note:
            checkpoint.write_json(NOTE, note)
        if of_output != note:
            output.write_json(NOTE, note)

    def _check_new(self, of_output: dict[str, Any] | None, in_checkpoint: set[str]) -> None:
        if of_output is not None:
            raise OptionsError(
                f"--output {self._output.path} was written with the checkpoint {of_output.get('checkpoint')}, and "
                f"{self._checkpoint.path} is not that one, or is empty: give the right one, or another --output"
            )
        if METADATA in in_checkpoint:
            raise OptionsError(
                f"--checkpoint {self._checkpoint.path} is that of a query of something else; give another one"
            )

    def _check_known(
        self,
        of_output: dict[str, Any] | None,
        of_checkpoint: dict[str, Any],
        subject: Subject,
        *,
        is_used: bool,
    ) -> None:
        output, checkpoint = self._output.path, self._checkpoint.path
        if of_checkpoint.get("format") != FORMAT:
            raise OptionsError(
                f"--checkpoint {checkpoint}: written by another release (format {of_checkpoint.get('format')})"
            )
        if of_output is None and of_checkpoint["output"] != output:
            raise OptionsError(
                f"--checkpoint {checkpoint} belongs to the output {of_checkpoint['output']}, not to {output}"
            )
        if of_output is not None and of_output.get("id") != of_checkpoint["id"]:
            raise OptionsError(
                f"--checkpoint {checkpoint} belongs to the output {of_checkpoint['output']}, and "
                f"--output {output} to the checkpoint {of_output.get('checkpoint')}"
            )
        before = _subject(of_checkpoint)
        if subject.is_other(before):
            raise OptionsError(
                f"--checkpoint {checkpoint} is that of {before.words}, not of {subject.words}; give another one, "
                f"and another --output"
            )
        if subject.segment_format != before.segment_format:
            raise OptionsError(
                f"--checkpoint {checkpoint} is that of --segment-format={before.segment_format}; go on with it, or give"
                " another one, another --spool and another --output"
            )
        if subject.json_schema != before.json_schema:
            self._check_whole()
        if of_output is None and is_used:
            log.warning(
                "--output %s is empty: what was written there before has been removed", output
            )

    def _check_whole(self) -> None:
        """A batch that is written again must be written in the same way: the same rows into the same folders."""
        begun = _largest(self._checkpoint.subfolder_names(OFFSETS))
        done = _largest(self._checkpoint.subfolder_names(COMMITS))
        if begun > done:
            raise OptionsError(
                f"--json-schema is not what it was, and batch {begun} has been begun with the former one: "
                f"run once with that, then change it"
            )


def _largest(names: set[str]) -> int:
    return max((int(name) for name in names if name.isdecimal()), default=-1)


def _note(number: str, output: str, checkpoint: str, subject: Subject) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "id": number,
        "output": output,
        "checkpoint": checkpoint,
        "topics": list(subject.topics),
        "topic_pattern": subject.topic_pattern,
        "channel": subject.channel,
        "json_schema": subject.json_schema,
        "segment_format": subject.segment_format,
    }


def _subject(note: dict[str, Any]) -> Subject:
    return Subject(
        tuple(note["topics"]),
        note["topic_pattern"],
        note["channel"],
        note["json_schema"],
        note.get("segment_format", ARROW),  # 0.2 had no other
    )
