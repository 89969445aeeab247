"""Functions that workers call, as with Celery.

python examples/tasks.py [worker [TOPIC]]    runs a worker, until SIGTERM or Ctrl-C
python examples/tasks.py add 2 3             has a worker add two numbers

A program says `from tasks import add` and `add.delay(2, 3)`. As it has no command line for us, the address of nsqd is
in the environment: NSQD=HOST:PORT, if it is not 127.0.0.1:4150.
"""

import argparse
import json
import logging
import os
from collections.abc import Callable
from typing import Generic, ParamSpec

from nsqfast.client.sync import Consumer, Message, Producer

P = ParamSpec("P")
NSQD = os.environ.get("NSQD", "127.0.0.1:4150")
producer = Producer(NSQD)  # connects at its first use, and anew in a process that was forked
functions: dict[str, Callable[..., object]] = {}


class Task(Generic[P]):
    def __init__(self, topic: str, function: Callable[P, object]) -> None:
        self.topic, self.name = topic, function.__name__
        functions[self.name] = function

    def delay(self, *args: P.args, **kwargs: P.kwargs) -> None:
        """Have a worker call the function. The arguments are what JSON knows; it returns when nsqd has them."""
        call = {"task": self.name, "args": args, "kwargs": kwargs}
        producer.publish(self.topic, json.dumps(call).encode())


def task(topic: str) -> Callable[[Callable[P, object]], Task[P]]:
    return lambda function: Task(topic, function)


@task("math")
def add(a: float, b: float) -> None:
    print(f"{a} + {b} = {a + b}", flush=True)


def perform(message: Message) -> None:
    """Its return finishes the message; an exception requeues it, to be tried five times in all."""
    call = json.loads(message.body)
    functions[call["task"]](*call["args"], **call["kwargs"])


def work(topic: str = "math") -> None:
    with Consumer(topic, "workers", nsqd=NSQD) as consumer:
        consumer.run(perform)  # at Ctrl-C the call that runs ends, and what waits is handed back
    print("calls finished:", consumer.stats().finished)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", nargs="?", choices=["worker", "add"], default="worker")
    parser.add_argument("given", nargs="*", metavar="TOPIC or numbers")
    asked = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    if asked.command == "worker":
        work(*asked.given)
    else:
        add.delay(*map(float, asked.given))
        print(f"published to {add.topic}: add({', '.join(asked.given)})")
