"""End-to-end latency percentiles in /stats, as JSON and as text."""

import re

from support.web import get, topic_stats

NSQD_FLAGS = (
    "--e2e-processing-latency-percentile=0.5,1.0",
    "--e2e-processing-latency-percentile=0.99",
)
QUANTILES = [1.0, 0.99, 0.5]


def test_percentiles(client, broker, topic):
    client.sub(topic, "c", 5)
    client.pub(topic, b"x")
    message = client.read_message()
    before = topic_stats(broker.http, topic)
    for found in (before, before["channels"]["c"]):
        assert found["e2e_processing_latency"] == {
            "count": 0,
            "percentiles": [{"quantile": quantile, "value": 0} for quantile in QUANTILES],
        }
    client.command("FIN", message.id)
    client.barrier()
    after = topic_stats(broker.http, topic)
    for found in (after, after["channels"]["c"]):
        latency = found["e2e_processing_latency"]
        assert latency["count"] == 1
        assert [entry["quantile"] for entry in latency["percentiles"]] == QUANTILES
        values = [entry["value"] for entry in latency["percentiles"]]
        assert 0 < values[0] < 10e9
        assert values == [values[0]] * 3


def test_text(client, broker, topic):
    client.sub(topic, "c", 5)
    text = get(broker.http, f"/stats?topic={topic}").body.decode()
    assert len(re.findall(r"e2e%: 0\.0ns, 0\.0ns, 0\.0ns$", text, re.MULTILINE)) == 2
