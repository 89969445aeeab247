"""The pictures of Graphite on our pages: keys, addresses and timeframes as nsqadmin 1.3.0 asks for them."""

import urllib.request
from urllib.parse import parse_qs, urlsplit

import pytest

from nsqfast.nsqadmin.charts.graphite import clean_name, format_key, host_name
from nsqfast.nsqadmin.options import parse
from nsqfast.nsqadmin.upstream.messages import Percentiles
from support.admin_cluster import example_cluster
from support.admin_pages import AdminPages, StillConsumers
from support.page_html import PageHtml

URL = "--graphite-url=http://graphite.example:8080/g"


def options(*flags):
    return parse(["--nsqd-http-address=127.0.0.1:1", URL, *flags])


def page(site, path):
    with urllib.request.urlopen(site.url + path, timeout=20) as answer:
        return PageHtml(answer.read().decode())


def pictures(html):
    return [each.attributes["src"] for each in html.elements if each.tag == "img"]


@pytest.mark.parametrize(
    ("flags", "words", "key"),
    [
        ([], ("depth", "orders"), "stats.gauges.nsq.*.topic.orders.depth"),
        ([], ("message_count", "orders"), "stats.counters.nsq.*.topic.orders.message_count.count"),
        (
            [],
            ("in_flight_count", "orders", "tail#ephemeral"),
            "stats.gauges.nsq.*.topic.orders.channel.tailephemeral.in_flight_count",
        ),
        (
            ["--statsd-prefix=my.%s", "--statsd-gauge-format=%s"],
            ("depth", "a b/c", "d"),
            "my.*.topic.a_b-c.channel.d.depth",
        ),
        (["--statsd-counter-format="], ("requeue_count", "t", "c"), ""),
    ],
)
def test_keys(flags, words, key):
    assert format_key(options(*flags), *words) == key


def test_names_are_cleaned_as_nsqd_does():
    assert clean_name("a b/c#ephemeral") == "a_b-cephemeral"
    assert clean_name("*") == "*"
    assert clean_name("x*),drop(") == "xdrop"


def test_a_channel_has_its_seven_pictures():
    with AdminPages(example_cluster(), URL) as site:
        html = page(site, "/topics/orders/billing?t=24h")
        found = pictures(html)
        assert len(found) == 7
        address = urlsplit(found[0])
        assert (address.netloc, address.path) == ("graphite.example:8080", "/g/render")
        query = {name: values[0] for name, values in parse_qs(address.query).items()}
        assert query["target"] == (
            "summarize(sumSeries(stats.gauges.nsq.*.topic.orders.channel.billing.depth)"
            ',"60sec","avg")'
        )
        assert (query["from"], query["until"]) == ("-24h", "-1min")
        assert (query["width"], query["height"]) == ("120", "20")
        large = parse_qs(urlsplit(html.links["Messages"]).query)
        assert large["target"][0].startswith(
            "scale(summarize(sumSeries(stats.counters.nsq.*.topic."
        )
        assert (large["width"], large["height"]) == (["800"], ["450"])
        rates = [
            each.attributes["data-rate"] for each in html.elements if "data-rate" in each.attributes
        ]
        assert rates == [
            "sumSeries(stats.counters.nsq.*.topic.orders.channel.billing.message_count.count)"
        ]


def targets(address):
    return parse_qs(urlsplit(address).query)["target"]


def test_a_node_has_its_four_pictures():
    with AdminPages(example_cluster(), URL) as site:
        html = page(site, "/nodes/10.0.0.1:4151?t=1h")
        assert [targets(each) for each in pictures(html)] == [
            [f'summarize({each},"60sec","avg")']
            for each in (
                "stats.gauges.nsq.10_0_0_1_4151.mem.*_bytes",
                "stats.gauges.nsq.10_0_0_1_4151.mem.gc_pause_*",
                "movingAverage(stats.counters.nsq.10_0_0_1_4151.mem.gc_runs.count,45)",
                "stats.gauges.nsq.10_0_0_1_4151.mem.heap_objects",
            )
        ]
        (runs,) = targets(html.links["GC runs"])
        assert runs.startswith("scale(summarize(movingAverage(")
        assert "from=-1h" in html.links["GC runs"]
        assert parse_qs(urlsplit(html.links["GC pressure"]).query)["colorList"][0].count(",") == 3


def test_the_name_of_a_node_is_no_part_of_graphites_language():
    assert host_name("x*),drop(y:4151") == "xdropy_4151"


class Measured(StillConsumers):
    """Two nsqd that measure other quantiles, one with what makes no sense."""

    def __init__(self):
        self.measured = [[0.99, 0.5, 7.0, -1.0], [1.0, 0.5]]

    async def get(self, cluster, channel):
        found = await super().get(cluster, channel)
        for answer, quantiles in zip(found.answers.values(), self.measured, strict=False):
            items = [{"quantile": quantile, "value": 1e6} for quantile in quantiles]
            answer.stats.e2e_processing_latency = Percentiles(1, items)
        return found


def test_a_channel_whose_latency_is_measured_has_a_picture_of_it():
    with AdminPages(example_cluster(), URL, "--statsd-gauge-format=%s") as site:
        site.context.consumers = Measured()
        html = page(site, "/topics/orders/billing")
        assert len(pictures(html)) == 8
        key = "nsq.*.topic.orders.channel.billing.e2e_processing_latency"
        wanted = [
            f'summarize(scale(averageSeries({key}_{percent}),0.000001),"60sec","avg")'
            for percent in (100, 99, 50)
        ]
        assert targets(html.links["End to end, ms"]) == wanted
        assert targets(pictures(html)[-1]) == wanted


@pytest.mark.parametrize(
    ("path", "count"), [("/topics/orders", 2), ("/nodes/10.0.0.1:4151", 4), ("/counter", 1)]
)
def test_pages_with_pictures(path, count):
    with AdminPages(example_cluster(), URL, "--base-path=/nsq", "--proxy-graphite") as site:
        found = pictures(page(site, path))
        assert len(found) == count
        assert all(address.startswith("/nsq/render?") for address in found)
        assert pictures(page(site, f"{path}?t=off")) == []


def test_without_graphite_there_is_nothing_of_it():
    with AdminPages(example_cluster()) as site:
        for path in (
            "/topics/orders",
            "/topics/orders/billing",
            "/nodes/10.0.0.1:4151",
            "/counter",
        ):
            html = page(site, path)
            assert pictures(html) == []
            assert "Graphite" not in [each.text for each in html.elements if each.tag == "h2"]
