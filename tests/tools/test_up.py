"""`make up` and `make up ARGS=--demo-cluster`: everything runs, the page is where it says, Ctrl-C ends all of it."""

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from urllib.parse import quote

import pytest

pytestmark = pytest.mark.slow

START_S, ANSWER_S, STOP_S = 40.0, 10.0, 30.0


class Up:
    """What was started, and where its page is."""

    def __init__(self, folder, *flags):
        command = [sys.executable, "-m", "nsqfast.dev.demo", "--free-ports", *flags]
        self.process = subprocess.Popen(
            command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.told = ""

    def __enter__(self):
        while not (found := re.search(r"The page: (http://127\.0\.0\.1:\d+)", self.told)):
            line = self.process.stdout.readline()
            assert line, self.process.communicate()[1]
            self.told += line
        self.url = found[1]
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.terminate()
        self.process.communicate()

    def get(self, path):
        with urllib.request.urlopen(self.url + path, timeout=ANSWER_S) as answer:
            return answer.read().decode()

    def wait_for(self, view, reached):
        """The View of a page once it is as wanted; its topic or channel may be made meanwhile."""
        ends_at = time.monotonic() + START_S
        while True:
            try:
                answer = json.loads(self.get(f"/ui/live?view={quote(view, safe='')}&since=-"))
            except urllib.error.HTTPError as error:
                assert error.code == 404, error
                answer = error.code
            else:
                if reached(answer):
                    return answer
            assert time.monotonic() < ends_at, answer
            time.sleep(0.1)

    def interrupt(self):
        """Ctrl-C; the exit status, and what was written to stderr."""
        children = children_of(self.process.pid)
        self.process.send_signal(signal.SIGINT)
        told, log = self.process.communicate(timeout=STOP_S)
        self.told += told
        assert not [pid for pid in children if os.path.exists(f"/proc/{pid}")]
        return self.process.returncode, log


def children_of(pid):
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return [int(word) for word in file.read().split()]


def rows_of(answer, table):
    return {row["key"]: row for row in answer["tables"][table]["rows"]}


def words_of(row):
    return [
        chip["word"]
        for cell in row["cells"]
        if isinstance(cell, dict)
        for chip in cell.get("chips", [])
    ]


def test_up_starts_all_three_and_says_where_the_page_is(tmp_path):
    with Up(tmp_path) as up:
        assert "<h1" in up.get("/")
        port = re.search(r"HTTP on port (\d+)", up.told)[1]
        urllib.request.urlopen(
            f"http://127.0.0.1:{port}/pub?topic=t", data=b"hello", timeout=ANSWER_S
        ).close()
        up.wait_for("/topics", lambda answer: "t" in rows_of(answer, "topics"))
        status, log = up.interrupt()
    assert status == 0, log
    assert (tmp_path / "data" / "nsqd.dat").exists()
    assert "Traceback" not in log


def test_up_says_what_does_not_start_and_leaves_nothing_running(tmp_path):
    command = [sys.executable, "-m", "nsqfast.dev.demo", "--free-ports", "--no-such-flag"]
    ended = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == 1
    assert "demo: nsqfast-nsqd did not start:\nflag provided but not defined" in ended.stderr


def test_up_ends_when_a_daemon_does(tmp_path):
    with Up(tmp_path) as up:
        os.kill(children_of(up.process.pid)[1], signal.SIGKILL)
        _, log = up.process.communicate(timeout=STOP_S)
    assert up.process.returncode == 1
    assert "demo: nsqfast-nsqd ended with -9" in log


def test_the_demo_cluster_has_what_the_page_is_to_show(tmp_path):
    with Up(tmp_path, "--demo-cluster") as up:
        wanted = {"orders", "clicks", "payments", "emails", "reports", "invoices"}
        answer = up.wait_for(
            "/topics",
            lambda answer: (
                set(rows_of(answer, "topics")) == wanted
                and "no consumers" in words_of(rows_of(answer, "topics")["emails"])
                and "channel paused" in words_of(rows_of(answer, "topics")["invoices"])
            ),
        )
        assert answer["texts"]["topics.total"] == "6"
        up.wait_for("/nodes", lambda answer: len(rows_of(answer, "nodes")) == 2)
        up.wait_for("/topics/reports/nightly", lambda answer: answer["texts"]["deferred"] == "200")
        up.wait_for("/topics/payments/ledger", lambda answer: answer["texts"]["in_flight"] != "0")
        up.wait_for(
            "/topics/orders/billing",
            lambda answer: re.search(r"finished [1-9]", answer["texts"]["state-line"]),
        )
        up.wait_for("/problems", lambda answer: rows_of(answer, "problems"))
        status, log = up.interrupt()
    assert status == 0, log
    assert up.told.endswith("demo: all stopped\n")
    assert "Traceback" not in log
