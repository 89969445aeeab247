"""--json-schema: the schema of message bodies, from a file in one of three forms.

    customer STRING, total DOUBLE NOT NULL                                   as in CREATE TABLE
    {"type": "struct", "fields": [{"name": "customer", "type": "string"}]}   as Spark prints a schema: df.schema.json()
    {"type": "object", "properties": {"customer": {"type": "string"}}}       JSON Schema, as far as columns can say it

A field that is required, or not nullable, must be present.
"""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nsqfast.errors import OptionsError
from nsqfast.spark_jobs.failures import explain
from nsqfast.wire.gotext import os_error

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

_SIMPLE = {"string": "string", "integer": "long", "number": "double", "boolean": "boolean"}


def read_json_schema(path: str) -> "StructType":
    """OptionsError: no such file, or none of the three. Needs a running session."""
    from pyspark.errors import PySparkException
    from pyspark.sql.types import DataType, StructType

    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = os_error(error) if isinstance(error, OSError) else "it is not UTF-8"
        raise OptionsError(f"--json-schema: {path}: {reason}") from None
    try:
        is_json = text.lstrip().startswith("{")
        found = _from_json(json.loads(text)) if is_json else DataType.fromDDL(text)
    except (ValueError, KeyError, TypeError, PySparkException) as error:
        raise OptionsError(f"--json-schema: {path}: {explain(error)}") from None
    if not isinstance(found, StructType) or not found.fields:
        raise OptionsError(f"--json-schema: {path}: it has no fields")
    return found


def _from_json(content: dict[str, Any]) -> "DataType":
    from pyspark.sql.types import StructType

    return StructType.fromJson(content) if "fields" in content else _converted(content, "it")


def _converted(schema: Any, where: str) -> "DataType":
    """Convert JSON Schema; ValueError names what columns cannot express."""
    from pyspark.sql.types import (
        ArrayType,
        DataType,
        MapType,
        StringType,
        StructField,
        StructType,
        TimestampType,
    )

    if not isinstance(schema, dict):
        raise ValueError(f"{where}: an object with a type was expected")  # noqa: TRY004 - of the file, not of a call
    kind = schema.get("type")
    if isinstance(kind, list):
        kinds = [one for one in kind if one != "null"]
        kind = kinds[0] if len(kinds) == 1 else kind
    if kind == "object" and isinstance(properties := schema.get("properties"), dict):
        required = schema.get("required", [])
        return StructType(
            [
                StructField(name, _converted(one, name), nullable=name not in required)
                for name, one in properties.items()
            ]
        )
    if kind == "object":
        return MapType(StringType(), _converted(schema.get("additionalProperties"), where))
    if kind == "array":
        return ArrayType(_converted(schema.get("items"), where))
    if kind == "string" and schema.get("format") == "date-time":
        return TimestampType()
    if not isinstance(kind, str) or kind not in _SIMPLE:
        raise ValueError(f"{where}: type {kind!r} has no column type")
    return DataType.fromDDL(_SIMPLE[kind])
