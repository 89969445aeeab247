"""Options and columns of the sink: what is wrong is said in one line, before anything is sent."""

import pickle

import pytest
from pyspark.sql.types import BinaryType, IntegerType, LongType, StringType, StructField, StructType

from nsqfast.errors import OptionsError
from nsqfast.spark.sink.options import SinkOptions, parse_options
from nsqfast.spark.sink.rows import check_columns
from nsqfast.spark.sink.writer import NsqBatchWriter, make_stream_writer

TYPES = {"string": StringType, "binary": BinaryType, "int": IntegerType, "long": LongType}
GIVEN = {"nsqdtcpaddresses": "a:4150", "topic": "t"}


def make_schema(text):
    """From "name type, name type"; that of Spark needs a session."""
    fields = [part.split() for part in text.split(",")]
    return StructType([StructField(name, TYPES[kind]()) for name, kind in fields])


def test_what_is_given():
    options = parse_options(
        {
            "NsqdTcpAddresses": "a:4150, b:4151,a:4150",
            "topic": "orders#ephemeral",
            "maxBatchRows": "500",
            "maxBatchBytes": "100000",
            "window": "2",
            "retries": "0",
            "timeout": "1m30s",
            "maxMsgSize": "2000000",
            "maxBodySize": "8000000",
            "maxReqTimeout": "2h",
            "nsq.snappy": "true",
            "checkpointLocation": "/somewhere",
        }
    )
    assert options == SinkOptions(
        addresses=("a:4150", "b:4151"),
        topic="orders#ephemeral",
        batch_rows_max=500,
        batch_size_max=100_000,
        window=2,
        retries=0,
        timeout_ms=90_000,
        message_size_max=2_000_000,
        body_size_max=8_000_000,
        defer_ms_max=7_200_000,
        client=("snappy,true",),
    )
    assert options.client_config().snappy
    assert hash(options) == hash(pickle.loads(pickle.dumps(options)))


def test_defaults_are_nsqds():
    options = parse_options(GIVEN)
    assert options.message_size_max == 1048576
    assert options.body_size_max == 5242880
    assert options.defer_ms_max == 3_600_000
    assert options.client_config().user_agent.startswith("spark nsqfast/")


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"nsqdtcpaddresses": None}, "option nsqdTcpAddresses is missing"),
        ({"nsqdtcpaddresses": " , "}, "option nsqdTcpAddresses: there is no address"),
        (
            {"nsqdtcpaddresses": "a"},
            "option nsqdTcpAddresses: 'a': an address of nsqd is host:port",
        ),
        ({"nsqdtcpaddresses": "http://a:4151"}, "say nsqd's TCP port"),
        ({"topic": "no name"}, "option topic: 'no name' is no name of a topic"),
        ({"topics": "a"}, "unknown option topics: to publish there are nsqdTcpAddresses, topic,"),
        ({"subscribe": "a"}, "unknown option subscribe"),
        ({"path": "/x"}, "take no path"),
        ({"window": "0"}, "option window: 0 is out of bounds"),
        ({"window": "many"}, "option window: 'many' is no whole number"),
        ({"retries": "-1"}, "option retries: -1 is out of bounds"),
        ({"timeout": "30"}, "option timeout: '30' is no duration: a number with its unit"),
        ({"timeout": "0s"}, "option timeout: 0s is no duration of 1ms or more"),
        ({"maxbatchbytes": "6000000"}, "option maxBatchBytes (6000000) is more than maxBodySize"),
        ({"nsq.snapy": "true"}, "option nsq.snapy: unknown option"),
        ({"nsq.snappy": "perhaps"}, "option nsq.snappy: invalid boolean 'perhaps'"),
        ({"nsq.snappy": "true", "nsq.deflate": "true"}, "option nsq.deflate: not together with"),
    ],
)
def test_options_that_cannot_be_honoured(changed, words):
    given = {key: value for key, value in {**GIVEN, **changed}.items() if value is not None}
    with pytest.raises(OptionsError) as caught:
        parse_options(given)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_secret_is_not_shown():
    assert "abracadabra" not in repr(parse_options({**GIVEN, "nsq.auth_secret": "abracadabra"}))


def why_refused(schema):
    """Of these columns; '' if they can be published."""
    try:
        check_columns(make_schema(schema), parse_options(GIVEN))
    except OptionsError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ("value string", "column value cannot be published: a row is body (string or binary)"),
        ("topic string", "column body is missing"),
        ("body int", "column body is int, not string or binary"),
        ("body string, topic int", "column topic is int, not string"),
        ("body string, defer_ms string", "column defer_ms is string, not int or bigint"),
        ("body string, body binary", "column body is there twice"),
        ("body string, Topic string", "column Topic cannot be published"),
    ],
)
def test_columns_that_cannot_be_published(schema, words):
    reason = why_refused(schema)
    assert words in reason
    assert "\n" not in reason


@pytest.mark.parametrize(
    "schema",
    ["body string", "defer_ms long, topic string, body binary", "body binary, defer_ms int"],
)
def test_columns_that_can(schema):
    assert why_refused(schema) == ""


def test_without_a_topic():
    options = parse_options({"nsqdtcpaddresses": "a:4150"})
    check_columns(make_schema("body string, topic string"), options)
    with pytest.raises(OptionsError, match="option topic is missing, and there is no column topic"):
        check_columns(make_schema("body string"), options)


def test_modes_that_replace_what_is_there():
    schema = make_schema("body string")
    with pytest.raises(OptionsError, match=r"say mode\('append'\)"):
        NsqBatchWriter(GIVEN, schema, overwrite=True)
    with pytest.raises(OptionsError, match="output mode complete .* say append or update"):
        make_stream_writer(GIVEN, schema, overwrite=True)
