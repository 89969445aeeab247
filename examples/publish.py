"""Publish the lines of standard input: `python examples/publish.py TOPIC [HOST [PORT]] < file`."""

import sys

from nsqfast.client.sync import Producer


def main(topic: str, host: str = "127.0.0.1", port: str = "4150") -> None:
    with Producer(f"{host}:{port}") as producer:
        for line in sys.stdin.buffer:
            if body := line.rstrip(b"\r\n"):
                # On its way; leaving the `with` waits until nsqd has all of them, and raises if it has not.
                producer.send(topic, body)


if __name__ == "__main__":
    main(*sys.argv[1:])
