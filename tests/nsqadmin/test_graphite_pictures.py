"""The pictures of Graphite on our pages: keys, addresses and timeframes as nsqadmin 1.3.0 asks for them."""

from functools import partial
from urllib.parse import parse_qs, urlsplit

import pytest

from nsqfast.nsqadmin.cluster.answers import ChannelStats, Percentiles
from nsqfast.nsqadmin.options import parse
from nsqfast.nsqadmin.web.charts import clean_name, host_name, statsd_key
from support import admin_pages
from support.admin_cluster import example_cluster
from support.admin_pages import AdminPages

URL = "--graphite-url=http://graphite.example:8080/g"


def pictures(html):
    return [each.attributes["src"] for each in html.elements if each.tag == "img"]


@pytest.mark.parametrize(
    ("flags", "words", "key"),
    [
        ([], ("depth", "orders"), "stats.gauges.nsq.*.topic.orders.depth"),
        ([], ("message_count", "orders"), "stats.counters.nsq.*.topic.orders.message_count.count"),
        (
            ["--statsd-prefix=my.%s", "--statsd-gauge-format=%s"],
            ("depth", "a b/c", "d"),
            "my.*.topic.a_b-c.channel.d.depth",
        ),
        (["--statsd-counter-format="], ("requeue_count", "t", "c"), ""),
    ],
)
def test_keys(flags, words, key):
    options = parse(["--nsqd-http-address=127.0.0.1:1", URL, *flags])
    assert statsd_key(options, *words) == key


def targets(address):
    return parse_qs(urlsplit(address).query)["target"]


@pytest.mark.parametrize(
    ("path", "count", "key"),
    [
        ("/topics/orders", 2, "stats.gauges.nsq.*.topic.orders.depth"),
        ("/topics/orders/billing", 7, "stats.gauges.nsq.*.topic.orders.channel.billing.depth"),
        ("/nodes/10.0.0.1:4151", 4, "stats.gauges.nsq.10_0_0_1_4151.mem.*_bytes"),
        ("/counter", 1, "stats.counters.nsq.*.topic.*.channel.*.message_count.count"),
    ],
)
def test_pages_with_pictures(path, count, key):
    with AdminPages(example_cluster(), URL) as site:
        found = pictures(site.page(f"{path}?t=24h"))
        address = urlsplit(found[0])
        assert len(found) == count
        assert (address.netloc, address.path) == ("graphite.example:8080", "/g/render")
        assert key in targets(found[0])[0]
        assert parse_qs(address.query)["from"] == ["-24h"]
        assert pictures(site.page(f"{path}?t=off")) == []
    with AdminPages(example_cluster(), URL, "--base-path=/nsq", "--proxy-graphite") as site:
        assert all(each.startswith("/nsq/render?") for each in pictures(site.page("/nsq" + path)))
    with AdminPages(example_cluster()) as site:
        assert pictures(site.page(path)) == []


def test_names_are_cleaned_as_nsqd_does_and_are_no_part_of_graphites_language():
    assert clean_name("a b/c#ephemeral") == "a_b-cephemeral"
    assert clean_name("*") == "*"
    assert clean_name("x*),drop(") == "xdrop"
    assert host_name("x*),drop(y:4151") == "xdropy_4151"


def test_a_channel_has_the_latencies_that_its_nodes_measure(monkeypatch):
    items = [{"quantile": quantile, "value": 1e6} for quantile in (0.99, 0.5, 1.0, 7.0, -1.0)]
    measured = partial(ChannelStats, e2e_processing_latency=Percentiles(1, items))
    monkeypatch.setattr(admin_pages, "ChannelStats", measured)
    with AdminPages(example_cluster(), URL) as site:
        html = site.page("/topics/orders/billing")
    row = html.rows["nodes"]["10.0.0.1:4151"]
    shown = {name: text for name, text in row.items() if name.startswith("p")}
    assert shown == dict.fromkeys(("p100", "p99", "p50"), "1 ms")
    asked = [
        target.partition("latency_")[2].partition(")")[0] for target in targets(pictures(html)[-1])
    ]
    assert asked == ["100", "99", "50"]
