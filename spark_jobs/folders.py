"""Folders and small files wherever Spark can write (a disk, HDFS, S3), through Spark's own file systems."""

import json
import re
from typing import TYPE_CHECKING, Any

from nsqfast.errors import OptionsError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Folder:
    """A folder, which need not exist yet. OptionsError: it cannot be read or written."""

    def __init__(self, spark: "SparkSession", path: str) -> None:
        self._jvm = spark._jvm  # noqa: SLF001 - PySpark has no other way to Hadoop's file systems
        self._path = self._jvm.org.apache.hadoop.fs.Path(path)
        with _hadoop_errors_as_lines(path):
            conf = spark._jsc.hadoopConfiguration()  # noqa: SLF001
            self._files = self._path.getFileSystem(conf)
            self.path: str = self._files.makeQualified(self._path).toString()

    def names(self) -> set[str]:
        """The names in it; empty if the folder does not exist."""
        with _hadoop_errors_as_lines(self.path):
            if not self._files.exists(self._path):
                return set()
            return {status.getPath().getName() for status in self._files.listStatus(self._path)}

    def child(self, name: str) -> Any:
        """Return the path of a name in it, as a Hadoop Path."""
        return self._jvm.org.apache.hadoop.fs.Path(self._path, name)

    def subfolder_names(self, name: str) -> set[str]:
        """The names of folders in the folder `name` in it."""
        with _hadoop_errors_as_lines(self.path):
            place = self.child(name)
            if not self._files.exists(place):
                return set()
            return {status.getPath().getName() for status in self._files.listStatus(place)}

    def read_json(self, name: str) -> dict[str, Any] | None:
        """None: there is no such file."""
        with _hadoop_errors_as_lines(self.path):
            place = self.child(name)
            if not self._files.exists(place):
                return None
            stream = self._files.open(place)
            try:
                text = bytes(stream.readAllBytes()).decode("utf-8", "replace")
            finally:
                stream.close()
        try:
            found = json.loads(text)
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise OptionsError(
                f"{self.path}/{name}: damaged; it was written by nsqfast-spark as JSON"
            )
        return found

    def make(self) -> None:
        """Make it, with those that it is in."""
        with _hadoop_errors_as_lines(self.path):
            self._files.mkdirs(self._path)

    def write_json(self, name: str, content: dict[str, Any]) -> None:
        """Write it atomically, if the file system can rename."""
        part = self.child(f".{name}.part")
        with _hadoop_errors_as_lines(self.path):
            self._files.mkdirs(self._path)
            stream = self._files.create(part, True)
            try:
                stream.write(bytearray(json.dumps(content, indent=1).encode()))
                stream.hsync()
            finally:
                stream.close()
            place = self.child(name)
            self._files.delete(place, False)
            if not self._files.rename(part, place):
                raise OptionsError(f"{self.path}/{name}: cannot be written")


class _hadoop_errors_as_lines:  # noqa: N801 - reads as a function
    """Turn Hadoop's errors about a path into one line."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: object
    ) -> None:
        from py4j.protocol import Py4JJavaError

        if isinstance(error, Py4JJavaError):
            reason = str(error.java_exception.getMessage()).splitlines()[0]
            text = reason if self._path in reason else f"{self._path}: {reason}"
            raise OptionsError(text) from None


_SIGNS = re.compile(r"[\[\]{}*?\\]")
PATTERN = "topic=*/date=*/hour=*/batch="


def has_batches(spark: "SparkSession", output: str, batch: str) -> bool:
    """Whether there are any whose name matches this pattern."""
    return bool(_find(spark, output, batch))


def delete_batches(spark: "SparkSession", output: str, batch: str) -> None:
    """Delete what an earlier, unfinished attempt wrote."""
    files = _files(spark, output)
    for path in _find(spark, output, batch):
        files.delete(path, True)


def no_pattern(path: str) -> str:
    """Escape a path for Spark, which reads paths as patterns."""
    return _SIGNS.sub(r"\\\g<0>", path)


def _find(spark: "SparkSession", output: str, batch: str) -> list[Any]:
    pattern = _path(spark, no_pattern(output), PATTERN + batch)
    found = _files(spark, output).globStatus(pattern)
    return [status.getPath() for status in found] if found else []


def _files(spark: "SparkSession", output: str) -> Any:
    return _path(spark, output).getFileSystem(spark._jsc.hadoopConfiguration())  # noqa: SLF001


def _path(spark: "SparkSession", *parts: str) -> Any:
    # PySpark has no other way to Hadoop's file systems.
    return spark._jvm.org.apache.hadoop.fs.Path(*parts)  # noqa: SLF001
