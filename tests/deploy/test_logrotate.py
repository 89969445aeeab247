"""deploy/logrotate, with the real logrotate: nothing that is logged or archived afterwards goes to the old file."""

import asyncio
import gzip
import re
import shutil
import signal
import subprocess
import sys

import pytest

from nsqfast.nsqadmin.access.audit import AuditFile
from support.deployed import FOLDER
from support.server import start_nsqd
from support.tools import Tool, await_handler, tool_command
from support.waiting import eventually
from support.wire import Client

CONFIG = FOLDER / "logrotate" / "nsqfast"
LOGROTATE = shutil.which("logrotate", path="/usr/sbin:/usr/bin:/sbin:/bin")
SECONDS_MAX = 50
pytestmark = pytest.mark.skipif(LOGROTATE is None, reason="it is missing: apt install logrotate")


class Logrotate:
    """The committed config, of one path alone, which stands for the folder of the test."""

    def __init__(self, folder, path, reload=":"):
        text = CONFIG.read_text(encoding="utf-8")
        (block,) = re.findall(rf"^{re.escape(path)} {{\n.*?^}}", text, re.MULTILINE | re.DOTALL)
        block = block.replace(path.rpartition("/")[0], str(folder), 1)
        # The users are those of the host to be.
        block = re.sub(r"^ *su .*\n", "", block, flags=re.MULTILINE)
        block = re.sub(r"^ *systemctl .*$", f"        {reload}", block, flags=re.MULTILINE)
        self._config = folder / "logrotate.conf"
        self._config.write_text(block + "\n", encoding="utf-8")
        self._config.chmod(0o644)

    def rotate(self):
        state = self._config.with_suffix(".state")
        command = [LOGROTATE, "--force", f"--state={state}", str(self._config)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")


def await_text(path, text):
    """What is in the file once it has this."""
    eventually(lambda: path.exists() and text in path.read_text(encoding="utf-8"))
    return path.read_text(encoding="utf-8")


def test_all_of_the_file_is_understood(tmp_path):
    config = tmp_path / "nsqfast"
    # The users are those of the host to be.
    text = re.sub(r"^ *su .*\n", "", CONFIG.read_text(encoding="utf-8"), flags=re.MULTILINE)
    config.write_text(text, encoding="utf-8")
    command = [LOGROTATE, "--debug", f"--state={tmp_path}/state", str(config)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, "error" in done.stderr) == (0, False), done.stderr
    assert "Handling 3 logs" in done.stderr


@pytest.mark.slow
def test_a_log_that_was_redirected(tmp_path):
    log = tmp_path / "nsqd.log"
    command = [sys.executable, "-m", "nsqfast.nsqd.main", f"--data-path={tmp_path}"]
    command += ["--tcp-address=127.0.0.1:0", "--http-address=127.0.0.1:0"]
    with log.open("ab") as file:
        daemon = subprocess.Popen(command, stderr=file, cwd=tmp_path)
    try:
        await_text(log, "HTTP: listening")
        await_handler(daemon)
        Logrotate(tmp_path, "/var/log/nsqfast/*.log").rotate()
        assert log.read_bytes() == b""
        daemon.send_signal(signal.SIGHUP)
        found = await_text(log, "SIGHUP")
        # No hole of zeros where the old lines were.
        assert re.fullmatch(r"\[nsqd\] .*SIGHUP: nothing to reload\n", found)
        with gzip.open(f"{log}.1.gz", "rt") as old:
            assert "HTTP: listening" in old.read()
    finally:
        daemon.terminate()
        assert daemon.wait(SECONDS_MAX) == 0


def test_an_audit_file(tmp_path):
    path = tmp_path / "audit.log"

    async def live():
        audit = AuditFile(str(path))
        audit.add(b"before\n")
        await audit.close(SECONDS_MAX)
        Logrotate(tmp_path, "/var/log/nsqadmin/audit.log").rotate()
        audit.add(b"after\n")
        await audit.close(SECONDS_MAX)

    asyncio.run(live())
    assert path.read_bytes() == b"after\n"
    assert (tmp_path / "audit.log.1").read_bytes() == b"before\n"
    assert path.stat().st_mode & 0o777 == 0o640


@pytest.mark.slow
def test_an_archive_of_a_fixed_name(tmp_path):
    data, archive = tmp_path / "data", tmp_path / "archive"
    data.mkdir()
    archive.mkdir()
    flags = ["--topic=t", "--filename-format=<TOPIC>.log", "--sync-interval=100ms"]
    with start_nsqd("nsqfast", data) as nsqd, Client(nsqd.tcp) as client:
        host, port = nsqd.tcp
        client.pub("t", b"before")
        source = f"--nsqd-tcp-address={host}:{port}"
        command = tool_command("nsq_to_file", "nsqfast", *flags, source, f"--output-dir={archive}")
        with Tool(command) as tool:
            log = archive / "t.log"
            await_text(log, "before\n")
            reload = f"kill -HUP {tool.process.pid}"
            Logrotate(archive, "/var/lib/nsq-to-file/*.log", reload).rotate()
            tool.wait_for(lambda tool: tool.err.count(b"opening") == 2)
            client.pub("t", b"after")
            assert await_text(log, "after\n") == "after\n"
            assert (archive / "t.log.1").read_text() == "before\n"
            assert tool.end() == 0
