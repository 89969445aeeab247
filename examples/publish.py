"""Publish the lines of standard input, until its end or Ctrl-D.

python examples/publish.py [TOPIC] [--nsqd HOST:PORT] < FILE
"""

import sys

import arguments
from nsqfast.client.sync import Producer


def main() -> None:
    given = arguments.Parser(__doc__, topic="test").parse()
    with Producer(*given.nsqd) as producer:
        for line in sys.stdin.buffer:
            if body := line.rstrip(b"\r\n"):
                producer.send(given.topic, body)  # on its way
        producer.flush()  # nsqd has all of them, or this raises
        print(f"messages published to {given.topic}: {producer.stats().published}")


if __name__ == "__main__":
    main()
