"""The programs in examples/spark, as a user starts them."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from nsqfast.client.sync import Consumer, Producer
from nsqfast.errors import OptionsError
from nsqfast.spark.runtime import find_java
from support.server import ROOT, start_nsqd
from support.tools import Tool
from support.waiting import eventually

pytest.importorskip("pyspark", reason="pyspark is missing: pip install 'nsqfast[spark]'")
try:
    find_java()
except OptionsError as error:
    pytest.skip(str(error), allow_module_level=True)

import pyarrow.parquet

from support.spark_home import JVM_S_MAX, use_spark_home
from support.spool import segments, start_receiver

use_spark_home()
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
PIPELINE = ROOT / "examples" / "spark" / "pipeline"


@pytest.mark.soak
def test_revenue(tmp_path):
    """The example, as a user starts it."""
    with start_nsqd("nsqfast", tmp_path) as server:
        address = "{}:{}".format(*server.tcp)
        words = [sys.executable, str(ROOT / "examples" / "spark" / "revenue.py"), "--nsqd", address]
        with (
            Consumer("revenue", "test", nsqd=address) as sums,
            Tool([*words, "--state", str(tmp_path / "state")]) as tool,
            Producer(address) as producer,
        ):
            bodies = [
                json.dumps({"order": n, "country": "DE" if n % 2 else "FR", "cents": 100}).encode()
                for n in range(1000)
            ]
            producer.publish_many("orders", [*bodies, b"no order", b"\xff"])
            total = {}
            while sum(total.values()) < 1000:
                message = sums.get(timeout_s=JVM_S_MAX)
                assert message is not None, tool.text
                found = json.loads(message.body)
                total[found["begin"], found["country"]] = found["orders"]
                assert found["cents"] == 100 * found["orders"]
                message.finish()
            assert {country for _, country in total} == {"DE", "FR"}
            assert tool.end(2, JVM_S_MAX) == 0, tool.text


def read_commands(spec, folder, address):
    """Return the words of the receiver and of the run in its comment, with that folder and broker."""
    lines = spec.read_text().splitlines(keepends=True)
    text = "".join(line.removeprefix("#") for line in lines if line.startswith("#   "))
    for said, meant in (("\\\n", " "), ("127.0.0.1:4150", address), ("/data", str(folder))):
        text = text.replace(said, meant)
    return map(shlex.split, text.splitlines())


@pytest.mark.soak
def test_declarative_pipeline(tmp_path, monkeypatch):
    """Two runs: each message is there once, and the receiver releases what the pipeline has."""
    reason = "PySpark 4.1 or newer is missing: pip install 'pyspark[pipelines]'"
    pytest.importorskip("pyspark.pipelines", reason=reason, exc_type=ImportError)
    place = shutil.copytree(PIPELINE, tmp_path / "pipeline")
    spec = place / "spark-pipeline.yml"
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)

    def waiting():
        spool = tmp_path / "spool-tables"
        found = segments(spool, with_done=False) if spool.exists() else []
        return sum(segment.row_count for segment in found)

    with start_nsqd("nsqfast", tmp_path) as server:
        address = "{}:{}".format(*server.tcp)
        receiver, run = read_commands(spec, tmp_path, address)
        run[-1] = str(spec)
        spec.write_text(spec.read_text().replace("/data", str(tmp_path)))
        with start_receiver(*receiver[1:]) as tool, Producer(address) as producer:
            for count in (1000, 10):
                producer.publish_many("orders", [b'{"country": "DE", "cents": 5}'] * count)
                eventually(lambda count=count: waiting() == count)
                subprocess.run(run, cwd=tmp_path, check=True)
                eventually(lambda: waiting() == 0)
            assert tool.end() == 0, tool.text
    warehouse = tmp_path / "warehouse"
    total = pyarrow.parquet.read_table(warehouse / "revenue").to_pylist()
    assert total == [{"country": "DE", "orders": 1010, "cents": 5050}]
    ids = pyarrow.parquet.read_table(warehouse / "orders")["id"].to_pylist()
    assert len(ids) == len(set(ids)) == 1010
