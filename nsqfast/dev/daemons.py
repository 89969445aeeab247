"""NSQ's daemons as children of a demonstration: start them, read their logs until they listen, stop them cleanly."""

import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self

START_TIMEOUT_S = 20.0
STOP_TIMEOUT_S = 20.0
LISTENERS = {"nsqd": 2, "nsqlookupd": 2, "nsqadmin": 1}
LOG_LINES_MAX = 1000

_LISTENING = re.compile(r"(TCP|HTTP): listening on \S+:(\d+)")


class DemoError(Exception):
    """An error, worded for a person."""


class Daemon:
    """One of our daemons; `ports` are its real ports, `log` its first log lines.

    Ctrl-C does not reach it directly, so its starter decides on the order of stopping. With `echo` its log goes to
    stderr as well. `on_end` is called in another thread when it ends.
    """

    def __init__(
        self,
        name: str,
        flags: Sequence[str],
        *,
        echo: bool = False,
        on_end: Callable[[], None] | None = None,
    ) -> None:
        self.name = f"nsqfast-{name}"
        self.ports: dict[str, int] = {}
        self.log: list[str] = []
        self._wanted = LISTENERS[name]
        self._echo = echo
        self._on_end = on_end
        self._listening = threading.Event()
        command = [sys.executable, "-m", f"nsqfast.{name}.main", *flags]
        self._process = subprocess.Popen(  # noqa: S603
            command,
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            process_group=0,
        )
        self._reader = threading.Thread(target=self._read_log)
        self._reader.start()

    def wait_until_listening(self) -> None:
        """Return when all ports are known; an error if the daemon dies first."""
        self._listening.wait(START_TIMEOUT_S)
        if len(self.ports) < self._wanted:
            raise DemoError(f"{self.name} did not start:\n" + "".join(self.log).rstrip("\n"))

    @property
    def status(self) -> int | None:
        """The exit status; None while it runs."""
        return self._process.poll()

    def stop(self) -> int:
        """Ask it to shut down; returns its exit status."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        try:
            return self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()
        finally:
            self._reader.join()
            if self._process.stderr:
                self._process.stderr.close()

    def _read_log(self) -> None:
        for line in self._process.stderr or ():
            if len(self.log) < LOG_LINES_MAX:
                self.log.append(line)
            if self._echo:
                sys.stderr.write(line)
            if not self._listening.is_set():
                self._note_port(line)
        self._process.wait()
        self._listening.set()
        if self._on_end is not None:
            self._on_end()

    def _note_port(self, line: str) -> None:
        found = _LISTENING.search(line)
        if found:
            self.ports[found[1]] = int(found[2])
            # Not before all of them: a port in use may still end the daemon.
            if len(self.ports) == self._wanted:
                self._listening.set()


class Fleet:
    """Several daemons, stopped in reverse order. Inside `with`, SIGINT and SIGTERM only set `ended`."""

    def __init__(self, *, echo: bool = False) -> None:
        self.daemons: list[Daemon] = []
        self.ended = threading.Event()
        self._echo = echo
        self._handlers: dict[int, object] = {}

    def start(self, name: str, *flags: str) -> Daemon:
        """Start a daemon; returns when it listens."""
        daemon = Daemon(name, flags, echo=self._echo, on_end=self.ended.set)
        self.daemons.append(daemon)
        daemon.wait_until_listening()
        return daemon

    def check(self) -> None:
        """DemoError if one of them has ended by itself."""
        for daemon in self.daemons:
            if daemon.status is not None:
                last = "".join(daemon.log[-3:]).rstrip("\n")
                raise DemoError(f"{daemon.name} ended with {daemon.status}:\n{last}")

    def __enter__(self) -> Self:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            self._handlers[number] = signal.signal(number, lambda *_: self.ended.set())
        return self

    def __exit__(self, *_: object) -> None:
        try:
            for daemon in reversed(self.daemons):
                daemon.stop()
        finally:
            for number, handler in self._handlers.items():
                signal.signal(number, handler)  # type: ignore[arg-type]


def start_broker(data_path: Path, flags: Sequence[str]) -> Daemon:
    """An nsqfast-nsqd on free ports of this machine."""
    addresses = ["--tcp-address=127.0.0.1:0", "--http-address=127.0.0.1:0"]
    return Daemon("nsqd", [*addresses, f"--data-path={data_path}", *flags])
