"""/metrics of nsqlookupd: both formats, the figures, and docs/METRICS.md against what is exposed."""

import re
from pathlib import Path

import pytest

from support.lookup import MAGIC, Node, producers
from support.prometheus import OPENMETRICS, TEXT, scrape
from support.server import start_nsqlookupd
from support.waiting import eventually
from support.web import get, post

PAGE = Path(__file__).resolve().parents[2] / "docs" / "METRICS.md"
ROW = re.compile(r"^\| `(nsqlookupd_\w+)` \| (\w+) \|([^|]*)\| .+ \|$", re.MULTILINE)


@pytest.fixture(scope="module")
def lookupd():
    flags = ("--inactive-producer-timeout=0s", "--tombstone-lifetime=1h")
    with start_nsqlookupd("nsqfast", *flags) as server:
        yield server


@pytest.fixture
def node(lookupd):
    with Node(lookupd.tcp) as node:
        node.identify()
        yield node


@pytest.mark.parametrize(("accept", "content_type"), [("", TEXT), (OPENMETRICS, OPENMETRICS)])
def test_formats(lookupd, accept, content_type):
    found = scrape(lookupd.http, accept)
    assert found.content_type == content_type
    labels = {"version": "1.3.0"}
    [(value, have)] = found.samples("nsqlookupd_build_info")
    assert (value, have | labels) == (1, have)
    assert found.value("process_resident_memory_bytes") > 0
    assert found.text.endswith("# EOF\n") == bool(accept)


def test_a_large_peer_leaves():
    with start_nsqlookupd("nsqfast") as lookupd, Node(lookupd.tcp) as stays:
        stays.identify()
        stays.register("t7", "c")
        with Node(lookupd.tcp) as large:
            large.identify(hostname="large")
            large.send(b"".join(b"REGISTER t%d c\n" % number for number in range(5_000)))
            for _ in range(5_000):
                assert large.read() == b"OK"
            assert len(producers(lookupd.http, "t7")) == 2
        eventually(lambda: len(producers(lookupd.http, "t7")) != 2)
        eventually(lambda: scrape(lookupd.http).value("nsqlookupd_producers", state="active") != 2)
        found = scrape(lookupd.http)
        assert found.value("nsqlookupd_registrations") == 2
        assert found.value("nsqlookupd_topics") == 5_000
        assert producers(lookupd.http, "t4999") == []


def test_figures():
    with start_nsqlookupd("nsqfast") as lookupd, Node(lookupd.tcp) as first:
        with Node(lookupd.tcp) as second, Node(lookupd.tcp) as unknown:
            for node in (first, second):
                node.identify()
                node.register("t", "c")
                node.register("u")
            assert unknown.ask(b"PING") == b"OK"
            post(lookupd.http, "/channel/create?topic=v&channel=c")
            post(lookupd.http, "/topic/tombstone?topic=t&node=bc.example:2222")
            get(lookupd.http, "/lookup?topic=nobody")
            get(lookupd.http, "/nothing")
            with Node(lookupd.tcp, b"  V2") as wrong:
                wrong.read_to_end()
            found = scrape(lookupd.http)
            assert found.value("nsqlookupd_connections", listener="tcp") in {3, 4}
            second.unregister("t")
        value = scrape(lookupd.http).value
        assert value("nsqlookupd_connections_accepted_total", listener="tcp") == 4
        assert value("nsqlookupd_connections_accepted_total", listener="http") == 6
        assert value("nsqlookupd_commands_total", command="UNREGISTER") == 1
    value = found.value
    assert value("nsqlookupd_producers", state="active") == 2
    assert value("nsqlookupd_producers", state="inactive") == 0
    assert value("nsqlookupd_topics") == 3
    assert value("nsqlookupd_channels") == 2
    assert value("nsqlookupd_registrations") == 6
    assert value("nsqlookupd_tombstones") == 2
    assert value("nsqlookupd_commands_total", command="IDENTIFY") == 2
    assert value("nsqlookupd_commands_total", command="REGISTER") == 4
    assert value("nsqlookupd_commands_total", command="PING") == 1
    assert value("nsqlookupd_errors_total", code="E_BAD_PROTOCOL") == 1
    for path, status, count in (
        ("/lookup", "404", 1),
        ("other", "404", 1),
        ("/topic/tombstone", "200", 1),
    ):
        assert value("nsqlookupd_http_requests_total", path=path, status=status) == count


def test_inactive(lookupd, node):
    # With a timeout of 0 everybody is, one nanosecond later.
    assert scrape(lookupd.http).value("nsqlookupd_producers", state="inactive") == 1


def test_no_label_is_a_peers_choice(lookupd, node):
    """Whoever connects could make as many series as it likes."""
    before = scrape(lookupd.http).series()
    for name in ("a", "b", "c"):
        node.register("chosen-" + name, "c")
        get(lookupd.http, "/chosen-" + name)
        get(lookupd.http, f"/lookup?topic=chosen-{name}")
        with Node(lookupd.tcp, MAGIC + f"CHOSEN-{name}\n".encode()) as wrong:
            wrong.read_to_end()
    after = scrape(lookupd.http)
    assert "chosen" not in after.text.lower()
    assert len(after.series() - before) < 8


def test_the_page_is_what_is_exposed(lookupd, node):
    node.register("t")
    with Node(lookupd.tcp, b"  V2") as wrong:
        wrong.read_to_end()
    get(lookupd.http, "/ping")
    text = scrape(lookupd.http).text
    kinds = re.findall(r"^# TYPE (nsqlookupd_\S+) (\w+)$", text, re.MULTILINE)
    rows = ROW.findall(PAGE.read_text())
    assert {name: kind for name, kind, _ in rows} == dict(kinds)
    for name, _, labels in rows:
        [sample, *_] = re.findall(rf"^{name}(?:{{(.*)}})? ", text, re.MULTILINE)
        shown = {label.strip() for label in labels.split(",") if label.strip()}
        assert set(re.findall(r"(\w+)=", sample)) == shown
