"""docs/SPARK.md: its commands and its Python, in their order."""

from __future__ import annotations

import collections
import contextlib
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from support.ports import hold_port
from support.server import ROOT
from support.spark_home import JVM_S_MAX
from support.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

TEXT = (ROOT / "docs" / "SPARK.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```(sh|python)\n(.*?)^```", re.DOTALL | re.MULTILINE)
BIN = Path(sys.executable).parent


class Reader:
    """Types what the page says into a shell and into Python, with a folder and ports of its own for those it names."""

    def __init__(self, folder, spark):
        self.folder = folder
        self.spark = spark
        self.ports = collections.defaultdict(hold_port)
        self.blocks = 0  # of the shell
        self.names = {"__name__": "page"}
        (folder / "data").mkdir()
        environment = os.environ | {"PATH": f"{BIN}:{os.environ['PATH']}"}
        self.said = folder / "said"
        with self.said.open("wb") as said:
            self.shell = subprocess.Popen(
                ["bash", "-e"],
                stdin=subprocess.PIPE,
                stdout=said,
                stderr=subprocess.STDOUT,
                cwd=ROOT,
                env=environment,
                start_new_session=True,
            )

    def translated(self, text):
        text = re.sub(r"(?<=127.0.0.1:)\d+\b", lambda port: str(self.ports[port[0]]), text)
        return re.sub(r"(?<![\w.])/data/", f"{self.folder}/data/", text)

    def do(self, kind, text):
        if kind == "python":
            exec(compile(self.translated(text), "docs/SPARK.md", "exec"), self.names)
            return
        self.blocks += 1
        done = f"<block {self.blocks} is done>"
        self.shell.stdin.write(f"{self.translated(text)}\necho '{done}'\n".encode())
        self.shell.stdin.flush()
        eventually(lambda: self.has_said(done), JVM_S_MAX)
        if "nsqfast-nsqd " in text:
            eventually(lambda: self.has_said("TCP: listening"), JVM_S_MAX)

    def has_said(self, text):
        said = self.said.read_text(encoding="utf-8", errors="replace")
        assert self.shell.poll() is None, said[-3000:]
        return text in said

    def close(self):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.shell.pid, signal.SIGKILL)
        self.shell.communicate()


@pytest.fixture
def reader(tmp_path, spark):
    one = Reader(tmp_path, spark)
    yield one
    one.close()


@pytest.mark.soak
def test_the_page_from_top_to_bottom(reader, tell):
    blocks = BLOCK.findall(TEXT)
    assert len(blocks) > 10
    for kind, text in blocks:
        tell(text.splitlines()[0])
        reader.do(kind, text)
    found = {
        name: reader.spark.read.parquet(f"{reader.folder}/data/{name}").count()
        for name in ("lake", "nightly", "native", "from-archives", "lake-cluster")
    }
    assert found["lake"] == 100_000
    assert found["nightly"] == 101_000
    assert found["native"] == 50_000
    assert found["from-archives"] >= 50_000
    assert found["lake-cluster"] >= 20_000
    taken = sum(progress["numInputRows"] for progress in reader.names["query"].recentProgress)
    assert taken == 100_000
