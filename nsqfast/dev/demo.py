"""A first look, which is what `make up` runs:

    python -m nsqfast.dev.demo [--nsqd-only | --demo | --demo-cluster] [FLAG OF nsqfast-nsqd ...]

It starts nsqfast-nsqlookupd, nsqfast-nsqd with its data in ./data, and nsqfast-nsqadmin, all on the default ports,
prints the address of the page and how to publish and consume, and runs until Ctrl-C. nsqadmin listens only on this
machine, because it requires no password. --nsqd-only starts only the broker.

With --demo it starts a broker on free ports and a temporary folder, sends messages through it over HTTP and TCP, prints
both ends and stops it. --demo-cluster is nsqfast.dev.demo_cluster.
"""

import sys
import tempfile
import urllib.request
from collections.abc import Sequence
from pathlib import Path

from nsqfast.client.sync import Consumer, Producer
from nsqfast.dev import demo_cluster
from nsqfast.dev.daemons import DemoError, Fleet, start_broker
from nsqfast.errors import NsqfastError

TOPIC, CHANNEL = "demo", "printer"
OVER_HTTP = [b"one over HTTP", b"two over HTTP", b"three over HTTP"]
OVER_TCP = [b"four over TCP", b"five over TCP", b"six over TCP"]

ANSWER_TIMEOUT_S = 10.0

LOOK = """
The page: http://127.0.0.1:{admin}
"""
HELP = """
nsqfast-nsqd is running: TCP on port {TCP}, HTTP on port {HTTP}. Ctrl-C stops it.

  publish   curl -d 'hello' 'http://127.0.0.1:{HTTP}/pub?topic=test'
  consume   .venv/bin/python examples/consume.py test printer --nsqd=127.0.0.1:{TCP}
  look      curl 'http://127.0.0.1:{HTTP}/stats'
"""
# Listening addresses of nsqlookupd and nsqadmin with --free-ports, which tests use: any free port.
DEFAULT_PORTS = (4160, 4161, 4171)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one of them; returns the exit status."""
    flags = list(sys.argv[1:] if arguments is None else arguments)
    try:
        if "--demo" in flags:
            demonstrate([flag for flag in flags if flag != "--demo"])
        elif "--demo-cluster" in flags:
            demo_cluster.run([flag for flag in flags if flag != "--demo-cluster"])
        else:
            serve(flags)
    except (DemoError, NsqfastError, OSError) as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    return 0


def serve(flags: list[str]) -> None:
    """Run the daemons until one ends or they are told to stop."""
    is_alone = "--nsqd-only" in flags
    is_anywhere = "--free-ports" in flags
    flags = [flag for flag in flags if flag not in ("--nsqd-only", "--free-ports")]
    if is_anywhere:
        flags = ["--tcp-address=127.0.0.1:0", "--http-address=127.0.0.1:0", *flags]
    tcp, http, admin = (0, 0, 0) if is_anywhere else DEFAULT_PORTS
    if not has_flag(flags, "data-path"):
        Path("data").mkdir(exist_ok=True)
        flags = ["--data-path=data", *flags]
    with Fleet(echo=True) as fleet:
        if is_alone:
            nsqd = fleet.start("nsqd", *flags)
            print(HELP.format_map(nsqd.ports), flush=True)
        else:
            lookupd = fleet.start(
                "nsqlookupd", f"--tcp-address=127.0.0.1:{tcp}", f"--http-address=127.0.0.1:{http}"
            )
            if not has_flag(flags, "broadcast-address"):
                # nsqadmin asks nsqd at its announced address, which may be a name that does not resolve.
                flags = ["--broadcast-address=127.0.0.1", *flags]
            known = f"--lookupd-tcp-address=127.0.0.1:{lookupd.ports['TCP']}"
            nsqd = fleet.start("nsqd", known, *flags)
            page = start_admin(fleet, admin, lookupd.ports["HTTP"])
            print(HELP.format_map(nsqd.ports) + LOOK.format(admin=page), flush=True)
        fleet.ended.wait()
        fleet.check()


def start_admin(fleet: Fleet, port: int, lookupd_port: int) -> int:
    """Start nsqadmin; returns the port of the page."""
    admin = fleet.start(
        "nsqadmin",
        f"--http-address=127.0.0.1:{port}",
        f"--lookupd-http-address=127.0.0.1:{lookupd_port}",
    )
    return admin.ports["HTTP"]


def has_flag(flags: Sequence[str], name: str) -> bool:
    """Whether the flag is given, with one hyphen or two."""
    return any(flag.lstrip("-").partition("=")[0] == name for flag in flags)


def demonstrate(flags: list[str]) -> None:
    """Messages in over HTTP and TCP, out over TCP, every one of them checked."""
    with tempfile.TemporaryDirectory(prefix="nsqfast-demo-") as folder:
        daemon = start_broker(Path(folder), flags)
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
    """One POST for each."""
    for body in OVER_HTTP:
        url = f"http://127.0.0.1:{port}/pub?topic={TOPIC}"
        with urllib.request.urlopen(url, data=body, timeout=ANSWER_TIMEOUT_S) as answer:
            print(f"in   POST /pub   {body.decode():<16} -> {answer.read().decode()}")


def publish_over_tcp(port: int) -> None:
    """The first by itself, the others in one MPUB."""
    with Producer(f"127.0.0.1:{port}") as producer:
        producer.publish(TOPIC, OVER_TCP[0])
        print(f"in   PUB         {OVER_TCP[0].decode():<16} -> OK")
        producer.publish_many(TOPIC, OVER_TCP[1:])
        print(f"in   MPUB        {b', '.join(OVER_TCP[1:]).decode()} -> OK")


def consume(port: int) -> None:
    """Receive and finish all of them."""
    expected = OVER_HTTP + OVER_TCP
    with Consumer(TOPIC, CHANNEL, nsqd=f"127.0.0.1:{port}") as consumer:
        for body in expected:
            message = consumer.get(ANSWER_TIMEOUT_S)
            if message is None or message.body != body:
                raise DemoError(f"expected {body.decode()!r}, got {message!r}")
            message.finish()
            print(f"out  {message.id.decode()}  attempt {message.attempts}  {body.decode()}")


if __name__ == "__main__":
    sys.exit(main())
