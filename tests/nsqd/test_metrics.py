"""/metrics of the real daemon: both formats, figures beside those of /stats, ages, ceilings, and who has to wait."""

import http.client
import math
import random
import resource
import select
import socket
import time

import pytest

from support.certificates import Certificates
from support.prometheus import OPENMETRICS, TEXT, read, scrape
from support.seeds import seeds
from support.server import start_nsqd
from support.waiting import eventually, wait_until
from support.web import post, request, topic_stats
from support.wire import ERROR, Client

LATENCY = "nsqd_channel_e2e_processing_latency_seconds"
FIGURES = {
    "depth": "depth",
    "backend_depth": "backend_depth",
    "in_flight": "in_flight_count",
    "deferred": "deferred_count",
    "messages_total": "message_count",
    "requeues_total": "requeue_count",
    "timeouts_total": "timeout_count",
    "clients": "client_count",
    "paused": "paused",
}
SECONDS_MAX = 50.0


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    folder = tmp_path_factory.mktemp("metrics")
    with start_nsqd("nsqfast", folder, "--metrics-latency-histogram") as server:
        yield server


@pytest.fixture
def client(broker):
    with Client(broker.tcp) as client:
        yield client


def until(address, reached):
    """Scrapes until it is so."""
    return wait_until(
        lambda: reached(found := scrape(address)) and found, lambda: scrape(address).text
    )


# -- formats


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        ("", TEXT),
        ("*/*", TEXT),
        ("text/plain; version=abc", TEXT),
        ("text/plain;version=1.0.0;escaping=dots", TEXT),
        ("application/json", TEXT),
        ("application/openmetrics-text", OPENMETRICS),
        ("application/openmetrics-text;version=abc", OPENMETRICS),
        ("application/openmetrics-text;version=1.0.0;escaping=values;q=0.6,*/*;q=0.1", OPENMETRICS),
        ("text/html, Application/OpenMetrics-Text; version=0.0.1", OPENMETRICS),
    ],
)
def test_the_format_is_what_was_asked_for(broker, accept, content_type):
    found = scrape(broker.http, accept)
    assert found.content_type == content_type
    assert found.text.endswith("# EOF\n") == (content_type == OPENMETRICS)


def test_both_formats_say_the_same(broker, client):
    client.sub("formats", "one", 1)
    client.pub("formats", b"x")
    text, openmetrics = scrape(broker.http), scrape(broker.http, OPENMETRICS)
    assert text.series() == openmetrics.series()
    assert all(family.documentation for family in openmetrics.families.values())
    kinds = {name: family.type for name, family in openmetrics.families.items()}
    assert kinds["nsqd_topic_messages"] == "counter"
    assert kinds[LATENCY] == "histogram"
    assert kinds["nsqd_channel_depth"] == "gauge"
    assert kinds["nsqd_fsync_duration_seconds"] == "summary"


def test_errors_are_those_of_the_rest(broker):
    assert post(broker.http, "/metrics").status == 405
    moved = request(broker.http, "GET", "/metrics/")
    assert (moved.status, moved.headers["Location"]) == (301, "/metrics")


def test_over_https(tmp_path):
    certificates = Certificates(tmp_path)
    data = tmp_path / "data"
    data.mkdir()
    flags = [*certificates.flags(), "--tls-required=true"]
    with start_nsqd("nsqfast", data, *flags, listeners=("TCP", "HTTP", "HTTPS")) as server:
        context = certificates.client_context()
        connection = http.client.HTTPSConnection(*server.https, timeout=10, context=context)
        connection.request("GET", "/metrics")
        found = read(TEXT, connection.getresponse().read().decode())
        connection.close()
        assert found.value("nsqd_connections", listener="https") == 1
        assert found.value("nsqd_connections_accepted_total", listener="https") == 1
        # Who may not publish in the clear may not look, either.
        assert request(server.http, "GET", "/metrics").status == 403


# -- figures


def assert_agrees_with_stats(address, topic):
    """With the broker at rest; returns what was scraped."""
    found, stats = scrape(address), topic_stats(address, topic)
    for name, key in {"depth": "depth", "backend_depth": "backend_depth"}.items():
        assert found.value(f"nsqd_topic_{name}", topic=topic) == stats[key]
    assert found.value("nsqd_topic_messages_total", topic=topic) == stats["message_count"]
    assert found.value("nsqd_topic_message_bytes_total", topic=topic) == stats["message_bytes"]
    assert found.value("nsqd_topic_paused", topic=topic) == stats["paused"]
    assert found.value("nsqd_topic_channels", topic=topic) == len(stats["channels"])
    for channel, figures in stats["channels"].items():
        for name, key in FIGURES.items():
            value = found.value(f"nsqd_channel_{name}", topic=topic, channel=channel)
            assert value == figures[key], name
    return found


@pytest.mark.slow
def test_a_life_of_messages(broker, client):
    topic = "life"
    with Client(broker.tcp) as producer:
        producer.pub(topic, b"before")
        assert_agrees_with_stats(broker.http, topic)
        client.identify(msg_timeout=2000)
        client.sub(topic, "c", 6)
        producer.mpub(topic, [b"one", b"two", b"three", b"four", b"five"])
        assert producer.ask("DPUB", topic, "3600000", body=b"later") == b"OK"
        messages = client.read_messages(6)
        assert_agrees_with_stats(broker.http, topic)
        client.fin(messages[0])
        client.fin(messages[1])
        client.command("REQ", messages[2].id, "0")
        client.command("REQ", messages[3].id, "1000000")
        again = client.read_message()
        assert (again.id, again.attempts) == (messages[2].id, 2)
        client.fin(again)
        late = client.read_messages(2)  # nothing was said of these, so they timed out
        assert [message.attempts for message in late] == [2, 2]
        for message in late:
            client.fin(message)
        client.barrier()
        post(broker.http, f"/channel/pause?topic={topic}&channel=c")
        post(broker.http, f"/topic/pause?topic={topic}")
        found = assert_agrees_with_stats(broker.http, topic)
        labels = {"topic": topic, "channel": "c"}
        assert found.value("nsqd_channel_timeouts_total", **labels) == 2
        assert found.value("nsqd_channel_requeues_total", **labels) == 2
        assert found.value("nsqd_channel_finished_total", **labels) == 5
        assert found.value("nsqd_channel_delivered_total", **labels) == 9
        assert found.value("nsqd_channel_deferred", **labels) == 2
        assert found.value("nsqd_channel_paused", **labels) == 1
        assert found.value(f"{LATENCY}_count", **labels) == 5


@pytest.mark.parametrize("seed", seeds("metrics", 1))
def test_the_histogram_has_every_fin(broker, client, seed):
    print("seed", seed)
    dice = random.Random(seed)
    labels = {"topic": f"fins{seed}", "channel": "c"}
    client.sub(labels["topic"], "c", 100)
    count = dice.randrange(50, 100)
    begun_ns = time.time_ns()
    with Client(broker.tcp) as producer:
        producer.mpub(labels["topic"], [b"x"] * count)
    finished = [message for message in client.read_messages(count) if dice.random() < 0.7]
    for message in finished:
        client.fin(message)
    client.barrier()
    found = scrape(broker.http)
    counts = {
        float(have["le"]): value
        for value, have in found.samples(f"{LATENCY}_bucket")
        if have["topic"] == labels["topic"]
    }
    assert list(counts) == sorted(counts)
    assert list(counts.values()) == sorted(counts.values())
    assert counts[float("inf")] == found.value(f"{LATENCY}_count", **labels) == len(finished)
    elapsed_s = (time.time_ns() - begun_ns) / 1e9
    assert counts[3600.0] == len(finished)
    assert 0 < found.value(f"{LATENCY}_sum", **labels) < elapsed_s * len(finished)


@pytest.mark.parametrize("mem_queue_size", [10000, 0])
def test_ages(tmp_path, mem_queue_size):
    name = "nsqd_channel_oldest_message_age_seconds"
    labels = {"topic": "t", "channel": "c"}
    with (
        start_nsqd("nsqfast", tmp_path, f"--mem-queue-size={mem_queue_size}") as server,
        Client(server.tcp) as client,
        Client(server.tcp) as producer,
    ):

        def age(message_ns=None, least_ns=None):
            """Of a message whose time is known, or that is younger than that."""
            before_ns = time.time_ns()
            age_s = scrape(server.http).value(name, **labels)
            if message_ns is not None:
                assert before_ns - message_ns <= age_s * 1e9 + 1000
                assert age_s * 1e9 - 1000 <= time.time_ns() - message_ns
            elif least_ns is not None:
                assert 0 < age_s * 1e9 <= time.time_ns() - least_ns
            return age_s

        client.sub("t", "c", 0)
        assert age() == 0
        assert producer.ask("DPUB", "t", "3600000", body=b"later") == b"OK"
        assert age() == 0
        begun_ns = time.time_ns()
        for body in (b"one", b"two"):
            producer.pub("t", body)
        first_s = age(least_ns=begun_ns)
        assert age(least_ns=begun_ns) > first_s
        client.command("RDY", "2")
        one, two = client.read_messages(2)
        age(one.timestamp_ns)
        client.fin(one)
        client.barrier()
        age(two.timestamp_ns)
        client.fin(two)
        client.barrier()
        assert age() == 0


def test_age_of_a_topic_without_channel(broker):
    name, topic = "nsqd_topic_oldest_message_age_seconds", "lonely"
    begun_ns = time.time_ns()
    post(broker.http, f"/pub?topic={topic}", b"x")
    age_s = scrape(broker.http).value(name, topic=topic)
    assert 0 < age_s * 1e9 <= time.time_ns() - begun_ns
    post(broker.http, f"/topic/empty?topic={topic}")
    assert scrape(broker.http).value(name, topic=topic) == 0


def test_what_cannot_be_read_has_no_age(tmp_path):
    with start_nsqd("nsqfast", tmp_path, "--mem-queue-size=0") as server:
        post(server.http, "/pub?topic=t", b"x")
        [path] = tmp_path.glob("t.diskqueue.0*.dat")
        whole = path.read_bytes()
        path.write_bytes(b"")
        age_s = scrape(server.http).value("nsqd_topic_oldest_message_age_seconds", topic="t")
        assert math.isnan(age_s)
        path.write_bytes(whole)


def test_connections(broker):
    before = scrape(broker.http)
    labels = {"listener": "tcp"}
    clients = [Client(broker.tcp) for _ in range(3)]
    for client in clients:
        client.barrier()
    found = scrape(broker.http)
    open_count = before.value("nsqd_connections", **labels)
    accepted = before.value("nsqd_connections_accepted_total", **labels)
    assert found.value("nsqd_connections", **labels) == open_count + 3
    assert found.value("nsqd_connections_accepted_total", **labels) == accepted + 3
    for client in clients:
        client.close()
    until(broker.http, lambda found: found.value("nsqd_connections", **labels) == open_count)
    with socket.create_connection(broker.http):
        idle = until(
            broker.http, lambda found: found.value("nsqd_connections", listener="http") > 1
        )
    accepted = before.value("nsqd_connections_accepted_total", listener="http")
    assert idle.value("nsqd_connections_accepted_total", listener="http") > accepted


def test_requests_over_http_by_route_never_by_what_was_written(tmp_path):
    with start_nsqd("nsqfast", tmp_path) as server:
        for target, body in (
            ("/pub?topic=t", b"through the handler, which makes the topic"),
            ("/pub?topic=t", b"by the shortcut"),
            ("/mpub?topic=t", b"by\nthe\nshortcut"),
            ("/pub?topic=t", b""),
            ("/drain", b""),
            ("/made-up/<script>", b""),
            ("/ping", b""),
        ):
            post(server.http, target, body)
        request(server.http, "GET", "/config/log_level")
        request(server.http, "POST", "/pub?topic=t", b"x", {"Sec-Fetch-Site": "cross-site"})
        with socket.create_connection(server.http, timeout=10) as raw:
            raw.sendall(b"not HTTP\r\n\r\n")
            assert b" 400 " in raw.recv(1 << 16)
        samples = scrape(server.http).samples("nsqd_http_requests_total")
        assert {(have["path"], have["status"]): value for value, have in samples} == {
            ("/config/:opt", "200"): 1,
            ("/drain", "403"): 1,
            ("/metrics", "200"): 0,
            ("/mpub", "200"): 1,
            ("/pub", "200"): 2,
            ("/pub", "400"): 1,
            ("/pub", "403"): 1,
            ("other", "400"): 1,
            ("other", "404"): 1,
            ("other", "405"): 1,
        }
        found = scrape(server.http, OPENMETRICS)
        assert found.value("nsqd_http_requests_total", path="/metrics", status="200") == 1


def test_disk(tmp_path):
    body = b"x" * 1000
    with start_nsqd("nsqfast", tmp_path, "--mem-queue-size=0", "--sync-every=2") as server:
        with Client(server.tcp) as client:
            for _ in range(5):
                client.pub("t", body)
            eventually(lambda: scrape(server.http).value("nsqd_fsync_duration_seconds_count") > 0)
            found = scrape(server.http)
            assert found.value("nsqd_disk_written_bytes_total") == 5 * (30 + len(body))
            assert 0 < found.value("nsqd_fsync_duration_seconds_sum") < SECONDS_MAX
            assert found.value("nsqd_fsync_errors_total") == 0
            client.sub("t", "c", 5)
            client.read_messages(5)
            found = scrape(server.http)
            # From the topic into the channel, and from there to the consumer.
            assert found.value("nsqd_disk_read_bytes_total") >= 2 * 5 * (30 + len(body))
        assert 0 < found.value("nsqd_disk_free_bytes") < found.value("nsqd_disk_size_bytes")
        assert found.value("nsqd_healthy") == 1


def test_health(tmp_path):
    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, resource.RLIM_INFINITY))

    with start_nsqd("nsqfast", tmp_path, "--mem-queue-size=0", prepare=limit) as server:
        with Client(server.tcp) as client:
            frame = None
            for _ in range(100):
                client.command("PUB", "t", body=b"x" * 4096)
                frame = client.read_frame()
                if frame.kind == ERROR:
                    break
            assert frame.kind == ERROR
        assert scrape(server.http).value("nsqd_healthy") == 0
        unlimited = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, unlimited)
        with Client(server.tcp) as client:
            client.pub("t", b"x")
        assert scrape(server.http).value("nsqd_healthy") == 1


def test_process(broker):
    found = scrape(broker.http)
    pid = broker.process.pid
    assert found.value("process_resident_memory_bytes") == pytest.approx(
        broker.resident_bytes(), rel=0.2
    )
    assert abs(found.value("process_start_time_seconds") - time.time()) < 600
    assert 0 < found.value("process_cpu_seconds_total") < 600
    _, limit = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    assert 5 < found.value("process_open_fds") < found.value("process_max_fds") <= limit


# -- how late the loop is


@pytest.mark.slow
def test_lag_is_counted(tmp_path):
    with start_nsqd("nsqfast", tmp_path) as server:
        assert scrape(server.http).value("nsqd_loop_lag_seconds_count") == 0
        found = until(server.http, lambda f: f.value("nsqd_loop_lag_seconds_count") > 0)
        assert 0 <= found.value("nsqd_loop_lag_seconds_sum") < SECONDS_MAX


# -- how many series

TOPIC_SERIES, CHANNEL_SERIES, HISTOGRAM_SERIES = 7, 13, 23


def of_queues(found):
    """Series by kind of what they are about."""
    kinds = {"topic": set(), "channel": set()}
    for name, labels in found.series():
        keys = dict(labels)
        if "channel" in keys:
            kinds["channel"].add((name, labels))
        elif "topic" in keys:
            kinds["topic"].add((name, labels))
    return kinds["topic"], kinds["channel"]


def create(server, topics):
    for topic, channels in topics.items():
        for channel in channels:
            shown = f"topic={topic}&channel={channel}".replace("#", "%23")
            assert post(server.http, f"/topic/create?{shown}").status == 200
            assert post(server.http, f"/channel/create?{shown}").status == 200


@pytest.mark.parametrize(
    ("series_max", "has_histogram"),
    [(0, False), (34, False), (35, False), (60, False), (0, True), (101, True)],
)
def test_a_ceiling(tmp_path, series_max, has_histogram):
    flags = [f"--metrics-max-series={series_max}"]
    flags += ["--metrics-latency-histogram"] * has_histogram
    with start_nsqd("nsqfast", tmp_path, *flags) as server:
        create(server, {f"t{number}": ["a", "b"] for number in range(5)})
        found = scrape(server.http)
    size = CHANNEL_SERIES + HISTOGRAM_SERIES * has_histogram
    topics, channels = of_queues(found)
    room = series_max or 10_000
    assert len(topics) == min(5, room // TOPIC_SERIES) * TOPIC_SERIES
    assert len(channels) == min(10, (room - len(topics)) // size) * size
    dropped = found.value("nsqd_metrics_dropped_series")
    assert dropped == 5 * TOPIC_SERIES + 10 * size - len(topics) - len(channels)
    assert (found.value("nsqd_topics"), found.value("nsqd_channels")) == (5, 10)
    # The first ones by name.
    shown = sorted({(dict(have)["topic"], dict(have)["channel"]) for _, have in channels})
    every = [(f"t{number}", name) for number in range(5) for name in "ab"]
    assert shown == every[: len(shown)]


def test_channels_left_out(tmp_path):
    with start_nsqd("nsqfast", tmp_path, "--metrics-exclude-channels") as server:
        create(server, {"t": ["a", "b"]})
        found = scrape(server.http)
        topics, channels = of_queues(found)
        assert (len(topics), len(channels)) == (TOPIC_SERIES, 0)
        assert "nsqd_channel_depth" not in found.text
        assert found.value("nsqd_topic_channels", topic="t") == 2
        assert found.value("nsqd_channels") == 2
        assert found.value("nsqd_metrics_dropped_series") == 0


@pytest.mark.parametrize("is_left_out", [False, True])
def test_ephemeral_ones(tmp_path, is_left_out):
    flags = ["--metrics-exclude-ephemeral"] * is_left_out
    with start_nsqd("nsqfast", tmp_path, *flags) as server, Client(server.tcp) as client:
        create(server, {"kept": ["c"]})
        with Client(server.tcp) as other:
            client.sub("kept", "gone#ephemeral")
            other.sub("gone#ephemeral", "c")
            found = scrape(server.http)
            names = {dict(have)["topic"] for _, have in of_queues(found)[0]}
            channels = {dict(have)["channel"] for _, have in of_queues(found)[1]}
    assert names == ({"kept"} if is_left_out else {"kept", "gone#ephemeral"})
    assert channels == ({"c"} if is_left_out else {"c", "gone#ephemeral"})
    assert found.value("nsqd_channels") == 3


def test_a_ceiling_below_nothing_is_refused(tmp_path):
    with pytest.raises(AssertionError, match="--metrics-max-series must be at least 0, not -1"):
        start_nsqd("nsqfast", tmp_path, "--metrics-max-series=-1")


# -- who has to wait


@pytest.mark.slow
def test_others_are_served_during_a_long_scrape(tmp_path):
    """A publish that comes after the request is answered before it."""
    topics = 3000
    with start_nsqd("nsqfast", tmp_path, "--metrics-latency-histogram") as server:
        with Client(server.tcp) as client:
            for number in range(topics):
                client.command("PUB", f"t{number}", body=b"x")
            for _ in range(topics):
                assert client.read_frame().data == b"OK"
            scrape(server.http)  # what it takes is loaded
            with socket.create_connection(server.http, timeout=10) as raw:
                question = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
                with server.frozen():  # both are there when it goes on
                    raw.sendall(question)
                    client.command("PUB", "t0", body=b"y")
                # On a busy machine this one looks so late that both have been answered.
                assert client.socket in select.select([raw, client.socket], [], [])[0]
                assert client.read_frame().data == b"OK"
                got = b""
                while piece := raw.recv(1 << 16):
                    got += piece
        assert got.count(b"\nnsqd_topic_depth{") == topics
        server.kill()


def test_a_stop_in_the_middle(tmp_path):
    with start_nsqd("nsqfast", tmp_path) as server:
        raw = socket.create_connection(server.http, timeout=10)
        raw.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n" * 20)
        raw.recv(1)
        server.stop()
        raw.close()
        assert "Traceback" not in server.stderr
        assert "ERROR" not in server.stderr
