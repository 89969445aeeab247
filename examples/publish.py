"""Publish the lines of standard input: `python examples/publish.py TOPIC [HOST [PORT]] < file`."""

import sys

from nsqfast.tools.wire import Connection


def main(topic: str, host: str = "127.0.0.1", port: str = "4150") -> None:
    with Connection(host, int(port)) as connection:
        for line in sys.stdin.buffer:
            if body := line.rstrip(b"\r\n"):
                connection.publish(topic, body)


if __name__ == "__main__":
    main(*sys.argv[1:])
