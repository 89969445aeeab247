"""Parses bodies that should be JSON of a schema, and finds what is wrong with those that are not."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

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
