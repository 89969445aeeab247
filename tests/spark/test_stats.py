"""nsqfast-spark stats: what is there, by topic and hour."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from html.parser import HTMLParser

import pyarrow.parquet as pq
import pytest

from nsqfast.spark_jobs.compact import main as compact
from nsqfast.spark_jobs.stats import main
from nsqfast.spark_jobs.stats_figures import Hour
from nsqfast.spark_jobs.stats_page import make_page
from support.lake import FIRST_NS, messages_in, write_messages

HOUR_NS = 3_600_000_000_000
NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)


def message(number, hour=0, **more):
    return {
        "topic": "orders",
        "id": f"{number:016x}",
        "timestamp_ns": FIRST_NS + hour * HOUR_NS,
        "attempts": 1,
        "body": b"x" * 100,
        **more,
    }


@pytest.fixture
def lake(tmp_path):
    """An hour of orders, ingested 5 s after it was published, and lines of an archive."""
    folder = tmp_path / "in"
    write_messages(folder, "q-0", [message(n) for n in range(97)] + [message(97, body=b"y" * 500)])
    write_messages(
        folder, "q-1", [message(0, attempts=3), message(1, attempts=2), message(98), message(99)]
    )
    for path in folder.rglob("*.parquet"):
        os.utime(path, (FIRST_NS / 1e9 + 5, FIRST_NS / 1e9 + 5))
    nothing = {
        "topic": "1234",
        "id": None,
        "timestamp_ns": None,
        "attempts": None,
        "file": "/a.log",
    }
    write_messages(folder, "archives-1", [{**nothing, "body": b"line"}] * 3)
    return folder


def hour_of(**more):
    figures = {
        "topic": "t", "date": "2026-11-22", "hour": "08", "messages": 10, "bytes": 1000, "body_bytes_max": 100,
        "duplicates": 0, "redelivered": 0, "attempts_mean": 1.0, "attempts_max": 1,
        "delay_p50_s": 0.5, "delay_p95_s": 1.0, "delay_p99_s": 2.0, "delay_max_s": 3.0,
    }  # fmt: skip
    return Hour(**{**figures, **more})


class Page(HTMLParser):
    """Elements, texts, and whatever would ask for something elsewhere."""

    VOID = ("meta",)

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.texts, self.links = [], [], [], []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.links += [
            value for name, value in attrs if name in {"src", "href", "srcset", "action"}
        ]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


def test_figures_of_each_topic_and_hour(spark, lake, tmp_path, capsys):
    page, output = tmp_path / "page.html", tmp_path / "figures"
    words = [
        f"--input={lake}",
        f"--html={page}",
        f"--output={output}",
        f"--metrics-file={tmp_path}/m",
    ]
    assert main(words, spark) == 0, capsys.readouterr().err
    shown = capsys.readouterr().out.splitlines()
    (lines,) = [one.split() for one in shown if "1234" in one]
    assert lines == ["1234", "2025-11-22", "08", "3", "12", "B", "0", "0", *"––––––"]
    (orders,) = [one.split() for one in shown if "orders" in one]
    assert orders == "orders 2025-11-22 08 102 10.4 KiB 2 2 1.03 3 5 s 5 s 5 s 5 s".split()
    (total,) = [one.split() for one in shown if one.strip().startswith("all")]
    assert total == "all 105 10.4 KiB 2 2 3 5 s".split()

    (file,) = output.glob("*.parquet")
    first, second = pq.read_table(file).to_pylist()
    assert first["topic"] == "1234"
    assert first["delay_p50_s"] is first["attempts_mean"] is None
    assert second == {
        "topic": "orders", "date": "2025-11-22", "hour": "08", "messages": 102, "bytes": 101 * 100 + 500,
        "body_bytes_max": 500, "duplicates": 2, "redelivered": 2, "attempts_mean": 105 / 102, "attempts_max": 3,
        "delay_p50_s": 5.0, "delay_p95_s": 5.0, "delay_p99_s": 5.0, "delay_max_s": 5.0,
    }  # fmt: skip
    assert page.stat().st_mode & 0o777 == 0o644
    assert "orders" in Page(page.read_text()).texts
    assert json.loads((tmp_path / "m").read_text())["duplicates"] == 2

    # What is known from the files alone outlives compact.
    assert compact([f"--input={lake}", f"--output={tmp_path}/compacted", "--dedupe"], spark) == 0
    assert len(messages_in(tmp_path / "compacted")) == 103
    words[0] = f"--input={tmp_path}/compacted"
    assert main(words, spark) == 0, capsys.readouterr().err
    (file,) = output.glob("*.parquet")
    second = pq.read_table(file).to_pylist()[1]
    assert (second["messages"], second["duplicates"], second["delay_max_s"]) == (100, 0, 5.0)


def test_what_cannot_be_done_is_said_in_one_line(spark, lake, tmp_path, capsys):
    def refused(*words):
        assert main(list(words), spark) == 1
        said = capsys.readouterr().err
        assert said.count("\n") == 1
        assert "Traceback" not in said
        return said

    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "mine").write_text("mine")
    assert "--input required" in refused()
    assert "not empty, and not of stats" in refused(f"--input={lake}", f"--output={tmp_path}/other")
    assert "is inside --input" in refused(f"--input={lake}", f"--output={lake}/x")
    assert "no messages there" in refused(f"--input={tmp_path}/none")
    assert "no messages of these topics" in refused(f"--input={lake}", "--topic-pattern=^none$")
    assert "--html: /nowhere/x: no such file" in refused(
        f"--input={lake}", "--html=/nowhere/x", "--topic=1234"
    )
    assert (tmp_path / "other" / "mine").read_text() == "mine"
    assert main(["--html"], spark) == 2
    assert "see nsqfast-spark stats --help" in capsys.readouterr().err


def test_a_page_stands_for_itself_and_names_are_text():
    wicked = '<script>alert("1")</script>&"\''
    hours = [
        hour_of(topic=wicked),
        hour_of(topic=wicked, hour="11", redelivered=3, delay_p50_s=-0.2),
    ]
    hours += [hour_of(topic="lines", attempts_mean=None, attempts_max=None, **dict.fromkeys(
        ("delay_p50_s", "delay_p95_s", "delay_p99_s", "delay_max_s")))]  # fmt: skip
    text = make_page(hours, ["/a<b>&"], NOW)
    page = Page(text)
    assert page.links == []
    assert "url(" not in text
    assert "@import" not in text
    assert not {"script", "link", "img", "iframe", "b"} & set(page.tags)
    assert wicked in page.texts
    assert "/a<b>&" in page.texts
    assert page.tags.count("svg") == 4 + 2
