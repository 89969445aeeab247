"""What Spark asks for when it is given format("nsq").

Spark imports this module in processes of many kinds, also to look which sources there are. It therefore imports nothing
but pyspark; what reads and what writes is imported when it is asked for.
"""

import uuid
from typing import TYPE_CHECKING

from nsqfast.extras import needs
from nsqfast.spark.errors import errors_as_lines

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
    """The names of the parameters are Spark's, which gives some of them by name.

    Spark makes one for each load(), and hands it on to other processes.
    """

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        self._load = str(uuid.uuid4())

    @classmethod
    def name(cls) -> str:
        """For format(...)."""
        return NAME

    @errors_as_lines()
    def schema(self) -> str:
        """Of what is read."""
        from nsqfast.spark.source.options import SCHEMA_DDL, SourceOptions

        # What is wrong with the options is said by load(), not only by what reads.
        SourceOptions.parse(self.options)
        return SCHEMA_DDL

    @errors_as_lines()
    def reader(self, schema: "StructType") -> DataSourceReader:
        """For spark.read."""
        from nsqfast.spark.source.batch import NsqBatchReader

        return NsqBatchReader(self.options, schema, self._load)

    @errors_as_lines()
    def streamReader(self, schema: "StructType") -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """For spark.readStream."""
        from nsqfast.spark.source.stream import NsqStreamReader

        return NsqStreamReader(self.options, schema)

    def writer(self, schema: "StructType", overwrite: bool) -> DataSourceWriter:
        """For df.write; OptionsError says what is wrong with the options or the columns."""
        from nsqfast.spark.sink.writer import NsqBatchWriter

        return NsqBatchWriter(self.options, schema, overwrite)

    def streamWriter(self, schema: "StructType", overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802 - Spark's name
        """For df.writeStream; likewise."""
        from nsqfast.spark.sink.writer import make_stream_writer

        return make_stream_writer(self.options, schema, overwrite)
