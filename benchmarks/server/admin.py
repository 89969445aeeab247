"""An nsqadmin under test, and who asks it."""

from __future__ import annotations

import http.client
import re
import subprocess
import threading
import time
from typing import TYPE_CHECKING, Self

from server.implementation import ROOT, Implementation
from server.usage import cpu_ns

if TYPE_CHECKING:
    from collections.abc import Sequence

STOP_SECONDS_MAX = 60.0
TIMEOUT_SECONDS = 300.0
LISTENING = re.compile(rb"HTTP: listening on (\S+:\d+)")
# A node that is slow because all of them are asked at once shall not make an answer cheap.
PATIENCE = ("--http-client-request-timeout=5m", "--http-client-connect-timeout=1m")


class Admin:
    """Started by its constructor and serving when that returns."""

    def __init__(self, implementation: Implementation, flags: Sequence[str]) -> None:
        self.name = implementation.name
        command = [*implementation.command, "--http-address=127.0.0.1:0", *PATIENCE, *flags]
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, cwd=ROOT
        )
        self.pid = self._process.pid
        assert self._process.stderr is not None
        for line in self._process.stderr:
            if found := LISTENING.search(line):
                self.http = found[1].decode()
                break
        else:
            raise RuntimeError(f"{self.name} did not start")
        # A pipe that nobody reads would stop it at its next lines.
        self._reader = threading.Thread(target=self._process.stderr.read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(STOP_SECONDS_MAX)
        self._reader.join()
        assert self._process.stderr is not None
        self._process.stderr.close()

    def ask(self, path: str, connections: int, seconds: float) -> dict[str, float]:
        """Requests one after the other on each connection; each is asked once at least."""
        taken_ns: list[int] = []
        deadline = time.monotonic() + seconds

        def ask_again() -> None:
            connection = http.client.HTTPConnection(self.http, timeout=TIMEOUT_SECONDS)
            while True:
                begun_ns = time.monotonic_ns()
                connection.request("GET", path)
                answer = connection.getresponse()
                body = answer.read()
                if answer.status != 200 or not body.endswith(b'"message":""}'):
                    raise RuntimeError(f"{self.name} {path}: {answer.status} {body[-200:]!r}")
                taken_ns.append(time.monotonic_ns() - begun_ns)
                if time.monotonic() > deadline:
                    break
            connection.close()

        begun_ns, cpu_before_ns = time.monotonic_ns(), cpu_ns(self.pid)
        threads = [threading.Thread(target=ask_again) for _ in range(connections)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        spent_ns, passed_ns = cpu_ns(self.pid) - cpu_before_ns, time.monotonic_ns() - begun_ns
        taken_ns.sort()
        return {
            "rate": len(taken_ns) / passed_ns * 1e9,
            "p50_us": taken_ns[len(taken_ns) // 2] / 1e3,
            "broker_cpu_us": spent_ns / len(taken_ns) / 1e3,
        }
