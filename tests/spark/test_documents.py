"""docs/SPARK.md: its commands and its Python, in their order."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from nsqfast.spark_jobs.main import main
from support.fake_nsqd import eventually
from support.server import ROOT, program
from support.tools import Tool
from support.web import topic_stats

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

TEXT = (ROOT / "docs" / "SPARK.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```(sh|python)\n(.*?)^```", re.DOTALL | re.MULTILINE)
LISTENING = re.compile(rb"(TCP|HTTP): listening on \S+:(\d+)\n")
BIN = Path(sys.executable).parent


class Reader:
    """Does what the page says, with a folder and ports of its own in place of those that it names."""

    def __init__(self, folder, spark):
        self.folder = folder
        self.spark = spark
        self.places = {}  # a port of the page: the real one
        self.running = []
        self.names = {"__name__": "page"}
        (folder / "data" / "nsqd").mkdir(parents=True)

    def translated(self, text):
        # In one pass: a real port may begin with the digits of another one of the page.
        text = re.sub(r"(?<=:)\d+\b", lambda port: str(self.places.get(port[0], port[0])), text)
        return re.sub(r"(?<![\w.])/data/", f"{self.folder}/data/", text)

    def do(self, kind, text):
        if kind == "python":
            exec(compile(self.translated(text), "docs/SPARK.md", "exec"), self.names)
            return
        for line in text.replace("\\\n", " ").splitlines():
            if line.strip() and not line.lstrip().startswith("#"):
                self.run(line.strip())

    def run(self, line):
        words = shlex.split(re.sub(r" &$", "", self.translated(line)))
        if words[:2] == ["nsqfast-spark", "load-archives"]:
            self.end_archive()
        if words[0] == "nsqfast-spark":
            # Each in the one session of the tests: as a process it does the same, ten seconds later.
            assert main(words[1:], spark=self.spark) == 0, line
            return
        if words[0] in {"nsqfast-nsqd", "nsqfast-nsq-spool", "nsqfast-nsq-to-file"}:
            self.start(line, words)
            return
        words[0] = str(BIN / words[0]) if (BIN / words[0]).exists() else words[0]
        # It ends by itself, or with the test's own time; what it says is shown with a failure.
        environment = os.environ | {"PATH": f"{BIN}:{os.environ['PATH']}"}
        done = subprocess.run(words, cwd=ROOT, check=False, env=environment)
        assert done.returncode == 0, line

    def start(self, line, words):
        """It stays in the background if the page says so."""
        if words[0] == "nsqfast-nsqd":
            named = re.findall(r"-address=127\.0\.0\.1:(\d+)", line)
            words = [re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:0", word) for word in words]
            tool = Tool([*program("nsqd", "nsqfast"), *words[1:]])
            self.running.append(tool)
            tool.wait_for(lambda tool: len(LISTENING.findall(tool.err)) == 2)
            found = dict(LISTENING.findall(tool.err))
            self.places |= dict(zip(named, (int(found[b"TCP"]), int(found[b"HTTP"])), strict=True))
            return
        assert line.endswith("&")
        module = {"nsqfast-nsq-spool": "spark.receiver", "nsqfast-nsq-to-file": "tools.nsq_to_file"}
        tool = Tool([sys.executable, "-m", f"nsqfast.{module[words[0]]}.main", *words[1:]])
        self.running.append(tool)
        tool.wait_for(lambda tool: b"subscribed" in tool.err)

    def end_archive(self):
        """Its file has its name once it is ended; on the page an hour passes."""
        http = ("127.0.0.1", self.places["4151"])

        def is_written():
            # What is on its way to the tool at its end goes back to the queue, so an empty queue does not suffice.
            channel = topic_stats(http, "orders")["channels"]["archive"]
            return channel["depth"] + channel["in_flight_count"] == 0

        eventually(is_written, 60)  # it syncs every 30 s
        (tool,) = [
            one for one in self.running if "nsqfast.tools.nsq_to_file.main" in one.process.args
        ]
        assert tool.end() == 0, tool.text

    def close(self):
        for tool in self.running:
            tool.kill()


@pytest.fixture
def reader(tmp_path, spark):
    one = Reader(tmp_path, spark)
    yield one
    one.close()


@pytest.mark.soak
def test_the_page_from_top_to_bottom(reader):
    blocks = BLOCK.findall(TEXT)
    assert len(blocks) > 10
    for kind, text in blocks:
        reader.do(kind, text)
    lake = reader.spark.read.parquet(str(reader.folder / "data" / "lake"))
    assert lake.count() >= 100_000
    assert (
        reader.spark.read.parquet(str(reader.folder / "data" / "from-archives")).count() >= 50_000
    )
    cluster = reader.spark.read.parquet(str(reader.folder / "data" / "lake-cluster"))
    assert cluster.count() >= 20_000
