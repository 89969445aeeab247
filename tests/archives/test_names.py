"""What the names that nsq_to_file gives say."""

from datetime import UTC, datetime

import pytest

from nsqfast.archives.names import FileNames, NameFacts
from nsqfast.errors import OptionsError

HOUR_NS = 3_600_000_000_000


def ns(*when):
    return int(datetime(*when, tzinfo=UTC).timestamp()) * 1_000_000_000


EIGHT = ns(2026, 11, 22, 8)


@pytest.mark.parametrize(
    ("name", "topic"),
    [
        ("events.web1.2026-11-22_08.log", "events"),
        ("events.web1.2026-11-22_08.log.gz", "events"),
        ("events.web1-000002.2026-11-22_08.log.zst", "events"),
        ("events.web1-000002.2026-11-22_08.jsonl.gz", "events"),
        ("a.b-c_d.web1-000002.2026-11-22_08.parquet", "a.b-c_d"),
        ("events.web1.2026-11-22_08.parquet.rows", "events"),
        ("tail#ephemeral.web-1.2026-11-22_08.log", "tail#ephemeral"),
        ("/var/x.y/events.web1.2026-11-22_08.arrow", "events"),
    ],
)
def test_default_format(name, topic):
    assert FileNames().read(name) == NameFacts(topic, EIGHT, EIGHT + HOUR_NS)


@pytest.mark.parametrize(
    "name",
    [
        "events.log",
        "events.web1.2026-11-22.log",
        "x",
        "",
        "events.web1.2026-11-22_08.log.bak",
        "ev ents.web1.2026-11-22_08.log",
    ],
)
def test_other_names_say_nothing(name):
    assert FileNames().read(name) == NameFacts()


def test_a_date_that_is_none_leaves_the_topic():
    assert FileNames().read("events.web1.2026-13-22_08.log") == NameFacts("events")


@pytest.mark.parametrize(
    ("datetime_format", "text", "begin_ns", "seconds"),
    [
        ("%Y-%m-%d", "2026-11-22", ns(2026, 11, 22), 86_400),
        ("%y%m%d%H%M%S", "261122081530", ns(2026, 11, 22, 8, 15, 30), 1),
        ("%d-%b-%Y_%I%p", "22-Nov-2026_08PM", ns(2026, 11, 22, 20), 3600),
        ("%Y-%m-%d_%H%M%z", "2026-11-22_0800+0200", ns(2026, 11, 22, 6), 60),
        ("%Y-%m", "2026-11", ns(2026, 11, 1), 31 * 86_400),
        ("100%%_%Y", "100%_2026", ns(2026, 1, 1), 366 * 86_400),
    ],
)
def test_datetime_formats(datetime_format, text, begin_ns, seconds):
    facts = FileNames(datetime_format=datetime_format).read(f"t.h.{text}.log")
    assert facts == NameFacts("t", begin_ns, begin_ns + seconds * 1_000_000_000)


def test_filename_format_with_folders_and_tokens_that_come_twice():
    names = FileNames("<TOPIC>/<DATETIME>/<TOPIC>-<PID>.<DATETIME>.txt", "%Y-%m-%d")
    good = "/archive/a.b/2026-11-22/a.b-4711.2026-11-22.txt.gz"
    assert names.read(good).topic == "a.b"
    assert names.read(good).begin_ns == ns(2026, 11, 22)
    assert names.read(good.replace("a.b-", "b-")) == NameFacts()
    assert names.read("a.b-4711.2026-11-22.txt") == NameFacts()


def test_a_format_without_time_or_topic():
    assert FileNames("<TOPIC>.log").read("t.log") == NameFacts("t")
    facts = FileNames("<DATETIME>.log").read("2026-11-22_08.log")
    assert facts == NameFacts(None, EIGHT, EIGHT + HOUR_NS)


def test_time_zones(monkeypatch):
    name = "t.h.2026-11-22_08.log"
    assert FileNames(zone="Europe/Berlin").read(name).begin_ns == EIGHT - HOUR_NS
    monkeypatch.setenv("TZ", "UTC+5")
    import time

    time.tzset()
    try:
        assert FileNames(zone="local").read(name).begin_ns == EIGHT + 5 * HOUR_NS
    finally:
        monkeypatch.undo()
        time.tzset()
    for wrong in ("Europe/Nowhere", "../etc", ""):
        with pytest.raises(OptionsError, match="no time zone"):
            FileNames(zone=wrong)
