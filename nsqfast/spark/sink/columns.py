"""Checks the columns of a DataFrame on the driver, before any task runs."""

from typing import TYPE_CHECKING

from nsqfast.errors import OptionsError
from nsqfast.spark.sink.options import SinkOptions

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

BODY = "body"
TOPIC = "topic"
DEFER_MS = "defer_ms"

# Spark's names for the types, as in `simpleString`.
_TYPES = {
    BODY: ("string", "binary"),
    TOPIC: ("string",),
    DEFER_MS: ("int", "bigint"),
}
_SHAPE = "a row is body (string or binary), and may have topic (string) and defer_ms (int or long)"


def check_columns(schema: "StructType", options: SinkOptions) -> None:
    """OptionsError: it cannot be published."""
    found: dict[str, str] = {}
    for field in schema.fields:
        # A string may have a collation: "string collate UNICODE".
        kind = field.dataType.simpleString().partition(" ")[0]
        if field.name not in _TYPES:
            raise OptionsError(f"column {field.name} cannot be published: {_SHAPE}")
        if field.name in found:
            raise OptionsError(f"column {field.name} is there twice")
        if kind not in _TYPES[field.name]:
            raise OptionsError(
                f"column {field.name} is {kind}, not {' or '.join(_TYPES[field.name])}: {_SHAPE}"
            )
        found[field.name] = kind
    if BODY not in found:
        raise OptionsError(f"column body is missing: {_SHAPE}")
    if TOPIC not in found and not options.topic:
        raise OptionsError("option topic is missing, and there is no column topic")
