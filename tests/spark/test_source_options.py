"""Options and columns of the source: what is taken, and how all that is wrong is said in one line."""

from pathlib import Path

import pytest
from pyspark.sql.types import (
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from nsqfast.errors import OptionsError
from nsqfast.spark.source.options import SourceOptions, check_schema
from nsqfast.spark.spool.schema import SCHEMA

BASE = {
    "subscribe": "orders",
    "channel": "spark",
    "spooldir": "/spool",
    "nsqdtcpaddresses": "127.0.0.1:4150",
}


def parse(**given):
    """BASE and these; None takes one away."""
    options = BASE | given
    return SourceOptions.parse({name: text for name, text in options.items() if text is not None})


def refusal(**given):
    with pytest.raises(OptionsError) as caught:
        parse(**given)
    text = str(caught.value)
    assert "\n" not in text
    return text


def test_defaults():
    options = parse()
    assert options.topics == ("orders",)
    assert options.subscription == "orders"
    assert options.spool == Path("/spool")
    assert (options.max_spool_bytes, options.retention_s) == (10 << 30, 3600)
    assert (options.max_rows, options.max_bytes, options.partition_count) == (None, None, None)
    assert options.fail_on_data_loss
    assert options.is_embedded


def test_all_of_them():
    options = SourceOptions.parse(
        {
            "subscribePattern": "^orders",
            "CHANNEL": "spark",
            "lookupdHttpAddresses": "a:4161, http://b:4161",
            "spoolDir": "file:///data/spool",
            "maxSpoolBytes": "512m",
            "maxRowsPerTrigger": "1000",
            "maxBytesPerTrigger": "2GB",
            "numPartitions": "4",
            "retention": "90s",
            "failOnDataLoss": "False",
            "nsq.tls_v1": "true",
            "nsq.msg-timeout": "30s",
        }
    )
    assert options.subscription == "/^orders/"
    assert options.lookupd_http_addresses == ("a:4161", "http://b:4161")
    assert options.spool == Path("/data/spool")
    assert (options.max_spool_bytes, options.max_bytes) == (512 << 20, 2 << 30)
    assert (options.max_rows, options.partition_count, options.retention_s) == (1000, 4, 90)
    assert not options.fail_on_data_loss
    assert options.client_options == ("tls_v1,true", "msg-timeout,30s")
    settings = options.receiver_settings()
    assert settings.topic_pattern == "^orders"
    assert settings.consumer_options == options.client_options


def test_a_list_of_topics_is_one_subscription_in_whatever_order():
    assert parse(subscribe="b, a,b").subscription == parse(subscribe="a,b").subscription == "a,b"


def test_a_receiver_of_its_own_needs_no_address():
    options = parse(nsqdtcpaddresses=None, receiver="external")
    assert not options.is_embedded


def test_secrets_are_not_shown():
    assert "hunter2" not in repr(parse(**{"nsq.auth_secret": "hunter2"}))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"channel": None}, ["channel is missing"]),
        ({"spooldir": None}, ["spoolDir is missing"]),
        ({"spooldir": ""}, ["spoolDir: '' is not the path of a folder"]),
        ({"spooldir": "file://spool"}, ["spoolDir", "is not the path of a folder"]),
        ({"spooldir": "file:/spool"}, ["spoolDir", "is not the path of a folder"]),
        ({"spooldir": "s3://bucket/spool"}, ["spoolDir", "is not the path of a folder"]),
        ({"subscribe": None}, ["subscribe (topics with commas between) or subscribePattern"]),
        ({"subscribe": " , "}, ["subscribe: is empty"]),
        ({"subscribe": "or ders"}, ["subscribe: 'or ders' is no name of a topic"]),
        ({"channel": "a/b"}, ["channel: 'a/b' is no name of a channel"]),
        ({"subscribepattern": "x"}, ["subscribe or subscribePattern, not both"]),
        (
            {"subscribe": None, "subscribepattern": "x"},
            ["subscribePattern needs lookupdHttpAddresses"],
        ),
        (
            {"subscribe": None, "subscribepattern": "(x"},
            ["subscribePattern: '(x' is not a regular"],
        ),
        ({"nsqdtcpaddresses": None}, ["nsqdTcpAddresses or lookupdHttpAddresses is missing"]),
        (
            {"lookupdhttpaddresses": "a:4161"},
            ["nsqdTcpAddresses or lookupdHttpAddresses, not both"],
        ),
        ({"nsqdtcpaddresses": "localhost"}, ["nsqdTcpAddresses: 'localhost' is not host:port"]),
        (
            {"nsqdtcpaddresses": None, "lookupdhttpaddresses": "ftp://x"},
            ["lookupdHttpAddresses: ", "ftp://x"],
        ),
        ({"receiver": "external"}, ["nsqdTcpAddresses: not with receiver=external"]),
        ({"receiver": "internal"}, ["receiver: 'internal' is neither embedded nor external"]),
        ({"maxspoolbytes": "10 elephants"}, ["maxSpoolBytes: '10 elephants' is not a number of"]),
        ({"maxspoolbytes": "0"}, ["maxSpoolBytes: '0'"]),
        ({"maxrowspertrigger": "-1"}, ["maxRowsPerTrigger: '-1' is not a number from 1 on"]),
        ({"numpartitions": "0"}, ["numPartitions: '0' is not a number from 1 on"]),
        ({"retention": "90"}, ["retention: '90' is not a duration (1h, 90s)"]),
        ({"retention": "-1s"}, ["retention: '-1s' is not a duration"]),
        ({"failondataloss": "maybe"}, ["failOnDataLoss: 'maybe' is neither true nor false"]),
        ({"maxrowspertriger": "1"}, ["maxrowspertriger: unknown option, did you mean maxRowsPer"]),
        ({"path": "/x"}, ["path: unknown option"]),
        (
            {"startingoffsets": "earliest"},
            ["startingoffsets: unknown option, here: a channel gets"],
        ),
        ({"kafka.group.id": "x"}, ["kafka.group.id: unknown option, here: channel"]),
        ({"nsq.tls_v2": "true"}, ["nsq.tls_v2: unknown option, did you mean nsq.tls_v1?"]),
        ({"nsq.msg_timeout": "90"}, ["nsq.msg_timeout: ", "90s"]),
        ({"nsq.deflate": "true", "nsq.snappy": "true"}, ["nsq.deflate: not together with snappy"]),
    ],
)
def test_refused(given, words):
    text = refusal(**given)
    for word in words:
        assert word in text


def test_all_that_is_wrong_is_said_at_once():
    text = refusal(channel=None, spooldir=None, chanel="x", numpartitions="many", subscribe=None)
    for name in ("chanel", "channel", "spoolDir", "numPartitions", "subscribe"):
        assert name in text


OURS = {
    "topic": StringType(),
    "channel": StringType(),
    "id": StringType(),
    "timestamp": TimestampType(),
    "timestamp_ns": LongType(),
    "attempts": IntegerType(),
    "nsqd": StringType(),
    "body": BinaryType(),
}


def make_schema(columns, nullable=True):
    return StructType([StructField(name, type_, nullable) for name, type_ in columns.items()])


def test_the_schema_is_that_of_segments():
    assert check_schema(make_schema(OURS)).equals(SCHEMA)


def test_some_columns_in_another_order():
    found = check_schema(make_schema({"body": BinaryType(), "id": StringType()}))
    assert found.names == ["body", "id"]


@pytest.mark.parametrize(
    ("columns", "nullable", "words"),
    [
        ({"body": StringType()}, True, "(body string)"),
        ({"body": BinaryType(), "key": StringType()}, True, "(key string)"),
        ({"timestamp": TimestampNTZType()}, True, "(timestamp timestamp_ntz)"),
        ({"body": BinaryType()}, False, "(body NOT NULL)"),
        ({}, True, "(it is empty)"),
    ],
)
def test_another_schema_is_refused(columns, nullable, words):
    with pytest.raises(
        OptionsError, match="the columns are topic string, channel string"
    ) as caught:
        check_schema(make_schema(columns, nullable))
    assert words in str(caught.value)
