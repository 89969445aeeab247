"""nsqfast-spark stats: what is there, by topic and hour."""

from __future__ import annotations

import json
import os
import sys
from datetime import UTC, datetime
from xml.etree import ElementTree as ET

import pyarrow.parquet as pq
import pytest
from matplotlib.dates import num2date

from nsqfast.spark_jobs.compact import main as compact
from nsqfast.spark_jobs.stats import main
from nsqfast.spark_jobs.stats_figures import Hour
from nsqfast.spark_jobs.stats_report import draw_chart, write_chart
from support.lake import FIRST_NS, messages_in, write_messages

HOUR_NS = 3_600_000_000_000


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


def texts_in(svg):
    return {
        "".join(one.itertext()) for one in ET.parse(svg).iter("{http://www.w3.org/2000/svg}text")
    }


def test_figures_of_each_topic_and_hour(spark, lake, tmp_path, capsys):
    chart, output = tmp_path / "chart.svg", tmp_path / "figures"
    words = [
        f"--input={lake}",
        f"--chart={chart}",
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
    assert chart.stat().st_mode & 0o777 == 0o600
    assert {"orders", "1234"} <= texts_in(chart)
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
    assert "--chart: /nowhere/x.png: no such file" in refused(
        f"--input={lake}", "--chart=/nowhere/x.png", "--topic=1234"
    )
    assert (tmp_path / "other" / "mine").read_text() == "mine"
    assert main(["--chart"], spark) == 2
    assert "see nsqfast-spark stats --help" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("x.pdf", "x.pdf: its name has to end in .png or .svg"),
        ("x.png", "--chart needs matplotlib, which is not installed: pip install 'nsqfast[chart]'"),
    ],
)
def test_a_chart_that_cannot_be_drawn_is_refused_before_spark_starts(
    monkeypatch, capsys, quiet_log, name, text
):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    no_session = object()
    assert main(["--input=in", f"--chart={name}"], no_session) == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert text in said


def test_a_chart_shows_names_as_they_are(tmp_path):
    wicked = {"a$b$#ephemeral", "_internal", "<b>&amp;", r"\$x$"}
    hours = [hour_of(topic=topic) for topic in wicked]
    for suffix in ("svg", "PNG"):
        write_chart(hours, str(tmp_path / f"chart.{suffix}"))
    assert wicked <= texts_in(tmp_path / "chart.svg")
    assert (tmp_path / "chart.PNG").read_bytes().startswith(b"\x89PNG\r\n")
    assert {path.name for path in tmp_path.iterdir()} == {"chart.svg", "chart.PNG"}


def test_a_page_is_deprecated_and_has_the_chart(spark, lake, tmp_path, capsys):
    page = tmp_path / "page"
    assert main([f"--input={lake}", f"--html={page}"], spark) == 0
    assert "--html goes with 0.4: say --chart" in capsys.readouterr().err
    text = page.read_text()
    assert text.startswith("<!doctype html>")
    assert text.rstrip().endswith("</svg>")
    assert text.count("<svg") == 1
    assert "orders" in text


def test_a_chart_has_the_most_common_topics_and_the_sum_of_the_others():
    hours = [hour_of(topic=f"t{number}", messages=100 - number) for number in range(12)]
    hours.append(hour_of(topic="t0", hour="11", messages=2))
    (axes,) = draw_chart(hours).axes
    names = [text.get_text() for text in axes.get_legend().get_texts()]
    assert names == [*(f"t{number}" for number in range(9)), "other"]
    heights = [area.get_datalim(axes.transData).y1 for area in axes.collections]
    assert heights == [*(sum(range(100 - number, 101)) for number in range(9)), sum(range(89, 101))]
    begin, end = (num2date(number) for number in axes.get_xlim())
    assert begin == datetime(2026, 11, 22, 8, tzinfo=UTC)
    assert end == datetime(2026, 11, 22, 12, tzinfo=UTC)
    # Between the two hours there is nothing.
    points = axes.collections[0].get_paths()[0].vertices
    assert {
        float(y) for x, y in points if begin < num2date(x) < datetime(2026, 11, 22, 11, tzinfo=UTC)
    } == {0, 100}
