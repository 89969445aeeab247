"""The programs in examples/spark, as a user starts them."""

from __future__ import annotations

import json
import sys

import pytest

from nsqfast.client.sync import Consumer, Producer
from nsqfast.errors import OptionsError
from nsqfast.spark.java import find_java
from support.server import ROOT, start_nsqd
from support.tools import Tool

pytest.importorskip("pyspark", reason="pyspark is missing: pip install 'nsqfast[spark]'")
try:
    find_java()
except OptionsError as error:
    pytest.skip(str(error), allow_module_level=True)

from support.spark_home import use_spark_home

use_spark_home()
pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]
SECONDS_MAX = 120


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
                message = sums.get(timeout_s=SECONDS_MAX)
                assert message is not None, tool.text
                found = json.loads(message.body)
                total[found["begin"], found["country"]] = found["orders"]
                assert found["cents"] == 100 * found["orders"]
                message.finish()
            assert {country for _, country in total} == {"DE", "FR"}
            assert tool.end(2, 60) == 0, tool.text
