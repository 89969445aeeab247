"""Print and finish messages until Ctrl-C: `python examples/consume.py TOPIC CHANNEL [HOST [PORT]]`."""

import contextlib
import sys

from nsqfast.client import Config
from nsqfast.client.sync import Consumer


def main(topic: str, channel: str, host: str = "127.0.0.1", port: str = "4150") -> None:
    config = Config(max_in_flight=100)
    with Consumer(topic, channel, nsqd=f"{host}:{port}", config=config) as consumer:
        for message in consumer:
            print(message.body.decode(errors="replace"), flush=True)
            # Only now: a message whose work broke off is delivered again.
            message.finish()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main(*sys.argv[1:])
