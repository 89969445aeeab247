"""Print messages and finish them, until Ctrl-C.

python examples/consume.py [TOPIC [CHANNEL]] [--nsqd HOST:PORT] [--nsqlookupd HOST:PORT] [--count N]
"""

import sys

import arguments
from nsqfast.client import Config
from nsqfast.client.sync import Consumer


def main() -> None:
    parser = arguments.Parser(__doc__, topic="test", channel="printer")
    parser.add_count()
    given = parser.parse()
    consumer = Consumer(
        given.topic,
        given.channel,
        nsqd=given.nsqd,
        nsqlookupd=given.nsqlookupd,
        config=Config(max_in_flight=100),
    )
    arguments.stop_at_signals(consumer)
    with consumer:
        for number, message in enumerate(consumer, 1):
            print(message.body.decode(errors="replace"), flush=True)
            # Only now: a message whose work broke off is delivered again.
            message.finish()
            if number == given.count:
                break
    print("messages finished:", consumer.stats().finished, file=sys.stderr)


if __name__ == "__main__":
    main()
