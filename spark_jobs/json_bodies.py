"""Parses bodies that should be JSON of a schema, and finds what is wrong with those that are not."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nsqfast.errors import OptionsError
from nsqfast.spark.failures import explain
from nsqfast.wire.gotext import os_error

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructType


VALUE, ERROR = "value", "error"
_CORRUPT = "_nsqfast_corrupt"
_PARSED = "_nsqfast_parsed"
NOT_UTF8 = "the body is not UTF-8"
NOT_JSON = "the body is not JSON of the schema"


def parse_bodies(messages: "DataFrame", schema: "StructType") -> "DataFrame":
    """Add `value`, a struct of that schema, and `error`, null if the body is valid."""
    from pyspark.sql import functions
    from pyspark.sql.types import StringType, StructType

    with_corrupt = StructType([*schema.fields, *StructType().add(_CORRUPT, StringType()).fields])
    text = functions.col("body").cast("string")
    is_utf8 = functions.is_valid_utf8(text)
    parsed = functions.from_json(
        functions.when(is_utf8, text),
        with_corrupt,
        {
            "mode": "PERMISSIVE",
            "columnNameOfCorruptRecord": _CORRUPT,
            "allowSingleQuotes": "false",
            "allowNonNumericNumbers": "false",
        },
    )
    column = functions.col(_PARSED)
    error = functions.when(~is_utf8, NOT_UTF8).when(
        column.isNull() | column[_CORRUPT].isNotNull() | ~_is_one_value(text), NOT_JSON
    )
    for path in required_paths(schema):
        error = error.when(_is_missing(path), f"the body has no {'.'.join(path)}")
    return (
        messages.withColumn(_PARSED, parsed)
        .withColumn(ERROR, error)
        .withColumn(
            VALUE, functions.when(functions.col(ERROR).isNull(), column.dropFields(_CORRUPT))
        )
        .drop(_PARSED)
    )


def _is_one_value(text: "Column") -> "Column":
    """Whether nothing follows it: from_json stops behind the first value."""
    from pyspark.sql import functions

    length = functions.json_array_length(
        functions.concat(functions.lit("["), text, functions.lit("]"))
    )
    return functions.coalesce(length == 1, functions.lit(False))


def required_paths(schema: "StructType", above: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """Return the fields that must not be null, outermost first; those inside lists are not checked."""
    from pyspark.sql.types import StructType

    found = []
    for field in schema.fields:
        path = (*above, field.name)
        if not field.nullable:
            found.append(path)
        if isinstance(field.dataType, StructType):
            found += required_paths(field.dataType, path)
    return found


def _is_missing(path: tuple[str, ...]) -> "Column":
    """Whether it is null although its parent is present."""
    from pyspark.sql import functions

    outer = functions.col(_PARSED)
    for name in path[:-1]:
        outer = outer.getField(name)
    return outer.isNotNull() & outer.getField(path[-1]).isNull()


# --json-schema: the schema of message bodies, from a file in one of three forms.
#
#     customer STRING, total DOUBLE NOT NULL                                   as in CREATE TABLE
#     {"type": "struct", "fields": [{"name": "customer", "type": "string"}]}   as df.schema.json() prints it
#     {"type": "object", "properties": {"customer": {"type": "string"}}}       JSON Schema, as far as columns can say it
#
# A field that is required, or not nullable, must be present.


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
