"""A first look at the broker, which is what `make up` runs:

    python -m nsqfast.tools.demo [--demo] [FLAG OF nsqfast-nsqd ...]

Without --demo it starts nsqfast-nsqd on the default ports with its data in ./data, says how to
publish and consume, and stays until Ctrl-C. With --demo it starts one on free ports and a
temporary folder, sends messages through it over HTTP and TCP, prints both ends and stops it.
"""

import re
import signal
import subprocess
import sys
import tempfile
import threading
import urllib.request
from collections.abc import Sequence
from pathlib import Path

from nsqfast.tools.wire import Connection, WireError

TOPIC, CHANNEL = "demo", "printer"
OVER_HTTP = [b"one over HTTP", b"two over HTTP", b"three over HTTP"]
OVER_TCP = [b"four over TCP", b"five over TCP", b"six over TCP"]

START_TIMEOUT_S = 20.0
STOP_TIMEOUT_S = 20.0
ANSWER_TIMEOUT_S = 10.0

HELP = """
nsqfast-nsqd is running: TCP on port {TCP}, HTTP on port {HTTP}. Ctrl-C stops it.

  publish   curl -d 'hello' 'http://127.0.0.1:{HTTP}/pub?topic=test'
  consume   .venv/bin/python examples/consume.py test printer 127.0.0.1 {TCP}
  look      curl 'http://127.0.0.1:{HTTP}/stats'
"""

_LISTENING = re.compile(r"(TCP|HTTP): listening on \S+:(\d+)")


class DemoError(Exception):
    """What went wrong, for a person to read."""


class Daemon:
    """An nsqfast-nsqd of our own on free ports; `log` keeps what it wrote."""

    def __init__(self, data_path: Path, flags: list[str]) -> None:
        addresses = ["--tcp-address=127.0.0.1:0", "--http-address=127.0.0.1:0"]
        self._process = _spawn(*addresses, f"--data-path={data_path}", *flags)
        self.ports: dict[str, int] = {}
        self.log: list[str] = []
        self._listening = threading.Event()
        self._reader = threading.Thread(target=self._read_log)
        self._reader.start()

    def wait_until_listening(self) -> None:
        """Return when both ports are known; a daemon that died first is an error."""
        self._listening.wait(START_TIMEOUT_S)
        if len(self.ports) < 2:
            raise DemoError("nsqfast-nsqd did not start:\n" + "".join(self.log))

    def stop(self) -> int:
        """Ask it to shut down; the answer is its exit status."""
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
            self.log.append(line)
            if _note_port(line, self.ports) and len(self.ports) == 2:
                self._listening.set()
        self._listening.set()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one of the two; the result is the exit status."""
    flags = list(sys.argv[1:] if arguments is None else arguments)
    if "--demo" not in flags:
        return serve(flags)
    flags.remove("--demo")
    try:
        demonstrate(flags)
    except (DemoError, WireError, OSError) as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    return 0


def serve(flags: list[str]) -> int:
    """Run the daemon in the foreground until it is told to stop."""
    if not any(flag.lstrip("-").startswith("data-path") for flag in flags):
        Path("data").mkdir(exist_ok=True)
        flags = ["--data-path=data", *flags]
    process = _spawn(*flags)
    # Ctrl-C reaches the daemon by itself; a SIGTERM sent to us alone has to be passed on.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda number, _frame: process.send_signal(number))
    ports: dict[str, int] = {}
    with process:
        for line in process.stderr or ():
            sys.stderr.write(line)
            # Not before both: a port in use may still end the daemon.
            if len(ports) < 2 and _note_port(line, ports) and len(ports) == 2:
                print(HELP.format_map(ports), flush=True)
    return process.returncode


def demonstrate(flags: list[str]) -> None:
    """Messages in over HTTP and TCP, out over TCP, every one of them checked."""
    with tempfile.TemporaryDirectory(prefix="nsqfast-demo-") as folder:
        daemon = Daemon(Path(folder), flags)
        try:
            daemon.wait_until_listening()
            print(f"nsqfast-nsqd: TCP port {daemon.ports['TCP']}, HTTP port {daemon.ports['HTTP']}")
            publish_over_http(daemon.ports["HTTP"])
            publish_over_tcp(daemon.ports["TCP"])
            consume(daemon.ports["TCP"])
        finally:
            status = daemon.stop()
        if status:
            raise DemoError(f"nsqfast-nsqd ended with {status}:\n" + "".join(daemon.log))
    print("nsqfast-nsqd: stopped")


def publish_over_http(port: int) -> None:
    """One POST each."""
    for body in OVER_HTTP:
        url = f"http://127.0.0.1:{port}/pub?topic={TOPIC}"
        with urllib.request.urlopen(url, data=body, timeout=ANSWER_TIMEOUT_S) as answer:
            print(f"in   POST /pub   {body.decode():<16} -> {answer.read().decode()}")


def publish_over_tcp(port: int) -> None:
    """The first by itself, the others in one go."""
    with Connection("127.0.0.1", port, ANSWER_TIMEOUT_S) as connection:
        connection.publish(TOPIC, OVER_TCP[0])
        print(f"in   PUB         {OVER_TCP[0].decode():<16} -> OK")
        connection.publish_many(TOPIC, OVER_TCP[1:])
        print(f"in   MPUB        {b', '.join(OVER_TCP[1:]).decode()} -> OK")


def consume(port: int) -> None:
    """Take all of them and finish them."""
    with Connection("127.0.0.1", port, ANSWER_TIMEOUT_S) as connection:
        connection.subscribe(TOPIC, CHANNEL, ready_count=2)
        for expected in OVER_HTTP + OVER_TCP:
            message = connection.receive()
            connection.finish(message)
            print(
                f"out  {message.id.decode()}  attempt {message.attempts}  {message.body.decode()}"
            )
            if message.body != expected:
                raise DemoError(f"expected {expected.decode()!r}")


def _note_port(line: str, ports: dict[str, int]) -> bool:
    """Whether this line of the log says where the daemon listens."""
    found = _LISTENING.search(line)
    if found:
        ports[found[1]] = int(found[2])
    return found is not None


def _spawn(*flags: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "nsqfast.nsqd.main", *flags]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True)  # noqa: S603


if __name__ == "__main__":
    sys.exit(main())
