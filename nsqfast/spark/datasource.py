"""What Spark gets for format("nsq").

Spark imports this module in processes of many kinds, also to list the available sources. It therefore imports only
pyspark; readers and writers are imported when they are requested.
"""

import uuid
from typing import TYPE_CHECKING

from nsqfast.program.extras import needs
from nsqfast.spark.failures import errors_as_lines

with needs("nsqfast.spark", "spark"):
    from pyspark.sql.datasource import (
        DataSource,
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

NAME = "nsq"


class NsqDataSource(DataSource):
    """The names of the parameters are Spark's, which passes some of them by name.

    Spark creates one for each load(), and passes it on to other processes.
    """

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        self._load = str(uuid.uuid4())

    @classmethod
    def name(cls) -> str:
        """The name for format(...)."""
        return NAME

    @errors_as_lines()
    def schema(self) -> str:
        """The schema of what is read."""
        from nsqfast.spark.source.options import SourceOptions

        # So that load() reports wrong options, not only the reader.
        return SourceOptions.parse(self.options).schema_ddl

    @errors_as_lines()
    def reader(self, schema: "StructType") -> DataSourceReader:
        """Return the reader of spark.read."""
        from nsqfast.spark.source.batch import NsqBatchReader

        return NsqBatchReader(self.options, schema, self._load)

    @errors_as_lines()
    def streamReader(self, schema: "StructType") -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Return the reader of spark.readStream."""
        from nsqfast.spark.source.stream import NsqStreamReader

        return NsqStreamReader(self.options, schema)

    @errors_as_lines()
    def writer(self, schema: "StructType", overwrite: bool) -> DataSourceWriter:
        """Return the writer of df.write; OptionsError says what is wrong with the options or the columns."""
        from nsqfast.spark.sink.writer import NsqBatchWriter

        return NsqBatchWriter(self.options, schema, overwrite)

    @errors_as_lines()
    def streamWriter(self, schema: "StructType", overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802 - Spark's name
        """Return the writer of df.writeStream; otherwise like `writer`."""
        from nsqfast.spark.sink.writer import make_stream_writer

        return make_stream_writer(self.options, schema, overwrite)
