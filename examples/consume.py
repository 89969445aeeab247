"""Print and finish messages until Ctrl-C: `python examples/consume.py TOPIC CHANNEL [HOST [PORT]]`."""

import contextlib
import sys

from nsqfast.tools.wire import Connection


def main(topic: str, channel: str, host: str = "127.0.0.1", port: str = "4150") -> None:
    with Connection(host, int(port)) as connection:
        connection.subscribe(topic, channel, ready_count=100)
        while True:
            message = connection.receive()
            print(message.body.decode(errors="replace"), flush=True)
            # Only now: a message whose work broke off is delivered again.
            connection.finish(message)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main(*sys.argv[1:])
