"""nsqfast-spark ingest: what is written, what is refused, and what ends a run. The messages are files here."""

import contextlib
import json
import shutil

import pytest
from pyspark.sql import functions

from nsqfast.spark_jobs import ingest, layout
from nsqfast.spark_jobs.ingest import Ingestion
from nsqfast.spark_jobs.job import run_job
from nsqfast.spark_jobs.options import parser

HOUR_NS = 3600 * 10**9
BEGIN_NS = 1795132800 * 10**9  # 2026-11-20 00:00 UTC
SCHEMA = "customer STRING, total DOUBLE NOT NULL"
GOOD = b'{"customer": "a", "total": 1.5}'


class Arrivals:
    """A folder of Parquet files that stands for NSQ: a batch for each file."""

    def __init__(self, spark, folder):
        self.spark = spark
        self.folder = folder
        self.count = 0

    def add(self, *bodies, topic="orders", hour=0, attempts=1):
        rows = []
        for body in bodies:
            self.count += 1
            ns = BEGIN_NS + hour * HOUR_NS + self.count
            name = f"{self.count:016x}"
            rows.append((topic, "archive", name, ns, attempts, "127.0.0.1:4150", body))
        names = "topic string, channel string, id string, timestamp_ns long, attempts int, nsqd string, body binary"
        frame = self.spark.createDataFrame(rows, names)
        time = functions.timestamp_micros((functions.col("timestamp_ns") / 1000).cast("long"))
        frame.withColumn("timestamp", time).coalesce(1).write.mode("append").parquet(self.folder)

    def load(self):
        stream = self.spark.readStream.schema(layout.MESSAGE_DDL).option("maxFilesPerTrigger", 1)
        return stream.parquet(self.folder)


class Source(contextlib.nullcontext):
    """Of what arrives so; nobody knows what waits."""

    def __init__(self, load):
        super().__init__()
        self.load = load
        self.names = set()  # of the queries

    def measure_lag(self, query):
        self.names.add(query.name)
        return {}


@pytest.fixture
def arrivals(spark, tmp_path):
    return Arrivals(spark, str(tmp_path / "arrivals"))


@pytest.fixture
def run(spark, arrivals, tmp_path, capfd, quiet_log):
    """Run the job on what has arrived; gives the exit status and what it said on stderr."""

    def run(*flags, output="out", checkpoint="check", topic="orders", load=None, source=None):
        words = [
            f"--topic={topic}", "--channel=archive", "--nsqd-tcp-address=127.0.0.1:1", f"--spool={tmp_path}/spool",
            f"--output={tmp_path / output}", f"--checkpoint={tmp_path / checkpoint}", "--available-now", *flags,
        ]  # fmt: skip
        status = run_job(
            "ingest",
            parser(ingest.Options, "ingest", words),
            lambda job: Ingestion(job, source or Source(load or arrivals.load)).run(),
            spark,
        )
        return status, capfd.readouterr().err

    return run


def bodies(spark, folder):
    return sorted(
        bytes(row.body) for row in layout.read(spark, [str(folder)]).select("body").collect()
    )


def test_messages_stand_by_topic_date_and_hour(spark, arrivals, run, tmp_path):
    arrivals.add(b"one", b"two", hour=0)
    arrivals.add(b"\xff\x00", hour=13, attempts=2)
    metrics, source = tmp_path / "metrics.jsonl", Source(arrivals.load)
    assert run(f"--metrics-file={metrics}", source=source)[0] == 0
    assert source.names == {"orders on channel archive"}
    assert bodies(spark, tmp_path / "out") == sorted([b"one", b"two", b"\xff\x00"])
    folders = {
        path.parent.relative_to(tmp_path / "out") for path in (tmp_path / "out").rglob("*.parquet")
    }
    assert {str(folder).rpartition("/batch=")[0] for folder in folders} == {
        "topic=orders/date=2026-11-20/hour=00",
        "topic=orders/date=2026-11-20/hour=13",
    }
    lines = [json.loads(line) for line in metrics.read_text().splitlines()]
    assert [
        (line["batch"], line["rows"], line["bytes"], line["redelivered"], line["bad"])
        for line in lines
    ] == [
        (0, 2, 6, 0, 0),
        (1, 1, 2, 1, 0),
    ]
    assert all(line["delay_s"] > 0 and line["duration_s"] > 0 for line in lines)


def test_bad_bodies_become_dead_letters(spark, arrivals, run, tmp_path):
    bad = [
        b"\xff",
        b"",
        b"[1",
        b'{"customer": "a"}',
        b'{"customer": "a", "total": "x"}',
        b"null",
        b'{"total": 1} x',
        b'{"total": 1}{"total": 2}',
    ]
    arrivals.add(GOOD, *bad)
    (tmp_path / "schema").write_text(SCHEMA)
    flags = [f"--json-schema={tmp_path}/schema", f"--dead-letter={tmp_path}/dead"]
    status, said = run(*flags)
    assert (status, f"{len(bad)} bodies are not of --json-schema" in said) == (0, True)
    good = layout.read(spark, [str(tmp_path / "out")]).collect()
    assert [(bytes(row.body), row.value.asDict()) for row in good] == [
        (GOOD, {"customer": "a", "total": 1.5})
    ]
    dead = layout.read(spark, [str(tmp_path / "dead")]).collect()
    assert sorted(bytes(row.body) for row in dead) == sorted(bad)
    errors = {bytes(row.body): row.error for row in dead}
    assert errors[b"\xff"] == "the body is not UTF-8"
    assert errors[b"[1"] == "the body is not JSON of the schema"
    assert errors[b'{"customer": "a"}'] == "the body has no total"
    assert "value" not in dead[0].asDict()


def test_without_a_folder_for_them_bad_bodies_stay_where_they_are(spark, arrivals, run, tmp_path):
    arrivals.add(GOOD, b"no")
    (tmp_path / "schema").write_text(
        json.dumps({"type": "object", "properties": {"customer": {"type": "string"}}})
    )
    assert run(f"--json-schema={tmp_path}/schema", "--max-bad=1")[0] == 0
    rows = layout.read(spark, [str(tmp_path / "out")]).collect()
    assert {bytes(row.body): (row.value and row.value.customer, row.error) for row in rows} == {
        GOOD: ("a", None),
        b"no": (None, "the body is not JSON of the schema"),
    }


def test_more_bad_bodies_than_allowed_are_status_3_and_all_is_written(
    spark, arrivals, run, tmp_path
):
    arrivals.add(GOOD, b"no", b"no no")
    (tmp_path / "schema").write_text(SCHEMA)
    assert run(f"--json-schema={tmp_path}/schema", "--max-bad=1")[0] == 3
    assert len(bodies(spark, tmp_path / "out")) == 3


@pytest.mark.soak
def test_a_batch_that_is_written_again_replaces_itself(spark, arrivals, run, tmp_path):
    (tmp_path / "schema").write_text(SCHEMA)
    flags = [f"--json-schema={tmp_path}/schema", f"--dead-letter={tmp_path}/dead"]
    arrivals.add(GOOD, b"bad")
    assert run(*flags)[0] == 0
    arrivals.add(GOOD)
    # As after a kill between the files of batch 0 and Spark's note that it is done.
    for name in ("0", ".0.crc"):
        (tmp_path / "check" / "commits" / name).unlink()
    assert run(*flags)[0] == 0
    assert bodies(spark, tmp_path / "out") == [GOOD, GOOD]
    assert bodies(spark, tmp_path / "dead") == [b"bad"]


def test_bodies_are_not_judged_anew_in_a_batch_that_was_begun(arrivals, run, tmp_path):
    schema = tmp_path / "schema"
    schema.write_text(SCHEMA)
    flags = [f"--json-schema={schema}", f"--dead-letter={tmp_path}/dead"]
    arrivals.add(GOOD, b"bad")
    assert run(*flags)[0] == 0
    schema.write_text("customer STRING")
    kept = {name: (tmp_path / "check" / "commits" / name).read_bytes() for name in ("0", ".0.crc")}
    for name in kept:
        (tmp_path / "check" / "commits" / name).unlink()
    status, said = run(*flags)
    assert (status, "run once with that" in said) == (1, True)
    for name, content in kept.items():
        (tmp_path / "check" / "commits" / name).write_bytes(content)
    assert run(*flags)[0] == 0


@pytest.mark.soak
def test_an_output_and_a_checkpoint_belong_together(spark, arrivals, run, tmp_path):
    arrivals.add(b"one")
    assert run()[0] == 0
    status, said = run(topic="payments")
    assert (status, "is that of orders on channel archive, not of payments" in said) == (1, True)
    status, said = run(output="elsewhere")
    assert (status, "belongs to the output" in said) == (1, True)
    assert not (tmp_path / "elsewhere").exists()
    assert run(output="second", checkpoint="check2")[0] == 0
    status, said = run(output="second")
    assert (status, "belongs to the output" in said) == (1, True)
    shutil.rmtree(tmp_path / "check")
    status, said = run()
    assert (status, "was written with the checkpoint" in said, said.count("\n")) == (1, True, 1)
    assert bodies(spark, tmp_path / "out") == [b"one"]
    shutil.rmtree(tmp_path / "out")
    assert run()[0] == 0
    assert bodies(spark, tmp_path / "out") == [b"one"]


def test_both_may_be_moved_together(spark, arrivals, run, tmp_path):
    arrivals.add(b"one")
    assert run()[0] == 0
    (tmp_path / "out").rename(tmp_path / "out2")
    (tmp_path / "check").rename(tmp_path / "check2")
    arrivals.add(b"two")
    assert run(output="out2", checkpoint="check2")[0] == 0
    assert bodies(spark, tmp_path / "out2") == [b"one", b"two"]


def test_a_checkpoint_of_another_program_is_refused(spark, arrivals, run, tmp_path):
    arrivals.add(b"one")
    sink = (
        arrivals.load()
        .writeStream.format("parquet")
        .option("checkpointLocation", f"{tmp_path}/check")
    )
    sink.trigger(availableNow=True).start(f"{tmp_path}/theirs").awaitTermination(60)
    status, said = run()
    assert (status, "is that of a query of something else" in said) == (1, True)
    status, said = run(output="theirs", checkpoint="new")
    assert (status, "has the log of a file sink" in said) == (1, True)


def test_a_stream_ends_with_more_bad_bodies_than_allowed(spark, arrivals, run, tmp_path):
    arrivals.add(GOOD, b"no", b"no no")
    (tmp_path / "schema").write_text(SCHEMA)
    flags = ["--available-now=false", "--interval=0s", f"--json-schema={tmp_path}/schema"]
    assert run(*flags, "--max-bad=1")[0] == 3
    # Nobody would come back to it: what it has taken is written.
    assert len(bodies(spark, tmp_path / "out")) == 3


def test_a_source_that_fails_for_a_while_is_opened_again(spark, arrivals, run, tmp_path):
    arrivals.add(b"one")
    failures = ["no spool", "no spool"]

    def load():
        found = arrivals.load()
        return found.where(f"raise_error('{failures.pop()}') IS NULL") if failures else found

    status, said = run("--restarts=2", load=load)
    assert (status, said.count("starting again in")) == (0, 2)
    assert "WRN no spool; starting again in 1 s" in said
    assert bodies(spark, tmp_path / "out") == [b"one"]


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        (["--topic="], "--topic: '' is no name of a topic"),
        (["--dead-letter=x"], "--dead-letter needs --json-schema"),
        (["--format=delta"], "--format delta: Delta Lake"),
        (["--format=orc"], "--format is 'orc'; it is parquet or delta"),
        (["--max-spool-bytes=lots"], "maxSpoolBytes: 'lots'"),
        (["--lookupd-http-address=127.0.0.1:1"], "not both"),
        (["--json-schema=/nowhere"], "--json-schema: /nowhere: no such file or directory"),
        (["--checkpoint=out", "--output=out"], "they are two folders"),
    ],
)
def test_what_cannot_be_is_one_line(run, flags, text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    status, said = run(*flags)
    assert (status, text in said, said.count("\n")) == (1, True, 1)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("{", "Expecting property name"),
        (
            '{"type": "object", "properties": {"a": {"type": "tuple"}}}',
            "a: type 'tuple' has no column type",
        ),
        ("what is this", "Syntax error"),
        ('{"type": "object", "properties": {}}', "it has no fields"),
    ],
)
def test_a_schema_that_is_none_is_one_line(run, tmp_path, content, text):
    (tmp_path / "schema").write_text(content)
    status, said = run(f"--json-schema={tmp_path}/schema")
    assert (status, f"--json-schema: {tmp_path}/schema: " in said, text in said) == (1, True, True)
    assert said.count("\n") == 1


def test_three_forms_of_a_schema_are_the_same(spark, tmp_path):
    from nsqfast.spark_jobs.json_bodies import read_json_schema

    ddl = "name STRING NOT NULL, tags ARRAY<STRING>, place STRUCT<lat: DOUBLE>, more MAP<STRING, BIGINT>"
    json_schema = {
        "type": "object",
        "required": ["name"],
        "properties": {
            "name": {"type": "string"},
            "tags": {"type": ["array", "null"], "items": {"type": "string"}},
            "place": {"type": "object", "properties": {"lat": {"type": "number"}}},
            "more": {"type": "object", "additionalProperties": {"type": "integer"}},
        },
    }
    found = []
    for content in (ddl, json.dumps(json_schema)):
        (tmp_path / "schema").write_text(content)
        found.append(read_json_schema(str(tmp_path / "schema")))
    (tmp_path / "schema").write_text(found[0].json())
    found.append(read_json_schema(str(tmp_path / "schema")))
    assert found[0] == found[1] == found[2]
