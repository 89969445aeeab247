"""A receiver as a child process: it ends with its standard input, so it never outlives its parent.

child = ReceiverChild(ReceiverSettings(spool=Path("/spool"), channel="spark", topics=("orders",),
                                       nsqd_tcp_addresses=("127.0.0.1:4150",)))
child.start()
...
child.check()           # ReceiverError, if it has ended
child.stop()            # seals and finishes what it has received
"""

import collections
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from nsqfast.errors import NsqfastError

MODULE = "nsqfast.spark.receiver.main"
# A child reads its client's settings from here: command lines are visible to everybody, and these contain secrets.
CLIENT_OPTIONS_VARIABLE = "NSQFAST_CONSUMER_OPT"
LINES_MAX = 50
LINE_SIZE_MAX = 10_000
STOP_TIMEOUT_S = 15.0
KILL_TIMEOUT_S = 5.0  # for the kernel to end a killed process
DRAIN_GRACE_S = 30.0  # to start, and to end in order


class ReceiverError(NsqfastError):
    """The receiver could not start, or has ended; the line says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiverSettings:
    """The settings of nsqfast-nsq-spool. None: its own default.

    `topics` or `topic_pattern`; `nsqd_tcp_addresses` or `lookupd_http_addresses`. `consumer_options` are `key,value` of
    the client's settings.
    """

    spool: Path
    channel: str
    receiver: str = "r0"
    topics: tuple[str, ...] = ()
    topic_pattern: str = ""
    nsqd_tcp_addresses: tuple[str, ...] = ()
    lookupd_http_addresses: tuple[str, ...] = ()
    consumer_options: tuple[str, ...] = ()
    max_in_flight: int | None = None
    max_spool_bytes: int | None = None
    min_free_bytes: int | None = None
    retention_s: float | None = None
    seal_interval_s: float | None = None
    metrics_address: str = ""
    tells_deaths: bool = False
    checkpoint: Path | None = None  # of a query over Spark's file source, which reads Parquet

    def words(self) -> list[str]:
        """The flags, except those that may contain secrets: see `environment`."""
        words = [
            f"--spool={self.spool}",
            f"--channel={self.channel}",
            f"--receiver={self.receiver}",
            *(f"--topic={topic}" for topic in self.topics),
            *(f"--nsqd-tcp-address={address}" for address in self.nsqd_tcp_addresses),
            *(f"--lookupd-http-address={address}" for address in self.lookupd_http_addresses),
        ]
        if self.checkpoint is not None:
            words += ["--segment-format=parquet", f"--checkpoint={self.checkpoint}"]
        if self.tells_deaths:
            words.append("--deaths")
        for name, value in (
            ("topic-pattern", self.topic_pattern or None),
            ("max-in-flight", self.max_in_flight),
            ("max-spool-bytes", self.max_spool_bytes),
            ("min-free-bytes", self.min_free_bytes),
            ("retention", _duration(self.retention_s)),
            ("seal-interval", _duration(self.seal_interval_s)),
            ("metrics-address", self.metrics_address or None),
        ):
            if value is not None:
                words.append(f"--{name}={value}")
        return words

    def environment(self) -> dict[str, str]:
        """The child's: this process's, with its module paths and the client's settings."""
        paths = [str(Path(path).absolute()) for path in sys.path if path]
        return os.environ | {
            "PYTHONPATH": os.pathsep.join(paths),
            CLIENT_OPTIONS_VARIABLE: "\n".join(self.consumer_options),
        }


def _duration(value_s: float | None) -> str | None:
    return None if value_s is None else f"{round(value_s * 1000)}ms"


def _print_line(line: str) -> None:
    sys.stderr.write(f"{line}\n")


class ReceiverChild:
    """One process at a time, from `start` to `stop`, or from `drain` to its end. Any thread may use it, one at a time.

    `on_line` is called in another thread with each line that the child logs; by default lines go to this process's
    standard error.
    """

    def __init__(
        self, settings: ReceiverSettings, on_line: Callable[[str], object] = _print_line
    ) -> None:
        self.settings = settings
        self._on_line = on_line
        self._process: subprocess.Popen[bytes] | None = None
        self._reader: threading.Thread | None = None
        self._lines: collections.deque[str] = collections.deque(maxlen=LINES_MAX)

    # -- state

    @property
    def is_alive(self) -> bool:
        """Whether it was started and has not ended."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int | None:
        """The process id, even after its end; None before the first start."""
        return None if self._process is None else self._process.pid

    @property
    def returncode(self) -> int | None:
        """How it ended (-9: killed); None while it runs, or was not started."""
        return None if self._process is None else self._process.poll()

    @property
    def last_lines(self) -> list[str]:
        """Its last log lines, oldest first."""
        return list(self._lines)

    def check(self) -> None:
        """ReceiverError unless it is alive."""
        if self.is_alive:
            return
        if self._process is None:
            raise ReceiverError("the receiver was not started")
        self._join_reader()
        raise self._failure()

    def _failure(self) -> ReceiverError:
        status = self.returncode
        how = f"was killed by signal {-status}" if status and status < 0 else f"ended ({status})"
        last = self._lines[-1] if self._lines else "it said nothing"
        return ReceiverError(f"receiver {self.settings.receiver} {how}: {last}")

    # -- beginning and end

    def start(self) -> None:
        """Run one until `stop`. `check` reports, a little later, what prevents it from working."""
        self._spawn([])

    def restart(self) -> None:
        """End it if it is alive, and start another one."""
        self.stop()
        self.start()

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> int | None:
        """Let it seal and finish what it received; kill it after so long. Return how it ended, None if never begun."""
        process = self._process
        if process is None:
            return None
        self._close_input(process)
        try:
            process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            # Unfinished messages come again after their timeout.
            process.kill()
            process.wait(KILL_TIMEOUT_S)
        self._join_reader()
        return process.returncode

    def drain(self, idle_s: float = 2.0, timeout_s: float = 600.0) -> None:
        """Run one until it has received what was published before the start; ReceiverError if it fails.

        It ends when none of that came for `idle_s`, when the spool is full, and at the latest after `timeout_s`.
        """
        words = ["--drain", f"--drain-idle={_duration(idle_s)}"]
        self._spawn([*words, f"--drain-timeout={_duration(timeout_s)}"])
        assert self._process is not None
        try:
            self._process.wait(timeout_s + idle_s + DRAIN_GRACE_S)
        except subprocess.TimeoutExpired:
            pass
        finally:
            self.stop()
        if self.returncode != 0:
            raise self._failure()

    def _spawn(self, more: list[str]) -> None:
        if self.is_alive:
            raise ReceiverError(f"receiver {self.settings.receiver} runs already")
        self.stop()
        self._lines.clear()
        # -P: import no module from the current folder.
        command = [sys.executable, "-P", "-m", MODULE, "--until-eof", *self.settings.words(), *more]
        self._process = subprocess.Popen(  # noqa: S603 - our own program
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=self.settings.environment(),
            # The parent handles Ctrl-C in a terminal, and then stops it in order.
            process_group=0,
        )
        self._reader = threading.Thread(
            target=self._read_lines, args=(self._process,), daemon=True, name="nsqfast: receiver"
        )
        self._reader.start()

    def _read_lines(self, process: "subprocess.Popen[bytes]") -> None:
        assert process.stderr is not None
        with process.stderr as pipe:
            while raw := pipe.readline(LINE_SIZE_MAX):
                line = raw.decode("utf-8", "replace").rstrip("\n")
                self._lines.append(line)
                self._on_line(line)

    def _close_input(self, process: "subprocess.Popen[bytes]") -> None:
        assert process.stdin is not None
        process.stdin.close()

    def _join_reader(self) -> None:
        if self._reader is not None:
            self._reader.join(KILL_TIMEOUT_S)
